//! Slots in the order of their keys.

/// Slots in one block: one that is full is halved.
const BLOCK_MAX: usize = 512;

/// An ordered set of slots: sorted blocks of eight bytes a slot, in a sorted list.
///
/// The keys are elsewhere, in memory that is far: callers say where. A block knows what its
/// keys begin with, and beside each slot the four bytes that follow, so that finding looks at keys only
/// where these are the same. Adding moves 4 KiB at most, and once in some 256 times the list of
/// the blocks; then the keys of one block are looked at.
#[derive(Debug, Default)]
pub(crate) struct Order {
    blocks: Vec<Block>,
}

#[derive(Debug, Default)]
struct Block {
    /// Its keys are not before it, and those of the blocks before are. The first block has the keys
    /// before its own, too.
    from: Box<[u8]>,
    /// All of its keys begin with it.
    shared: Box<[u8]>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// What the key goes on with behind what the block's share, see [`head`].
    head: u32,
    slot: u32,
}

impl Order {
    /// Adds a slot that is not there, with its key; `key_of` has the keys of the others.
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

    /// Takes out a slot with its key, if it is there.
    pub(crate) fn remove<'a>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) {
        if self.blocks.is_empty() {
            return;
        }
        let index = self.block(key);
        let at = self.blocks[index].position(key, &key_of);
        let is_it = |entry: &Entry| entry.slot == slot;
        let found = match self.blocks[index].entries.get(at).is_some_and(is_it) {
            true => Some((index, at)),
            // A key that is not what it was has led astray.
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

    /// The slots from the first one on whose key is not before this one.
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

    /// The block that a key belongs to: the last one that does not begin behind it.
    fn block(&self, key: &[u8]) -> usize {
        self.blocks.partition_point(|block| *block.from <= *key).saturating_sub(1)
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let block = |block: &Block| {
            block.from.len() + block.shared.len() + block.entries.capacity() * size_of::<Entry>()
        };
        self.blocks.iter().map(block).sum::<usize>() + self.blocks.capacity() * size_of::<Block>()
    }
}

impl Block {
    /// Where the first key is that is not before this one.
    fn position<'a>(&self, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) -> usize {
        if !key.starts_with(&self.shared) {
            return if *key < *self.shared { 0 } else { self.entries.len() };
        }
        let head = head(key, self.shared.len());
        self.entries.partition_point(|entry| {
            entry.head < head || (entry.head == head && key_of(entry.slot) < key)
        })
    }

    /// From now on its keys share so many bytes, those at the front of one of them.
    fn share<'a>(&mut self, bytes: usize, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) {
        self.shared = key[..bytes].into();
        for entry in &mut self.entries {
            entry.head = head(key_of(entry.slot), bytes);
        }
    }

    /// Has its upper half in a block of its own.
    fn split<'a>(&mut self, key_of: impl Fn(u32) -> &'a [u8]) -> Block {
        let mut upper =
            Block { entries: self.entries.split_off(BLOCK_MAX / 2), ..Block::default() };
        let first = key_of(upper.entries[0].slot);
        let last = key_of(self.entries[self.entries.len() - 1].slot);
        // As much as tells the halves apart.
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

/// The four bytes of a key behind so many, as a number: keys with a smaller one are before those
/// with a larger one. One that ends before has zeros.
fn head(key: &[u8], behind: usize) -> u32 {
    let rest = key.get(behind..).unwrap_or_default();
    let mut bytes = [0; 4];
    let known = rest.len().min(bytes.len());
    bytes[..known].copy_from_slice(&rest[..known]);
    u32::from_be_bytes(bytes)
}

/// Bytes that both begin with.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Keys with much in common, of few different bytes: short and empty ones, some that others go on
    /// from, with zeros at their ends; a few begin with something else.
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
        #![proptest_config(ProptestConfig::with_cases(24))]

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
