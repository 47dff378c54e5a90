//! From a key's hash to the place of its item.

use hashbrown::HashTable;

use super::layout::Location;

/// Bits of an entry that hold the location; the others hold bits of the hash.
const LOCATION_BITS: u32 = 40;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;

/// Hash tables of locations: eight bytes an item, and one more of the table.
///
/// An entry keeps 24 bits of the hash: a table grows, and rejects almost every other key, without touching an
/// item. There are many tables, so that one grows quickly; other bits of the hash choose the table of a key.
#[derive(Debug)]
pub(crate) struct Index {
    tables: Box<[HashTable<u64>]>,
    bytes: usize,
    len: usize,
}

impl Index {
    /// `tables` is rounded up to a power of two.
    pub(crate) fn new(tables: usize) -> Index {
        let tables = tables.next_power_of_two();
        Index { tables: (0..tables).map(|_| HashTable::new()).collect(), bytes: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory of the tables.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + size_of_val(&*self.tables)
    }

    /// The location that `is_it` recognises among those of this hash.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(Location) -> bool,
    ) -> Option<Location> {
        let tag = hash >> LOCATION_BITS;
        self.tables[self.table(hash)]
            .find(spread(tag), |&entry| {
                entry >> LOCATION_BITS == tag && is_it(Location(entry & LOCATION_MASK))
            })
            .map(|entry| Location(entry & LOCATION_MASK))
    }

    /// By how much [`Index::reserve`] would make the tables grow.
    pub(crate) fn growth_bytes(&self, hash: u64) -> usize {
        let table = &self.tables[self.table(hash)];
        // A table doubles; the first one is small.
        if table.len() < table.capacity() { 0 } else { table.allocation_size().max(64) }
    }

    /// Sees to it that one more location of this hash fits.
    pub(crate) fn reserve(&mut self, hash: u64) {
        let table = self.table(hash);
        let table = &mut self.tables[table];
        let before = table.allocation_size();
        table.reserve(1, |&entry| spread(entry >> LOCATION_BITS));
        self.bytes += table.allocation_size() - before;
    }

    /// Adds a location that is not there yet, for which there is room.
    pub(crate) fn insert(&mut self, hash: u64, location: Location) {
        let tag = hash >> LOCATION_BITS;
        let table = self.table(hash);
        self.tables[table].insert_unique(
            spread(tag),
            tag << LOCATION_BITS | location.0,
            |&entry| spread(entry >> LOCATION_BITS),
        );
        self.len += 1;
    }

    /// Puts `to` in the place of `from`, which must be there.
    pub(crate) fn relocate(&mut self, hash: u64, from: Location, to: Location) {
        let tag = hash >> LOCATION_BITS;
        let table = self.table(hash);
        let entry =
            self.tables[table].find_mut(spread(tag), |&entry| entry & LOCATION_MASK == from.0);
        if let Some(entry) = entry {
            *entry = tag << LOCATION_BITS | to.0;
        } else {
            debug_assert!(false, "an item that is not in the index was moved");
        }
    }

    /// Takes a location out, which must be there.
    pub(crate) fn remove(&mut self, hash: u64, location: Location) {
        let table = self.table(hash);
        let entry = self.tables[table].find_entry(spread(hash >> LOCATION_BITS), |&entry| {
            entry & LOCATION_MASK == location.0
        });
        match entry {
            Ok(entry) => {
                entry.remove();
                self.len -= 1;
            }
            Err(_) => debug_assert!(false, "an item that is not in the index was removed"),
        }
    }

    pub(crate) fn clear(&mut self) {
        for table in &mut self.tables {
            *table = HashTable::new();
        }
        self.bytes = 0;
        self.len = 0;
    }

    fn table(&self, hash: u64) -> usize {
        hash as usize & (self.tables.len() - 1)
    }
}

/// The hash a table sees, made from what an entry keeps: tables use the lowest and highest bits.
#[inline]
fn spread(tag: u64) -> u64 {
    tag.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
