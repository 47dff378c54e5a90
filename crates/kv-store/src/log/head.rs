//! Where the log is written to, and whose turn it is to write it to the disk.

use std::sync::Arc;

use crate::place::Location;
use crate::record::{HEAD_BYTES, OnDisk, Record, Sequence};
use crate::segment::Segment;

#[derive(Debug)]
pub(super) struct Head {
    /// The segment that is written to; while there is no room for one, a segment that takes nothing and that no
    /// table finds.
    pub(super) active: Arc<Segment>,
    pub(super) last: Sequence,
    /// Records that are in no group yet.
    pub(super) ungrouped: u64,
    /// Full, and perhaps not yet on the disk; oldest first.
    pub(super) full: Vec<Arc<Segment>>,
}

impl Head {
    /// Where the log ends.
    pub(super) fn end(&self) -> Location {
        Location::new(self.active.id, self.active.filled())
    }

    /// Bytes of records that the segment that is written to still takes.
    pub(super) fn room(&self) -> usize {
        self.active.capacity() - HEAD_BYTES - self.active.filled()
    }

    /// The segment that was written to is full; this one is from now on.
    pub(super) fn turn_to(&mut self, fresh: Arc<Segment>, on_disk: OnDisk) {
        let full = std::mem::replace(&mut self.active, fresh);
        if !full.takes_nothing() {
            full.append(&Record::seal(self.last, on_disk));
            self.full.push(full);
        }
    }
}

/// Threads write to the disk in turns, each for all that appended before.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether a thread has the turn; otherwise the turn with this number is over.
    pub(super) taken: bool,
    /// Counted from 1.
    pub(super) turn: usize,
    /// The last commit that it makes safe.
    pub(super) up_to: Sequence,
}
