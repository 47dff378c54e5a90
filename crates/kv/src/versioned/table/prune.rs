//! What nobody can ask for any more is forgotten; what is asked for may move.

use super::{Slot, SlotId, Table};
use crate::versioned::record::Sequence;
use crate::versioned::segment::{Location, SegmentId};

impl Table {
    /// Forgets what nobody can ask for who sees commits from `horizon` on: what the key was before
    /// the last complete value not behind it.
    pub(crate) fn prune(&mut self, slot: SlotId, horizon: Sequence) {
        let chain = self.chain(slot);
        if chain.is_empty() {
            self.note_if_gone(slot);
            return;
        }
        let newest = self.trusted(self.slots[slot.0 as usize].newest);
        let mut first = if newest.sequence <= horizon {
            chain.len()
        } else {
            let seen = chain.partition_point(|&at| self.trusted(at).sequence <= horizon);
            let Some(last) = seen.checked_sub(1) else { return };
            last
        };
        first = first.saturating_sub(self.trusted(self.entry(slot, first)).depth());
        for &at in &chain[..first] {
            self.segment(at.segment).bury(self.trusted(at).bytes());
        }
        let entry = &mut self.slots[slot.0 as usize];
        let number = entry.chain;
        entry.pruned |= first > 0;
        let chain = &mut self.chains[number as usize - 1];
        chain.drain(..first);
        self.past -= first;
        if self.chain(slot).is_empty() {
            self.free_chain(slot);
            self.note_if_gone(slot);
        }
    }

    fn note_if_gone(&mut self, slot: SlotId) {
        if self.slots[slot.0 as usize].deleted && !self.gone.contains_key(&slot.0) {
            let active = self.log.active();
            self.gone.insert(slot.0, active);
        }
    }

    /// Whether the key can be forgotten: it is gone, and of what it was nothing is in the log, where the
    /// next recovery would find it. `oldest` is the first segment of the log.
    pub(crate) fn may_forget(&self, slot: SlotId, oldest: SegmentId) -> bool {
        self.gone.get(&slot.0).is_some_and(|&newest| newest < oldest || !self.log.is_durable())
    }

    /// Forgets the key.
    pub(crate) fn forget(&mut self, slot: SlotId) {
        let newest = self.slots[slot.0 as usize].newest;
        self.segment(newest.segment).bury(self.trusted(newest).bytes());
        self.forget_buried(slot);
    }

    /// Which entry of the slot is there, if any.
    pub(crate) fn entry_at(&self, slot: SlotId, at: Location) -> Option<usize> {
        let place = self.place(at);
        let chain = self.chain(slot);
        let index = chain.partition_point(|&other| self.place(other) < place);
        (self.entry(slot, index) == at).then_some(index)
    }

    /// An entry of the slot has moved.
    pub(crate) fn relocate(&mut self, slot: SlotId, entry: usize, to: Location) {
        let Slot { chain, .. } = self.slots[slot.0 as usize];
        match (chain as usize).checked_sub(1).and_then(|chain| self.chains[chain].get_mut(entry)) {
            Some(entry) => *entry = to,
            None => self.slots[slot.0 as usize].newest = to,
        }
        if let Some(segment) = self.log.segment(to.segment) {
            self.keep(segment);
        }
    }
}
