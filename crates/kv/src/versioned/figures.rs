//! What a store has, and what it did to keep it in shape.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::store::{Store, lock};

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
    /// Bytes of records that somebody may still ask for.
    pub live_bytes: u64,
    /// Segments that were taken apart.
    pub reclaims: u64,
    /// What that took, all of them together.
    pub reclaim_time: Duration,
}

impl Store {
    /// What the store has.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (snapshots_open, snapshot_age) = lock(&self.0.snapshots).figures();
        let (file_bytes, _) = self.0.log.bytes();
        let mut figures = Figures {
            snapshots_open: snapshots_open as u64,
            snapshot_age,
            file_bytes,
            live_bytes: self.0.log.segments().iter().map(|segment| segment.live()).sum(),
            reclaims: self.0.reclaims.load(Ordering::Relaxed),
            reclaim_time: Duration::from_nanos(self.0.reclaim_sum_ns.load(Ordering::Relaxed)),
            ..Figures::default()
        };
        for stripe in 0..self.stripes() {
            let table = self.stripe(stripe);
            figures.keys += table.keys() as u64;
            figures.versions += table.records() as u64;
        }
        figures
    }
}
