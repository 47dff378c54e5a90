//! The snapshots that are open.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::record::Sequence;

/// Those that are open, by the last commit that they see.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// Numbers snapshots of the same commit.
    pub(super) open: BTreeMap<(Sequence, u64), Taken>,
    pub(super) next: u64,
}

/// An open snapshot.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) at: Instant,
    /// Of one that may be let go, the least that the log had since: what it grew by, the snapshot may
    /// keep.
    pub(super) revocable: Option<u64>,
}

impl Snapshots {
    /// The last commit that the oldest one sees.
    pub(super) fn oldest(&self) -> Option<Sequence> {
        self.open.keys().next().map(|&(sequence, _)| sequence)
    }

    /// How many there are, and for how long the oldest one has been open.
    pub(super) fn figures(&self) -> (usize, Option<Duration>) {
        (self.open.len(), self.open.values().next().map(|taken| taken.at.elapsed()))
    }
}
