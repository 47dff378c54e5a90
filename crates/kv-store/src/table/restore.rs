//! Restores a table from recovered records: puts them in order, and drops incomplete values.

use super::{Damage, SlotId, Table};
use crate::place::Location;
use crate::record::{Kind, Record, Sequence};
use crate::recovery::Found;

impl Table {
    /// Enters a record that a recovery found. Moved records come out of order, and the original may be there as well:
    /// a call of [`Table::put_in_order`] must follow.
    pub(crate) fn restore(&mut self, hash: u64, key: &[u8], found: &Found) -> Result<(), Damage> {
        self.segment(found.at.segment).revive(self.trusted(found.at).bytes());
        let Some(slot) = self.find(hash, key)? else {
            self.add(hash, found.at, 0);
            return Ok(());
        };
        self.enter(slot, found);
        Ok(())
    }

    pub(crate) fn enter(&mut self, slot: SlotId, found: &Found) {
        if self.place(self.slots[slot.0 as usize].newest) >= (found.sequence, found.part) {
            self.unordered.insert(slot.0);
        }
        self.push(0, Some(slot), found.at, 0);
    }

    /// The slot's records, oldest first.
    pub(crate) fn records(&self, slot: SlotId) -> impl Iterator<Item = Record<'_>> {
        (0..self.entries(slot)).map(move |index| self.trusted(self.entry(slot, index)))
    }

    pub(crate) fn newest_key(&self, slot: SlotId) -> &[u8] {
        self.trusted(self.slots[slot.0 as usize].newest).key
    }

    /// Whether the newest record stands for a lost one.
    pub(crate) fn is_lost(&self, slot: SlotId) -> bool {
        self.trusted(self.slots[slot.0 as usize].newest).kind == Kind::Lost
    }

    /// Sorts the records that [`Table::restore`] entered.
    pub(crate) fn put_in_order(&mut self) {
        for slot in std::mem::take(&mut self.unordered) {
            let slot = SlotId(slot);
            let mut entries = self.chain(slot).to_vec();
            entries.push(self.slots[slot.0 as usize].newest);
            entries.sort_by_key(|&at| (self.place(at), at.segment));
            let mut kept: Vec<Location> = Vec::with_capacity(entries.len());
            for at in entries {
                match kept.last_mut() {
                    Some(last) if self.place(*last) == self.place(at) => {
                        // Two copies of one record: drop one.
                        self.segment(last.segment).bury(self.trusted(*last).bytes(), 0);
                        *last = at;
                    }
                    _ => kept.push(at),
                }
            }
            let newest = kept.pop().expect("a slot has a record");
            self.set_newest(slot, newest);
            self.replace_chain(slot, kept);
        }
    }

    /// Drops appends to lost records: a value is complete or missing. Adds the key and the commits of the lost records
    /// to `lost`.
    pub(crate) fn drop_incomplete(&mut self, slot: SlotId, lost: &mut Vec<(Vec<u8>, Sequence)>) {
        let newest = self.slots[slot.0 as usize].newest;
        if self.chain(slot).is_empty() && self.trusted(newest).kind != Kind::Append {
            return;
        }
        let mut entries = self.chain(slot).to_vec();
        entries.push(self.slots[slot.0 as usize].newest);
        let mut kept: Vec<Location> = Vec::with_capacity(entries.len());
        let mut dropped = (0, 0);
        for at in entries {
            let record = self.trusted(at);
            let is_whole = record.growth.is_none_or(|growth| {
                kept.last().is_some_and(|&before| self.place(before) == growth.from)
            });
            if is_whole {
                kept.push(at);
            } else {
                // The key's state at that commit is unknown.
                if let Some(growth) = record.growth
                    && growth.from != dropped
                {
                    lost.push((record.key.to_vec(), growth.from.0));
                }
                dropped = (record.sequence, record.part);
                self.segment(at.segment).bury(record.bytes(), self.log.last());
            }
        }
        match kept.pop() {
            Some(newest) => {
                self.set_newest(slot, newest);
                self.replace_chain(slot, kept);
            }
            None => self.forget_buried(slot),
        }
    }
}
