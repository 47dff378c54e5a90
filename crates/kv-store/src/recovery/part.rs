//! A segment's file as a recovery reads it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::directory::{Directory, DirectoryError, Made};
use crate::place::{ALIGN, Location, SegmentId};
use crate::record::{self, HEAD_BYTES, Kind, OnDisk, Record, Sequence};
use crate::segment::{FILE_HEAD_BYTES, Segment};

const READ_BYTES: usize = 1 << 20;
/// If a read of `READ_BYTES` fails, recovery reads it again in blocks of this size.
const BLOCK_BYTES: usize = 4096;

/// A segment's file, and what is in it.
pub(super) struct Part {
    pub(super) id: SegmentId,
    /// The path, not an open file: a large log has more files than a process may open.
    pub(super) path: PathBuf,
    pub(super) salt: u32,
    /// Bytes that were reserved for records.
    pub(super) reserved: usize,
    /// Record bytes that the file contains: fewer than `reserved` if the file was cut short.
    pub(super) filled: usize,
    /// Reserved bytes missing at the end of the file.
    pub(super) short: Option<u64>,
    pub(super) scan: Scan,
    /// Whether the segment has no records.
    pub(super) is_blank: bool,
    /// Ranges that the disk cannot read. If there are any, `readable` has the whole segment, with zeros in these
    /// ranges.
    unreadable: Vec<Range<usize>>,
    readable: Box<[u8]>,
}

impl Part {
    pub(super) fn read(
        directory: &Directory,
        id: SegmentId,
        made: Made,
    ) -> Result<Part, DirectoryError> {
        let Made { salt, bytes } = made;
        let path = directory.file(id);
        let file = directory.open_before(id, made)?;
        let failed = |error| DirectoryError::Io(path.clone(), error);
        let length = file.metadata().map_err(failed)?.len().saturating_sub(FILE_HEAD_BYTES);
        let filled = bytes.min(length as usize);
        if filled < HEAD_BYTES {
            return Err(DirectoryError::Damaged(path, "cut short".into()));
        }
        let is_hole = is_hole(&file);
        let mut read = vec![0; if is_hole { 0 } else { filled }].into_boxed_slice();
        let unreadable = read_what_can_be(&file, &mut read).map_err(failed)?;
        let scan = scan(&read, id, salt);
        let short = (filled < bytes).then_some((bytes - filled) as u64);
        let is_blank =
            unreadable.is_empty() && short.is_none() && read.iter().all(|&byte| byte == 0);
        let readable = if unreadable.is_empty() { Box::default() } else { read };
        let reserved = bytes;
        Ok(Part { id, path, salt, reserved, filled, short, scan, is_blank, unreadable, readable })
    }

    fn open(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(&self.path)
    }

    pub(super) fn is_unreadable_in(&self, place: &Range<usize>) -> bool {
        self.unreadable.iter().any(|block| block.start < place.end && place.start < block.end)
    }

    /// Converts an offset in the segment to an offset in the file.
    pub(super) fn offset(&self, at: usize) -> u64 {
        FILE_HEAD_BYTES + at as u64
    }

    /// The segment up to the end of its records.
    pub(super) fn whole(self) -> Result<Arc<Segment>, DirectoryError> {
        let Part { id, path, salt, reserved, scan, readable, .. } = self;
        if !readable.is_empty() {
            return Ok(Arc::new(Segment::read(id, salt, readable, scan.end, reserved)));
        }
        File::open(&path)
            .and_then(|file| Segment::sealed(id, salt, &file, scan.end, reserved))
            .map(Arc::new)
            .map_err(|error| DirectoryError::Io(path, error))
    }

    /// Writes the records after this place once more, and syncs. After a failed sync they may be in the system's cache
    /// alone, and the next sync would not report that.
    pub(super) fn write_again(&self, from: usize) -> io::Result<()> {
        let end = self.scan.end;
        // Recovery reports unreadable records as damage elsewhere.
        if from >= end || self.is_unreadable_in(&(from..end)) {
            return Ok(());
        }
        let file = self.open()?;
        if self.readable.is_empty() {
            let mut piece = vec![0; READ_BYTES.min(end - from)];
            for at in (from..end).step_by(piece.len()) {
                let piece = &mut piece[..READ_BYTES.min(end - at)];
                file.read_exact_at(piece, self.offset(at))?;
                file.write_all_at(piece, self.offset(at))?;
            }
        } else {
            file.write_all_at(&self.readable[from..end], self.offset(from))?;
        }
        file.sync_all()
    }

    /// Whether a crash left the file with the keys of its records complete.
    pub(super) fn has_all_keys(&self, directory: &Directory) -> bool {
        directory.known_keys(self.id, self.made()).covers(0, self.filled)
    }

    pub(super) fn write_keys(&self, directory: &Directory) -> io::Result<()> {
        let seal_bytes = self.scan.seal.map_or(0, |_| HEAD_BYTES);
        let mut records = vec![0; self.scan.end + seal_bytes];
        self.open()?.read_exact_at(&mut records, FILE_HEAD_BYTES)?;
        directory.rewrite_keys(self.id, self.made(), &records)
    }

    pub(super) fn made(&self) -> Made {
        Made { salt: self.salt, bytes: self.reserved }
    }

