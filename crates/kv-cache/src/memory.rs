//! The volatile engine: items in bounded memory, with eviction.
//!
//! Small items are appended to segments of at most 1 MiB. So a small item costs its header of 27 bytes and its index
//! entry, and no allocation. A large item has its own segment. A new value of the same size overwrites the old one in
//! place. Otherwise the old item is dead, and a segment with only dead items is reused at once.
//!
//! When memory runs out, a segment is emptied:
//!
//! * If a quarter or more of some segment is dead, the emptiest segment's live items move to the active segment. So no
//!   item is evicted while there is much dead space.
//! * Otherwise the oldest segment is emptied. Eviction spares an item that was used since its put, or since it was
//!   last spared: it moves to the active segment. The other items are evicted. A segment with more than half of its
//!   bytes in used items is passed over once.
//!
//! This is CLOCK, or FIFO with reinsertion, by segments (Corbató, 1968). FIFO with reinsertion evicts no worse
//! than LRU (Yang et al., 2023). A read writes only the item's header, instead of moving a list's links.

mod hash;
mod index;
mod layout;
mod log;
mod reclaim;

use crate::engine::{Change, Engine, Figures, Item, KEY_BYTES_MAX, Refused, Second, Version};

pub use hash::KeyHash;
use index::Index;
use layout::{Head, Location, SEGMENT_BYTES_MAX, item_bytes};
use log::Log;

/// The least number of segments, unless they would be smaller than `SEGMENT_BYTES_MIN`.
const SEGMENTS_MIN: usize = 64;
const SEGMENT_BYTES_MIN: usize = 4096;
/// The index has one table per this many bytes of the memory limit. With items of 40 bytes or more, a table has at most
/// some 100,000 entries. Growing it takes well below a millisecond.
const TABLE_SHARE_BYTES: usize = 4 << 20;

/// Limits of a [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of items, index and free room together.
    pub memory_bytes_max: usize,
    /// Length of the largest value.
    pub value_bytes_max: usize,
}

impl MemoryLimits {
    /// The least memory for values of this size. It holds two of the largest items, so that a large item can be
    /// replaced.
    pub fn memory_bytes_min(value_bytes_max: usize) -> usize {
        let segments = 16 * SEGMENT_BYTES_MIN;
        segments + 2 * item_bytes(KEY_BYTES_MAX, value_bytes_max)
    }

    fn suffice(&self) -> bool {
        self.memory_bytes_max >= Self::memory_bytes_min(self.value_bytes_max)
    }
}

/// The versions that an engine assigns. The engines of one store assign different versions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versions {
    pub(crate) first: Version,
    pub(crate) step: Version,
}

/// The volatile engine. Small items have little overhead; eviction is CLOCK by segments.
#[derive(Debug)]
pub struct Memory {
    hash: KeyHash,
    index: Index,
    log: Log,
    limits: MemoryLimits,
    last_version: Version,
    version_step: Version,
    /// The time of a scheduled clear. It removes all items put before.
    clear_at: Option<Second>,
    /// A buffer in which appends and prepends assemble a value.
    grown: Vec<u8>,
    puts: u64,
    evictions: u64,
    evictions_unread: u64,
    expired: u64,
}

impl Memory {
    /// An empty engine; `None` if the memory is below [`MemoryLimits::memory_bytes_min`].
    pub fn new(limits: MemoryLimits) -> Option<Memory> {
        Memory::with_versions(limits, KeyHash::random(), Versions { first: 1, step: 1 })
    }

    pub(crate) fn with_versions(
        limits: MemoryLimits,
        hash: KeyHash,
        versions: Versions,
    ) -> Option<Memory> {
        if !limits.suffice() {
            return None;
        }
        let share = limits.memory_bytes_max / SEGMENTS_MIN;
        let segment_bytes = (1 << share.max(1).ilog2()).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        Some(Memory {
            hash,
            index: Index::new(limits.memory_bytes_max.div_ceil(TABLE_SHARE_BYTES)),
            log: Log::new(segment_bytes),
            limits,
            last_version: versions.first.wrapping_sub(versions.step),
            version_step: versions.step,
            clear_at: None,
            grown: Vec::new(),
            puts: 0,
            evictions: 0,
            evictions_unread: 0,
            expired: 0,
        })
    }

    fn next_version(&mut self) -> Version {
        self.last_version = self.last_version.wrapping_add(self.version_step);
        self.last_version
    }

    #[inline]
    pub(crate) fn get_hashed<R>(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Second,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> R {
        let Some(at) = self.find(hash, key, now) else { return visit(None) };
        let outcome = visit(Some(self.log.item(at)));
        self.log.read(at, now);
        outcome
    }

    pub(crate) fn update_hashed<'c, R>(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        let old = self.find(hash, key, now);
        let (change, outcome) = decide(old.map(|at| self.log.item(at)));
        (self.apply(hash, key, now, old, change), outcome)
    }

