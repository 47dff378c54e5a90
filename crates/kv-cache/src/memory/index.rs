//! The index: from a key's hash to the location of its item.

use hashbrown::HashTable;

use super::layout::Location;

/// The bits of an entry that hold the location. The remaining bits hold a part of the hash.
const LOCATION_BITS: u32 = 40;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;

/// Hash tables of locations. They take nine bytes for each item: eight for the entry, one of the table.
///
/// An entry holds 24 bits of the hash. So a table can grow, and reject nearly all other keys, without reading an item.
/// There are many tables, so that growing one is quick. Other bits of the hash choose the table of a key.
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

    /// The location for which `is_it` holds, among the locations with this hash.
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

    /// The memory by which [`Index::reserve`] would make the tables grow.
    pub(crate) fn growth_bytes(&self, hash: u64) -> usize {
        let table = &self.tables[self.table(hash)];
        // A table doubles; an empty table begins small.
        if table.len() < table.capacity() { 0 } else { table.allocation_size().max(64) }
    }

    /// Makes room for one more location with this hash.
    pub(crate) fn reserve(&mut self, hash: u64) {
        let table = self.table(hash);
        let table = &mut self.tables[table];
        let before = table.allocation_size();
        table.reserve(1, |&entry| spread(entry >> LOCATION_BITS));
        self.bytes += table.allocation_size() - before;
    }

    /// Adds a new location. There must be room for it.
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

    /// Replaces the location `from`, which must be present, by `to`.
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

    /// Removes a location, which must be present.
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

/// Computes a table's hash from the part of the hash in an entry. A table uses its lowest and highest bits.
#[inline]
fn spread(tag: u64) -> u64 {
    tag.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
