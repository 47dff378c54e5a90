//! Snapshots of the store: the versions that a snapshot sees are kept until it is dropped.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::record::Sequence;
use super::snapshots::Taken;
use super::store::Store;
use super::types::lock;

/// The store as of one commit. The versions that it sees are kept until it is dropped.
#[derive(Debug)]
pub struct Snapshot {
    store: Store,
    sequence: Sequence,
    number: u64,
}

impl Snapshot {
    /// The last commit that the snapshot sees.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Whether the versions that it sees are still kept. If so, every earlier read of the snapshot was correct.
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
    /// A snapshot of the current state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.take_snapshot(false)
    }

    /// The same, but it is revoked before a write is refused for want of space: see [`Snapshot::is_kept`].
    #[must_use]
    pub fn revocable_snapshot(&self) -> Snapshot {
        self.take_snapshot(true)
    }

    fn take_snapshot(&self, revocable: bool) -> Snapshot {
        // Lock the list before the last commit is read, so that no version is dropped in between.
        let mut snapshots = lock(&self.0.snapshots);
        let (sequence, number) = (self.0.log.last(), snapshots.next);
        snapshots.next += 1;
        snapshots.open.insert((sequence, number), Taken { at: Instant::now(), revocable });
        drop(snapshots);
        Snapshot { store: self.clone(), sequence, number }
    }

    /// Revokes all revocable snapshots that are older than the last commit, as they may keep replaced versions.
    /// Returns whether there were any.
    pub(super) fn let_snapshots_go(&self) -> bool {
        let mut snapshots = lock(&self.0.snapshots);
        let last = self.0.log.last().min(self.0.retained.load(Ordering::Relaxed));
        let kept = snapshots.open.iter().find(|(_, taken)| !taken.revocable);
        let kept = kept.map_or(last, |(&(sequence, _), _)| sequence.min(last));
        let open = snapshots.open.len();
        snapshots.open.retain(|&(sequence, _), taken| !taken.revocable || sequence >= kept);
        snapshots.open.len() < open
    }

    /// The commit from which on all versions are kept: no reader needs a version that was replaced before it.
    pub(super) fn horizon(&self, now: Sequence) -> Sequence {
        self.horizon_of_snapshots(self.0.retained.load(Ordering::Relaxed).min(now))
    }

    /// The same without the history: only snapshots keep versions.
    pub(super) fn horizon_of_snapshots(&self, now: Sequence) -> Sequence {
        lock(&self.0.snapshots).oldest().map_or(now, |oldest| oldest.min(now))
    }
}
