//! The log: every commit in order, in segments, durable if configured.
//!
//! A commit takes effect in the tables when it is appended. Clients may see it only after [`Log::sync`];
//! [`Log::synced`] is the last commit that clients may see. With [`Durability::Always`] it is on the disk. Otherwise
//! the operating system has it: a killed process loses nothing, but a power cut may take it. One caller of
//! [`Log::sync`] writes the commits of all callers.

mod ahead;
mod commit;
mod head;
mod held;
mod spares;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock};

use knee_kv_cache::engine::Version;
use knee_kv_cache::versions::CommitFigures;

use self::head::{Head, Turns};
pub(crate) use self::spares::RESERVED;
use self::spares::{Spares, is_full, refused};
use super::directory::{Directory, Reached};
use super::figures::CommitCounters;
use super::place::{Location, SEGMENT_BYTES_MAX, SegmentId};
use super::record::{HEAD_BYTES, OnDisk, Record, Sequence};
use super::segment::Segment;
use super::types::{Durability, Grouping, Unwritable, lock};

/// The smallest segment size: there is room for a delete record with a short key, and for the seal.
const SEGMENT_BYTES_MIN: usize = 1024;

#[derive(Debug)]
pub(crate) struct Log {
    head: Mutex<Head>,
    /// Free bytes of the active segment, for callers that ask before they commit.
    room: AtomicUsize,
    segments: RwLock<BTreeMap<SegmentId, Arc<Segment>>>,
    /// Bytes of all `segments`. Older segments may differ in size from new ones.
    taken: AtomicU64,
    /// The smallest value of `taken` since the log was opened.
    taken_least: AtomicU64,
    /// Counts changes of `segments`. Tables that cache segments compare it.
    generation: AtomicU64,
    /// The directory of its segments; `None` in memory.
    directory: Option<Directory>,
    durability: Durability,
    segment_bytes: usize,
    bytes_max: AtomicU64,
    /// Prepared segments.
    spares: Spares,
    next: AtomicU32,
    turns: Mutex<Turns>,
    /// How commits share syncs. Without it, a turn begins at once, and takes all commits.
    grouping: OnceLock<Grouping>,
    /// The thread that waits with its turn for further commits. It waits for changes of `head`.
    company: Condvar,
    /// Locked while records are handed to the system, so that it gets them in order.
    handing: Mutex<()>,
    /// In a turn, one thread writes all records appended so far ([`Turns`]). Threads wait at the first condition for
    /// turns with even numbers, at the second for turns with odd numbers. The end of a turn wakes all threads that wait
    /// for this turn, and one thread that waits for the next turn. With one condition for all turns, waking a hundred
    /// threads took half of the processors' time.
    turn_over: [Condvar; 2],
    /// The last commit that is as durable as configured.
    synced: AtomicU64,
    /// The place up to which the log is on the disk, as [`Location::to_bits`]; 0 while unknown.
    settled: AtomicU64,
    broken: OnceLock<String>,
    made_safe: CommitCounters,
}

/// Facts about the store that its records no longer show.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Forgotten {
    /// Versions before this commit may have been dropped.
    pub(crate) compacted: Sequence,
    /// With `sequential` consistency: no forgotten key had a version above this.
    pub(crate) floor: Version,
    /// Keys without records may have existed before this commit.
    pub(crate) unsure: Sequence,
}

#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Spare segments, in the order of their numbers.
    pub(crate) spare: Vec<Segment>,
    pub(crate) next: SegmentId,
    pub(crate) last: Sequence,
    /// Size of new segments: no earlier one is larger.
    pub(crate) segment_bytes: usize,
}

impl Recovered {
    /// The state of a new log.
    pub(crate) fn nothing(segment_bytes: usize) -> Recovered {
        Recovered { segments: Vec::new(), spare: Vec::new(), next: 1, last: 0, segment_bytes }
    }
}

