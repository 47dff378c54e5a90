//! How room is made for new items: by compaction while there is dead space, else by eviction.

use super::Memory;
use super::log::Location;
use crate::engine::{Refused, Second};

/// A segment with no more than these parts of a whole alive is worth compacting.
const COMPACT_LIVE_MAX: (usize, usize) = (3, 4);
/// Of an evicted segment, at most these parts are spared.
const SPARE_MAX: (usize, usize) = (1, 2);
/// Up to so many segments are taken whatever share of them is dead.
const GROW_FREELY_SEGMENTS: usize = 16;

impl Memory {
    /// All memory the engine has taken: what the limit bounds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index.bytes() + self.log.allocated_bytes()
    }

    /// Makes room for one item of so many bytes, and for the index to grow by so many.
    ///
    /// Between calls there is always memory for one more common segment, free or not yet taken:
    /// the one that the survivors of an emptied segment move to.
    pub(super) fn make_room(
        &mut self,
        item_bytes: usize,
        index_bytes: usize,
        now: Second,
    ) -> Result<(), Refused> {
        if index_bytes > 0 {
            self.ensure_available(index_bytes, now)?;
        }
        if self.log.is_large(item_bytes) {
            return self.ensure_available(item_bytes, now);
        }
        while self.log.room() < item_bytes {
            self.begin_segment(now)?;
        }
        Ok(())
    }

    /// Evicts until the limit leaves so many bytes, and the reserve, to be taken from the system.
    pub(super) fn ensure_available(&mut self, bytes: usize, now: Second) -> Result<(), Refused> {
        let bytes = bytes + self.log.segment_bytes();
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
        // Memory is taken before dead space is collected, but not without end: what is written
        // over and over shall not walk through all of it.
        let segment_bytes = self.log.segment_bytes();
        let mostly_dead = self.log.live_bytes() < self.log.allocated_bytes() / 2
            && self.log.allocated_bytes() > GROW_FREELY_SEGMENTS * segment_bytes;
        if mostly_dead && self.compact(now) {
            return Ok(());
        }
        while !self.log.has_free_segment()
            && self.memory_bytes() + segment_bytes > self.limits.memory_bytes_max
        {
            self.empty_a_segment(now)?;
        }
        Ok(())
    }

    /// Frees at least some memory.
    fn empty_a_segment(&mut self, now: Second) -> Result<(), Refused> {
        if self.compact(now) {
            return Ok(());
        }
        let Some(oldest) = self.log.oldest() else { return Err(Refused::Full) };
        if self.log.holds_large_item(oldest) {
            self.evict_large(oldest, now);
        } else {
            self.evict(oldest, now);
        }
        Ok(())
    }

    /// Moves what is alive out of the emptiest segment, if that gains enough.
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

    /// Evicts the unused of a common segment, and spares the others.
    fn evict(&mut self, segment: u32, now: Second) {
        let mut spare_bytes = self.log.segment_bytes() * SPARE_MAX.0 / SPARE_MAX.1;
        self.empty(segment, now, |memory, at| {
            let bytes = memory.log.size(at);
            let spare = memory.log.is_used(at) && bytes <= spare_bytes;
            if spare {
                spare_bytes -= bytes;
            }
            spare
        });
    }

    /// Moves what `stays` into the active segment, drops the rest, and thereby frees the segment.
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
                    // The reserve; this segment takes its place as soon as it is empty.
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

    /// Evicts a large item, or makes it the youngest if it was used.
    fn evict_large(&mut self, segment: u32, now: Second) {
        let Some((at, _)) = self.log.next_live(segment, 0) else { return };
        let hash = self.hash.hash(self.log.key(at));
        if self.log.expiry(at).is_over(now) {
            self.expired += 1;
            self.remove(hash, at);
        } else if self.log.is_used(at) {
            self.log.set_unused(at);
            self.log.renew_oldest();
        } else {
            self.evicted(hash, at);
        }
    }

    fn evicted(&mut self, hash: u64, at: Location) {
        self.evictions += 1;
        self.evictions_unread += u64::from(!self.log.is_read(at));
        self.remove(hash, at);
    }
}
