//! A segment of the log: memory that a single writer fills from front to back, while readers read it.
//!
//! A growing segment is in anonymous memory; a durable one is copied to its file with each sync. A full durable
//! segment is read through a read-only mapping of the file. A full disk does not interrupt a writer, because the
//! file's space was reserved when the segment was made.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use memmap2::{Mmap, MmapOptions, MmapRaw};

use super::place::{Location, SegmentId};
use super::record::{self, HEAD_BYTES, Kind, Record, Sequence};

/// Bytes of a file before its records: a page, because mappings begin at pages.
pub(crate) const FILE_HEAD_BYTES: u64 = 4096;
/// One record in [`Tally::live`]: the upper half counts records, the lower half bytes.
const LIVE_RECORD: u64 = 1 << 32;

/// A segment. A reader that holds a reference may read it even after the log has dropped it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    /// Seed of the checksums, so that old records of another segment on the disk do not match.
    pub(crate) salt: u32,
    bytes: Bytes,
    /// End of the written bytes.
    filled: AtomicUsize,
    /// Bytes that were reserved for its records.
    pub(crate) reserved: usize,
    tally: Arc<Tally>,
    /// When the segment was made or opened.
    since: Instant,
}

/// Counters of a segment, shared with its reopened copies.
#[derive(Debug, Default)]
struct Tally {
    /// Number of live records in the upper half, and their bytes in the lower half. The number is exact; the bytes
    /// come from the records' own lengths, which may be damaged.
    live: AtomicU64,
    /// The commit from which on other records have the state of the keys of its dead records.
    replaced: AtomicU64,
    /// Whether the segment has a clear record.
    clears: AtomicBool,
    /// When the last request with an id was appended, in milliseconds after `since`, at least 1. 0: no such request.
    requested_ms: AtomicU64,
}

#[derive(Debug)]
enum Bytes {
    /// Memory that [`Segment::append`] fills.
    Growing(MmapRaw),
    /// The mapping of a complete file.
    Sealed(Mmap),
    /// The readable bytes of a file: a mapping of the unreadable ones would end the process.
    Read(Box<[u8]>),
}

impl Segment {
    pub(crate) fn growing(id: SegmentId, salt: u32, bytes: usize) -> io::Result<Segment> {
        let memory = MmapRaw::from(MmapOptions::new().len(bytes).map_anon()?);
        Ok(Segment::new(id, salt, Bytes::Growing(memory), 0, bytes))
    }

    /// Maps the first `filled` of the `reserved` bytes of a complete file.
    pub(crate) fn sealed(
        id: SegmentId,
        salt: u32,
        file: &File,
        filled: usize,
        reserved: usize,
    ) -> io::Result<Segment> {
        // SAFETY: the directory's lock excludes other stores. If another program truncates the file,
        // this process ends with SIGBUS, as with any memory-mapped store.
        let memory = unsafe { MmapOptions::new().offset(FILE_HEAD_BYTES).len(filled).map(file)? };
        Ok(Segment::new(id, salt, Bytes::Sealed(memory), filled, reserved))
    }

    /// Takes the first `filled` of `bytes`, which were read from a file.
    pub(crate) fn read(
        id: SegmentId,
        salt: u32,
        bytes: Box<[u8]>,
        filled: usize,
        reserved: usize,
    ) -> Segment {
        Segment::new(id, salt, Bytes::Read(bytes), filled, reserved)
    }

    fn new(id: SegmentId, salt: u32, bytes: Bytes, filled: usize, reserved: usize) -> Segment {
        Segment {
            id,
            salt,
            bytes,
            filled: AtomicUsize::new(filled),
            reserved,
            tally: Arc::default(),
            since: Instant::now(),
        }
    }

    /// The same segment, mapped from its complete file.
    pub(crate) fn reopened(&self, file: &File) -> io::Result<Segment> {
        let segment = Segment::sealed(self.id, self.salt, file, self.filled(), self.reserved)?;
        Ok(Segment { tally: Arc::clone(&self.tally), since: self.since, ..segment })
    }

    /// Age of the last request with an id, if there is one.
    pub(crate) fn requests_age(&self) -> Option<Duration> {
        let requested_ms = self.tally.requested_ms.load(Ordering::Relaxed);
        let requested = Duration::from_millis(requested_ms.checked_sub(1)?);
        Some(self.since.elapsed().saturating_sub(requested))
    }

    /// Notes a request with an id, appended or found by a recovery.
    pub(crate) fn note_request(&self) {
        let elapsed_ms = self.since.elapsed().as_millis() as u64;
        self.tally.requested_ms.store(elapsed_ms + 1, Ordering::Relaxed);
    }

