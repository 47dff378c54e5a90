//! Begins a commit and appends its records.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, MutexGuard};

use super::Log;
use super::head::Head;
use super::spares::RESERVED;
use crate::place::Location;
use crate::record::{HEAD_BYTES, OnDisk, Record, Sequence};
use crate::segment::Segment;
use crate::types::{Unwritable, lock};

impl Log {
    /// Begins a commit of records of these lengths, and takes the segments for all of them: so a commit that has begun
    /// cannot fail. A commit that only `frees` space may take one segment beyond the limit.
    pub(crate) fn begin(
        &self,
        record_bytes: impl Iterator<Item = usize> + Clone,
        frees: bool,
    ) -> Result<Commit<'_>, Unwritable> {
        let beyond = usize::from(frees);
        let mut head = lock(&self.head);
        if let Some(why) = self.broken.get() {
            return Err(Unwritable::Broken(why.clone()));
        }
        // The active segment may have come from the reserve.
        if self.is_beyond_limit(0, beyond) {
            return Err(self.limit_reached());
        }
        if self.is_in_reserve(beyond) {
            self.spares.fill(0, self.left(beyond), false, || self.make_segment())?;
        }
        let mut fresh = Vec::new();
        let mut room = head.room();
        for bytes in record_bytes {
            if bytes > room {
                match self.fresh_segment(bytes, fresh.len(), beyond) {
                    Ok(segment) => fresh.push(segment),
                    Err(error) => {
                        self.spares.give_back(fresh);
                        return Err(error);
                    }
                }
                room = self.segment_bytes - HEAD_BYTES;
            }
            room -= bytes;
        }
        let fresh = self.enter(fresh);
        self.forget_full(&mut head);
        head.last += 1;
        let (sequence, on_disk) = (head.last, self.on_disk());
        let group = self.grouping.get().map(|grouping| (grouping.commits_max, &self.company));
        let room = &self.room;
        Ok(Commit { sequence, head, room, fresh, is_begun: false, is_noted: false, group, on_disk })
    }

    /// Begins to move a record of an earlier commit to the end of the log. Moves free a segment. So they may use the
    /// reserve, and exceed the limit by [`RESERVED`] segments.
    pub(crate) fn begin_move(&self, record: &Record<'_>) -> Result<Commit<'_>, Unwritable> {
        let mut head = lock(&self.head);
        if let Some(why) = self.broken.get() {
            return Err(Unwritable::Broken(why.clone()));
        }
        let mut fresh = Vec::new();
        if record.bytes() > head.room() {
            fresh.push(self.fresh_segment(record.bytes(), 0, RESERVED)?);
        }
        let fresh = self.enter(fresh);
        self.forget_full(&mut head);
        let on_disk = self.on_disk();
        let (sequence, room, group) = (record.sequence, &self.room, None);
        Ok(Commit { sequence, head, room, fresh, is_begun: true, is_noted: false, group, on_disk })
    }

    /// Takes a segment for a record of `bytes`. The commit has already taken `before` segments. It may exceed the
    /// limit by `beyond` segments, and take as many from the reserve.
    pub(super) fn fresh_segment(
        &self,
        bytes: usize,
        before: usize,
        beyond: usize,
    ) -> Result<Segment, Unwritable> {
        if bytes > self.segment_bytes - HEAD_BYTES {
            return Err(Unwritable::Full(format!(
                "a record of {bytes} bytes is larger than a segment"
            )));
        }
        if self.is_beyond_limit(before + 1, beyond) {
            return Err(self.limit_reached());
        }
        self.spares.take(self.left(beyond), beyond > 0, || self.make_segment())
    }

    fn limit_reached(&self) -> Unwritable {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        Unwritable::Full(format!("the limit of {bytes_max} bytes is reached"))
    }
}

/// A commit in progress. It holds the lock on the end of the log.
#[derive(Debug)]
pub(crate) struct Commit<'a> {
    /// The number of the commit in the order of all commits.
    pub(crate) sequence: Sequence,
    /// Whether a record of the commit is in the log. A moved record counts as a later one of its commit.
    is_begun: bool,
    /// Whether the active segment has noted a request with an id.
    is_noted: bool,
    /// The largest number of commits in a sync, and the thread that waits for them, if the log has a grouping.
    group: Option<(usize, &'a Condvar)>,
    on_disk: OnDisk,
    head: MutexGuard<'a, Head>,
    room: &'a AtomicUsize,
    fresh: std::vec::IntoIter<Arc<Segment>>,
}

impl Commit<'_> {
    pub(crate) fn append_moved(&mut self, record: &Record<'_>) -> Location {
        self.append(&Record { moved: true, more: false, ..*record })
    }

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
        self.head.appended += 1;
        let first = !std::mem::replace(&mut self.is_begun, true);
        let at = self.head.active.append(&Record { first, on_disk: self.on_disk, ..*record });
        self.room.store(self.head.room(), Ordering::Relaxed);
        if let Some((commits_max, company)) = self.group
            && !record.more
            && !record.moved
        {
            self.head.note_end(self.sequence);
            if self.head.ends.len() == commits_max {
                company.notify_one();
            }
        }
        at
    }
}
