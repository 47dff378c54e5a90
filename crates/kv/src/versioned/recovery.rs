//! From a directory to a store: what was written, up to where it is whole.
//!
//! Segments are read twice. First every checksum is looked at, which says where each segment ends,
//! and what in it is not what was written; then their records are put in the tables. The first time
//! they are not mapped: what the disk cannot read is damage, and does not end the process.
//!
//! A crash may leave any part of what was written since the last sync, in any order of the disk's
//! pages; nothing of it was acknowledged. Every record says up to where the log was on the disk
//! when it was appended, so the largest of these places tells two cases apart: what cannot be read
//! before it is damage; what cannot be read behind it is where the log ends. What damage and a
//! crash cannot be distinguished in is the last batch before a crash. Without durability
//! all of it, it is called damage.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Directory, DirectoryError, Made, Manifest, Reached};
use super::log::{RESERVED, Recovered};
use super::place::{ALIGN, Location, SegmentId};
use super::record::{self, HEAD_BYTES, Kind, OnDisk, Record, Sequence, record_bytes};
use super::segment::{FILE_HEAD_BYTES, Segment};

/// So much of a file is read at a time.
const READ_BYTES: usize = 1 << 20;
/// Where that fails, so much is looked at alone.
const BLOCK_BYTES: usize = 4096;

/// A record that is to be put in a table.
pub(crate) struct Found {
    pub(crate) at: Location,
    pub(crate) sequence: Sequence,
    pub(crate) part: u32,
}

/// How far a directory has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// For what.
    pub pass: Pass,
    /// Bytes of the segments that this has been done with.
    pub bytes: u64,
    /// Bytes of all.
    pub bytes_all: u64,
}

/// A directory is read twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Every checksum is looked at.
    Check,
    /// The records are put in the tables.
    Restore,
}

/// What a recovery had to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub file: PathBuf,
    /// Where in the file the damage begins.
    pub offset: u64,
    /// Bytes up to the next record that can be read, or to the end.
    pub bytes: u64,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Lost { file, offset, bytes } = self;
        match bytes {
            0 => write!(f, "{}: nothing from {offset} on can be read", file.display()),
            _ => write!(f, "{}: {bytes} bytes from {offset} on are lost", file.display()),
        }
    }
}

/// What a recovery knows of the log as a whole.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Up to here it was on the disk.
    settled: Option<Location>,
    /// Segments that hold something that cannot be read.
    pub(crate) damaged: BTreeSet<SegmentId>,
    /// Unreadable segments.
    pub(crate) unreadable: BTreeSet<SegmentId>,
    /// Segments behind a loss.
    behind_lost: BTreeSet<SegmentId>,
}

