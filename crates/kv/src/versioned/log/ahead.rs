//! Whether a commit finds the segments that it needs, asked before it is begun: who makes one waits
//! for the disk, and everybody who commits for him.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::{HEAD_BYTES, Head, Log, Unwritable, lock};

impl Log {
    /// Whether a commit of so many bytes has all the segments that it needs, may it take some of the
    /// reserved. Nothing is waited for: where somebody commits, or makes a segment, it may be that
    /// it has not.
    pub(crate) fn is_ready_for(&self, bytes: usize, beyond: usize) -> bool {
        if !self.is_durable() {
            return true;
        }
        let needed = match self.head.try_lock() {
            Ok(head) => self.needed(&head, bytes),
            Err(TryLockError::Poisoned(head)) => self.needed(&head.into_inner(), bytes),
            Err(TryLockError::WouldBlock) => return false,
        };
        needed == 0
            || match self.spare.try_lock() {
                Ok(spare) => spare.len() >= self.spare_for(needed, beyond),
                Err(_) => false,
            }
    }

    /// Makes the segments that such a commit needs, as far as the limit allows it.
    pub(crate) fn make_ready_for(&self, bytes: usize, beyond: usize) -> Result<(), Unwritable> {
        let needed = self.needed(&lock(&self.head), bytes);
        let taken = self.taken() + (needed * self.segment_bytes) as u64;
        let extra = (beyond * self.segment_bytes) as u64;
        if needed == 0 || taken > self.bytes_max.load(Ordering::Relaxed) + extra {
            return Ok(());
        }
        self.make_spare(&mut lock(&self.spare), self.spare_for(needed, beyond))
    }

    /// Segments that so many bytes of records may need beside the one that is written to: a record
    /// is in one segment, and leaves less than half of the one before unused.
    fn needed(&self, head: &Head, bytes: usize) -> usize {
        let active = &head.active;
        if bytes <= active.capacity() - HEAD_BYTES - active.filled() {
            0
        } else {
            1 + 2 * bytes / self.segment_bytes
        }
    }

    /// Spare segments that there must be so that so many can be taken.
    fn spare_for(&self, needed: usize, beyond: usize) -> usize {
        self.reserved().saturating_sub(beyond) + needed
    }
}
