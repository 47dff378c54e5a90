//! The state of a key at a point in the order of commits, and its value.

use knee_kv_cache::engine::{Expiry, Version};

use super::{Damage, SlotId, Table};
use crate::record::{Kind, Record, Sequence};

/// The state of a key at a point in the order of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) sequence: Sequence,
    /// The part of the last record of the value.
    pub(crate) part: u32,
    pub(crate) version: Version,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) marks: u8,
    pub(crate) value_bytes: usize,
    pub(super) slot: SlotId,
    /// The first entry of the value; its pieces end with `last`.
    first: usize,
    last: usize,
}

impl View {
    /// Number of records of the value.
    pub(crate) fn records(&self) -> usize {
        self.last - self.first + 1
    }
}

impl Table {
    /// The state of the slot's key as of this commit; `None` if the key was missing.
    #[inline]
    pub(crate) fn view(&self, slot: SlotId, at: Sequence) -> Result<Option<View>, Damage> {
        self.key_and_view(slot, at).map(|(_, view)| view)
    }

    pub(crate) fn key_and_view(
        &self,
        slot: SlotId,
        at: Sequence,
    ) -> Result<(&[u8], Option<View>), Damage> {
        let cleared = self.cleared_before(at);
        self.view_by(slot, |record| record.sequence <= at, |sequence| sequence < cleared)
    }

    /// Notes that this commit cleared all keys.
    pub(crate) fn clear(&mut self, commit: Sequence) {
        let at = self.cleared.partition_point(|&other| other < commit);
        self.cleared.insert(at, commit);
    }

    /// Drops the clears up to `horizon`. Call this once all keys have been pruned for them, and have delete records.
    pub(crate) fn forget_clears(&mut self, horizon: Sequence) {
        // The last clear up to the horizon covers all earlier ones.
        let first = self.cleared.partition_point(|&other| other <= horizon).saturating_sub(1);
        self.cleared.drain(..first);
    }

    /// Number of remembered clears.
    #[cfg(test)]
    pub(crate) fn clears(&self) -> usize {
        self.cleared.len()
    }

    /// The last clear up to this commit.
    fn cleared_before(&self, at: Sequence) -> Sequence {
        let known = self.cleared.partition_point(|&commit| commit <= at);
        known.checked_sub(1).map_or(0, |last| self.cleared[last])
    }

    /// The state of the slot's key at this version, or at the last one before. With `of_the_store`, versions count the
    /// commits of the store; otherwise, the writes of the key.
    pub(crate) fn view_at_version(
        &self,
        slot: SlotId,
        version: Version,
        of_the_store: bool,
    ) -> Result<Option<View>, Damage> {
        let cleared = if of_the_store { self.cleared_before(version) } else { 0 };
        self.view_by(slot, |record| record.version <= version, |sequence| sequence < cleared)
            .map(|(_, view)| view)
    }

    fn view_by(
        &self,
        slot: SlotId,
        is_seen: impl Fn(&Record<'_>) -> bool,
        is_cleared: impl Fn(Sequence) -> bool,
    ) -> Result<(&[u8], Option<View>), Damage> {
        let newest = self.checked(self.slots[slot.0 as usize].newest)?;
        let key = newest.key;
        let (last, record) = if is_seen(&newest) {
            (self.chain(slot).len(), newest)
        } else {
            match self.last_by(slot, is_seen)? {
                Some(last) => (last, self.trusted(self.entry(slot, last))),
                None => return Ok((key, None)),
            }
        };
        if record.kind.is_absence() || is_cleared(record.sequence) {
            return Ok((key, None));
        }
        let view = View {
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
        };
        Ok((key, Some(view)))
    }

    /// Searches the slot's older entries for the last one that satisfies `is_seen`, which the newest record does not.
    /// The binary search reads records unchecked, but then checks the found record and its successor. If both are
    /// intact, the result is correct, because the records are in order.
    pub(super) fn last_by(
        &self,
        slot: SlotId,
        is_seen: impl Fn(&Record<'_>) -> bool,
    ) -> Result<Option<usize>, Damage> {
        let chain = self.chain(slot);
        let seen = chain.partition_point(|&at| is_seen(&self.trusted(at)));
        for index in seen.saturating_sub(1)..=seen {
            self.checked(self.entry(slot, index))?;
        }
        Ok(seen.checked_sub(1))
    }

    pub(crate) fn pieces(
        &self,
        view: &View,
        mut visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Damage> {
        let mut bytes = 0;
        for index in view.first..view.last {
            let piece = self.checked(self.entry(view.slot, index))?.value;
            bytes += piece.len();
            if !visit(piece) {
                return Ok(());
            }
        }
        // The view has checked this record.
        let at = self.entry(view.slot, view.last);
        let piece = self.trusted(at).value;
        if bytes + piece.len() != view.value_bytes {
            return Err(Damage { segment: at.segment, offset: at.offset() });
        }
        visit(piece);
        Ok(())
    }

    /// The value of a view, if it is in one piece.
    #[inline]
    pub(crate) fn whole(&self, view: &View) -> Option<&[u8]> {
        // The view has checked this record.
        (view.first == view.last).then(|| self.trusted(self.entry(view.slot, view.last)).value)
    }

    /// The commit of the first record after this place in the slot's order.
    pub(crate) fn sequence_behind(&self, slot: SlotId, place: (Sequence, u32)) -> Sequence {
        let next = self.chain(slot).partition_point(|&at| self.place(at) <= place);
        self.trusted(self.entry(slot, next)).sequence
    }

    /// The commit of the slot's first kept record.
    pub(crate) fn first_sequence(&self, slot: SlotId) -> Sequence {
        self.trusted(self.entry(slot, 0)).sequence
    }

    /// The slot's first kept version, and whether earlier ones existed.
    pub(crate) fn first_version(&self, slot: SlotId) -> (Version, bool) {
        (self.trusted(self.entry(slot, 0)).version, self.slots[slot.0 as usize].pruned)
    }

    /// The version from which on the key's state is known again, if it is unknown at this version.
    pub(crate) fn unknown_until(&self, slot: SlotId, version: Version) -> Option<Version> {
        let mut is_lost = false;
        for record in self.records(slot) {
            if record.version > version {
                return is_lost.then_some(record.version);
            }
            is_lost = record.kind == Kind::Lost;
        }
        is_lost.then_some(version + 1)
    }

    /// The known history of a slot from a version on, oldest first.
    pub(crate) fn past(
        &self,
        slot: SlotId,
        from: Version,
    ) -> impl Iterator<Item = Result<Record<'_>, Damage>> + '_ {
        let mut first = self.chain(slot).partition_point(|&at| self.trusted(at).version < from);
        first += usize::from(self.newest_version(slot) < from);
        // Begin one entry earlier: it shows that no entry is left out.
        (first.saturating_sub(1)..self.entries(slot))
            .map(move |index| self.checked(self.entry(slot, index)))
            .filter(move |record| record.as_ref().map_or(true, |record| record.version >= from))
    }

    /// The key's last version, also if it is deleted.
    pub(crate) fn newest_version(&self, slot: SlotId) -> Version {
        self.trusted(self.slots[slot.0 as usize].newest).version
    }

    /// The commit of the key's newest record, also if it is a delete.
    pub(crate) fn newest_sequence(&self, slot: SlotId) -> Sequence {
        let sequence = self.trusted(self.slots[slot.0 as usize].newest).sequence;
        self.cleared.last().map_or(sequence, |&cleared| sequence.max(cleared))
    }
}