/// Reads the segments of a directory, for a log that makes new ones of so many bytes and that
/// `promises` what it tells, or does not wait for the disk. Damage is an error, unless `lost` takes
/// what it costs.
pub(crate) fn read_segments(
    directory: &Directory,
    manifest: &Manifest,
    segment_bytes: usize,
    promises: bool,
    lost: Option<&mut Vec<Lost>>,
    tell: &mut dyn FnMut(Opening),
) -> Result<(Recovered, Findings), DirectoryError> {
    let mut costs = Costs(lost);
    let mut findings = Findings::default();
    let mut parts = Vec::new();
    let bytes_all = manifest.segments.values().map(|made| made.bytes as u64).sum();
    let mut bytes = 0;
    for (&id, made) in &manifest.segments {
        match Part::read(directory, id, *made) {
            Ok(part) => parts.push(part),
            Err(DirectoryError::Damaged(path, what)) => {
                costs.take(&path, &what, 0, 0)?;
                findings.unreadable.insert(id);
            }
            Err(error) => return Err(error),
        }
        bytes += made.bytes as u64;
        tell(Opening { pass: Pass::Check, bytes, bytes_all });
    }
    parts.iter().try_for_each(|part| part.fits(segment_bytes))?;
    findings.settled =
        parts.iter().filter_map(|part| part.scan.settled).chain(manifest.reached.settled).max();
    let lazy = parts.iter().filter_map(|part| part.scan.lazy);
    let must_be_there = lazy.chain(findings.settled).max();
    let is_damage = |place: Location| must_be_there.is_some_and(|end| place < end);

    let mut log = Reading {
        directory,
        segment_bytes,
        promises,
        reached: manifest.reached,
        kept: Vec::new(),
        blank: Vec::new(),
        tail: None,
    };
    log.reached.settled = findings.settled;
    let mut parts = parts.into_iter();
    while let Some(mut part) = parts.next() {
        let id = part.id;
        if let Some(short) = part.short {
            costs.take(&part.path, "it was cut short", part.offset(part.filled), short)?;
            findings.damaged.insert(id);
        }
        for gap in std::mem::take(&mut part.scan.gaps) {
            if !is_damage(Location::new(id, gap.place.start)) {
                part.scan.end = gap.place.start;
                part.scan.tail = gap.tail;
                part.scan.seal = None;
                break;
            }
            let what = match part.is_unreadable_in(&gap.place) {
                true => "the disk cannot read it",
                false => "there is something else than was written",
            };
            let (offset, bytes) = (part.offset(gap.place.start), gap.place.len() as u64);
            costs.take(&part.path, what, offset, bytes)?;
            findings.damaged.insert(id);
        }
        let mut goes_on = part.scan.seal.is_some();
        if !goes_on && is_damage(Location::new(id, part.scan.end)) {
            goes_on = true;
            costs.take(&part.path, "its end is missing", part.offset(part.scan.end), 0)?;
            findings.behind_lost.extend(parts.as_slice().first().map(|next| next.id));
            if part.scan.end == 0 {
                findings.unreadable.insert(id);
                continue;
            }
            findings.damaged.insert(id);
        }
        if !goes_on {
            // Here the log ends. Behind it there is what was made ahead, or torn off by a crash.
            parts.by_ref().rev().try_for_each(|behind| log.leave(behind))?;
        }
        log.keep(part)?;
    }
    log.close()?;
    // What a crash of the process left to the system is not yet on the disk.
    directory.sync().map_err(|error| DirectoryError::Io(directory.path().to_owned(), error))?;
    let ids = || log.kept.iter().map(|part| part.id);
    findings
        .behind_lost
        .extend(findings.unreadable.iter().filter_map(|&lost| ids().find(|&id| id > lost)));
    let next = manifest.segments.keys().next_back().map_or(1, |id| id + 1);
    let next = next.max(findings.settled.map_or(1, |settled| settled.segment + 1));
    let spare = log.spare()?;
    let last = log.reached.last;
    let longest = log.kept.iter().map(|part| part.scan.longest).max().unwrap_or_default();
    let segments = log.kept.into_iter().map(Part::whole).collect::<Result<_, _>>()?;
    Ok((Recovered { segments, spare, next, last, longest }, findings))
}

/// What damage costs, if it is to be paid.
struct Costs<'a>(Option<&'a mut Vec<Lost>>);

impl Costs<'_> {
    fn take(
        &mut self,
        file: &Path,
        what: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<(), DirectoryError> {
        match &mut self.0 {
            Some(lost) => lost.push(Lost { file: file.to_owned(), offset, bytes }),
            None => {
                let what = format!("{what}, from byte {offset} on");
                return Err(DirectoryError::Damaged(file.to_owned(), what));
            }
        }
        Ok(())
    }
}

/// The log as far as it has been read.
struct Reading<'a> {
    directory: &'a Directory,
    segment_bytes: usize,
    promises: bool,
    reached: Reached,
    kept: Vec<Part>,
    /// Behind the log's end, and never written to.
    blank: Vec<Part>,
    /// The last record that was not moved.
    tail: Option<Tail>,
}

