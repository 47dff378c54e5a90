//! The interface between the memcached server and a store of items.
//!
//! Items have one read, and one atomic read-decide-change. Conditions (add, replace, compare-and-swap), arithmetic and
//! recache tokens belong to the protocol, which expresses them as the decision. An engine makes the change atomic, and
//! gives the changed item a new version, unless [`Change::Amend`] keeps the old one.

use std::num::NonZeroU32;
use std::time::Instant;

use crate::versions;

/// A second of the Unix epoch. An engine has no clock: callers pass the time.
pub type Second = u32;

/// The version of an item. Every change of its value gives a larger version, even if the item was removed in between.
pub type Version = u64;

/// Length of the longest key.
pub const KEY_BYTES_MAX: usize = 255;

/// When an item expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Option<NonZeroU32>);

impl Expiry {
    /// The item does not expire.
    pub const NEVER: Expiry = Expiry(None);

    /// The item is expired from this second on.
    pub fn at(second: Second) -> Expiry {
        Expiry(Some(NonZeroU32::new(second).unwrap_or(NonZeroU32::MIN)))
    }

    /// The second from which on the item is expired.
    pub fn second(self) -> Option<Second> {
        self.0.map(NonZeroU32::get)
    }

    /// Whether the item is expired.
    #[inline]
    pub fn is_over(self, now: Second) -> bool {
        self.0.is_some_and(|second| second.get() <= now)
    }

    /// A number to store: 0 for never.
    pub fn to_bits(self) -> u32 {
        self.0.map_or(0, NonZeroU32::get)
    }

    /// The inverse of [`Expiry::to_bits`].
    pub fn from_bits(bits: u32) -> Expiry {
        Expiry(NonZeroU32::new(bits))
    }
}

/// An item, borrowed from the engine, in its state before the current access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// A number that the client stores with the item.
    pub flags: u32,
    /// When the item expires.
    pub expiry: Expiry,
    /// The version; it grows with every change of the value.
    pub version: Version,
    /// Bits that the protocol stores with the item. The engine does not interpret them.
    pub marks: u8,
    /// Whether the item was read since it was put.
    pub read: bool,
    /// When the item was last read, changed or put.
    pub used_at: Second,
    /// The value.
    pub value: &'a [u8],
}

/// An item without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// See [`Item::flags`].
    pub flags: u32,
    /// See [`Item::expiry`].
    pub expiry: Expiry,
    /// See [`Item::version`].
    pub version: Version,
    /// See [`Item::marks`].
    pub marks: u8,
    /// Length of the value.
    pub value_bytes: usize,
}

impl From<Item<'_>> for Head {
    fn from(Item { flags, expiry, version, marks, value, .. }: Item<'_>) -> Head {
        Head { flags, expiry, version, marks, value_bytes: value.len() }
    }
}

/// A change of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// No change. The access does not count as a use.
    Keep,
    /// The item is marked as read.
    Read,
    /// A new item replaces the old one, if any.
    Put {
        /// See [`Item::flags`].
        flags: u32,
        /// See [`Item::expiry`].
        expiry: Expiry,
        /// See [`Item::marks`].
        marks: u8,
        /// The value.
        value: &'a [u8],
    },
    /// Bytes are added at the end of the value. Flags and expiry stay. No effect without an item.
    Append(&'a [u8]),
    /// Bytes are added before the value. Flags and expiry stay. No effect without an item.
    Prepend(&'a [u8]),
    /// A new value of the same length, and a new expiry. Flags and marks stay. No effect without an item.
    Rewrite {
        /// The new expiry.
        expiry: Expiry,
        /// The new value, as long as the old one.
        value: &'a [u8],
    },
    /// New expiry and marks; the value stays. No effect without an item.
    Amend {
        /// The new expiry.
        expiry: Expiry,
        /// The new marks.
        marks: u8,
        /// Whether the item gets a new version.
        new_version: bool,
        /// Whether the item is marked as read.
        read: bool,
    },
    /// The item is removed.
    Remove,
}

/// Why an access failed. The item is unchanged, unless the error says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The item is larger than the engine's limit.
    TooLarge,
    /// There is no memory for the change. An engine that evicts has removed the old item, and has evicted other items
    /// without success.
    Full,
    /// While the change waited for room, another client changed the item. The caller has to decide again.
    Changed,
    /// There is no room for the change on the disk.
    NoSpace,
    /// The system refuses an operation that the change needs. A later attempt may succeed.
    Failed,
    /// The stored item differs from the written one.
    Damaged,
    /// An earlier write of the log failed, so the engine refuses all changes.
    Broken,
}

