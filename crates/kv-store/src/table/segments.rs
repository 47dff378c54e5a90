//! A table's own list of the log's segments.

use std::sync::Arc;

use crate::place::SegmentId;
use crate::segment::Segment;

/// At least one in this many indexed numbers has a segment.
const SPREAD_MAX: usize = 4;

/// Segments by number. Most numbers are near the newest one, and index a list. Segments of unchanging records may be
/// much older; a binary search finds those.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Segments before `first`, in the order of their numbers.
    older: Vec<Arc<Segment>>,
    first: SegmentId,
    near: Vec<Option<Arc<Segment>>>,
}

impl Segments {
    /// Takes all segments, in the order of their numbers.
    pub(super) fn new(mut all: Vec<Arc<Segment>>) -> Segments {
        let last = all.last().map_or(0, |segment| segment.id);
        let is_near = |&(count, segment): &(usize, &Arc<Segment>)| {
            ((last - segment.id) as usize) < SPREAD_MAX * (count + 1)
        };
        let near = all.iter().rev().enumerate().rfind(is_near);
        let near = all.split_off(all.len() - near.map_or(0, |(count, _)| count + 1));
        let first = near.first().map_or(0, |segment| segment.id);
        let mut segments = Segments { older: all, first, near: Vec::new() };
        near.into_iter().for_each(|segment| segments.add(segment));
        segments
    }

    /// Adds a newer segment, or replaces the segment with the same number.
    pub(super) fn add(&mut self, segment: Arc<Segment>) {
        let at = segment.id.wrapping_sub(self.first) as usize;
        if segment.id < self.first {
            if let Ok(at) = self.older_place(segment.id) {
                self.older[at] = segment;
            }
            return;
        }
        if self.near.len() <= at {
            // Failed attempts to make segments leave gaps in the numbers.
            if at >= SPREAD_MAX * (self.near.len() + 1) {
                self.older.extend(self.near.drain(..).flatten());
                self.first = segment.id;
                return self.add(segment);
            }
            self.near.resize(at + 1, None);
        }
        self.near[at] = Some(segment);
    }

    #[inline]
    pub(super) fn get(&self, id: SegmentId) -> Option<&Arc<Segment>> {
        match self.near.get(id.wrapping_sub(self.first) as usize) {
            Some(found) => found.as_ref(),
            None => self.older_place(id).ok().map(|at| &self.older[at]),
        }
    }

    fn older_place(&self, id: SegmentId) -> Result<usize, usize> {
        self.older.binary_search_by_key(&id, |segment| segment.id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn segment(id: SegmentId) -> Arc<Segment> {
        Arc::new(Segment::growing(id, 0, 4096).unwrap())
    }

    #[test]
    fn old_segment_takes_no_more_places_than_a_new_one() {
        for (there, places_max) in [
            (vec![1], 1),
            ((1..50).collect::<Vec<_>>(), 49),
            (vec![1, 9, 1_000_000, 1_000_001, 1_000_007], 12),
            (vec![1, 999_980, 999_990, 999_991, 999_995, 1_000_000], 24),
        ] {
            let mut segments = Segments::new(there.iter().copied().map(segment).collect());
            for id in (0..200).chain(999_900..1_000_100) {
                let found = segments.get(id).map(|segment| segment.id);
                assert_eq!(found, there.contains(&id).then_some(id));
            }
            assert!(segments.near.len() <= places_max, "{} of {there:?}", segments.near.len());
            for &id in there.iter().chain(&[there[there.len() - 1] + 3]) {
                let other = segment(id);
                segments.add(Arc::clone(&other));
                assert!(Arc::ptr_eq(segments.get(id).unwrap(), &other));
            }
        }
        assert!(Segments::new(Vec::new()).get(0).is_none());
    }

    #[test]
    fn unused_segment_numbers_take_no_place() {
        let mut segments = Segments::new((1..5).map(segment).collect());
        for id in [1_000_000, 1_000_001, 3_000_000] {
            segments.add(segment(id));
            assert!(segments.near.len() < 20, "{} behind {id}", segments.near.len());
        }
        for id in [1, 4, 1_000_000, 1_000_001, 3_000_000] {
            assert_eq!(segments.get(id).map(|segment| segment.id), Some(id));
        }
        assert!(segments.get(1_000_002).is_none());
    }
}
