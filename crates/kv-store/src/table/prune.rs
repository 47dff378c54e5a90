//! Drops versions that can no longer be read, and relocates others.

use knee_kv_cache::engine::Second;

use super::{Gone, Slot, SlotId, Table, spread, tag};
use crate::place::{Location, SegmentId};
use crate::record::Sequence;

impl Table {
    /// Drops versions that no reader of commits from `horizon` on can see. These are the versions before the last
    /// complete value at or before `horizon`.
    pub(crate) fn prune(&mut self, slot: SlotId, horizon: Sequence) {
        let Some(number) = (self.slots[slot.0 as usize].chain as usize).checked_sub(1) else {
            self.note_if_gone(slot);
            return;
        };
        // After a recovery there may be only the newest record.
        if self.chain(slot).is_empty() {
            self.free_chain(slot);
            self.note_if_gone(slot);
            return;
        }
        if horizon < self.chains[number].needed_before {
            return;
        }
        // If a record is damaged, keep all others.
        let Ok(newest) = self.checked(self.slots[slot.0 as usize].newest) else { return };
        let (last, needed_before) = if newest.sequence <= horizon {
            // The next record belongs to a later commit.
            (self.chain(slot).len(), newest.sequence + 1)
        } else {
            let Ok(seen) = self.last_by(slot, |record| record.sequence <= horizon) else { return };
            let last = seen.unwrap_or(0);
            (last, self.trusted(self.entry(slot, last + 1)).sequence)
        };
        let seen = self.trusted(self.entry(slot, last));
        let first = last - seen.depth().min(last);
        // `seen` was checked; the first record of its value was not.
        let replaced = self.trusted(self.entry(slot, first)).sequence.min(seen.sequence);
        for &at in &self.chain(slot)[..first] {
            self.segment(at.segment).bury(self.trusted(at).bytes(), replaced);
        }
        self.slots[slot.0 as usize].pruned |= first > 0;
        let chain = &mut self.chains[number];
        chain.needed_before = needed_before;
        chain.places.drain(..first);
        self.past -= first;
        if self.chain(slot).is_empty() {
            self.free_chain(slot);
            self.note_if_gone(slot);
        }
    }

    /// Does the work of [`Table::push`] and [`Table::prune`] for a key with one record that no reader can see.
    pub(crate) fn replace(&mut self, slot: SlotId, at: Location, now: Second) {
        self.meet(at.segment);
        let newest = self.slots[slot.0 as usize].newest;
        let replaced = self.trusted(at).sequence;
        self.segment(newest.segment).bury(self.trusted(newest).bytes(), replaced);
        self.note_there(slot);
        self.set_newest(slot, at);
        let entry = &mut self.slots[slot.0 as usize];
        *entry = Slot { used_at: now, read: false, pruned: true, ..*entry };
        self.note_if_gone(slot);
    }

    /// Whether one record is all that is known of the key.
    pub(crate) fn is_single(&self, slot: SlotId) -> bool {
        self.slots[slot.0 as usize].chain == 0
    }

    fn note_if_gone(&mut self, slot: SlotId) {
        if self.slots[slot.0 as usize].deleted && !self.gone.contains_key(&slot.0) {
            let bytes = self.trusted(self.slots[slot.0 as usize].newest).bytes();
            self.gone.insert(slot.0, Gone { newest: self.log.active(), bytes });
            self.gone_bytes += bytes;
        }
    }

    /// Removes the key from `gone`: it has other records than its delete record, or none.
    pub(super) fn note_there(&mut self, slot: SlotId) {
        if let Some(gone) = self.gone.remove(&slot.0) {
            self.gone_bytes -= gone.bytes;
        }
    }

    /// Bytes of delete records of keys without older versions.
    pub(crate) fn gone_bytes(&self) -> usize {
        self.gone_bytes
    }

    /// Whether the key can be forgotten: it is deleted, and a recovery would find no older record in the log.
    /// `oldest` is the first segment of the log.
    pub(crate) fn may_forget(&self, slot: SlotId, oldest: SegmentId) -> bool {
        self.gone.get(&slot.0).is_some_and(|gone| gone.newest < oldest || !self.log.is_durable())
    }

    pub(crate) fn forget(&mut self, slot: SlotId) {
        let newest = self.slots[slot.0 as usize].newest;
        self.segment(newest.segment).bury(self.trusted(newest).bytes(), 0);
        self.forget_buried(slot);
    }

    pub(crate) fn entry_at(&self, slot: SlotId, at: Location) -> Option<usize> {
        let place = self.place(at);
        let chain = self.chain(slot);
        let index = chain.partition_point(|&other| self.place(other) < place);
        if self.entry(slot, index) == at {
            return Some(index);
        }
        // A damaged record may have misled the search.
        let is_whole = |index| self.checked(self.entry(slot, index)).is_ok();
        if is_whole(index) && is_whole(index.saturating_sub(1)) {
            return None;
        }
        (0..self.entries(slot)).find(|&index| self.entry(slot, index) == at)
    }

    /// The slot with this hash that has an entry at this place, even if its other records are damaged.
    pub(crate) fn slot_at(&self, hash: u64, at: Location) -> Option<SlotId> {
        let tag = tag(hash);
        let has_it = |&slot: &u32| {
            self.slots[slot as usize].tag == tag && self.entry_at(SlotId(slot), at).is_some()
        };
        self.index.find(spread(tag), has_it).map(|&slot| SlotId(slot))
    }

    /// Whether a record of a segment is in the table.
    pub(crate) fn asks_for(&self, segment: SegmentId) -> bool {
        let is_in = |at: &Location| at.segment == segment;
        self.slots().into_iter().any(|slot| {
            is_in(&self.slots[slot.0 as usize].newest) || self.chain(slot).iter().any(is_in)
        })
    }

    /// Changes the place of an entry after its record moved.
    pub(crate) fn relocate(&mut self, slot: SlotId, entry: usize, to: Location) {
        let Slot { chain, .. } = self.slots[slot.0 as usize];
        match (chain as usize)
            .checked_sub(1)
            .and_then(|chain| self.chains[chain].places.get_mut(entry))
        {
            Some(entry) => *entry = to,
            None => self.slots[slot.0 as usize].newest = to,
        }
        self.meet(to.segment);
    }
}