impl Reading<'_> {
    fn keep(&mut self, part: Part) -> Result<(), DirectoryError> {
        self.reached.last = self.reached.last.max(part.scan.last);
        if part.scan.end == 0 {
            return self.leave(part);
        }
        if let Some(mut tail) = part.scan.tail {
            let before = self.tail.filter(|before| before.sequence == tail.sequence);
            tail.began = tail.began.or_else(|| before.and_then(|before| before.began));
            self.tail = Some(tail);
        }
        self.kept.push(part);
        Ok(())
    }

    /// Takes a segment out of the log, unless it can be written to as if it had just been made.
    fn leave(&mut self, part: Part) -> Result<(), DirectoryError> {
        if part.is_blank && part.reserved == self.segment_bytes {
            self.blank.push(part);
            return Ok(());
        }
        self.drop(&part)
    }

    /// The segments that were made ahead, as many as a log has of them, in the order of their
    /// numbers: a disk may be full that has no others.
    fn spare(&mut self) -> Result<Vec<Segment>, DirectoryError> {
        self.blank.sort_by_key(|part| part.id);
        let more = self.blank.split_off(self.blank.len().min(RESERVED + 1));
        more.iter().rev().try_for_each(|part| self.drop(part))?;
        let take = |part: &Part| {
            let made = Made { salt: part.salt, bytes: part.reserved };
            let taken = self.directory.take_over(part.id, made);
            taken.map_err(|error| DirectoryError::Io(part.path.clone(), error))
        };
        self.blank.iter().map(take).collect()
    }

    fn drop(&self, part: &Part) -> Result<(), DirectoryError> {
        let removed = self.directory.remove(part.id, self.reached);
        removed.map_err(|error| DirectoryError::Io(part.path.clone(), error))
    }

    /// Cuts off an incomplete commit at the end, and marks the end of the log, so
    /// that nothing behind it is ever taken for a record.
    fn close(&mut self) -> Result<(), DirectoryError> {
        let is_cut_off = |tail: &Tail| tail.more && Some(tail.at) >= self.reached.settled;
        // Only the commit is behind its beginning: the log was locked for it.
        if let Some(began) = self.tail.filter(is_cut_off).and_then(|tail| tail.began) {
            while let Some(mut part) = self.kept.pop_if(|part| part.id >= began.segment) {
                if part.id > began.segment || began.offset() == 0 {
                    self.drop(&part)?;
                    continue;
                }
                part.scan.end = began.offset();
                part.scan.seal = None;
                self.kept.push(part);
                break;
            }
        }
        let settled = self.reached.settled.unwrap_or(Location::new(0, 0));
        for part in self.kept.iter().filter(|part| part.id >= settled.segment) {
            // Without durability it is not promised, but records behind it may be.
            if part.scan.lazy.is_some() && !self.promises {
                continue;
            }
            let from = if part.id == settled.segment { settled.offset() } else { 0 };
            let again = part.write_again(from);
            again.map_err(|error| DirectoryError::Io(part.path.clone(), error))?;
        }
        let Some(end) = self.kept.last_mut() else { return Ok(()) };
        if end.scan.seal.is_some() {
            return Ok(());
        }
        end.seal(self.reached.last).map_err(|error| DirectoryError::Io(end.path.clone(), error))
    }
}

/// A segment's file, and what is in it.
struct Part {
    id: SegmentId,
    /// Not the open file: of a large log there may be more of them than a process may open.
    path: PathBuf,
    salt: u32,
    /// Bytes that were reserved for records.
    reserved: usize,
    /// Bytes that there are for records.
    filled: usize,
    /// Bytes that it has less than were reserved.
    short: Option<u64>,
    scan: Scan,
    /// Nothing was ever written to it.
    is_blank: bool,
    /// Where the disk cannot read it, and all that can be read of it if there is such a place.
    unreadable: Vec<Range<usize>>,
    readable: Box<[u8]>,
}

