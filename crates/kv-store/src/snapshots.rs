//! The snapshots that are open.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::record::Sequence;

/// Open snapshots by the last commit that they see.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// The second number distinguishes snapshots of the same commit.
    pub(super) open: BTreeMap<(Sequence, u64), Taken>,
    pub(super) next: u64,
}

/// An open snapshot.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) at: Instant,
    /// Whether it goes if a write finds no space.
    pub(super) revocable: bool,
}

impl Snapshots {
    /// The last commit that the oldest snapshot sees.
    pub(super) fn oldest(&self) -> Option<Sequence> {
        self.open.keys().next().map(|&(sequence, _)| sequence)
    }

    /// Number of open snapshots, and the age of the oldest one.
    pub(super) fn figures(&self) -> (usize, Option<Duration>) {
        (self.open.len(), self.open.values().next().map(|taken| taken.at.elapsed()))
    }
}
