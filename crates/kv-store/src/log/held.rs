//! The segments of the log, and their size.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Log;
use super::head::Head;
use crate::place::SegmentId;
use crate::segment::Segment;
use crate::types::lock;

impl Log {
    /// Adds segments, so that tables find them.
    pub(super) fn enter(&self, fresh: Vec<Segment>) -> std::vec::IntoIter<Arc<Segment>> {
        let fresh: Vec<_> = fresh.into_iter().map(Arc::new).collect();
        if !fresh.is_empty() {
            let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
            segments.extend(fresh.iter().map(|segment| (segment.id, Arc::clone(segment))));
            let bytes = fresh.iter().map(|segment| segment.reserved as u64).sum();
            self.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        fresh.into_iter()
    }

    /// Empties the list of full segments if the log is in memory, where no turn writes them.
    pub(super) fn forget_full(&self, head: &mut Head) {
        if self.directory.is_none() {
            head.full.clear();
        }
    }

    /// Changes the limit of the log, in bytes.
    pub(crate) fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all segments, and their limit.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.taken(), self.bytes_max.load(Ordering::Relaxed))
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Segments that no longer grow. Of a log on disk, only those that are read from their files.
    pub(crate) fn full_segments(&self) -> Vec<Arc<Segment>> {
        let head = lock(&self.head);
        let waiting = |id| head.active.id <= id || head.full.iter().any(|full| full.id == id);
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().filter(|segment| !waiting(segment.id)).cloned().collect()
    }

    pub(crate) fn oldest_but(&self, id: SegmentId) -> SegmentId {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.keys().copied().find(|&other| other != id).unwrap_or(id)
    }

    pub(super) fn replace(&self, id: SegmentId, with: Option<Arc<Segment>>) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        let now = with.as_ref().map_or(0, |segment| segment.reserved as u64);
        let there = match with {
            Some(segment) => segments.insert(id, segment),
            None => segments.remove(&id),
        };
        let before = there.map_or(0, |there| there.reserved as u64);
        if now != before {
            self.taken.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            self.taken_least.fetch_min(self.taken(), Ordering::Relaxed);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A counter that changes when a segment is removed or replaced.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// All segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}
