//! The keys of one stripe: where their versions are in the log.
//!
//! A key has a slot with the place of its newest record; what it was before, as far as anybody may
//! still ask for it, is in a chain of places, oldest first. Slots are found by the key's hash, and
//! visited in the order of the keys. Keys themselves are in the log only.

mod prune;
mod restore;
mod segments;
mod view;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hashbrown::HashTable;

use segments::Segments;
pub(crate) use view::View;

use super::log::Log;
use super::order::Order;
use super::place::{Location, SegmentId};
use super::record::{Kind, Record, Sequence};
use super::segment::Segment;
use crate::engine::Second;
use crate::memory::KeyHash;

/// What the log holds is not what was written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment, as in its file's name.
    pub segment: SegmentId,
    /// Where in the segment, behind the file's head.
    pub offset: usize,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { segment, offset } = self;
        write!(
            f,
            "segment {segment:08}.log is damaged: the record at {offset} is not what was written"
        )
    }
}

/// A key's number in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

#[derive(Debug, Clone, Copy)]
struct Slot {
    newest: Location,
    /// Bits of the key's hash.
    tag: u32,
    /// Chain of what it was before, counted from 1; 0 is none.
    chain: u32,
    used_at: Second,
    read: bool,
    /// Something that it was has been forgotten.
    pruned: bool,
    /// The newest record says that it is gone.
    deleted: bool,
    /// No key has it.
    free: bool,
}

/// A deleted key without older versions.
#[derive(Debug, Clone, Copy)]
struct Gone {
    /// The newest segment that may hold something of what it was.
    newest: SegmentId,
    /// Bytes of the record that says so.
    bytes: usize,
}

/// Keys whose time is over.
pub(crate) struct Expired {
    pub(crate) keys: Vec<(Vec<u8>, SlotId)>,
    /// The number of the slot to go on with; nothing at the end.
    pub(crate) next: Option<usize>,
}

/// Old versions of one key.
#[derive(Debug, Default)]
struct Chain {
    /// Oldest first.
    places: Vec<Location>,
    /// While commits before it are asked for, all of these are, as the log need not be asked each
    /// time; 0 before the first look.
    needed_before: Sequence,
}

#[derive(Debug)]
pub(crate) struct Table {
    log: Arc<Log>,
    hash: KeyHash,
    /// The log's segments, so that a read locks nothing but its table.
    segments: Segments,
    generation: u64,
    index: HashTable<u32>,
    slots: Vec<Slot>,
    slots_free: Vec<u32>,
    chains: Vec<Chain>,
    chains_free: Vec<u32>,
    order: Order,
    /// A slot whose key could not be read when another one was put in its order: that may be in the
    /// wrong place.
    disordered: Option<(u32, Damage)>,
    /// Commits that took all keys away: what was there before one of them is gone from then on.
    cleared: Vec<Sequence>,
    /// Deleted keys without older versions.
    gone: HashMap<u32, Gone>,
    /// Bytes of their records.
    gone_bytes: usize,
    /// Slots whose records a recovery has not yet put in order.
    unordered: HashSet<u32>,
    /// Keys with a slot.
    keys: usize,
    /// Of those, keys whose newest record says that they are gone.
    deleted: usize,
    /// Entries of all chains.
    past: usize,
}

impl Table {
    pub(crate) fn new(log: Arc<Log>, hash: KeyHash) -> Table {
        let mut table = Table {
            log,
            hash,
            segments: Segments::default(),
            generation: u64::MAX,
            index: HashTable::new(),
            slots: Vec::new(),
            slots_free: Vec::new(),
            chains: Vec::new(),
            chains_free: Vec::new(),
            order: Order::default(),
            disordered: None,
            cleared: Vec::new(),
            gone: HashMap::new(),
            gone_bytes: 0,
            unordered: HashSet::new(),
            keys: 0,
            deleted: 0,
            past: 0,
        };
        table.refresh();
        table
    }

