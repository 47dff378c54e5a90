//! What a store has, and what it did to keep it in shape.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Figures of a store. They are read one by one: together they are of no one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Keys that are there.
    pub keys: u64,
    /// Records of keys that are kept: what they are, what they were, that they are gone, and each
    /// further piece of a value that was written in several.
    pub versions: u64,
    /// Snapshots that are open.
    pub snapshots_open: u64,
    /// For how long the oldest of them has been.
    pub snapshot_age: Option<Duration>,
    /// Bytes of all segments of the log, the space that is reserved in them included.
    pub file_bytes: u64,
    /// Bytes of records that may still be read.
    pub live_bytes: u64,
    /// Segments that were taken apart.
    pub reclaims: u64,
    /// What that took, all of them together.
    pub reclaim_time: Duration,
}

/// What it took to make commits safe: those that waited together went as one group, with one write
/// and one sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitFigures {
    /// Groups.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// What all of them took together.
    pub sum_ns: u64,
    /// What the slowest one took since the last call.
    pub max_ns: u64,
}

/// Counts [`CommitFigures`].
#[derive(Debug, Default)]
pub(crate) struct CommitCounters {
    groups: AtomicU64,
    records: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl CommitCounters {
    /// A group is safe. The counters are only printed: their order does not matter.
    pub(crate) fn count(&self, records: u64, began: Instant) {
        let ns = began.elapsed().as_nanos() as u64;
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> CommitFigures {
        CommitFigures {
            groups: self.groups.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.swap(0, Ordering::Relaxed),
        }
    }
}
