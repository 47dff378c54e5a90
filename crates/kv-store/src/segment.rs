//! A segment of the log: memory that is written once, from front to back, and read at any time.
//!
//! While it is written, its bytes are in anonymous memory; a durable one is copied to its file
//! with each commit. Once it is full, a durable segment is read through a read-only mapping of the
//! file. A full disk cannot hurt a writer: the file's space was reserved when the segment was made.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use memmap2::{Mmap, MmapOptions, MmapRaw};

use super::place::{Location, SegmentId};
use super::record::{self, HEAD_BYTES, Kind, Record, Sequence};

/// Records begin behind so many bytes of a file: mappings begin at pages.
pub(crate) const FILE_HEAD_BYTES: u64 = 4096;
/// A record in the upper half of [`Tally::live`]; a segment's bytes fit the lower one.
const LIVE_RECORD: u64 = 1 << 32;

/// A segment. It can be read as long as it is held, also after the log has dropped it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    /// Seeds the checksums: records that another segment left on the disk do not match.
    pub(crate) salt: u32,
    bytes: Bytes,
    /// Written up to here.
    filled: AtomicUsize,
    /// Bytes that were reserved for its records.
    pub(crate) reserved: usize,
    tally: Arc<Tally>,
    /// When it was made, or opened.
    since: Instant,
}

/// Counters of a segment, shared with its copies that were opened from its file.
#[derive(Debug, Default)]
struct Tally {
    /// Records that may still be read: how many, in the upper half, and their bytes. The
    /// bytes are what the records say, and as wrong as those may be by now; the number is certain.
    live: AtomicU64,
    /// From this commit on, other records have the state of the keys of its dead records.
    replaced: AtomicU64,
    /// Whether it has a clear record.
    clears: AtomicBool,
    /// When the last record of a request with an id came into it, in milliseconds after it was
    /// made, from 1 on; 0 where there is none.
    requested_ms: AtomicU64,
}

#[derive(Debug)]
enum Bytes {
    /// Memory that grows, see [`Segment::append`].
    Growing(MmapRaw),
    /// The mapping of a complete file.
    Sealed(Mmap),
    /// The readable bytes of a file: a mapping of the unreadable ones would end the process.
    Read(Box<[u8]>),
}

impl Segment {
    /// Room for `bytes`.
    pub(crate) fn growing(id: SegmentId, salt: u32, bytes: usize) -> io::Result<Segment> {
        let memory = MmapRaw::from(MmapOptions::new().len(bytes).map_anon()?);
        Ok(Segment::new(id, salt, Bytes::Growing(memory), 0, bytes))
    }

    /// The first `filled` bytes of a file that is complete, of those that were
    /// `reserved`.
    pub(crate) fn sealed(
        id: SegmentId,
        salt: u32,
        file: &File,
        filled: usize,
        reserved: usize,
    ) -> io::Result<Segment> {
        // SAFETY: the directory's lock keeps other stores away; another program that cuts the file short
        // under a running store takes it down, as with any memory-mapped store.
        let memory = unsafe { MmapOptions::new().offset(FILE_HEAD_BYTES).len(filled).map(file)? };
        Ok(Segment::new(id, salt, Bytes::Sealed(memory), filled, reserved))
    }

    /// The first `filled` bytes of these, which were read from a file.
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

    /// The same, once its file holds all of it.
    pub(crate) fn reopened(&self, file: &File) -> io::Result<Segment> {
        let segment = Segment::sealed(self.id, self.salt, file, self.filled(), self.reserved)?;
        Ok(Segment { tally: Arc::clone(&self.tally), since: self.since, ..segment })
    }

    /// How long ago the last request with an id came into it, if any did.
    pub(crate) fn requests_age(&self) -> Option<Duration> {
        let requested_ms = self.tally.requested_ms.load(Ordering::Relaxed);
        let requested = Duration::from_millis(requested_ms.checked_sub(1)?);
        Some(self.since.elapsed().saturating_sub(requested))
    }

