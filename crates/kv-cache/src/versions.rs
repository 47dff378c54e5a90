//! Figures of an engine that keeps versions.

use std::time::Duration;

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
    /// Segments that were reclaimed.
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
