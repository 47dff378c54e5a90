//! The keys of one stripe: where their versions are in the log.
//!
//! A key has a slot with the place of its newest record. A chain has the places of older records that may still be
//! read, oldest first. The key's hash finds the slot; scans visit slots in the order of the keys. The keys themselves
//! are only in the log.

mod chain;
mod prune;
mod restore;
mod segments;
mod view;
mod visit;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hashbrown::HashTable;
use knee_kv_cache::KeyHash;
use knee_kv_cache::engine::Second;

use segments::Segments;
pub(crate) use view::View;
pub(crate) use visit::Expired;

use super::log::Log;
use super::order::Order;
use super::place::{Location, SegmentId};
use super::record::{Record, Sequence};
use super::segment::Segment;

/// A record of the log is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment, as in its file's name.
    pub segment: SegmentId,
    /// Offset in the segment, counted from the end of the file's head.
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
    /// Number of the chain of older records, counted from 1; 0 is none.
    chain: u32,
    used_at: Second,
    read: bool,
    /// Whether older records have been dropped.
    pruned: bool,
    /// Whether the newest record is a delete record, or stands for a lost one.
    deleted: bool,
    /// Whether the slot is unused.
    free: bool,
}

/// A deleted key without older versions.
#[derive(Debug, Clone, Copy)]
struct Gone {
    /// The newest segment that may have an older record of the key.
    newest: SegmentId,
    /// Bytes of the delete record.
    bytes: usize,
}

/// Old versions of one key.
#[derive(Debug, Default)]
struct Chain {
    /// The places of the records, oldest first.
    places: Vec<Location>,
    /// A cached bound, 0 before the first prune. While readers need earlier commits, no record of the chain can be
    /// dropped, and a prune need not read the log.
    needed_before: Sequence,
}

#[derive(Debug)]
pub(crate) struct Table {
    log: Arc<Log>,
    hash: KeyHash,
    /// The log's segments, so that a read locks only its table.
    segments: Segments,
    generation: u64,
    index: HashTable<u32>,
    slots: Vec<Slot>,
    slots_free: Vec<u32>,
    chains: Vec<Chain>,
    chains_free: Vec<u32>,
    order: Order,
    /// A slot with a key that could not be read while another slot was inserted in the order. The inserted slot may be
    /// in the wrong place.
    disordered: Option<(u32, Damage)>,
    /// Commits that cleared all keys.
    cleared: Vec<Sequence>,
    /// Deleted keys without older versions.
    gone: HashMap<u32, Gone>,
    gone_bytes: usize,
    /// Slots whose records a recovery has not yet put in order.
    unordered: HashSet<u32>,
    /// Number of keys with a slot.
    keys: usize,
    /// Number of keys with a slot whose newest record is a delete record.
    deleted: usize,
    /// Number of entries of all chains.
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

    /// Updates the cached segments. Callers call this first each time they lock the table.
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
        self.segments.get(id).expect("the log has every segment with records of a table")
    }

    /// The record of an entry, unchecked: for results that no client sees.
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

    /// The slot of a key whose newest record cannot be read, found by its tag alone. Two keys have the same tag with a
    /// probability of 2⁻³².
    pub(crate) fn damaged(&self, hash: u64) -> Option<SlotId> {
        let tag = tag(hash);
        let is_damaged = |&slot: &u32| {
            let Slot { tag: other, newest, .. } = self.slots[slot as usize];
            other == tag && self.checked(newest).is_err()
        };
        self.index.find(spread(tag), is_damaged).map(|&slot| SlotId(slot))
    }

    /// Whether a record belongs to this key. A record with the same tag and another key is checked for damage, because
    /// two keys have the same tag with a probability of only 2⁻³².
    fn checked_if_other(&self, at: Location, key: &[u8]) -> Result<bool, Damage> {
        if self.segment(at.segment).key(at.offset()) == Some(key) {
            return Ok(true);
        }
        self.checked(at).map(|record| record.key == key)
    }

    /// The key of a slot, for the order. The check compares the key's hash with the slot's tag, and so need not read
    /// the value.
    fn key(&self, slot: SlotId) -> Result<&[u8], Damage> {
        let Slot { newest, tag: known, .. } = self.slots[slot.0 as usize];
        let segment = self.segment(newest.segment);
        match segment.key(newest.offset()) {
            Some(key) if !segment.is_file() || tag(self.hash.hash(key)) == known => Ok(key),
            _ => Err(Damage { segment: newest.segment, offset: newest.offset() }),
        }
    }

    /// When the key was last used, and whether it was read since its last put.
    pub(crate) fn usage(&self, slot: SlotId) -> (Second, bool) {
        let Slot { used_at, read, .. } = self.slots[slot.0 as usize];
        (used_at, read)
    }

    pub(crate) fn note_use(&mut self, slot: SlotId, now: Second, read: bool) {
        let slot = &mut self.slots[slot.0 as usize];
        slot.used_at = now;
        slot.read |= read;
    }

    /// Enters an appended record as the newest one of its key.
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

    /// Notes that the table has a record in this segment.
    fn meet(&mut self, id: SegmentId) {
        if self.segments.get(id).is_none()
            && let Some(segment) = self.log.segment(id)
        {
            self.segments.add(segment);
        }
    }

    fn set_newest(&mut self, id: SlotId, at: Location) {
        let deleted = self.trusted(at).kind.is_absence();
        let slot = &mut self.slots[id.0 as usize];
        self.deleted -= usize::from(slot.deleted);
        self.deleted += usize::from(deleted);
        *slot = Slot { newest: at, deleted, ..*slot };
        self.reorder_without(id);
    }

    /// The sort key of a record among those of its key.
    fn place(&self, at: Location) -> (Sequence, u32) {
        let record = self.trusted(at);
        (record.sequence, record.part)
    }

    fn add(&mut self, hash: u64, at: Location, now: Second) -> SlotId {
        let tag = tag(hash);
        let deleted = self.trusted(at).kind.is_absence();
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

    /// Removes a slot whose records are all counted as dead.
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

    /// Whether this record is the newest one of the slot, and not a delete.
    pub(crate) fn is_there_at(&self, slot: SlotId, at: Location) -> bool {
        let Slot { newest, deleted, .. } = self.slots[slot.0 as usize];
        newest == at && !deleted
    }

    /// Number of keys that are not deleted.
    pub(crate) fn keys(&self) -> usize {
        self.keys - self.deleted
    }

    /// Number of records kept, including those of deleted keys.
    pub(crate) fn records_kept(&self) -> usize {
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

/// The bits of a key's hash that its slot keeps; other bits choose the stripe.
fn tag(hash: u64) -> u32 {
    hash as u32
}

/// The hash for the index, computed from a slot's tag.
#[inline]
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