    /// A request with an id came into it, or a recovery found one.
    pub(crate) fn note_request(&self) {
        let elapsed_ms = self.since.elapsed().as_millis() as u64;
        self.tally.requested_ms.store(elapsed_ms + 1, Ordering::Relaxed);
    }

    /// Bytes that fit.
    pub(crate) fn capacity(&self) -> usize {
        match &self.bytes {
            Bytes::Growing(memory) => memory.len(),
            Bytes::Sealed(memory) => memory.len(),
            Bytes::Read(bytes) => bytes.len(),
        }
    }

    /// Whether nothing fits but its end.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.capacity() == HEAD_BYTES
    }

    /// Bytes that are written.
    pub(crate) fn filled(&self) -> usize {
        self.filled.load(Ordering::Acquire)
    }

    /// Writes a record behind the others, for which there must be room, and says where.
    ///
    /// Only the log calls it, which is locked while it does: there is one writer at a time.
    pub(crate) fn append(&self, record: &Record<'_>) -> Location {
        let Bytes::Growing(memory) = &self.bytes else { unreachable!("a sealed segment grows") };
        let (at, length) = (self.filled.load(Ordering::Relaxed), record.bytes());
        assert!(at + length <= memory.len(), "a record beyond the end of its segment");
        // SAFETY: the range lies within the memory, and behind `filled`, where no reader is yet;
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
                assert!(from <= to && to <= self.filled(), "read behind what is written");
                // SAFETY: the range lies within the memory and before `filled`, where nothing
                // changes any more.
                unsafe { std::slice::from_raw_parts(memory.as_ptr().add(from), to - from) }
            }
            Bytes::Sealed(memory) => &memory[from..to],
            Bytes::Read(bytes) => &bytes[from..to],
        }
    }

    /// The record at a place where one was written.
    #[inline]
    pub(crate) fn record(&self, offset: usize) -> Record<'_> {
        record::trusted(self.written(offset, self.filled()))
    }

    /// The key of the record at a place where one was written; `None` where its length cannot be.
    #[inline]
    pub(crate) fn key(&self, offset: usize) -> Option<&[u8]> {
        record::key(self.written(offset, self.filled()))
    }

    /// The same, checked: what a file holds may have changed since it was written.
    pub(crate) fn checked(&self, offset: usize) -> Result<Record<'_>, record::Unreadable> {
        record::decode(self.written(offset, self.filled()), self.salt)
    }

    /// Whether its bytes come from a file.
    #[inline]
    pub(crate) fn is_file(&self) -> bool {
        !matches!(self.bytes, Bytes::Growing(_))
    }

    /// Notes that it has a clear record.
    pub(crate) fn note_clear(&self) {
        self.tally.clears.store(true, Ordering::Relaxed);
    }

    /// Whether it has a clear record, damaged or not.
    pub(crate) fn has_clear(&self) -> bool {
        self.tally.clears.load(Ordering::Relaxed)
    }

    /// Bytes of records that may still be read.
    pub(crate) fn live(&self) -> u64 {
        self.tally.live.load(Ordering::Relaxed) % LIVE_RECORD
    }

    /// Whether no record of a key in it, damaged or not, may still be read.
    pub(crate) fn is_dead(&self) -> bool {
        self.tally.live.load(Ordering::Acquire) < LIVE_RECORD
    }

    /// From which commit on the log is complete without this segment; `None` while a record in it may still be read.
    pub(crate) fn said_without(&self) -> Option<Sequence> {
        let is_needed = !self.is_dead() || self.has_clear();
        (!is_needed).then(|| self.tally.replaced.load(Ordering::Relaxed))
    }

    /// A record of so many bytes is asked for again, found by a recovery.
    pub(crate) fn revive(&self, bytes: usize) {
        self.tally.live.fetch_add(LIVE_RECORD + bytes as u64, Ordering::Relaxed);
    }

    /// A record of so many bytes is dead; with a damaged length it may have more. From the commit `replaced` on, other
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