impl Log {
    /// Opens a new log, or continues a recovered one.
    ///
    /// # Errors
    /// When the system has no space for a segment, or the segment size is out of range.
    pub(crate) fn new(
        directory: Option<(Directory, Durability)>,
        recovered: Recovered,
        bytes_max: u64,
    ) -> io::Result<Log> {
        let Recovered { segments, spare, mut next, last, segment_bytes } = recovered;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            let least = SEGMENT_BYTES_MIN;
            let what = format!(
                "segment size {segment_bytes}: not between {least} and {SEGMENT_BYTES_MAX} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (directory, durability) = match directory {
            Some((directory, durability)) => (Some(directory), durability),
            None => (None, Durability::None),
        };
        let mut segments: BTreeMap<_, _> =
            segments.into_iter().map(|segment| (segment.id, segment)).collect();
        let mut spare = VecDeque::from(spare);
        let mut shortage = None;
        // Make the reserve for deletes and moves at the start.
        if spare.len() <= if directory.is_some() { RESERVED } else { 0 } {
            match new_segment(directory.as_ref(), next, segment_bytes) {
                Ok(segment) => spare.push_back(segment),
                // A full disk: the store still opens and serves reads; deletes and moves use the recovered spares.
                Err(error) if is_full(&error) && !segments.is_empty() => {
                    shortage = Some(error);
                }
                Err(error) => return Err(error),
            }
            next = next.saturating_add(1);
        }
        let active = match &shortage {
            None => Arc::new(spare.pop_front().expect("one was made")),
            Some(_) => {
                let id = spare.front().map_or(next, |segment| segment.id);
                Arc::new(Segment::growing(id, 0, HEAD_BYTES)?)
            }
        };
        if !active.takes_nothing() {
            segments.insert(active.id, Arc::clone(&active));
        }
        let settled = match durability {
            Durability::Always | Durability::Interval(_) => Location::new(active.id, 0).to_bits(),
            Durability::None => 0,
        };
        let head = Head::new(active, last);
        let taken = segments.values().map(|segment| segment.reserved as u64).sum();
        Ok(Log {
            room: AtomicUsize::new(head.room()),
            head: Mutex::new(head),
            taken: AtomicU64::new(taken),
            taken_least: AtomicU64::new(taken),
            segments: RwLock::new(segments),
            generation: AtomicU64::new(0),
            directory,
            durability,
            segment_bytes,
            bytes_max: AtomicU64::new(bytes_max),
            spares: Spares::new(spare, shortage.as_ref()),
            next: AtomicU32::new(next),
            turns: Mutex::default(),
            grouping: OnceLock::new(),
            company: Condvar::new(),
            handing: Mutex::default(),
            turn_over: [Condvar::new(), Condvar::new()],
            synced: AtomicU64::new(last),
            settled: AtomicU64::new(settled),
            broken: OnceLock::new(),
            made_safe: CommitCounters::default(),
        })
    }

    /// Number of segments to keep in reserve: none in memory, where no disk is full.
    fn reserved(&self) -> usize {
        if self.is_durable() { RESERVED } else { 0 }
    }

    /// Whether a segment is missing because the disk has no space, although the log's limit allows the segment.
    pub(crate) fn is_short(&self) -> bool {
        self.spares.is_short()
    }

    /// Why a segment could not be made, and the consequence.
    pub(crate) fn shortage(&self) -> Option<String> {
        self.spares.shortage()
    }

    fn make_segment(&self) -> io::Result<Segment> {
        let id = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
            .map_err(|_| io::Error::other("the log has used all numbers of segments"))?;
        new_segment(self.directory.as_ref(), id, self.segment_bytes)
    }

    /// Makes the reserved segments, and the next one if it will soon be needed. Returns whether the disk has space
    /// again after it had none.
    pub(crate) fn prepare(&self) -> Result<bool, Unwritable> {
        let was_short = self.is_short();
        let half = {
            let head = lock(&self.head);
            2 * head.active.filled() >= head.active.capacity()
        };
        let allowed =
            self.taken() + self.segment_bytes as u64 <= self.bytes_max.load(Ordering::Relaxed);
        let next = usize::from(allowed && (half || self.spares.is_wanted()));
        let needed = self.reserved() + next;
        self.spares.fill(needed, 0, true, || self.make_segment())?;
        let is_over = was_short && !self.is_short();
        self.spares.forget_shortage();
        Ok(is_over)
    }

    /// Closes the active segment if at least `dead_least` of its bytes are dead, because only closed segments are
    /// reclaimed. Returns whether it did. Does nothing on a full disk: the next segment would come from the reserve,
    /// which moves need.
    pub(crate) fn turn_over(&self, dead_least: u64) -> Result<bool, Unwritable> {
        let mut head = lock(&self.head);
        let (filled, live) = (head.active.filled() as u64, head.active.live());
        let is_kept = self.broken.get().is_some() || self.is_short();
        if is_kept || filled.saturating_sub(live) < dead_least {
            return Ok(false);
        }
        let fresh = self.fresh_segment(HEAD_BYTES, 0, RESERVED)?;
        for fresh in self.enter(vec![fresh]) {
            head.turn_to(fresh, self.on_disk());
        }
        self.forget_full(&mut head);
        self.room.store(head.room(), Ordering::Relaxed);
        Ok(true)
    }

    pub(crate) fn end(&self) -> Location {
        lock(&self.head).end()
    }

    /// The last complete commit.
    pub(crate) fn last(&self) -> Sequence {
        lock(&self.head).last
    }

