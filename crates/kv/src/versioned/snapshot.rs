//! The store as it was: what snapshots see is kept until they are dropped.

use std::sync::atomic::Ordering;

use super::record::Sequence;
use super::store::{Store, lock};

/// The store as it was once some commit was made. What it shows is kept until it is dropped.
#[derive(Debug)]
pub struct Snapshot {
    store: Store,
    sequence: Sequence,
}

impl Snapshot {
    /// The last commit that it sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut snapshots = lock(&self.store.0.snapshots);
        if let Some(count) = snapshots.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&self.sequence);
            }
        }
    }
}

impl Store {
    /// The store as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // Registered before it is known what it sees: nothing is forgotten in between.
        let mut snapshots = lock(&self.0.snapshots);
        let sequence = self.0.log.last();
        *snapshots.entry(sequence).or_default() += 1;
        drop(snapshots);
        Snapshot { store: self.clone(), sequence }
    }

    /// The commit from which on everything is kept: what was replaced before it is not asked for.
    pub(super) fn horizon(&self, now: Sequence) -> Sequence {
        self.horizon_of_snapshots(self.0.retained.load(Ordering::Relaxed).min(now))
    }

    /// The same with nothing retained but what snapshots ask for.
    pub(super) fn horizon_of_snapshots(&self, now: Sequence) -> Sequence {
        lock(&self.0.snapshots).keys().next().map_or(now, |&oldest| oldest.min(now))
    }
}