impl Refused {
    /// Whether there is no room for the change.
    pub fn is_full(self) -> bool {
        matches!(self, Refused::Full | Refused::NoSpace)
    }
}

/// The memory use of an engine, and its counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Stored items, including expired ones that are not removed yet.
    pub items: u64,
    /// Bytes of keys, values and their headers.
    pub item_bytes: u64,
    /// Bytes taken from the system: items, index, and free room for new items.
    pub memory_bytes: u64,
    /// The limit of `memory_bytes`.
    pub memory_bytes_max: u64,
    /// Number of changes that put a value.
    pub puts: u64,
    /// Number of items evicted because memory was full.
    pub evictions: u64,
    /// The evicted items that were never read.
    pub evictions_unread: u64,
    /// Number of items removed because they were expired.
    pub expired: u64,
}

/// A store of items. Each thread has its own handle; shared engines have locks inside.
///
/// Clients may see the results of a handle's accesses only after [`Engine::settle`].
pub trait Engine {
    /// Whether [`Engine::settle`] takes time. If so, a request counts as served only after it.
    const SETTLES: bool = false;

    /// Passes the item of `key` to `visit`, unless it is expired, and marks it as read.
    ///
    /// # Errors
    /// When the item cannot be read. Then `visit` is not called.
    fn get<R>(
        &mut self,
        key: &[u8],
        now: Second,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> Result<R, Refused>;

    /// Passes the item of `key` to `decide`, and makes the change that it returns, atomically.
    ///
    /// Returns the item's version after the change, 0 without an item, and the result of `decide`. If there is an
    /// error, see [`Refused`] for the item's state. If the item cannot be read, `decide` is called as if there was
    /// none.
    fn update<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R);

    /// As [`Engine::update`], for a decision that needs no value: the engine need not assemble a long value.
    fn update_by_head<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Head>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        self.update(key, now, |item| decide(item.map(Head::from)))
    }

    /// Removes all items at the time `at`, except for items put after it. A later call replaces a pending one.
    ///
    /// # Errors
    /// When some items could not be removed.
    fn clear(&mut self, at: Second, now: Second) -> Result<(), Refused>;

    /// Waits until all changes that this handle made or has seen are durable, as far as the engine provides durability.
    ///
    /// # Errors
    /// Why the changes will never be durable. No client may see these changes.
    #[inline]
    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Whether [`Engine::settle`] would wait for the disk.
    #[inline]
    fn is_unsettled(&self) -> bool {
        false
    }

    /// When [`Engine::settle`] should begin. Changes before this time share one wait. `None`: at once.
    #[inline]
    fn settles_at(&self) -> Option<Instant> {
        None
    }

    /// Changes the memory limit, and evicts items until the limit holds. Returns false, without any change, if the
    /// limit is too low for the largest item.
    fn set_memory_limit(&mut self, bytes: usize, now: Second) -> bool;

    /// The memory use, and the counts.
    fn figures(&mut self) -> Figures;

    /// Why the engine refuses changes at present, and the remedy, for its operator.
    fn shortage(&mut self) -> Option<String> {
        None
    }

    /// Further figures of an engine that keeps versions.
    fn version_figures(&mut self) -> Option<(versions::Figures, versions::CommitFigures)> {
        None
    }
}
