//! Reads a directory's segments up to the end of the complete log.
//!
//! Segments are read twice. The first pass checks every checksum, and finds the end and the damage of each segment. The
//! second pass puts their records in the tables. The first pass reads files without mapping them. In a mapped file, an
//! unreadable block would end the process; here it counts as damage.
//!
//! A crash may keep any subset of the pages written since the last sync. No client had an answer about these writes.
//! Every record has the place up to which the log was on the disk when the record was appended. Before the largest of
//! these places, an unreadable record is damage. After it, an unreadable record is the end of the log. So recovery
//! cannot distinguish damage in the last batches from the crash. The file with a segment's keys also records how far
//! the log was on the disk. That record is newer: at most about 50 ms old. Without durability, every unreadable record
//! is damage.

mod commits;
mod losses;
mod part;
mod report;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(crate) use self::commits::records;
pub(crate) use self::losses::Losses;
use self::part::{Part, Tail};
pub(crate) use self::report::DOUBTS_MAX;
pub use self::report::{Doubt, Lost, Report};
use super::directory::{Directory, DirectoryError, Made, Opened, Reached};
use super::log::{RESERVED, Recovered};
use super::place::{Location, SegmentId};
use super::record::Sequence;
use super::segment::Segment;

/// A record to restore.
pub(crate) struct Found {
    pub(crate) at: Location,
    pub(crate) sequence: Sequence,
    pub(crate) part: u32,
}

/// Progress of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The current pass.
    pub pass: Pass,
    /// Bytes of the segments that the pass has read.
    pub bytes: u64,
    /// Bytes of all segments.
    pub bytes_all: u64,
}

/// The two passes over a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Checks every checksum.
    Check,
    /// Puts the records in the tables.
    Restore,
}

/// What a recovery knows about the log as a whole.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The place up to which the records say that the log was on the disk.
    settled: Option<Location>,
    /// Segments with unreadable records.
    pub(crate) damaged: BTreeSet<SegmentId>,
    /// The damaged stretches between records: the place where each begins, and the offset where it ends.
    gaps: BTreeMap<Location, usize>,
    pub(crate) unreadable: BTreeSet<SegmentId>,
    behind_lost: BTreeSet<SegmentId>,
    /// The records that damage may have taken.
    pub(crate) losses: Losses,
}

/// Without a manifest, the store skips this many commit numbers: it may have made commits that no segment shows.
const UNSEEN_MAX: Sequence = 1 << 40;

/// Reads the segments of a directory. New segments will have `segment_bytes`, or the size of the largest one: so the
/// live records of any segment fit two new ones. Damage is an error, unless `lost` collects it. `promises`: whether
/// acknowledged commits must be on the disk; if false, the log does not wait for the disk.
pub(crate) fn read_segments(
    opened: &mut Opened,
    segment_bytes: usize,
    promises: bool,
    lost: Option<&mut Vec<Lost>>,
    tell: &mut dyn FnMut(Opening),
) -> Result<(Recovered, Findings), DirectoryError> {
    let Opened { directory, manifest, is_rebuilt, .. } = opened;
    let directory = &*directory;
    let mut costs = Costs(lost);
    let mut findings = Findings::default();
    let mut parts = Vec::new();
    let bytes_all = manifest.segments.values().map(|made| made.bytes as u64).sum();
    let sizes = manifest.segments.values().map(|made| made.bytes);
    let segment_bytes = sizes.fold(segment_bytes, usize::max);
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
    if *is_rebuilt {
        let last = parts.iter().map(|part| part.scan.last).max().unwrap_or(0) + UNSEEN_MAX;
        manifest.reached =
            Reached { last, settled: None, compacted: last, floor: last, unsure: last };
        let noted = directory.note(manifest.reached);
        noted.map_err(|error| DirectoryError::Io(directory.path().to_owned(), error))?;
    }
    let settled =
        parts.iter().filter_map(|part| part.scan.settled).chain(manifest.reached.settled).max();
    // The files of keys may record a later place than the records do.
    let last_segment = settled.map_or(0, |settled| settled.segment);
    let last = manifest.segments.range(last_segment..);
    let listed = last.filter_map(|(&id, &made)| directory.known_keys(id, made).settled);
    findings.settled = settled.into_iter().chain(listed).max();
    let lazy = parts.iter().filter_map(|part| part.scan.lazy);
    let must_be_there = lazy.chain(findings.settled).max();
    let is_damage = |place: Location| must_be_there.is_some_and(|end| place < end);

    let mut log = Reading {
        directory,
        segment_bytes,
        promises,
        must_be_there,
        reached: manifest.reached,
        kept: Vec::new(),
        blank: Vec::new(),
        tail: None,
    };
    log.reached.settled = findings.settled;
    // The end of a lost stretch that has no later record in its segment.
    let end_in = |id, reserved| match must_be_there {
        Some(end) if end.segment == id => end.offset(),
        _ => reserved,
    };
    let mut unreadable: Vec<_> = findings.unreadable.iter().copied().collect();
    let mut lose_before = |losses: &mut Losses, id| {
        let later = unreadable.split_off(unreadable.partition_point(|&other| other < id));
        for id in std::mem::replace(&mut unreadable, later) {
            let made = manifest.segments[&id];
            if is_damage(Location::new(id, 0)) {
                losses.lose(&directory.known_keys(id, made), 0, end_in(id, made.bytes), None);
            }
        }
    };
    let mut parts = parts.into_iter();
    while let Some(mut part) = parts.next() {
        let id = part.id;
        lose_before(&mut findings.losses, id);
        if let Some(before) = part.scan.before {
            findings.losses.show(before);
        }
        if let Some(short) = part.short {
            costs.take(&part.path, "cut short", part.offset(part.filled), short)?;
            findings.damaged.insert(id);
        }
        // Read at most once for each segment.
        let known = OnceCell::new();
        let made = part.made();
        let known = || known.get_or_init(|| directory.known_keys(id, made));
        for gap in std::mem::take(&mut part.scan.gaps) {
            let place = Location::new(id, gap.place.start);
            if !is_damage(place) {
                part.scan.end = gap.place.start;
                part.scan.tail = gap.tail;
                part.scan.seal = None;
                break;
            }
            let what = match part.is_unreadable_in(&gap.place) {
                true => "the disk cannot read it",
                false => "the bytes are not those that were written",
            };
            let (offset, bytes) = (part.offset(gap.place.start), gap.place.len() as u64);
            costs.take(&part.path, what, offset, bytes)?;
            findings.damaged.insert(id);
            findings.gaps.insert(place, gap.place.end);
            findings.losses.lose(known(), gap.place.start, gap.place.end, gap.before);
        }
        let mut goes_on = part.scan.seal.is_some();
        if !goes_on && is_damage(Location::new(id, part.scan.end)) {
            goes_on = true;
            costs.take(&part.path, "the end is missing", part.offset(part.scan.end), 0)?;
            findings.losses.lose(known(), part.scan.end, end_in(id, part.reserved), None);
            findings.behind_lost.extend(parts.as_slice().first().map(|next| next.id));
            if part.scan.end == 0 {
                findings.unreadable.insert(id);
                continue;
            }
            findings.damaged.insert(id);
        }
        if !goes_on {
            // The log ends here. Later segments are spares, or a crash cut them off.
            parts.by_ref().rev().try_for_each(|behind| log.leave(behind))?;
        }
        log.keep(part)?;
    }
    lose_before(&mut findings.losses, SegmentId::MAX);
    log.reached.last = findings.losses.end(log.reached.last);
    log.close(&findings.damaged)?;
    // The writes of a killed process may not be on the disk yet.
    directory.sync().map_err(|error| DirectoryError::Io(directory.path().to_owned(), error))?;
    let ids = || log.kept.iter().map(|part| part.id);
    findings
        .behind_lost
        .extend(findings.unreadable.iter().filter_map(|&lost| ids().find(|&id| id > lost)));
    let next = manifest.segments.keys().next_back().map_or(1, |id| id + 1);
    let next = next.max(findings.settled.map_or(1, |settled| settled.segment + 1));
    let spare = log.spare()?;
    let last = log.reached.last;
    let segments = log.kept.into_iter().map(Part::whole).collect::<Result<_, _>>()?;
    Ok((Recovered { segments, spare, next, last, segment_bytes }, findings))
}

