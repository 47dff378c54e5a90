//! A commit while it is appended to the log.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use super::{Head, Log, RESERVED, Unwritable, lock};
use crate::versioned::record::{HEAD_BYTES, OnDisk, Record, Sequence};
use crate::versioned::segment::{Location, Segment};

/// A commit while it is appended: nobody else appends.
#[derive(Debug)]
pub(crate) struct Commit<'a> {
    /// Its place among all commits.
    pub(crate) sequence: Sequence,
    pub(super) is_begun: bool,
    /// Whether the active segment knows that there is a request with an id.
    pub(super) is_noted: bool,
    pub(super) on_disk: OnDisk,
    pub(super) head: MutexGuard<'a, Head>,
    pub(super) room: &'a AtomicUsize,
    pub(super) fresh: std::vec::IntoIter<Arc<Segment>>,
}

impl Commit<'_> {
    /// Appends the record of an earlier commit that it was begun for.
    pub(crate) fn append_moved(&mut self, record: &Record<'_>) -> Location {
        self.append(&Record { moved: true, more: false, ..*record })
    }

    /// Appends one of the records that it was begun with, in their order.
    pub(crate) fn append(&mut self, record: &Record<'_>) -> Location {
        if record.bytes() > self.head.room() {
            let fresh = self.fresh.next().expect("a commit has all the segments that it needs");
            self.head.turn_to(fresh, self.on_disk);
            self.is_noted = false;
        }
        if record.request.is_some() && !record.moved && !self.is_noted {
            self.head.active.note_request();
            self.is_noted = true;
        }
        self.head.ungrouped += 1;
        let first = !std::mem::replace(&mut self.is_begun, true);
        let at = self.head.active.append(&Record { first, on_disk: self.on_disk, ..*record });
        self.room.store(self.head.room(), Ordering::Relaxed);
        at
    }
}

impl Head {
    /// The segment that was written to is full; this one is from now on.
    fn turn_to(&mut self, fresh: Arc<Segment>, on_disk: OnDisk) {
        let full = std::mem::replace(&mut self.active, fresh);
        if !full.takes_nothing() {
            full.append(&Record::seal(self.last, on_disk));
            self.full.push(full);
        }
    }
}

impl Log {
    /// Ends the segment that is written to, where so many bytes of it are dead: until it is full they could
    /// not be had back. Returns whether they can be now, or once it is on the disk. Not where the disk has
    /// no room: what is reserved there is for what is moved.
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
}
