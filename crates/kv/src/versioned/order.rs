//! Slots in the order of their keys.

use std::cmp::Ordering;

/// Slots in one block: one that is full is halved.
const BLOCK_MAX: usize = 512;

/// An ordered set of slots: sorted blocks of four bytes a slot, in a sorted list.
///
/// The keys are elsewhere; whoever asks says how a slot compares. Finding takes O(log n)
/// comparisons, adding moves 2 KiB at most, and once in some 256 times the list of the blocks.
#[derive(Debug, Default)]
pub(crate) struct Order {
    blocks: Vec<Vec<u32>>,
}

impl Order {
    /// Adds a slot that is not there; `compare` says how a slot's key compares with its own.
    pub(crate) fn insert(&mut self, slot: u32, mut compare: impl FnMut(u32) -> Ordering) {
        if self.blocks.is_empty() {
            self.blocks.push(vec![slot]);
            return;
        }
        let index = self.block(&mut compare);
        let block = &mut self.blocks[index];
        let at = block.partition_point(|&other| compare(other) == Ordering::Less);
        block.insert(at, slot);
        if block.len() == BLOCK_MAX {
            let upper = block.split_off(BLOCK_MAX / 2);
            self.blocks.insert(index + 1, upper);
        }
    }

    /// Takes out the slot that compares equal, if it is there.
    pub(crate) fn remove(&mut self, mut compare: impl FnMut(u32) -> Ordering) {
        if self.blocks.is_empty() {
            return;
        }
        let index = self.block(&mut compare);
        let block = &mut self.blocks[index];
        let at = block.partition_point(|&other| compare(other) == Ordering::Less);
        if at < block.len() && compare(block[at]) == Ordering::Equal {
            block.remove(at);
            if block.is_empty() {
                self.blocks.remove(index);
            }
        }
    }

    /// The slots from the first one on that does not compare less.
    pub(crate) fn from(
        &self,
        mut compare: impl FnMut(u32) -> Ordering,
    ) -> impl Iterator<Item = u32> + '_ {
        let index = if self.blocks.is_empty() { 0 } else { self.block(&mut compare) };
        let at = self
            .blocks
            .get(index)
            .map_or(0, |block| block.partition_point(|&slot| compare(slot) == Ordering::Less));
        self.blocks.iter().skip(index).flatten().skip(at).copied()
    }

    /// The block that a key belongs to: the last one that does not begin behind it.
    fn block(&self, compare: &mut impl FnMut(u32) -> Ordering) -> usize {
        let behind = self.blocks.partition_point(|block| compare(block[0]) != Ordering::Greater);
        behind.saturating_sub(1)
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| 4 * block.capacity()).sum();
        blocks + self.blocks.capacity() * size_of::<Vec<u32>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_set(steps in proptest::collection::vec((any::<bool>(), 0..3000_u32), 0..4000), from in 0..3100_u32) {
            let (mut order, mut set) = (Order::default(), BTreeSet::new());
            for (adds, slot) in steps {
                if adds {
                    if set.insert(slot) {
                        order.insert(slot, |other| other.cmp(&slot));
                    }
                } else {
                    set.remove(&slot);
                    order.remove(|other| other.cmp(&slot));
                }
            }
            let found: Vec<u32> = order.from(|slot| slot.cmp(&from)).collect();
            prop_assert_eq!(found, set.range(from..).copied().collect::<Vec<_>>());
            prop_assert!(order.blocks.iter().all(|block| !block.is_empty() && block.len() < BLOCK_MAX));
        }
    }
}
