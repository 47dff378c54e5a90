//! Types that every floor of the store knows.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use knee_kv_cache::engine::Version;

use super::record::Sequence;

/// Which order versions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// One order of all writes, that of the log: versions count the commits of the store.
    Linearizable,
    /// An order for each key: versions count the writes of the key.
    Sequential,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Sequential => "sequential",
        })
    }
}

/// How a store keeps what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOptions {
    /// Which order versions say.
    pub consistency: Consistency,
    /// Locks that the keys are dealt to; a power of two.
    pub stripes: usize,
    /// The largest value.
    pub value_bytes_max: usize,
    /// Bytes of a segment of the log, from 1024 on: what does not fit one with its key is too
    /// large. It takes any value with any key from 1,053,000 on.
    pub segment_bytes: usize,
}

/// How a store in a directory is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// The directory; it is made if it is not there.
    pub path: PathBuf,
    /// When a commit is on the disk.
    pub durability: Durability,
    /// Whether to go on without what is damaged, instead of not at all.
    pub repair: bool,
}

/// When a commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before a client sees it.
    Always,
    /// At most so many milliseconds later.
    Interval(u32),
    /// Whenever the system likes.
    None,
}

/// Why nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwritable {
    /// The limit allows no other segment.
    Full(String),
    /// The disk has no room for another one.
    NoSpace(String),
    /// The system refuses a segment, or to be rid of one, though there may be room: too many files are
    /// open, say. Nothing was lost, and it may be possible later.
    Failed(String),
    /// A write to the disk failed before. What was committed since may be lost, so nothing more
    /// is taken, nor is any of that shown.
    Broken(String),
}

impl Unwritable {
    /// Whether the log has no room: the keeper may reclaim some.
    #[must_use]
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

/// What became durable, or will: see [`super::Store::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place among all commits of the store; where nothing was there to delete, the last commit
    /// that says so.
    pub sequence: Sequence,
    /// The version that its keys have now; with several keys and versions by the key, the largest.
    /// 0 where nothing was there to delete.
    pub version: Version,
}

/// Locks, whatever became of the thread that had it before.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
