//! Whether the log has space for a commit.
//!
//! A caller prepares the segments of a commit before the commit begins. A commit that makes a segment itself waits for
//! the disk, and all later commits wait for it. Commits that free space may take a few segments beyond the limit.

use std::sync::atomic::Ordering;

use super::Log;
use super::spares::RESERVED;
use crate::record::HEAD_BYTES;
use crate::room::Room;
use crate::types::Unwritable;

impl Log {
    /// Whether a commit of this size can begin without making a segment: its segments are ready, or the log refuses it
    /// at once.
    pub(crate) fn is_ready_for(&self, room: Room) -> bool {
        let (needed, beyond) = (self.needed(room), room.beyond());
        needed == 0 && !self.is_in_reserve(beyond)
            || self.spares.ready() >= needed + self.left(beyond)
            || self.is_beyond_limit(needed, beyond)
            || (beyond == 0 && self.spares.refusal().is_some())
    }

    /// Makes the segments that a commit of this size needs, as far as the limit allows.
    pub(crate) fn make_ready_for(&self, room: Room) -> Result<(), Unwritable> {
        let (needed, beyond) = (self.needed(room), room.beyond());
        let is_there = needed == 0 && !self.is_in_reserve(beyond);
        if is_there || self.is_beyond_limit(needed, beyond) {
            return Ok(());
        }
        self.spares.fill(needed, self.left(beyond), beyond > 0, || self.make_segment())
    }

    /// Free bytes of the active segment.
    pub(crate) fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    /// Whether a commit of this size would be refused because segments are missing.
    pub(crate) fn lacks(&self, room: Room) -> bool {
        let (needed, beyond) = (self.beside(room), room.beyond());
        self.is_beyond_limit(needed, beyond)
            || ((needed > 0 || self.is_in_reserve(beyond))
                && self.is_short()
                && self.spares.ready() < needed + self.left(beyond))
    }

    /// Whether a commit of this size would fit an otherwise empty log.
    pub(crate) fn ever_fits(&self, room: Room) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        (self.segments_for(room) * self.segment_bytes) as u64 <= most
    }

    /// Number of segments that must be made before a commit of this size: none in memory.
    fn needed(&self, room: Room) -> usize {
        if self.is_durable() { self.beside(room) } else { 0 }
    }

    /// Number of segments that a commit of this size may need besides the active one.
    fn beside(&self, room: Room) -> usize {
        let fits = room.bytes <= self.room();
        if fits { 0 } else { self.segments_for(room) }
    }

    fn segments_for(&self, room: Room) -> usize {
        room.records.min(self.segments_in(room.bytes))
    }

    /// Whether `needed` further segments would exceed the limit by more than `beyond` segments.
    pub(crate) fn is_beyond_limit(&self, needed: usize, beyond: usize) -> bool {
        self.taken() + (needed * self.segment_bytes) as u64 > self.allowed(beyond)
    }

    /// Whether fewer segments are ready than a commit of this kind must leave in reserve. The active segment may
    /// have come from the reserve.
    pub(crate) fn is_in_reserve(&self, beyond: usize) -> bool {
        self.is_durable() && self.spares.ready() < self.left(beyond)
    }

    /// Largest number of bytes that all segments may take with a commit that may exceed the limit by `beyond` segments.
    ///
    /// A log may be larger than its limit when it is opened. A commit that frees space may then exceed the present size
    /// of the log by `beyond` segments.
    fn allowed(&self, beyond: usize) -> u64 {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        match beyond {
            0 => bytes_max,
            _ => {
                let from = bytes_max.max(self.taken_least.load(Ordering::Relaxed));
                from.saturating_add((beyond * self.segment_bytes) as u64)
            }
        }
    }

    /// Largest number of segments that records of `bytes` in total may need.
    fn segments_in(&self, bytes: usize) -> usize {
        segments_most(bytes, self.segment_bytes)
    }

    /// Number of spare segments that a commit must leave, if it may exceed the limit by `beyond` segments.
    pub(super) fn left(&self, beyond: usize) -> usize {
        self.reserved().saturating_sub(beyond)
    }

    /// Makes new segments for the reserve that a move has used, unless the disk just refused one. This waits for the
    /// disk, so the caller must hold no lock. Otherwise the next write would make the segments, and would lock the log
    /// for that time.
    pub(crate) fn refill(&self) {
        if self.spares.ready() < self.reserved() {
            // Refused writers report the failure.
            let _ = self.spares.fill(RESERVED, 0, false, || self.make_segment());
        }
    }
}

/// Largest number of segments that records of `bytes` in total may need. A record goes to the next segment only if the
/// current one has no space for it. So two neighbours together hold more than one full segment.
fn segments_most(bytes: usize, segment_bytes: usize) -> usize {
    1 + 2 * bytes / (segment_bytes - HEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_fit_the_predicted_number_of_segments(
            segment_bytes in 128..4096_usize,
            lengths in prop::collection::vec(1..4096_usize, 0..200),
        ) {
            let capacity = segment_bytes - HEAD_BYTES;
            let lengths: Vec<_> = lengths.into_iter().map(|length| 1 + length % capacity).collect();
            let (mut segments, mut room) = (0, 0);
            for length in &lengths {
                if *length > room {
                    (segments, room) = (segments + 1, capacity);
                }
                room -= length;
            }
            let most = segments_most(lengths.iter().sum(), segment_bytes);
            prop_assert!(segments <= most, "{segments} and not {most}");
        }
    }
}