    pub(crate) fn capacity(&self) -> usize {
        match &self.bytes {
            Bytes::Growing(memory) => memory.len(),
            Bytes::Sealed(memory) => memory.len(),
            Bytes::Read(bytes) => bytes.len(),
        }
    }

    /// Whether only the seal still fits.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.capacity() == HEAD_BYTES
    }

    /// Written bytes.
    pub(crate) fn filled(&self) -> usize {
        self.filled.load(Ordering::Acquire)
    }

    /// Appends a record, which must fit, and returns its place.
    ///
    /// Only the log calls this, and holds its lock: there is one writer at a time.
    pub(crate) fn append(&self, record: &Record<'_>) -> Location {
        let Bytes::Growing(memory) = &self.bytes else { unreachable!("a sealed segment grows") };
        let (at, length) = (self.filled.load(Ordering::Relaxed), record.bytes());
        assert!(at + length <= memory.len(), "a record beyond the end of its segment");
        // SAFETY: the range lies within the memory, and after `filled`, where no reader reads;
        // there is no other writer.
        let out = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().add(at), length) };
        record.encode(self.salt, out);
        self.filled.store(at + length, Ordering::Release);
        match record.kind {
            Kind::Clear => self.note_clear(),
            kind if kind.is_of_a_key() => self.revive(length),
            _ => {}
        }
        Location::new(self.id, at)
    }

    /// The written bytes of a range.
    ///
    /// # Panics
    /// When the range ends after the written bytes.
    #[inline]
    pub(crate) fn written(&self, from: usize, to: usize) -> &[u8] {
        match &self.bytes {
            Bytes::Growing(memory) => {
                assert!(from <= to && to <= self.filled(), "read after the written bytes");
                // SAFETY: the range lies within the memory and before `filled`, where the bytes no longer change.
                unsafe { std::slice::from_raw_parts(memory.as_ptr().add(from), to - from) }
            }
            Bytes::Sealed(memory) => &memory[from..to],
            Bytes::Read(bytes) => &bytes[from..to],
        }
    }

    #[inline]
    pub(crate) fn record(&self, offset: usize) -> Record<'_> {
        record::trusted(self.written(offset, self.filled()))
    }

    /// The key of the record at an offset; `None` if its length is out of range.
    #[inline]
    pub(crate) fn key(&self, offset: usize) -> Option<&[u8]> {
        record::key(self.written(offset, self.filled()))
    }

    /// The record at an offset, checked: the bytes of a file may be damaged.
    pub(crate) fn checked(&self, offset: usize) -> Result<Record<'_>, record::Unreadable> {
        record::decode(self.written(offset, self.filled()), self.salt)
    }

    /// Whether its bytes come from a file.
    #[inline]
    pub(crate) fn is_file(&self) -> bool {
        !matches!(self.bytes, Bytes::Growing(_))
    }

    pub(crate) fn note_clear(&self) {
        self.tally.clears.store(true, Ordering::Relaxed);
    }

    /// Whether the segment has a clear record, damaged or not.
    pub(crate) fn has_clear(&self) -> bool {
        self.tally.clears.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> u64 {
        self.tally.live.load(Ordering::Relaxed) % LIVE_RECORD
    }

    /// Whether no record of a key, damaged or not, is live.
    pub(crate) fn is_dead(&self) -> bool {
        self.tally.live.load(Ordering::Acquire) < LIVE_RECORD
    }

    /// The commit from which on the log is complete without this segment; `None` while one of its records is live.
    pub(crate) fn said_without(&self) -> Option<Sequence> {
        let is_needed = !self.is_dead() || self.has_clear();
        (!is_needed).then(|| self.tally.replaced.load(Ordering::Relaxed))
    }

    /// Counts a record of `bytes` that a recovery found as live.
    pub(crate) fn revive(&self, bytes: usize) {
        self.tally.live.fetch_add(LIVE_RECORD + bytes as u64, Ordering::Relaxed);
    }

    /// Counts a record of `bytes` as dead; a damaged length may be too small. From the commit `replaced` on, other
    /// records have the state of its key.
    pub(crate) fn bury(&self, bytes: usize, replaced: Sequence) {
        self.tally.replaced.fetch_max(replaced, Ordering::Relaxed);
        let left = |live: u64| {
            debug_assert!(live >= LIVE_RECORD, "buried twice");
            let bytes = (live % LIVE_RECORD).saturating_sub(bytes as u64);
            Some((live / LIVE_RECORD).saturating_sub(1) * LIVE_RECORD + bytes)
        };
        let _ = self.tally.live.fetch_update(Ordering::Release, Ordering::Relaxed, left);
    }
}
