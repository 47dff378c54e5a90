//! The records of a key, oldest first: its chain, and its newest record.

use super::{Chain, SlotId, Table};
use crate::place::Location;

impl Table {
    /// Entries of a slot, the newest included.
    pub(super) fn entries(&self, slot: SlotId) -> usize {
        self.chain(slot).len() + 1
    }

    pub(super) fn chain(&self, slot: SlotId) -> &[Location] {
        match self.slots[slot.0 as usize].chain {
            0 => &[],
            chain => &self.chains[chain as usize - 1].places,
        }
    }

    #[inline]
    pub(super) fn entry(&self, slot: SlotId, index: usize) -> Location {
        let chain = self.chain(slot);
        if index < chain.len() { chain[index] } else { self.slots[slot.0 as usize].newest }
    }

    /// The slot's chain, perhaps a new one.
    pub(super) fn chain_of(&mut self, slot: SlotId) -> u32 {
        let chain = self.slots[slot.0 as usize].chain;
        if chain != 0 {
            return chain;
        }
        let chain = self.chains_free.pop().unwrap_or_else(|| {
            self.chains.push(Chain::default());
            self.chains.len() as u32
        });
        self.slots[slot.0 as usize].chain = chain;
        chain
    }

    pub(super) fn replace_chain(&mut self, slot: SlotId, places: Vec<Location>) {
        if let Some(chain) = (self.slots[slot.0 as usize].chain as usize).checked_sub(1) {
            let with = Chain { places, needed_before: 0 };
            self.past += with.places.len();
            self.past -= std::mem::replace(&mut self.chains[chain], with).places.len();
        }
    }

    pub(super) fn free_chain(&mut self, slot: SlotId) {
        let chain = std::mem::take(&mut self.slots[slot.0 as usize].chain);
        let chain_before = std::mem::take(&mut self.chains[chain as usize - 1]);
        self.past -= chain_before.places.len();
        self.chains_free.push(chain);
    }
}
