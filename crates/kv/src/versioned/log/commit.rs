//! A commit while it is appended to the log.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use super::head::Head;
use crate::versioned::place::Location;
use crate::versioned::record::{OnDisk, Record, Sequence};
use crate::versioned::segment::Segment;

/// A commit while it is appended. It locks the end of the log.
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