impl Part {
    fn read(directory: &Directory, id: SegmentId, made: Made) -> Result<Part, DirectoryError> {
        let Made { salt, bytes } = made;
        let path = directory.file(id);
        let file = directory.open_before(id, salt)?;
        let failed = |error| DirectoryError::Io(path.clone(), error);
        let length = file.metadata().map_err(failed)?.len().saturating_sub(FILE_HEAD_BYTES);
        let filled = bytes.min(length as usize);
        if filled < HEAD_BYTES {
            return Err(DirectoryError::Damaged(path, "it was cut short".into()));
        }
        let mut read = vec![0; filled].into_boxed_slice();
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

    fn is_unreadable_in(&self, place: &Range<usize>) -> bool {
        self.unreadable.iter().any(|block| block.start < place.end && place.start < block.end)
    }

    /// Where in the file a place of the segment is.
    fn offset(&self, at: usize) -> u64 {
        FILE_HEAD_BYTES + at as u64
    }

    /// Nothing could be done about a record that is too long for the segments that are made now: its
    /// key would stay for ever, and its segment.
    fn fits(&self, segment_bytes: usize) -> Result<(), DirectoryError> {
        let least = self.scan.longest + HEAD_BYTES;
        let what = format!(
            "a record in it fits no segments of {segment_bytes} bytes: they have to have {least} bytes"
        );
        let other = || DirectoryError::Other(self.path.clone(), what);
        (least <= segment_bytes).then_some(()).ok_or_else(other)
    }

    /// What of it is in the log.
    fn whole(self) -> Result<Arc<Segment>, DirectoryError> {
        let Part { id, path, salt, reserved, scan, readable, .. } = self;
        if !readable.is_empty() {
            return Ok(Arc::new(Segment::read(id, salt, readable, scan.end, reserved)));
        }
        File::open(&path)
            .and_then(|file| Segment::sealed(id, salt, &file, scan.end, reserved))
            .map(Arc::new)
            .map_err(|error| DirectoryError::Io(path, error))
    }

    /// Writes what is behind this place once more, to the disk. A sync that failed may have left it
    /// in the system's cache alone, where it is read from; the next one would say nothing of that.
    fn write_again(&self, from: usize) -> io::Result<()> {
        let end = self.scan.end;
        // What cannot be read is damage anyway.
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

    /// Marks its end, behind the commit with this sequence.
    fn seal(&mut self, last: Sequence) -> io::Result<()> {
        let mut bytes = [0; HEAD_BYTES];
        let on_disk = OnDisk { settled: Some(Location::new(self.id, self.scan.end)), lazy: false };
        Record::seal(last, on_disk).encode(self.salt, &mut bytes);
        let file = self.open()?;
        // What is in front of it is to be there when it is.
        file.sync_all()?;
        file.write_all_at(&bytes, self.offset(self.scan.end))?;
        file.sync_all()?;
        self.scan.seal = Some(last);
        Ok(())
    }
}

#[derive(Default)]
struct Scan {
    /// Behind the last record that is whole.
    end: usize,
    /// Behind which commit it was closed, if it was.
    seal: Option<Sequence>,
    last: Sequence,
    /// Up to where the log was on the disk, as its records say.
    settled: Option<Location>,
    /// The last record that was written without durability.
    lazy: Option<Location>,
    /// Where something else is among the records.
    gaps: Vec<Gap>,
    /// The last record that was not moved.
    tail: Option<Tail>,
    /// Bytes of the longest record, or of one that would change the longest key.
    longest: usize,
}

/// A stretch that cannot be read.
struct Gap {
    place: Range<usize>,
    /// The last record before it that was not moved.
    tail: Option<Tail>,
}

/// Where the commits of a log end.
#[derive(Debug, Clone, Copy)]
struct Tail {
    at: Location,
    sequence: Sequence,
    more: bool,
    /// Where its commit begins, if that is in the same segment.
    began: Option<Location>,
}

impl Scan {
    fn note(&mut self, at: Location, record: &Record<'_>) {
        let Record { sequence, more, moved, on_disk, .. } = *record;
        self.last = self.last.max(sequence);
        let change_bytes = record_bytes(Kind::Append, record.key.len(), 0, true);
        self.longest = self.longest.max(record.bytes()).max(change_bytes);
        self.settled = self.settled.max(on_disk.settled);
        if on_disk.lazy {
            self.lazy = Some(at);
        }
        if !moved && record.kind != Kind::Seal {
            let before = self.tail.filter(|before| before.sequence == sequence);
            let began =
                if record.first { Some(at) } else { before.and_then(|before| before.began) };
            self.tail = Some(Tail { at, sequence, more, began });
        }
    }
}

/// Reads the records of a file, and zeros for what the disk cannot read; returns where that is.
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

/// Whether the disk could read it.
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
                scan.gaps.push(Gap { place: at..behind, tail: scan.tail });
                at = behind;
            }
        }
    }
    scan
}