    fn apply(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Second,
        old: Option<Location>,
        change: Change<'_>,
    ) -> Result<Version, Refused> {
        if let Change::Put { flags, expiry, marks, value } = change {
            let version = self.next_version();
            let head = Head { version, expiry, flags, marks, used_at: now };
            return self.put(hash, key, now, old, value, &head);
        }
        let Some(at) = old else { return Ok(0) };
        let Item { version, flags, marks, .. } = self.log.item(at);
        match change {
            Change::Keep | Change::Put { .. } => Ok(version),
            Change::Read => {
                self.log.read(at, now);
                Ok(version)
            }
            Change::Append(tail) => self.grow(hash, key, now, at, b"", tail),
            Change::Prepend(front) => self.grow(hash, key, now, at, front, b""),
            Change::Rewrite { expiry, value } => {
                let version = self.next_version();
                self.log.rewrite(at, value, &Head { version, expiry, flags, marks, used_at: now });
                Ok(version)
            }
            Change::Amend { expiry, marks, new_version, read } => {
                let version = if new_version { self.next_version() } else { version };
                self.log.amend(at, &Head { version, expiry, flags, marks, used_at: now });
                if read {
                    self.log.read(at, now);
                }
                Ok(version)
            }
            Change::Remove => {
                self.remove(hash, at);
                Ok(0)
            }
        }
    }

    fn put(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Second,
        old: Option<Location>,
        value: &[u8],
        head: &Head,
    ) -> Result<Version, Refused> {
        if key.len() > KEY_BYTES_MAX || value.len() > self.limits.value_bytes_max {
            return Err(Refused::TooLarge);
        }
        self.puts += 1;
        if let Some(old) = old {
            if self.log.overwrite(old, value, head) {
                return Ok(head.version);
            }
            self.remove(hash, old);
        }
        self.make_room(hash, item_bytes(key.len(), value.len()), now)?;
        let at = self.log.put(key, value, head);
        self.index.insert(hash, at);
        Ok(head.version)
    }

    fn grow(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Second,
        at: Location,
        front: &[u8],
        tail: &[u8],
    ) -> Result<Version, Refused> {
        let version = self.next_version();
        let mut grown = std::mem::take(&mut self.grown);
        let item = self.log.item(at);
        grown.clear();
        grown.extend_from_slice(front);
        grown.extend_from_slice(item.value);
        grown.extend_from_slice(tail);
        let head = Head { version, expiry: item.expiry, flags: item.flags, marks: 0, used_at: now };
        let outcome = self.put(hash, key, now, Some(at), &grown, &head);
        self.grown = grown;
        outcome
    }

    /// The item of a key, unless it is expired.
    #[inline]
    fn find(&mut self, hash: u64, key: &[u8], now: Second) -> Option<Location> {
        if self.clear_at.is_some_and(|at| at <= now) {
            self.clear_at = None;
            self.remove_all();
        }
        let at = self.index.find(hash, |at| self.log.key(at) == key)?;
        if self.log.expiry(at).is_over(now) {
            self.expired += 1;
            self.remove(hash, at);
            return None;
        }
        Some(at)
    }

    fn remove(&mut self, hash: u64, at: Location) {
        self.index.remove(hash, at);
        self.log.kill(at);
    }

    fn remove_all(&mut self) {
        self.index.clear();
        self.log.clear();
    }
}

impl Engine for Memory {
    #[inline]
    fn get<R>(
        &mut self,
        key: &[u8],
        now: Second,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> Result<R, Refused> {
        Ok(self.get_hashed(self.hash.hash(key), key, now, visit))
    }

    #[inline]
    fn update<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        self.update_hashed(self.hash.hash(key), key, now, decide)
    }

    fn clear(&mut self, at: Second, now: Second) -> Result<(), Refused> {
        if at <= now {
            self.clear_at = None;
            self.remove_all();
        } else {
            self.clear_at = Some(at);
        }
        Ok(())
    }

    fn set_memory_limit(&mut self, bytes: usize, now: Second) -> bool {
        let limits = MemoryLimits { memory_bytes_max: bytes, ..self.limits };
        if !limits.suffice() {
            return false;
        }
        self.limits = limits;
        // It fails only if no item is left to evict.
        let _ = self.ensure_available(0, now);
        true
    }

    fn figures(&mut self) -> Figures {
        Figures {
            items: self.index.len() as u64,
            item_bytes: self.log.live_bytes() as u64,
            memory_bytes: self.memory_bytes() as u64,
            memory_bytes_max: self.limits.memory_bytes_max as u64,
            puts: self.puts,
            evictions: self.evictions,
            evictions_unread: self.evictions_unread,
            expired: self.expired,
        }
    }
}