/// The losses of a repair; without one, damage is an error.
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
    /// Up to here, the log was on the disk.
    must_be_there: Option<Location>,
    reached: Reached,
    kept: Vec<Part>,
    /// Segments without records, after the end of the log.
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

    /// Removes a segment from the log, unless it can serve as a spare.
    fn leave(&mut self, part: Part) -> Result<(), DirectoryError> {
        if part.is_blank && part.reserved == self.segment_bytes {
            self.blank.push(part);
            return Ok(());
        }
        self.drop(&part)
    }

    /// The spare segments in the order of their numbers, at most as many as a log keeps. Reuses blank segments, because
    /// a full disk may have no space for new ones.
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

    /// Cuts off an incomplete commit at the end, and seals the log. So no later recovery takes the bytes after the end
    /// for records.
    fn close(&mut self, damaged: &BTreeSet<SegmentId>) -> Result<(), DirectoryError> {
        // A seal would hide that the end is missing, if this repair is interrupted. A commit that is cut off is no
        // missing end, even if the log promised its records: without a seal, they would come back.
        let is_lost_end = self
            .kept
            .last()
            .is_some_and(|end| Some(Location::new(end.id, end.scan.end)) < self.must_be_there);
        let is_cut_off = |tail: &Tail| tail.more && Some(tail.at) >= self.reached.settled;
        // After the beginning of this commit, the log contains only this commit, because it held the log's lock.
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
        if self.directory.is_dry() {
            return Ok(());
        }
        let settled = self.reached.settled.unwrap_or(Location::new(0, 0));
        for part in self.kept.iter().filter(|part| part.id >= settled.segment) {
            // A log without durability promises nothing about this segment.
            if part.scan.lazy.is_some() && !self.promises {
                continue;
            }
            let from = if part.id == settled.segment { settled.offset() } else { 0 };
            let again = part.write_again(from);
            again.map_err(|error| DirectoryError::Io(part.path.clone(), error))?;
        }
        let Some(end) = self.kept.last_mut() else { return Ok(()) };
        let mut cut_at = SegmentId::MAX;
        if end.scan.seal.is_none() && !is_lost_end {
            let sealed = end.seal(self.reached.last);
            sealed.map_err(|error| DirectoryError::Io(end.path.clone(), error))?;
            cut_at = end.id;
        }
        // A damaged segment keeps its list: if this repair is interrupted, the next one needs it.
        let whole = self.kept.iter().filter(|part| !damaged.contains(&part.id));
        // A crash may also have left the list of the previous segment incomplete.
        for part in whole.filter(|part| part.id + 1 >= settled.segment) {
            if part.id == cut_at || !part.has_all_keys(self.directory) {
                // Only a repair reads these lists, so a failure is no error.
                let _ = part.write_keys(self.directory);
            }
        }
        Ok(())
    }
}
