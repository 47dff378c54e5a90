//! Types that every layer of the store uses.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knee_kv_cache::engine::Version;

use super::record::Sequence;

/// The order that versions express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// One order of all writes, that of the log: versions count the commits of the store.
    Linearizable,
    /// An order for each key: versions count the writes of the key.
    Sequential,
}

impl Consistency {
    pub(super) const ALL: [Consistency; 2] = [Consistency::Linearizable, Consistency::Sequential];

    /// The number in the head of a segment's file.
    pub(super) fn number(self) -> u32 {
        match self {
            Consistency::Linearizable => 1,
            Consistency::Sequential => 2,
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Sequential => "sequential",
        })
    }
}

/// Options of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOptions {
    /// The order that versions express.
    pub consistency: Consistency,
    /// Number of locks that keys are spread over; a power of two.
    pub stripes: usize,
    /// Largest value, in bytes.
    pub value_bytes_max: usize,
    /// Size of a segment of the log in bytes, at least 1024. A record must fit one segment; from 1,053,000 bytes on,
    /// every key and value do.
    pub segment_bytes: usize,
}

/// Options for a store in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// The directory; a missing one is made.
    pub path: PathBuf,
    /// When a commit is on the disk.
    pub durability: Durability,
    /// Whether to open the store without its damaged parts, instead of failing.
    pub repair: bool,
}

/// When a commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before a client sees it.
    Always,
    /// At most this number of milliseconds later. The system has it before a client sees it.
    Interval(u32),
    /// Whenever the system writes its cache. The system has it before a client sees it.
    None,
}

/// How commits share the syncs of a log with [`Durability::Always`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// How long a commit may wait for other commits before its sync begins, counted from the commit. A commit that
    /// waited as long for another sync does not wait further.
    pub dally: Duration,
    /// The largest number of commits in one sync, at least 1.
    pub commits_max: usize,
}

/// Why nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwritable {
    /// The limit allows no other segment.
    Full(String),
    /// The disk has no space for another segment.
    NoSpace(String),
    /// The system refuses to make or remove a segment for another reason, such as too many open files. Nothing is lost;
    /// a later attempt may succeed.
    Failed(String),
    /// A write to the disk has failed. Later commits may be lost, so the log refuses new ones and shows none of them.
    Broken(String),
}

impl Unwritable {
    /// Whether the log has no space; the keeper may reclaim some.
    pub fn is_full(&self) -> bool {
        matches!(self, Unwritable::Full(_) | Unwritable::NoSpace(_))
    }
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unwritable::Full(why)
        | Unwritable::NoSpace(why)
        | Unwritable::Failed(why)
        | Unwritable::Broken(why)) = self;
        f.write_str(why)
    }
}

/// A commit; [`super::Store::sync`] makes it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its number among all commits of the store. If there was nothing to delete, the last commit that shows this.
    pub sequence: Sequence,
    /// The new version of its keys. With several keys and versions of each key, the largest one. 0 if there was nothing
    /// to delete.
    pub version: Version,
}

/// Locks a mutex, even one that a panic has poisoned.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