/// Visits the records of all segments, which are in their order, but for those of commits that are
/// not whole: a crash cut them off, or damage took something of them. Returns the segments that
/// hold some of the latter, which must not outlive the segments that show the damage.
pub(crate) fn records<E>(
    segments: &[Arc<Segment>],
    findings: &Findings,
    tell: &mut dyn FnMut(Opening),
    mut visit: impl FnMut(&Segment, Found) -> Result<(), E>,
) -> Result<BTreeSet<SegmentId>, E> {
    let bytes_all = segments.iter().map(|segment| segment.filled() as u64).sum();
    let mut bytes = 0;
    let mut pending = Pending { settled: findings.settled, ..Pending::default() };
    for segment in segments {
        if findings.behind_lost.contains(&segment.id) {
            pending.lose();
        }
        let mut at = 0;
        while at + HEAD_BYTES <= segment.filled() {
            let Ok(record) = segment.checked(at) else {
                pending.lose();
                at += ALIGN;
                continue;
            };
            let found = Found {
                at: Location::new(segment.id, at),
                sequence: record.sequence,
                part: record.part,
            };
            at += record.bytes();
            if record.moved {
                visit(segment, found)?;
            } else {
                pending.take(segment, found, &record, &mut visit)?;
            }
        }
        bytes += segment.filled() as u64;
        tell(Opening { pass: Pass::Restore, bytes, bytes_all });
    }
    pending.settle(&mut visit)?;
    Ok(pending.incomplete)
}

/// The first records of a commit.
#[derive(Default)]
struct Pending<'a> {
    records: Vec<(&'a Segment, Found)>,
    settled: Option<Location>,
    /// What came last cannot be read.
    is_lost: bool,
    incomplete: BTreeSet<SegmentId>,
}

impl<'a> Pending<'a> {
    fn sequence(&self) -> Option<Sequence> {
        self.records.last().map(|(_, found)| found.sequence)
    }

    /// Something is missing here.
    fn lose(&mut self) {
        self.incomplete.extend(self.records.drain(..).map(|(segment, _)| segment.id));
        self.is_lost = true;
    }

    fn take<E>(
        &mut self,
        segment: &'a Segment,
        found: Found,
        record: &Record<'_>,
        visit: &mut impl FnMut(&Segment, Found) -> Result<(), E>,
    ) -> Result<(), E> {
        let goes_on = self.sequence() == Some(record.sequence);
        if record.first {
            self.is_lost = false;
        } else if !goes_on && self.is_lost {
            self.incomplete.insert(segment.id);
            return Ok(());
        }
        if record.first || !goes_on {
            self.settle(visit)?;
        }
        self.records.push((segment, found));
        if record.more {
            return Ok(());
        }
        self.records.drain(..).try_for_each(|(segment, found)| visit(segment, found))
    }

    /// No more of it comes. If it was on the disk, the rest was in a segment that has been taken
    /// apart since.
    fn settle<E>(
        &mut self,
        visit: &mut impl FnMut(&Segment, Found) -> Result<(), E>,
    ) -> Result<(), E> {
        let Pending { records, settled, .. } = self;
        let records = records.drain(..).filter(|(_, found)| Some(found.at) < *settled);
        records.into_iter().try_for_each(|(segment, found)| visit(segment, found))
    }
}
