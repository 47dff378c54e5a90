//! A file's transfers, and its scans through a mapping into memory.
//!
//! The caller gives an open file, best one without a name: it leaves nothing behind, whatever ends the process.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use knee_random::Random;
use memmap2::{Mmap, MmapOptions};

/// Bytes that one write of [`fill`] takes.
const FILL_BYTES: usize = 1 << 20;

/// Direct transfers begin and end at multiples of this.
const PAGE_BYTES: usize = 4096;

#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE_BYTES]);

/// A kind of transfer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Bytes of each, a multiple of 4096.
    pub block_bytes: usize,
    /// Whether it writes.
    pub is_write: bool,
    /// Whether the next block is a random one, instead of the following one.
    pub is_random: bool,
    /// Whether it passes by the page cache (O_DIRECT).
    pub is_direct: bool,
    /// Whether `fdatasync` follows each.
    pub is_synced: bool,
}

/// One scan of a mapping, by the thread that calls.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Bytes read per second.
    pub bytes_per_s: f64,
    /// Page faults that found their page in memory.
    pub minor_faults: u64,
    /// Page faults that read from the disk.
    pub major_faults: u64,
}

/// Writes random bytes to the file and syncs it, for at most `seconds` until the sync. Returns the number of bytes.
///
/// # Errors
///
/// The disk is full or fails.
pub fn fill(file: &File, bytes: u64, seconds: f64, seed: u64) -> io::Result<u64> {
    let (limit, begun) = (Duration::from_secs_f64(seconds), Instant::now());
    let mut pages = random_pages(FILL_BYTES, seed);
    let mut written = 0;
    while written < bytes && (written == 0 || begun.elapsed() < limit) {
        stamp(&mut pages, written);
        file.write_all_at(bytes_of(&mut pages), written)?;
        written += FILL_BYTES as u64;
    }
    file.sync_all()?;
    Ok(written)
}

/// Whether direct transfers pass by the page cache. Some file systems refuse them; others take them, and use the cache.
///
/// # Errors
///
/// The disk fails, or the file is shorter than a page.
pub fn takes_direct(file: &File) -> io::Result<bool> {
    set_direct(file, false)?;
    drop_pages(file)?;
    // Some pages cannot be dropped. They show nothing.
    let was_cached = is_cached(file)?;
    let mut page = random_pages(PAGE_BYTES, 0);
    let read = set_direct(file, true).and_then(|()| file.read_exact_at(bytes_of(&mut page), 0));
    set_direct(file, false)?;
    match read {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(was_cached || !is_cached(file)?),
    }
}

/// Whether the page cache has the first page of a file.
fn is_cached(file: &File) -> io::Result<bool> {
    // SAFETY: nothing reads the mapping, so a shorter file does no harm.
    let mapped = unsafe { MmapOptions::new().len(PAGE_BYTES).map(file)? };
    let mut found = 0_u8;
    // SAFETY: the mapping has one page, for which the call writes one byte.
    let code = unsafe { libc::mincore(mapped.as_ptr().cast_mut().cast(), 1, &raw mut found) };
    if code == 0 { Ok(found & 1 == 1) } else { Err(io::Error::last_os_error()) }
}

/// Drops a file from the page cache, as far as it can be dropped.
fn drop_pages(file: &File) -> io::Result<()> {
    // Only clean pages are dropped.
    file.sync_data()?;
    // SAFETY: the call takes numbers only.
    let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// The transfers per second, within the first `bytes` of a file.
///
/// # Errors
///
/// The disk is full or fails, the file is shorter than a block, or its file system takes no direct transfers (EINVAL).
pub fn transfers_per_s(
    file: &File,
    bytes: u64,
    transfer: Transfer,
    seconds: f64,
    seed: u64,
) -> io::Result<f64> {
    let blocks = bytes / transfer.block_bytes.max(1) as u64;
    if blocks == 0 || !transfer.block_bytes.is_multiple_of(PAGE_BYTES) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut random = Random::stream(seed, 1);
    let mut pages = random_pages(transfer.block_bytes, seed);
    set_direct(file, transfer.is_direct)?;
    let (limit, begun) = (Duration::from_secs_f64(seconds), Instant::now());
    let mut done = 0_u64;
    while done == 0 || begun.elapsed() < limit {
        let block = if transfer.is_random { random.below(blocks) } else { done % blocks };
        let place = block * transfer.block_bytes as u64;
        if transfer.is_write {
            stamp(&mut pages, done);
            file.write_all_at(bytes_of(&mut pages), place)?;
        } else {
            file.read_exact_at(bytes_of(&mut pages), place)?;
        }
        if transfer.is_synced {
            file.sync_data()?;
        }
        done += 1;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

/// Scans the first `bytes` of a file twice through one new mapping. `from_disk` first drops its pages from the page
/// cache; else they are read into it.
///
/// # Errors
///
/// The disk fails, or the file is shorter.
pub fn scan_mapped(file: &File, bytes: usize, from_disk: bool) -> io::Result<[Scan; 2]> {
    set_direct(file, false)?;
    if from_disk {
        drop_pages(file)?;
    } else {
        let mut block = vec![0; FILL_BYTES];
        for place in (0..bytes).step_by(FILL_BYTES) {
            file.read_exact_at(&mut block[..FILL_BYTES.min(bytes - place)], place as u64)?;
        }
    }
    if file.metadata()?.len() < bytes as u64 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the file has these bytes, and the caller's file has no name by which another program could cut it.
    let mapped = unsafe { Mmap::map(file)? };
    Ok([scan(&mapped[..bytes])?, scan(&mapped[..bytes])?])
}

fn scan(bytes: &[u8]) -> io::Result<Scan> {
    let (before, begun) = (faults()?, Instant::now());
    let (words, _) = bytes.as_chunks();
    black_box(words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word))));
    let (elapsed, after) = (begun.elapsed(), faults()?);
    Ok(Scan {
        bytes_per_s: bytes.len() as f64 / elapsed.as_secs_f64(),
        minor_faults: after.0 - before.0,
        major_faults: after.1 - before.1,
    })
}

/// The minor and the major page faults of this thread.
fn faults() -> io::Result<(u64, u64)> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the structure, whose zeros are valid too.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        usage.assume_init()
    };
    Ok((usage.ru_minflt as u64, usage.ru_majflt as u64))
}

fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    // SAFETY: both calls take numbers only.
    let code = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        let flags = if is_direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that neither a disk nor a host can compress.
fn random_pages(bytes: usize, seed: u64) -> Vec<Page> {
    let mut random = Random::stream(seed, 0);
    let mut pages = vec![Page([0; PAGE_BYTES]); bytes.div_ceil(PAGE_BYTES)];
    for page in &mut pages {
        for word in page.0.chunks_exact_mut(size_of::<u64>()) {
            word.copy_from_slice(&random.bits().to_ne_bytes());
        }
    }
    pages
}

/// Makes each page differ from those written before.
fn stamp(pages: &mut [Page], number: u64) {
    for page in pages {
        page.0[..size_of::<u64>()].copy_from_slice(&number.to_ne_bytes());
    }
}

fn bytes_of(pages: &mut [Page]) -> &mut [u8] {
    // SAFETY: a page is an array of bytes without padding, and pages stand side by side.
    unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), size_of_val(pages)) }
}
