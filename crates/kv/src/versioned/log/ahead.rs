//! Whether a commit finds the segments that it needs, asked before it is begun: who makes one waits
//! for the disk, and everybody who commits for him.

use std::sync::atomic::Ordering;

use super::{HEAD_BYTES, Head, Log, Unwritable};

impl Log {
    /// Whether a commit of so many bytes waits for no segment that is made, may it take some of the
    /// reserved: all that it needs are there, or it is refused at once.
    pub(crate) fn is_ready_for(&self, bytes: usize, beyond: usize) -> bool {
        let needed = self.needed(bytes);
        needed == 0
            || self.spares.has(self.spare_for(needed, beyond))
            || self.is_beyond_limit(needed, beyond)
            || (beyond == 0 && self.spares.refuses())
    }

    /// Makes the segments that such a commit needs, as far as the limit allows it.
    pub(crate) fn make_ready_for(&self, bytes: usize, beyond: usize) -> Result<(), Unwritable> {
        let needed = self.needed(bytes);
        if needed == 0 || self.is_beyond_limit(needed, beyond) {
            return Ok(());
        }
        let count = self.spare_for(needed, beyond);
        self.spares.fill(count, beyond > 0, || self.make_segment())
    }

    /// Whether such a commit would be refused for want of segments.
    pub(crate) fn lacks(&self, bytes: usize, beyond: usize) -> bool {
        let needed = self.beside(bytes);
        ((needed > 0 || beyond == 0) && self.is_beyond_limit(needed, beyond))
            || (needed > 0 && self.is_short() && !self.spares.has(self.spare_for(needed, beyond)))
    }

    /// Whether such a commit would find the segments that it may need, were nothing else in the log.
    pub(crate) fn ever_fits(&self, bytes: usize) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        (2 * bytes + self.segment_bytes) as u64 <= most
    }

    /// Segments that such a commit may wait for: in memory none is.
    fn needed(&self, bytes: usize) -> usize {
        if self.is_durable() { self.beside(bytes) } else { 0 }
    }

    /// Segments that so many bytes of records may need beside the one that is written to: a record
    /// is in one segment, and leaves less than half of the one before unused.
    fn beside(&self, bytes: usize) -> usize {
        if bytes <= self.room.load(Ordering::Relaxed) {
            0
        } else {
            1 + 2 * bytes / self.segment_bytes
        }
    }

    fn is_beyond_limit(&self, needed: usize, beyond: usize) -> bool {
        let taken = self.taken() + (needed * self.segment_bytes) as u64;
        let extra = (beyond * self.segment_bytes) as u64;
        taken > self.bytes_max.load(Ordering::Relaxed).saturating_add(extra)
    }

    /// Spare segments that there must be so that so many can be taken.
    fn spare_for(&self, needed: usize, beyond: usize) -> usize {
        self.reserved().saturating_sub(beyond) + needed
    }
}

impl Head {
    /// Bytes of records that the segment that is written to still takes.
    pub(super) fn room(&self) -> usize {
        self.active.capacity() - HEAD_BYTES - self.active.filled()
    }
}
