//! Slots in the order of their keys.

/// Largest number of slots of a block; a full block is split in half.
const BLOCK_MAX: usize = 512;

/// An ordered set of slots: sorted blocks of eight bytes a slot, in a sorted list.
///
/// The keys are in the log, far away in memory; callers pass a function that finds them. A block has the common
/// prefix of its keys, and for each slot the next four bytes. A search reads a key only if these are equal. An
/// insert moves at most 4 KiB. About one insert in 256 splits a block, moves the list of blocks and reads one
/// block's keys.
#[derive(Debug, Default)]
pub(crate) struct Order {
    blocks: Vec<Block>,
}

#[derive(Debug, Default)]
struct Block {
    /// A lower bound of the block's keys, above all keys of earlier blocks. The first block also has the keys below
    /// its bound.
    from: Box<[u8]>,
    /// The common prefix of all its keys.
    shared: Box<[u8]>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The four bytes of the key after the common prefix, see [`head`].
    head: u32,
    slot: u32,
}

impl Order {
    /// Adds a new slot with its key; `key_of` returns the keys of the other slots.
    pub(crate) fn insert<'a>(
        &mut self,
        slot: u32,
        key: &'a [u8],
        key_of: impl Fn(u32) -> &'a [u8],
    ) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let index = self.block(key);
        let block = &mut self.blocks[index];
        if block.entries.is_empty() {
            block.shared = key.into();
        } else if !key.starts_with(&block.shared) {
            block.share(common(&block.shared, key), key, &key_of);
        }
        let at = block.position(key, &key_of);
        block.entries.insert(at, Entry { head: head(key, block.shared.len()), slot });
        if block.entries.len() == BLOCK_MAX {
            let upper = block.split(&key_of);
            self.blocks.insert(index + 1, upper);
        }
    }

    /// Removes a slot with its key, if present.
    pub(crate) fn remove<'a>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) {
        if self.blocks.is_empty() {
            return;
        }
        let index = self.block(key);
        let at = self.blocks[index].position(key, &key_of);
        let is_it = |entry: &Entry| entry.slot == slot;
        let found = match self.blocks[index].entries.get(at).is_some_and(is_it) {
            true => Some((index, at)),
            // A damaged key misled the search: look for the slot in all blocks.
            false => self.blocks.iter().enumerate().find_map(|(index, block)| {
                block.entries.iter().position(is_it).map(|at| (index, at))
            }),
        };
        if let Some((index, at)) = found {
            let entries = &mut self.blocks[index].entries;
            entries.remove(at);
            if entries.is_empty() {
                self.blocks.remove(index);
            }
        }
    }

    /// The slots whose keys are at or above this key, in order.
    pub(crate) fn from<'a>(
        &self,
        key: &[u8],
        key_of: &dyn Fn(u32) -> &'a [u8],
    ) -> impl Iterator<Item = u32> + use<'_, 'a> {
        let index = self.block(key);
        let at = self.blocks.get(index).map_or(0, |block| block.position(key, key_of));
        self.blocks
            .iter()
            .skip(index)
            .flat_map(|block| &block.entries)
            .skip(at)
            .map(|entry| entry.slot)
    }

    /// The block of a key: the last block whose bound is not above the key.
    fn block(&self, key: &[u8]) -> usize {
        self.blocks.partition_point(|block| *block.from <= *key).saturating_sub(1)
    }

    /// Memory that the order takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let block = |block: &Block| {
            block.from.len() + block.shared.len() + block.entries.capacity() * size_of::<Entry>()
        };
        self.blocks.iter().map(block).sum::<usize>() + self.blocks.capacity() * size_of::<Block>()
    }
}

impl Block {
    /// The position of the first key at or above this one.
    fn position<'a>(&self, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) -> usize {
        if !key.starts_with(&self.shared) {
            return if *key < *self.shared { 0 } else { self.entries.len() };
        }
        let head = head(key, self.shared.len());
        self.entries.partition_point(|entry| {
            entry.head < head || (entry.head == head && key_of(entry.slot) < key)
        })
    }

    /// Sets the common prefix to the first `bytes` bytes of `key`.
    fn share<'a>(&mut self, bytes: usize, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) {
        self.shared = key[..bytes].into();
        for entry in &mut self.entries {
            entry.head = head(key_of(entry.slot), bytes);
        }
    }

    /// Splits off the upper half as a new block.
    fn split<'a>(&mut self, key_of: impl Fn(u32) -> &'a [u8]) -> Block {
        let mut upper =
            Block { entries: self.entries.split_off(BLOCK_MAX / 2), ..Block::default() };
        let first = key_of(upper.entries[0].slot);
        let last = key_of(self.entries[self.entries.len() - 1].slot);
        // The shortest prefix that separates the halves.
        upper.from = first[..first.len().min(common(last, first) + 1)].into();
        for block in [self, &mut upper] {
            let [lowest, .., highest] = &*block.entries else { unreachable!("half a block") };
            let key = key_of(lowest.slot);
            let bytes = common(key, key_of(highest.slot));
            block.share(bytes, key, &key_of);
        }
        upper
    }
}

/// Four bytes of a key from index `behind` on, as a number that orders like the key. A shorter key is padded with
/// zeros.
fn head(key: &[u8], behind: usize) -> u32 {
    let rest = key.get(behind..).unwrap_or_default();
    let mut bytes = [0; 4];
    let known = rest.len().min(bytes.len());
    bytes[..known].copy_from_slice(&rest[..known]);
    u32::from_be_bytes(bytes)
}

/// Length of the common prefix of two keys.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Keys of few different bytes, many with a long common prefix. Some are short or empty, prefixes of other keys, or
    /// end in zeros; a few have another prefix.
    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        let shared = prop_oneof![
            8 => Just(&b"a prefix that is long/"[..]),
            2 => Just(&b"a prefix"[..]),
            1 => Just(&b""[..]),
        ];
        let byte = prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(255)];
        (shared, proptest::collection::vec(byte, 0..9))
            .prop_map(|(shared, rest)| [shared, &rest].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn order_behaves_as_an_ordered_set(
            keys in proptest::collection::vec(any_key(), 1..2500),
            steps in proptest::collection::vec((proptest::bool::weighted(0.7), any::<proptest::sample::Index>()), 0..4000),
            from in any_key(),
        ) {
            let key_of = |slot: u32| &*keys[slot as usize];
            let (mut order, mut map) = (Order::default(), BTreeMap::new());
            for (adds, index) in steps {
                let slot = index.index(keys.len()) as u32;
                let key = key_of(slot);
                if !adds {
                    let there = map.remove(key).unwrap_or(slot);
                    order.remove(there, key, key_of);
                } else if !map.contains_key(key) {
                    map.insert(key, slot);
                    order.insert(slot, key, key_of);
                }
            }
            let found: Vec<u32> = order.from(&from, &key_of).collect();
            let expected: Vec<u32> = map.range(&*from..).map(|(_, &slot)| slot).collect();
            prop_assert_eq!(found, expected);
            let all: Vec<u32> = order.from(b"", &key_of).collect();
            prop_assert_eq!(all, map.values().copied().collect::<Vec<_>>());
            for block in &order.blocks {
                prop_assert!(!block.entries.is_empty() && block.entries.len() < BLOCK_MAX);
                for entry in &block.entries {
                    let key = key_of(entry.slot);
                    prop_assert!(key.starts_with(&block.shared));
                    prop_assert_eq!(entry.head, head(key, block.shared.len()));
                }
            }
        }
    }
}
