//! The end of the log, and the turns that write the log to the disk.

use std::sync::Arc;

use crate::place::Location;
use crate::record::{HEAD_BYTES, OnDisk, Record, Sequence};
use crate::segment::Segment;

#[derive(Debug)]
pub(super) struct Head {
    /// The active segment. While there is no space for one: a placeholder that fits no record and that no table
    /// finds.
    pub(super) active: Arc<Segment>,
    pub(super) last: Sequence,
    /// Number of records that no turn has taken yet.
    pub(super) ungrouped: u64,
    /// Full segments that may not yet be on the disk, oldest first.
    pub(super) full: Vec<Arc<Segment>>,
}

impl Head {
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
