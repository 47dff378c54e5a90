//! What the server asks of a store of items.
//!
//! The trait is small because it offers one read and one atomic read-decide-change. Conditions
//! (add, replace, compare-and-swap), arithmetic and recache tokens belong to the protocols above,
//! which express them as the decision. An engine only has to make the change atomic and to give
//! every changed item a new version.

use std::num::NonZeroU32;

use crate::versions;

/// A second of the Unix epoch. An engine owns no clock: callers tell it the time.
pub type Second = u32;

/// The version of an item: larger after every change of the item, also if it was gone in between.
pub type Version = u64;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// When an item ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Option<NonZeroU32>);

impl Expiry {
    /// It does not.
    pub const NEVER: Expiry = Expiry(None);

    /// It is gone from this second on.
    #[must_use]
    pub fn at(second: Second) -> Expiry {
        Expiry(Some(NonZeroU32::new(second).unwrap_or(NonZeroU32::MIN)))
    }

    /// The second from which on it is gone.
    #[must_use]
    pub fn second(self) -> Option<Second> {
        self.0.map(NonZeroU32::get)
    }

    /// Whether that time has come.
    #[inline]
    #[must_use]
    pub fn is_over(self, now: Second) -> bool {
        self.0.is_some_and(|second| second.get() <= now)
    }

    /// As a number to store: 0 is never.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        self.0.map_or(0, NonZeroU32::get)
    }

    /// From a stored number.
    #[must_use]
    pub fn from_bits(bits: u32) -> Expiry {
        Expiry(NonZeroU32::new(bits))
    }
}

/// An item, borrowed from the engine, as it was before the access that shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The client's number.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Changes with every change of the item.
    pub version: Version,
    /// Bits that the layer above keeps beside the item; they mean nothing to the engine.
    pub marks: u8,
    /// Whether [`Engine::get`] has shown it since it was put.
    pub read: bool,
    /// When it was last read, changed or put.
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
}

impl From<Item<'_>> for Head {
    fn from(Item { flags, expiry, version, marks, .. }: Item<'_>) -> Head {
        Head { flags, expiry, version, marks }
    }
}

/// What is to happen to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Nothing; the access is not even counted as a use.
    Keep,
    /// Only that it was read.
    Read,
    /// A new item takes the place of the old one, if any.
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
    /// The value grows at its end. Flags and expiry stay; without an item nothing happens.
    Append(&'a [u8]),
    /// The value grows at its front. Flags and expiry stay; without an item nothing happens.
    Prepend(&'a [u8]),
    /// Another value of the same length, and perhaps another expiry; all else stays. Without an
    /// item nothing happens.
    Rewrite {
        /// The new expiry.
        expiry: Expiry,
        /// The new value, as long as the old one.
        value: &'a [u8],
    },
    /// The value stays; without an item nothing happens.
    Amend {
        /// The new expiry.
        expiry: Expiry,
        /// The new marks.
        marks: u8,
        /// Whether this makes a new version.
        new_version: bool,
        /// Whether this counts as a read.
        read: bool,
    },
    /// The item goes.
    Remove,
}

/// Why an access failed. The item is as it was before, unless the error says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The item would exceed the largest size the engine takes.
    TooLarge,
    /// There is no room for the change. An engine that evicts has evicted others in vain, and the
    /// old item is gone.
    Full,
    /// There was no room for the change for some time, and another client changed the item in between. The caller
    /// has to decide again.
    Changed,
    /// There is no room for the change on the disk.
    NoSpace,
    /// There is room, but the system refuses what the change needs; it may not later.
    Failed,
    /// What is stored of the item is not what was written.
    Damaged,
    /// The log could not be written before: no change is taken any more.
    Broken,
}

impl Refused {
    /// Whether it is for want of room.
    #[must_use]
    pub fn is_full(self) -> bool {
        matches!(self, Refused::Full | Refused::NoSpace)
    }
}

/// How full an engine is, and what it has removed by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Items stored, those that are over but not yet noticed included.
    pub items: u64,
    /// Bytes of keys, values and their headers.
    pub item_bytes: u64,
    /// Bytes taken from the system: items, index, and room that is free for new items.
    pub memory_bytes: u64,
    /// What `memory_bytes` must not exceed.
    pub memory_bytes_max: u64,
    /// Changes that put a value, since the start.
    pub puts: u64,
    /// Items evicted for want of memory, since the start.
    pub evictions: u64,
    /// Of those, the ones never read.
    pub evictions_unread: u64,
    /// Items removed because their time was over, since the start.
    pub expired: u64,
}

/// A store of items. A handle to it is owned by one thread; engines that are shared lock inside.
///
/// Clients may see what a handle was shown or has changed only after [`Engine::settle`].
pub trait Engine {
    /// Whether [`Engine::settle`] takes its time: requests are served once it is over.
    const SETTLES: bool = false;

    /// Shows the item of `key` to `visit`, unless its time is over, and counts that as a use.
    ///
    /// # Errors
    /// Where the item cannot be shown; `visit` is not called.
    fn get<R>(
        &mut self,
        key: &[u8],
        now: Second,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> Result<R, Refused>;

    /// Shows the item of `key` to `decide`, and makes the change it returns, atomically.
    ///
    /// Returns the item's version after the change, 0 where there is no item, and what `decide`
    /// had to say. With an error nothing was changed, whatever that is: where the item could not
    /// be shown, `decide` was asked as if there was none.
    fn update<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R);

    /// As [`Engine::update`], for a decision that needs no value: pieces of a long value
    /// are not put together.
    fn update_by_head<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Head>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        self.update(key, now, |item| decide(item.map(Head::from)))
    }

    /// Removes every item once `at` has come: those put before it, none put after it.
    /// A later call takes the place of an earlier one that is still pending.
    ///
    /// # Errors
    /// Where some of them could not be removed.
    fn clear(&mut self, at: Second, now: Second) -> Result<(), Refused>;

    /// Waits until everything that this handle was shown or has changed is as safe as it is going
    /// to be.
    ///
    /// # Errors
    /// Says why it will never be: no client may see any of it.
    #[inline]
    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Whether [`Engine::settle`] has something to wait for.
    #[inline]
    fn is_unsettled(&self) -> bool {
        false
    }

    /// Changes the memory limit; evicts until it holds. Returns false, without any change, when so
    /// little does not suffice for the largest item.
    fn set_memory_limit(&mut self, bytes: usize, now: Second) -> bool;

    /// How full it is.
    fn figures(&mut self) -> Figures;

    /// Why it takes no changes at present, and what that means for its operator.
    fn shortage(&mut self) -> Option<String> {
        None
    }

    /// What it has besides, if it keeps versions.
    fn version_figures(&mut self) -> Option<(versions::Figures, versions::CommitFigures)> {
        None
    }
}
