//! Room for new items: by compaction while there is dead space, otherwise by eviction.

use super::Memory;
use super::layout::Location;
use crate::engine::{Refused, Second};

/// The largest live share of a segment that is compacted, as numerator and denominator.
const COMPACT_LIVE_MAX: (usize, usize) = (3, 4);
/// The largest share of an evicted segment that is spared, as numerator and denominator.
const SPARE_MAX: (usize, usize) = (1, 2);
/// An eviction passes over at most this number of segments whose used items exceed [`SPARE_MAX`].
const PASSED_OVER_MAX: usize = 8;
/// The number of segments up to which memory grows without regard to dead space.
const GROW_FREELY_SEGMENTS: usize = 16;

impl Memory {
    /// All memory that the engine has taken, which the limit bounds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index.bytes() + self.log.allocated_bytes()
    }

    /// Makes room for one item of `item_bytes` bytes, and for its entry in the index.
    ///
    /// Between calls, a reserve of one common segment remains: a free segment, or memory that the engine may still
    /// take. The survivors of an emptied segment move to this reserve.
    pub(super) fn make_room(
        &mut self,
        hash: u64,
        item_bytes: usize,
        now: Second,
    ) -> Result<(), Refused> {
        let index_bytes = self.index.growth_bytes(hash);
        if index_bytes > 0 {
            self.ensure_available(index_bytes, now)?;
            self.index.reserve(hash);
        }
        if self.log.is_large(item_bytes) {
            return self.ensure_available(self.log.large_item_cost(item_bytes), now);
        }
        while self.log.room() < item_bytes {
            self.begin_segment(now)?;
        }
        Ok(())
    }

    /// Frees memory until the engine may take `bytes` bytes and the reserve within the limit.
    pub(super) fn ensure_available(&mut self, bytes: usize, now: Second) -> Result<(), Refused> {
        let bytes = bytes + self.log.segment_cost();
        while self.memory_bytes() + bytes > self.limits.memory_bytes_max {
            if !self.log.release_free_segment() {
                self.empty_a_segment(now)?;
            }
        }
        Ok(())
    }

    fn begin_segment(&mut self, now: Second) -> Result<(), Refused> {
        self.log.begin_segment();
        if self.log.has_free_segment() {
            return Ok(());
        }
        // Memory grows before dead space is collected, but not without bound. A key that is overwritten again and again
        // must not take all memory.
        let segment_bytes = self.log.segment_bytes();
        let mostly_dead = self.log.live_bytes() < self.log.allocated_bytes() / 2
            && self.log.allocated_bytes() > GROW_FREELY_SEGMENTS * segment_bytes;
        if mostly_dead && self.compact(now) {
            return Ok(());
        }
        while !self.log.has_free_segment()
            && self.memory_bytes() + self.log.segment_cost() > self.limits.memory_bytes_max
        {
            self.empty_a_segment(now)?;
        }
        Ok(())
    }

    /// Frees some memory, by compaction or eviction.
    fn empty_a_segment(&mut self, now: Second) -> Result<(), Refused> {
        if self.compact(now) {
            return Ok(());
        }
        for _ in 0..PASSED_OVER_MAX {
            let Some(oldest) = self.log.oldest() else { return Err(Refused::Full) };
            if self.used_bytes(oldest) <= self.spare_bytes_max(oldest) {
                break;
            }
            self.forget_uses(oldest);
            self.log.renew_oldest();
        }
        if let Some(oldest) = self.log.oldest() {
            self.evict(oldest, now);
        }
        Ok(())
    }

    /// Largest number of bytes of a segment that may be spared. A large item is never spared, because it cannot be
    /// moved.
    fn spare_bytes_max(&self, segment: u32) -> usize {
        if self.log.holds_large_item(segment) {
            0
        } else {
            self.log.segment_bytes() * SPARE_MAX.0 / SPARE_MAX.1
        }
    }

    /// Bytes of a segment's items that were used.
    fn used_bytes(&self, segment: u32) -> usize {
        let (mut from, mut bytes) = (0, 0);
        while let Some((at, next)) = self.log.next_live(segment, from) {
            from = next;
            bytes += if self.log.is_used(at) { self.log.size(at) } else { 0 };
        }
        bytes
    }

    fn forget_uses(&mut self, segment: u32) {
        let mut from = 0;
        while let Some((at, next)) = self.log.next_live(segment, from) {
            from = next;
            self.log.set_unused(at);
        }
    }

    /// Moves the live items out of the emptiest segment, if that frees enough. Returns whether it did.
    fn compact(&mut self, now: Second) -> bool {
        let (parts, whole) = COMPACT_LIVE_MAX;
        match self.log.emptiest() {
            Some((segment, live)) if live * whole <= self.log.segment_bytes() * parts => {
                self.empty(segment, now, |_, _| true);
                true
            }
            _ => false,
        }
    }

    /// Evicts the unused items of a segment, and spares used items up to the limit.
    fn evict(&mut self, segment: u32, now: Second) {
        let mut spare_bytes = self.spare_bytes_max(segment);
        self.empty(segment, now, |memory, at| {
            let bytes = memory.log.size(at);
            let spare = memory.log.is_used(at) && bytes <= spare_bytes;
            if spare {
                spare_bytes -= bytes;
            }
            spare
        });
    }

    /// Frees a segment: moves items to the active segment if `stays` returns true, and evicts the others.
    fn empty(
        &mut self,
        segment: u32,
        now: Second,
        mut stays: impl FnMut(&Memory, Location) -> bool,
    ) {
        let mut from = 0;
        while let Some((at, next)) = self.log.next_live(segment, from) {
            from = next;
            let hash = self.hash.hash(self.log.key(at));
            if self.log.expiry(at).is_over(now) {
                self.expired += 1;
                self.remove(hash, at);
            } else if stays(self, at) {
                if self.log.room() < self.log.size(at) {
                    // This takes the reserve. The emptied segment becomes the new reserve.
                    self.log.begin_segment();
                }
                let to = self.log.relocate(at);
                self.index.relocate(hash, at, to);
                self.log.kill(at);
            } else {
                self.evicted(hash, at);
            }
        }
    }

    fn evicted(&mut self, hash: u64, at: Location) {
        self.evictions += 1;
        self.evictions_unread += u64::from(!self.log.is_read(at));
        self.remove(hash, at);
    }
}
