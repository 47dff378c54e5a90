//! What a key was at some point in the order of commits, and its value.

use super::{Damage, SlotId, Table};
use crate::engine::{Expiry, Version};
use crate::versioned::record::{Kind, Record, Sequence};

/// What a key is at some point in the order of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) sequence: Sequence,
    /// Of the last record that holds it.
    pub(crate) part: u32,
    pub(crate) version: Version,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) marks: u8,
    pub(crate) value_bytes: usize,
    pub(super) slot: SlotId,
    /// Entries that hold the value: the first has its front.
    first: usize,
    last: usize,
}

impl View {
    /// Records that hold the value.
    pub(crate) fn records(&self) -> usize {
        self.last - self.first + 1
    }
}

impl Table {
    /// What the slot's key was once this commit was made; `None` where it was not there.
    pub(crate) fn view(&self, slot: SlotId, at: Sequence) -> Result<Option<View>, Damage> {
        self.view_by(slot, |record| record.sequence <= at)
    }

    /// What the slot's key was while it had this version, or the last one before.
    pub(crate) fn view_at_version(
        &self,
        slot: SlotId,
        version: Version,
    ) -> Result<Option<View>, Damage> {
        self.view_by(slot, |record| record.version <= version)
    }

    fn view_by(
        &self,
        slot: SlotId,
        is_seen: impl Fn(&Record<'_>) -> bool,
    ) -> Result<Option<View>, Damage> {
        let newest = self.checked(self.slots[slot.0 as usize].newest)?;
        let chain = self.chain(slot);
        let (last, record) = if is_seen(&newest) {
            (chain.len(), newest)
        } else {
            let seen = chain.partition_point(|&at| is_seen(&self.trusted(at)));
            let Some(last) = seen.checked_sub(1) else { return Ok(None) };
            (last, self.checked(chain[last])?)
        };
        if record.kind == Kind::Delete {
            return Ok(None);
        }
        Ok(Some(View {
            sequence: record.sequence,
            part: record.part,
            version: record.version,
            flags: record.flags,
            expiry: record.expiry,
            marks: record.marks,
            value_bytes: record.whole(),
            slot,
            first: last.saturating_sub(record.depth()),
            last,
        }))
    }

    /// The value in pieces.
    pub(crate) fn pieces(
        &self,
        view: &View,
        mut visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Damage> {
        for index in view.first..view.last {
            if !visit(self.checked(self.entry(view.slot, index))?.value) {
                return Ok(());
            }
        }
        // This one was checked for the view.
        visit(self.trusted(self.entry(view.slot, view.last)).value);
        Ok(())
    }

    /// The value of a view that is in one piece.
    #[inline]
    pub(crate) fn whole(&self, view: &View) -> Option<&[u8]> {
        // It was checked for the view.
        (view.first == view.last).then(|| self.trusted(self.entry(view.slot, view.last)).value)
    }

    /// The commit of its first record that is kept.
    pub(crate) fn first_sequence(&self, slot: SlotId) -> Sequence {
        self.trusted(self.entry(slot, 0)).sequence
    }

    /// The first version of it that is kept, and whether there were some before.
    pub(crate) fn first_version(&self, slot: SlotId) -> (Version, bool) {
        (self.trusted(self.entry(slot, 0)).version, self.slots[slot.0 as usize].pruned)
    }

    /// What is known of a slot's past from a version on, oldest first.
    pub(crate) fn past(
        &self,
        slot: SlotId,
        from: Version,
    ) -> impl Iterator<Item = Result<Record<'_>, Damage>> + '_ {
        let mut first = self.chain(slot).partition_point(|&at| self.trusted(at).version < from);
        first += usize::from(self.newest_version(slot) < from);
        (first..self.entries(slot)).map(move |index| self.checked(self.entry(slot, index)))
    }

    /// Its last version, also if it is gone.
    pub(crate) fn newest_version(&self, slot: SlotId) -> Version {
        self.trusted(self.slots[slot.0 as usize].newest).version
    }

    /// The commit that said last what it is, also if it is gone.
    pub(crate) fn newest_sequence(&self, slot: SlotId) -> Sequence {
        self.trusted(self.slots[slot.0 as usize].newest).sequence
    }
}
