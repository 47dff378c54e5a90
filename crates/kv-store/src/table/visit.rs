//! Visits slots, by number or in the order of their keys.

use std::cell::Cell;

use knee_kv_cache::engine::Second;

use super::{Damage, Slot, SlotId, Table};
use crate::order::Order;
use crate::record::Record;

pub(crate) struct Expired {
    pub(crate) keys: Vec<(Vec<u8>, SlotId)>,
    /// The number of the slot to resume at; `None` at the end.
    pub(crate) next: Option<usize>,
}

impl Table {
    /// The key of a slot for the order; a damaged key is noted, and the order goes on.
    pub(super) fn key_noting<'a>(
        &'a self,
        slot: u32,
        damaged: &Cell<Option<(u32, Damage)>>,
    ) -> &'a [u8] {
        self.key(SlotId(slot)).unwrap_or_else(|damage| {
            damaged.set(Some((slot, damage)));
            &[]
        })
    }

    /// The slot's key has changed or is gone. If its unreadable key had disordered the table, all slots are sorted
    /// anew.
    pub(super) fn reorder_without(&mut self, id: SlotId) {
        if self.disordered.as_ref().is_none_or(|(slot, _)| *slot != id.0) {
            return;
        }
        let (mut order, damaged) = (Order::default(), Cell::new(None));
        let key_of = |slot| self.key_noting(slot, &damaged);
        for SlotId(slot) in self.slots() {
            order.insert(slot, key_of(slot), key_of);
        }
        (self.order, self.disordered) = (order, damaged.into_inner());
    }

    pub(crate) fn slots_from(
        &self,
        key: &[u8],
    ) -> Result<impl Iterator<Item = SlotId> + use<'_>, Damage> {
        let damaged = Cell::new(self.disordered.clone());
        let slots = self.order.from(key, &|slot| self.key_noting(slot, &damaged));
        damaged.into_inner().map_or(Ok(slots.map(SlotId)), |(_, damage)| Err(damage))
    }

    /// All used slots.
    pub(crate) fn slots(&self) -> Vec<SlotId> {
        let has_key = |(_, slot): &(usize, &Slot)| !slot.free;
        self.slots.iter().enumerate().filter(has_key).map(|(id, _)| SlotId(id as u32)).collect()
    }

    pub(crate) fn slots_with_past(&self) -> Vec<SlotId> {
        let has_past = |(_, slot): &(usize, &Slot)| slot.chain != 0;
        self.slots.iter().enumerate().filter(has_past).map(|(id, _)| SlotId(id as u32)).collect()
    }

    /// Returns expired keys among `slots_max` slots from number `first` on. This goes by slot number, because a damaged
    /// key may have disordered the keys. The damaged key itself stays; all others can expire.
    pub(crate) fn expired_from(&self, first: usize, slots_max: usize, now: Second) -> Expired {
        let end = self.slots.len().min(first + slots_max);
        let is_over = |record: &Record<'_>| record.expiry.is_over(now);
        let expired = |number: usize| {
            let Slot { newest, deleted, free, .. } = self.slots[number];
            // Check a record only if it seems to have expired.
            if free || deleted || !is_over(&self.trusted(newest)) {
                return None;
            }
            let record = self.checked(newest).ok().filter(is_over)?;
            Some((record.key.to_vec(), SlotId(number as u32)))
        };
        let keys = (first..end).filter_map(expired).collect();
        Expired { keys, next: (end < self.slots.len()).then_some(end) }
    }
}