    /// Seals the segment after the commit with this sequence.
    pub(super) fn seal(&mut self, last: Sequence) -> io::Result<()> {
        let mut bytes = [0; HEAD_BYTES];
        let on_disk = OnDisk { settled: Some(Location::new(self.id, self.scan.end)), lazy: false };
        Record::seal(last, on_disk).encode(self.salt, &mut bytes);
        let file = self.open()?;
        // The records must be on the disk before the seal.
        file.sync_all()?;
        file.write_all_at(&bytes, self.offset(self.scan.end))?;
        file.sync_all()?;
        self.scan.seal = Some(last);
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Scan {
    /// The end of the last readable record.
    pub(super) end: usize,
    /// The last commit before the seal, if the segment is sealed.
    pub(super) seal: Option<Sequence>,
    pub(super) last: Sequence,
    /// The place up to which the records say that the log was on the disk.
    pub(super) settled: Option<Location>,
    /// The last record that was written without durability.
    pub(super) lazy: Option<Location>,
    /// The largest sequence that records before the segment may have, if a record in it shows it.
    pub(super) before: Option<Sequence>,
    /// Stretches between records whose bytes do not decode as a record.
    pub(super) gaps: Vec<Gap>,
    /// The last record that was first written here, not copied from an older segment.
    pub(super) tail: Option<Tail>,
}

/// A stretch that does not decode as records.
pub(super) struct Gap {
    pub(super) place: Range<usize>,
    /// The last record before the gap that was first written here, not copied from an older segment.
    pub(super) tail: Option<Tail>,
    /// The largest sequence that a lost record may have, if a record after the gap shows it.
    pub(super) before: Option<Sequence>,
}

/// The end of the commits of a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    pub(super) at: Location,
    pub(super) sequence: Sequence,
    pub(super) more: bool,
    /// The beginning of the last record's commit, if it is in the same segment.
    pub(super) began: Option<Location>,
}

impl Scan {
    fn note(&mut self, at: Location, record: &Record<'_>) {
        let Record { sequence, more, moved, on_disk, .. } = *record;
        self.last = self.last.max(sequence);
        self.settled = self.settled.max(on_disk.settled);
        if on_disk.lazy {
            self.lazy = Some(at);
        }
        if !moved {
            // The commit of a first record has no record before.
            let before = Some(sequence.saturating_sub(record.first.into()));
            let gaps = self.gaps.iter_mut().map(|gap| &mut gap.before);
            // Only the last gaps lack it.
            let unknown = gaps.rev().take_while(|before| before.is_none());
            unknown.for_each(|unknown| *unknown = before);
            self.before = self.before.or(before);
        }
        if !moved && record.kind != Kind::Seal {
            let before = self.tail.filter(|before| before.sequence == sequence);
            let began =
                if record.first { Some(at) } else { before.and_then(|before| before.began) };
            self.tail = Some(Tail { at, sequence, more, began });
        }
    }
}

/// Whether the file has only its head. Recovery does not read such a spare segment, which is all zeros.
fn is_hole(file: &File) -> bool {
    // SAFETY: a call with a descriptor that is open.
    let data = unsafe { libc::lseek(file.as_raw_fd(), FILE_HEAD_BYTES as i64, libc::SEEK_DATA) };
    data == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO)
}

/// Reads the records of a file, with zeros in place of unreadable blocks; returns the ranges of those blocks.
fn read_what_can_be(file: &File, bytes: &mut [u8]) -> io::Result<Vec<Range<usize>>> {
    let mut unreadable = Vec::new();
    for (number, piece) in bytes.chunks_mut(READ_BYTES).enumerate() {
        let at = number * READ_BYTES;
        if is_read(file, piece, at)? {
            continue;
        }
        for (number, block) in piece.chunks_mut(BLOCK_BYTES).enumerate() {
            let at = at + number * BLOCK_BYTES;
            if !is_read(file, block, at)? {
                block.fill(0);
                unreadable.push(at..at + block.len());
            }
        }
    }
    Ok(unreadable)
}

/// Reads bytes of a segment; returns whether the disk could read them.
fn is_read(file: &File, bytes: &mut [u8], at: usize) -> io::Result<bool> {
    match file.read_exact_at(bytes, FILE_HEAD_BYTES + at as u64) {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        read => read.map(|()| true),
    }
}

fn scan(bytes: &[u8], id: SegmentId, salt: u32) -> Scan {
    let mut scan = Scan::default();
    let mut at = 0;
    while at + HEAD_BYTES <= bytes.len() {
        match record::decode(&bytes[at..], salt) {
            Ok(record) => {
                scan.note(Location::new(id, at), &record);
                if record.kind == Kind::Seal {
                    scan.seal = Some(record.sequence);
                    scan.end = at;
                    return scan;
                }
                at += record.bytes();
                scan.end = at;
            }
            Err(_) => {
                let behind = (at + ALIGN..=bytes.len() - HEAD_BYTES)
                    .step_by(ALIGN)
                    .filter(|&behind| record::may_begin(&bytes[behind..]))
                    .find(|&behind| record::decode(&bytes[behind..], salt).is_ok());
                let Some(behind) = behind else { return scan };
                scan.gaps.push(Gap { place: at..behind, tail: scan.tail, before: None });
                at = behind;
            }
        }
    }
    scan
}