    /// Sets how commits share syncs, unless the log does not wait for syncs.
    pub(crate) fn group_commits(&self, grouping: Grouping) {
        if self.durability() == Some(Durability::Always) {
            let _ = self.grouping.set(grouping);
        }
    }

    /// The last commit that is as durable as configured.
    pub(crate) fn synced(&self) -> Sequence {
        if self.is_durable() { self.synced.load(Ordering::Acquire) } else { Sequence::MAX }
    }

    /// Counts and times of synced commits; all zeros without durability.
    pub(crate) fn commit_figures(&self) -> CommitFigures {
        self.made_safe.take()
    }

    pub(crate) fn active(&self) -> SegmentId {
        lock(&self.head).active.id
    }

    /// The durability; `None` for a log in memory.
    pub(crate) fn durability(&self) -> Option<Durability> {
        self.directory.is_some().then_some(self.durability)
    }

    /// Whether the log outlives the process.
    pub(crate) fn is_durable(&self) -> bool {
        self.directory.is_some()
    }

    /// Removes a dead segment, once the records that moved out of it are on the disk. Its blocks are free once no table
    /// maps its file; then call [`Log::refill_from_removed`].
    pub(crate) fn remove(&self, id: SegmentId, forgotten: Forgotten) -> Result<(), Unwritable> {
        if let Some(directory) = &self.directory {
            let end = lock(&self.head).end();
            self.write_out()?;
            if self.durability == Durability::None {
                // The moved records must be on the disk before their originals go. If this sync fails, the log is
                // broken: the system reports a failed write only once, so a second sync would succeed.
                directory.sync().map_err(|error| self.broken_by(&error))?;
                self.settled.fetch_max(end.to_bits(), Ordering::Relaxed);
            }
            let reached = self.reached(forgotten);
            directory.remove(id, reached).map_err(|error| refused(&error))?;
        }
        self.replace(id, None);
        Ok(())
    }

    /// Refills the reserve with the blocks of a removed segment, before another process takes them. If this fails, a
    /// later commit reports the failure.
    pub(crate) fn refill_from_removed(&self) {
        if self.is_durable() {
            let _ = self.spares.fill(RESERVED, 0, true, || self.make_segment());
        }
        self.spares.freed();
    }

    /// Records in the manifest what was forgotten, and how far the log has come.
    pub(crate) fn note(&self, forgotten: Forgotten) -> Result<(), Unwritable> {
        match &self.directory {
            Some(directory) => {
                directory.note(self.reached(forgotten)).map_err(|error| refused(&error))
            }
            None => Ok(()),
        }
    }

    /// Writes the lists of keys of growing segments to their files. Only a repair reads them.
    pub(crate) fn write_keys(&self) {
        if let Some(directory) = &self.directory {
            directory.write_keys(self.settled.load(Ordering::Relaxed));
        }
    }

    fn reached(&self, Forgotten { compacted, floor, unsure }: Forgotten) -> Reached {
        Reached { last: self.last(), settled: self.on_disk().settled, compacted, floor, unsure }
    }

    /// Removes an unreadable segment from the log, and renames its file.
    pub(crate) fn set_aside(&self, id: SegmentId) -> io::Result<()> {
        self.directory.as_ref().map_or(Ok(()), |directory| directory.set_aside(id))
    }

    /// Marks the log as broken: it refuses every further commit.
    fn broken_by(&self, error: &io::Error) -> Unwritable {
        Unwritable::Broken(self.broken.get_or_init(|| error.to_string()).clone())
    }

    /// The place up to which the log is known to be on the disk: always the end of a commit.
    fn on_disk(&self) -> OnDisk {
        OnDisk {
            settled: Location::from_bits(self.settled.load(Ordering::Relaxed)),
            lazy: self.durability == Durability::None,
        }
    }

    /// Writes everything to the disk, and seals the log. Nothing may be appended afterwards.
    pub(crate) fn close(&self) -> Result<(), Unwritable> {
        self.write_out()?;
        if self.directory.is_some() {
            let head = lock(&self.head);
            if !head.active.takes_nothing() {
                head.active.append(&Record::seal(head.last, self.on_disk()));
            }
        }
        self.write_out()?;
        self.write_keys();
        // The reserved segments stay: another process might take their space before the next start.
        for spare in self.spares.drain(RESERVED) {
            if let Some(directory) = &self.directory {
                let _ = directory.remove(spare.id, self.reached(Forgotten::default()));
            }
        }
        Ok(())
    }
}

fn new_segment(directory: Option<&Directory>, id: SegmentId, bytes: usize) -> io::Result<Segment> {
    match directory {
        Some(directory) => directory.create(id, bytes),
        None => Segment::growing(id, 0, bytes),
    }
}
