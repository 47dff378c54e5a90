//! Figures of an engine that keeps versions.

use std::time::Duration;

/// Figures of a store. They are read sequentially, so they may belong to different moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Present keys.
    pub keys: u64,
    /// Stored records of keys: current versions, older versions, deletions, and further pieces of values that were
    /// written in several pieces.
    pub versions: u64,
    /// Open snapshots.
    pub snapshots_open: u64,
    /// The age of the oldest open snapshot.
    pub snapshot_age: Option<Duration>,
    /// Bytes of all segments of the log, including reserved space.
    pub file_bytes: u64,
    /// Bytes of records that may still be read.
    pub live_bytes: u64,
    /// Reclaimed segments.
    pub reclaims: u64,
    /// The total time of reclaiming.
    pub reclaim_time: Duration,
}

/// The cost of making commits durable. Commits that wait at the same time form a group, with one write and one sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitFigures {
    /// Number of groups of commits.
    pub groups: u64,
    /// Number of records in these groups.
    pub records: u64,
    /// The total time of all groups.
    pub sum_ns: u64,
    /// The longest time of a group since the last call.
    pub max_ns: u64,
}
