//! The end of the log, and the turns that write the log to the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::place::Location;
use crate::record::{HEAD_BYTES, OnDisk, Record, Sequence};
use crate::segment::Segment;
use crate::types::Grouping;

#[derive(Debug)]
pub(super) struct Head {
    /// The active segment. While there is no space for one: a placeholder that fits no record and that no table
    /// finds.
    pub(super) active: Arc<Segment>,
    pub(super) last: Sequence,
    /// Number of records since the log was opened.
    pub(super) appended: u64,
    /// The first of them that no turn has taken yet.
    grouped: u64,
    /// Full segments that may not yet be on the disk, oldest first.
    pub(super) full: Vec<Arc<Segment>>,
    /// The commits that no turn has taken yet, oldest first, if the log has a [`Grouping`].
    pub(super) ends: VecDeque<End>,
    /// Whether the next turn begins at once and takes all commits, as a thread needs everything on the disk.
    pub(super) takes_all: bool,
}

/// The end of a commit.
#[derive(Debug)]
pub(super) struct End {
    pub(super) at: Instant,
    sequence: Sequence,
    place: Location,
    appended: u64,
}

/// The records that one turn writes.
#[derive(Debug)]
pub(super) struct Group {
    /// The last commit of the group.
    pub(super) last: Sequence,
    pub(super) records: u64,
    pub(super) full: Vec<Arc<Segment>>,
    /// The last segment of the group, which may have later records.
    pub(super) active: Arc<Segment>,
    /// The end of the group: always the end of a commit.
    pub(super) end: Location,
    /// Whether the segment has records of later commits, which must not be written yet.
    pub(super) is_part: bool,
}

impl Head {
    pub(super) fn new(active: Arc<Segment>, last: Sequence) -> Head {
        let (full, ends) = Default::default();
        Head { active, last, appended: 0, grouped: 0, full, ends, takes_all: false }
    }

    /// Notes the end of a commit.
    pub(super) fn note_end(&mut self, sequence: Sequence) {
        let (place, appended) = (self.end(), self.appended);
        self.ends.push_back(End { at: Instant::now(), sequence, place, appended });
    }

    /// Until when a turn waits for further commits; `None` if it waits for none.
    pub(super) fn dallies_until(&self, grouping: Grouping) -> Option<Instant> {
        let Grouping { dally, commits_max } = grouping;
        let is_full = self.takes_all || self.ends.len() >= commits_max;
        let first = self.ends.front().filter(|_| !is_full)?;
        let until = first.at + dally;
        (until > Instant::now()).then_some(until)
    }

    /// Takes all records that no turn has taken, or those of the oldest `commits_max` commits.
    pub(super) fn take_group(&mut self, commits_max: usize) -> Group {
        let grouped = self.grouped;
        if std::mem::take(&mut self.takes_all) || self.ends.len() <= commits_max {
            self.ends.clear();
            self.grouped = self.appended;
            return Group {
                last: self.last,
                records: self.appended - grouped,
                full: std::mem::take(&mut self.full),
                active: Arc::clone(&self.active),
                end: self.end(),
                is_part: false,
            };
        }
        let End { sequence, place, appended, .. } =
            self.ends.drain(..commits_max).next_back().expect("a group has a commit");
        self.grouped = appended;
        let whole = self.full.iter().take_while(|full| full.id != place.segment).count();
        let active = Arc::clone(self.full.get(whole).unwrap_or(&self.active));
        Group {
            last: sequence,
            records: appended - grouped,
            full: self.full.drain(..whole).collect(),
            active,
            end: place,
            is_part: true,
        }
    }

    pub(super) fn end(&self) -> Location {
        Location::new(self.active.id, self.active.filled())
    }

    /// Free bytes of the active segment.
    pub(super) fn room(&self) -> usize {
        self.active.capacity() - HEAD_BYTES - self.active.filled()
    }

    /// Seals the active segment, and makes `fresh` the active one.
    pub(super) fn turn_to(&mut self, fresh: Arc<Segment>, on_disk: OnDisk) {
        let full = std::mem::replace(&mut self.active, fresh);
        if !full.takes_nothing() {
            full.append(&Record::seal(self.last, on_disk));
            self.full.push(full);
        }
    }
}

/// The turns in which threads write to the disk. A turn writes all records that were appended before it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether a thread has the turn. If not, the turn numbered `turn` is over.
    pub(super) taken: bool,
    /// The number of the turn, counted from 1.
    pub(super) turn: usize,
    /// The last commit that the turn syncs.
    pub(super) up_to: Sequence,
}