    /// To be called before anything else each time that the table was locked.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.log.generation() != self.generation {
            self.reload();
        }
    }

    #[cold]
    fn reload(&mut self) {
        self.generation = self.log.generation();
        self.segments = Segments::new(self.log.segments());
    }

    #[inline]
    fn segment(&self, id: SegmentId) -> &Segment {
        self.segments.get(id).expect("a segment with records of a table is there")
    }

    /// The record of an entry, as it was written: for what is not shown to anybody.
    #[inline]
    fn trusted(&self, at: Location) -> Record<'_> {
        self.segment(at.segment).record(at.offset())
    }

    /// The record of an entry, checked if it comes from a file.
    #[inline]
    fn checked(&self, at: Location) -> Result<Record<'_>, Damage> {
        let segment = self.segment(at.segment);
        if segment.is_file() {
            let damage = |_| Damage { segment: at.segment, offset: at.offset() };
            segment.checked(at.offset()).map_err(damage)
        } else {
            Ok(segment.record(at.offset()))
        }
    }

    /// The slot of a key.
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Result<Option<SlotId>, Damage> {
        let tag = tag(hash);
        let mut damage = None;
        let found = self.index.find(spread(tag), |&slot| {
            let Slot { tag: other, newest, .. } = self.slots[slot as usize];
            other == tag
                && match self.checked_if_other(newest, key) {
                    Ok(equal) => equal,
                    Err(found) => {
                        damage = Some(found);
                        false
                    }
                }
        });
        match (found, damage) {
            (Some(&slot), _) => Ok(Some(SlotId(slot))),
            (None, Some(damage)) => Err(damage),
            (None, None) => Ok(None),
        }
    }

    /// The slot of a key whose newest record cannot be read: of two keys with one tag there is one
    /// pair in 2³².
    pub(crate) fn damaged(&self, hash: u64) -> Option<SlotId> {
        let tag = tag(hash);
        let is_damaged = |&slot: &u32| {
            let Slot { tag: other, newest, .. } = self.slots[slot as usize];
            other == tag && self.checked(newest).is_err()
        };
        self.index.find(spread(tag), is_damaged).map(|&slot| SlotId(slot))
    }

    /// Whether a record is of this key. One that seems to be of another is checked: of two keys
    /// with one tag there is one pair in 2³².
    fn checked_if_other(&self, at: Location, key: &[u8]) -> Result<bool, Damage> {
        if self.segment(at.segment).key(at.offset()) == Some(key) {
            return Ok(true);
        }
        self.checked(at).map(|record| record.key == key)
    }

    /// Entries of a slot, the newest included.
    fn entries(&self, slot: SlotId) -> usize {
        self.chain(slot).len() + 1
    }

    fn chain(&self, slot: SlotId) -> &[Location] {
        match self.slots[slot.0 as usize].chain {
            0 => &[],
            chain => &self.chains[chain as usize - 1].places,
        }
    }

    #[inline]
    fn entry(&self, slot: SlotId, index: usize) -> Location {
        let chain = self.chain(slot);
        if index < chain.len() { chain[index] } else { self.slots[slot.0 as usize].newest }
    }

    /// The key of a slot, for who finds its place among others: checked against the bits of its
    /// hash that the slot has, and so without a look at the value.
    fn key(&self, slot: SlotId) -> Result<&[u8], Damage> {
        let Slot { newest, tag: known, .. } = self.slots[slot.0 as usize];
        let segment = self.segment(newest.segment);
        match segment.key(newest.offset()) {
            Some(key) if !segment.is_file() || tag(self.hash.hash(key)) == known => Ok(key),
            _ => Err(Damage { segment: newest.segment, offset: newest.offset() }),
        }
    }

    /// The same for the order, which has to go on: what is damaged is noted.
    fn key_noting<'a>(&'a self, slot: u32, damaged: &Cell<Option<(u32, Damage)>>) -> &'a [u8] {
        self.key(SlotId(slot)).unwrap_or_else(|damage| {
            damaged.set(Some((slot, damage)));
            &[]
        })
    }

    /// When it was last used, and whether it was read since it was put.
    pub(crate) fn usage(&self, slot: SlotId) -> (Second, bool) {
        let Slot { used_at, read, .. } = self.slots[slot.0 as usize];
        (used_at, read)
    }

    pub(crate) fn note_use(&mut self, slot: SlotId, now: Second, read: bool) {
        let slot = &mut self.slots[slot.0 as usize];
        slot.used_at = now;
        slot.read |= read;
    }

    /// Puts a record on top of what its key was, after it was appended to the log.
    pub(crate) fn push(
        &mut self,
        hash: u64,
        slot: Option<SlotId>,
        at: Location,
        now: Second,
    ) -> SlotId {
        self.meet(at.segment);
        let Some(id) = slot else { return self.add(hash, at, now) };
        let newest = self.slots[id.0 as usize].newest;
        let chain = self.chain_of(id);
        self.note_there(id);
        self.chains[chain as usize - 1].places.push(newest);
        self.past += 1;
        self.set_newest(id, at);
        let slot = &mut self.slots[id.0 as usize];
        *slot = Slot { used_at: now, read: false, ..*slot };
        id
    }

    /// A record came into this segment, perhaps the first one of the table.
    fn meet(&mut self, id: SegmentId) {
        if self.segments.get(id).is_none()
            && let Some(segment) = self.log.segment(id)
        {
            self.segments.add(segment);
        }
    }

    /// From now on this is the slot's newest record.
    fn set_newest(&mut self, id: SlotId, at: Location) {
        let deleted = self.trusted(at).kind == Kind::Delete;
        let slot = &mut self.slots[id.0 as usize];
        self.deleted -= usize::from(slot.deleted);
        self.deleted += usize::from(deleted);
        *slot = Slot { newest: at, deleted, ..*slot };
        self.reorder_without(id);
    }

    /// The slot's key is another one than it was, or gone: if it was the one that could not be
    /// read, all are put in their order anew.
    fn reorder_without(&mut self, id: SlotId) {
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

    /// The order of a record among those of its key.
    fn place(&self, at: Location) -> (Sequence, u32) {
        let record = self.trusted(at);
        (record.sequence, record.part)
    }

    /// The slot's chain, perhaps a new one.
    fn chain_of(&mut self, slot: SlotId) -> u32 {
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

    fn add(&mut self, hash: u64, at: Location, now: Second) -> SlotId {
        let tag = tag(hash);
        let deleted = self.trusted(at).kind == Kind::Delete;
        let slot = Slot {
            newest: at,
            tag,
            chain: 0,
            used_at: now,
            read: false,
            pruned: false,
            deleted,
            free: false,
        };
        let id = match self.slots_free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(spread(tag), id, |&slot| spread(slots[slot as usize].tag));
        let mut order = std::mem::take(&mut self.order);
        let damaged = Cell::new(None);
        let key_of = |slot| self.key_noting(slot, &damaged);
        order.insert(id, key_of(id), key_of);
        self.order = order;
        self.disordered = damaged.into_inner().or(self.disordered.take());
        self.keys += 1;
        self.deleted += usize::from(deleted);
        SlotId(id)
    }

    /// Takes a slot out whose records are buried.
    fn forget_buried(&mut self, slot: SlotId) {
        let order = {
            let mut order = std::mem::take(&mut self.order);
            let damaged = Cell::new(None);
            let key_of = |slot| self.key_noting(slot, &damaged);
            order.remove(slot.0, key_of(slot.0), key_of);
            order
        };
        self.order = order;
        let Slot { tag, chain, deleted, .. } = self.slots[slot.0 as usize];
        if let Ok(entry) = self.index.find_entry(spread(tag), |&other| other == slot.0) {
            entry.remove();
        }
        if chain != 0 {
            self.free_chain(slot);
        }
        self.slots[slot.0 as usize].free = true;
        self.slots_free.push(slot.0);
        self.reorder_without(slot);
        self.note_there(slot);
        self.keys -= 1;
        self.deleted -= usize::from(deleted);
    }

    /// Has another chain for the slot's.
    fn replace_chain(&mut self, slot: SlotId, places: Vec<Location>) {
        if let Some(chain) = (self.slots[slot.0 as usize].chain as usize).checked_sub(1) {
            let with = Chain { places, needed_before: 0 };
            self.past += with.places.len();
            self.past -= std::mem::replace(&mut self.chains[chain], with).places.len();
        }
    }

    /// The slot has no chain any more.
    fn free_chain(&mut self, slot: SlotId) {
        let chain = std::mem::take(&mut self.slots[slot.0 as usize].chain);
        let chain_before = std::mem::take(&mut self.chains[chain as usize - 1]);
        self.past -= chain_before.places.len();
        self.chains_free.push(chain);
    }

    /// The slots of keys from `key` on, in order.
    pub(crate) fn slots_from(
        &self,
        key: &[u8],
    ) -> Result<impl Iterator<Item = SlotId> + use<'_>, Damage> {
        let damaged = Cell::new(self.disordered.clone());
        let slots = self.order.from(key, &|slot| self.key_noting(slot, &damaged));
        damaged.into_inner().map_or(Ok(slots.map(SlotId)), |(_, damage)| Err(damage))
    }

    /// All slots that keys have.
    pub(crate) fn slots(&self) -> Vec<SlotId> {
        let has_key = |(_, slot): &(usize, &Slot)| !slot.free;
        self.slots.iter().enumerate().filter(has_key).map(|(id, _)| SlotId(id as u32)).collect()
    }

    /// Slots with older versions.
    pub(crate) fn slots_with_past(&self) -> Vec<SlotId> {
        let has_past = |(_, slot): &(usize, &Slot)| slot.chain != 0;
        self.slots.iter().enumerate().filter(has_past).map(|(id, _)| SlotId(id as u32)).collect()
    }

    /// Those of so many slots from number `first` on whose keys' time is over. Not in the order of
    /// the keys, which one that is damaged may have upset; it keeps no other from going, and stays
    /// itself.
    pub(crate) fn expired_from(&self, first: usize, slots_max: usize, now: Second) -> Expired {
        let end = self.slots.len().min(first + slots_max);
        let is_over = |record: &Record<'_>| record.expiry.is_over(now);
        let expired = |number: usize| {
            let Slot { newest, deleted, free, .. } = self.slots[number];
            // Only what seems to be over is looked at as a whole.
            if free || deleted || !is_over(&self.trusted(newest)) {
                return None;
            }
            let record = self.checked(newest).ok().filter(is_over)?;
            Some((record.key.to_vec(), SlotId(number as u32)))
        };
        let keys = (first..end).filter_map(expired).collect();
        Expired { keys, next: (end < self.slots.len()).then_some(end) }
    }

    /// What was there before this commit is gone.
    pub(crate) fn clear(&mut self, commit: Sequence) {
        let at = self.cleared.partition_point(|&other| other < commit);
        self.cleared.insert(at, commit);
    }

    /// Forgets the commits that took all keys away up to `horizon`: every key has been pruned for them, and says
    /// itself that it is gone.
    pub(crate) fn forget_clears(&mut self, horizon: Sequence) {
        // The last one not behind it says all that those before say.
        let first = self.cleared.partition_point(|&other| other <= horizon).saturating_sub(1);
        self.cleared.drain(..first);
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(crate) fn clears(&self) -> usize {
        self.cleared.len()
    }

    /// Whether this record is what the slot's key is.
    pub(crate) fn is_there_at(&self, slot: SlotId, at: Location) -> bool {
        let Slot { newest, deleted, .. } = self.slots[slot.0 as usize];
        newest == at && !deleted
    }

    /// Keys that are there.
    pub(crate) fn keys(&self) -> usize {
        self.keys - self.deleted
    }

    /// Records that are kept, those of keys that are gone included.
    pub(crate) fn records(&self) -> usize {
        self.keys + self.past
    }

    /// Memory of slots, chains, index and order.
    pub(crate) fn bytes(&self) -> usize {
        let chains: usize =
            self.chains.iter().map(|chain| chain.places.capacity() * size_of::<Location>()).sum();
        self.index.allocation_size()
            + self.slots.capacity() * size_of::<Slot>()
            + self.chains.capacity() * size_of::<Chain>()
            + chains
            + self.order.bytes()
    }
}

/// The bits of a key's hash that its slot keeps: not those that chose the stripe.
fn tag(hash: u64) -> u32 {
    hash as u32
}

/// The hash that the index sees, made from what a slot keeps.
#[inline]
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
