//! The store as it was: what snapshots see is kept until they are dropped.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::record::Sequence;
use super::snapshots::Taken;
use super::store::Store;
use super::types::lock;

/// The store as it was once some commit was made. What it shows is kept until it is dropped.
#[derive(Debug)]
pub struct Snapshot {
    store: Store,
    sequence: Sequence,
    number: u64,
}

impl Snapshot {
    /// The last commit that it sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Whether what it sees is still kept. What was read of it before this was asked is as it was if
    /// it is.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        lock(&self.store.0.snapshots).open.contains_key(&(self.sequence, self.number))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        lock(&self.store.0.snapshots).open.remove(&(self.sequence, self.number));
    }
}

impl Store {
    /// The store as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.take_snapshot(false)
    }

    /// The same, but what it shows is kept only as long as there is space: see
    /// [`Snapshot::is_kept`].
    #[must_use]
    pub fn revocable_snapshot(&self) -> Snapshot {
        self.take_snapshot(true)
    }

    fn take_snapshot(&self, revocable: bool) -> Snapshot {
        // Registered before it is known what it sees: nothing is forgotten in between.
        let mut snapshots = lock(&self.0.snapshots);
        let (sequence, number) = (self.0.log.last(), snapshots.next);
        snapshots.next += 1;
        let revocable = revocable.then(|| self.0.log.bytes().0);
        snapshots.open.insert((sequence, number), Taken { at: Instant::now(), revocable });
        drop(snapshots);
        Snapshot { store: self.clone(), sequence, number }
    }

    /// Segments were taken out of the log: what it grows by from now on, snapshots may keep.
    pub(super) fn note_shrunk(&self) {
        let (log_bytes, _) = self.0.log.bytes();
        for taken in lock(&self.0.snapshots).open.values_mut() {
            taken.revocable = taken.revocable.map(|least| least.min(log_bytes));
        }
    }

    /// Lets those snapshots go that may be, and since which the log has grown. Returns whether there were any.
    pub(super) fn let_snapshots_go(&self) -> bool {
        let mut snapshots = lock(&self.0.snapshots);
        let (log_bytes, _) = self.0.log.bytes();
        let open = snapshots.open.len();
        snapshots.open.retain(|_, taken| taken.revocable.is_none_or(|least| least >= log_bytes));
        snapshots.open.len() < open
    }

    /// Lets all those go that may be, and since which something was committed: what that replaced they keep,
    /// unless it is kept all the same. Returns whether there were any.
    pub(super) fn let_all_snapshots_go(&self) -> bool {
        let mut snapshots = lock(&self.0.snapshots);
        let last = self.0.log.last().min(self.0.retained.load(Ordering::Relaxed));
        let kept = snapshots.open.iter().find(|(_, taken)| taken.revocable.is_none());
        let kept = kept.map_or(last, |(&(sequence, _), _)| sequence.min(last));
        let open = snapshots.open.len();
        snapshots
            .open
            .retain(|&(sequence, _), taken| taken.revocable.is_none() || sequence >= kept);
        snapshots.open.len() < open
    }

    /// The commit from which on everything is kept: what was replaced before it is not asked for.
    pub(super) fn horizon(&self, now: Sequence) -> Sequence {
        self.horizon_of_snapshots(self.0.retained.load(Ordering::Relaxed).min(now))
    }

    /// The same with nothing retained but what snapshots ask for.
    pub(super) fn horizon_of_snapshots(&self, now: Sequence) -> Sequence {
        lock(&self.0.snapshots).oldest().map_or(now, |oldest| oldest.min(now))
    }
}
