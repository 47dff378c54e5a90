//! The versioned store: every change makes a version, every reader may have a snapshot.
//!
//! Keys are dealt to stripes by their hash, each behind a lock. A write locks the stripes of its
//! keys in their order, decides, appends its records to the log as one commit, and puts them on
//! top of what the keys were, before it unlocks them: whoever locks a stripe sees all commits up to
//! any that was over before, and none of them in part. So a snapshot is but a number, the last
//! commit that it sees, and nobody waits for it; what it may ask for is kept until it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clear::Clearing;
use super::directory::{Directory, DirectoryError};
use super::figures::CommitFigures;
use super::log::{Durability, Log, Recovered, Unwritable};
use super::pressure::Pressure;
use super::reclaim::ReclaimError;
use super::record::{Kind, Record, Sequence};
use super::recovery::{Findings, Lost, Opening, read_segments, records};
use super::requests::Requests;
use super::segment::SegmentId;
use super::snapshot::Snapshots;
use super::table::{Damage, Table};
use super::watch::{Listener, Watches};
use super::write::Committed;
use crate::memory::KeyHash;

/// Which order versions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// One order of all writes, that of the log: versions count the commits of the store.
    Linearizable,
    /// An order for each key: versions count the writes of the key.
    Sequential,
}

impl std::fmt::Display for Consistency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

/// A versioned store; clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Store(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) log: Arc<Log>,
    stripes: Box<[Mutex<Table>]>,
    pub(super) hash: KeyHash,
    pub(super) options: StoreOptions,
    pub(super) snapshots: Mutex<Snapshots>,
    /// Commits from it on are kept, whatever replaced them.
    pub(super) retained: AtomicU64,
    /// Of keys that were gone before this commit it is not known that they ever were.
    pub(super) compacted: AtomicU64,
    /// Of no version before this commit it is known any more what it was, unless it is there.
    pub(super) dropped: AtomicU64,
    /// Whether something that was replaced may be kept that nobody asks for any more.
    pub(super) has_past: AtomicBool,
    /// Whether nobody has looked yet for what a recovery found and nobody asks for.
    pub(super) unswept: AtomicBool,
    pub(super) requests: Requests,
    pub(super) clearing: Clearing,
    pub(super) pressure: Pressure,
    /// Of keys that were forgotten, where versions count the writes of each key, none had a larger
    /// one.
    pub(super) floor: AtomicU64,
    /// Segments that cannot be taken apart, since something in them cannot be read. Locked by
    /// whoever takes segments apart.
    pub(super) reclaiming: Mutex<BTreeMap<SegmentId, Damage>>,
    /// Segments of which something damaged has been replaced.
    pub(super) harmed: Mutex<BTreeSet<SegmentId>>,
    pub(super) reclaims: AtomicU64,
    pub(super) reclaim_sum_ns: AtomicU64,
    pub(super) watches: Watches,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What nobody waited for. Nobody is left who could be told that it failed.
        let _ = self.log.close();
    }
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

impl Store {
    /// An empty store in memory, of at most so many bytes of log.
    ///
    /// # Errors
    /// When the system has no memory for a segment, or a log has none of that size.
    pub fn in_memory(options: StoreOptions, bytes_max: u64) -> io::Result<Store> {
        let log = Log::new(None, Recovered::nothing(), options.segment_bytes, bytes_max)?;
        Ok(Store::new(log, options))
    }

    /// The store in a directory, and what of it could not be read, if it was to be repaired.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open(
        options: StoreOptions,
        directory: &DirectoryOptions,
        bytes_max: u64,
    ) -> Result<(Store, Vec<Lost>), DirectoryError> {
        Store::open_and_tell(options, directory, bytes_max, &mut |_| {})
    }

    /// [`Store::open`], which tells with each segment how far it is: of a large store it takes its
    /// time.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open_and_tell(
        options: StoreOptions,
        directory: &DirectoryOptions,
        bytes_max: u64,
        tell: &mut dyn FnMut(Opening),
    ) -> Result<(Store, Vec<Lost>), DirectoryError> {
        let mut lost = Vec::new();
        let path = &directory.path;
        let (kept, manifest) = Directory::open(path, options.consistency)?;
        let lost_here = directory.repair.then_some(&mut lost);
        let promises = directory.durability != Durability::None;
        let (recovered, findings) =
            read_segments(&kept, &manifest, options.segment_bytes, promises, lost_here, tell)?;
        let log = Log::new(
            Some((kept, directory.durability)),
            recovered,
            options.segment_bytes,
            bytes_max,
        )
        .map_err(|error| DirectoryError::Io(path.clone(), error))?;
        let store = Store::new(log, options);
        store.0.compacted.store(manifest.reached.compacted, Ordering::Relaxed);
        store.0.dropped.store(manifest.reached.compacted, Ordering::Relaxed);
        store.0.floor.store(manifest.reached.floor, Ordering::Relaxed);
        // Nobody has said yet how long what was replaced is kept: until then all of it is that had
        // not been forgotten before.
        store.retain(manifest.reached.compacted);
        let incomplete = store
            .restore(&findings, tell)
            .map_err(|damage| DirectoryError::Damaged(path.clone(), damage.to_string()))?;
        // What tells of damage goes last: until then, commits that it took something of are told
        // from those that are whole.
        for id in incomplete.difference(&findings.damaged).chain(&findings.damaged) {
            store.rescue(*id).map_err(|error| match error {
                ReclaimError::Log(error) => {
                    DirectoryError::Io(path.clone(), io::Error::other(error.to_string()))
                }
                ReclaimError::Damage(damage) => {
                    DirectoryError::Damaged(path.clone(), damage.to_string())
                }
            })?;
        }
        for id in findings.unreadable {
            store.0.log.set_aside(id).map_err(|error| DirectoryError::Io(path.clone(), error))?;
        }
        store.retain(Sequence::MAX);
        store.0.unswept.store(true, Ordering::Relaxed);
        Ok((store, lost))
    }

    /// Puts the records of all segments in the tables. Where some were lost, now or before, what
    /// grew from them stays in the log, and is left out each time.
    fn restore(
        &self,
        findings: &Findings,
        tell: &mut dyn FnMut(Opening),
    ) -> Result<BTreeSet<SegmentId>, Damage> {
        let incomplete = records(&self.0.log.segments(), findings, tell, |segment, found| {
            let record = segment.record(found.at.offset());
            let Record { kind, key, sequence, version, .. } = record;
            if let Some(request) = record.request {
                let mut requests = self.0.requests.shard(request);
                let others = requests.made(request).map_or(0, |made| made.version);
                let committed = Committed { sequence, version: version.max(others) };
                if record.moved {
                    // It stands behind later ones: its segment was kept for as long as it had to be.
                    requests.remember_before_all(request, committed);
                } else {
                    segment.note_request();
                    requests.remember(request, committed);
                }
            }
            match kind {
                Kind::Put | Kind::Append | Kind::Delete => {
                    let hash = self.0.hash.hash(key);
                    self.stripe(self.stripe_of(hash)).restore(hash, key, &found)?;
                }
                Kind::Clear => {
                    segment.note_clear();
                    self.restore_clear(sequence);
                }
                Kind::Request | Kind::Seal => {}
            }
            Ok(())
        })?;
        let horizon = self.horizon(self.0.log.last());
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            table.put_in_order();
            for slot in table.slots() {
                table.drop_incomplete(slot);
            }
            for slot in table.slots() {
                table.prune(slot, horizon);
            }
        }
        Ok(incomplete)
    }

    /// A store over a log.
    fn new(log: Log, options: StoreOptions) -> Store {
        let log = Arc::new(log);
        let stripes = options.stripes.next_power_of_two();
        let hash = KeyHash::random();
        Store(Arc::new(Inner {
            stripes: (0..stripes).map(|_| Mutex::new(Table::new(Arc::clone(&log), hash))).collect(),
            log,
            hash,
            options,
            snapshots: Mutex::default(),
            retained: AtomicU64::new(u64::MAX),
            compacted: AtomicU64::new(0),
            requests: Requests::default(),
            clearing: Clearing::default(),
            pressure: Pressure::default(),
            floor: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            has_past: AtomicBool::new(false),
            unswept: AtomicBool::new(false),
            reclaiming: Mutex::default(),
            harmed: Mutex::default(),
            reclaims: AtomicU64::new(0),
            reclaim_sum_ns: AtomicU64::new(0),
            watches: Watches::default(),
        }))
    }

    pub(super) fn stripe_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.0.stripes.len() - 1)
    }

    pub(super) fn stripe(&self, index: usize) -> MutexGuard<'_, Table> {
        let mut table = lock(&self.0.stripes[index]);
        table.refresh();
        table
    }

    /// Waits until a commit is as safe as the store was asked to make it.
    ///
    /// # Errors
    /// When the disk refuses: the commit may be lost, and is not to be told of.
    pub fn sync(&self, sequence: Sequence) -> Result<(), Unwritable> {
        if self.0.log.synced() >= sequence { Ok(()) } else { self.0.log.sync(sequence) }
    }

    /// Up to which commit everything may be told of: it is as safe as the store was asked to make
    /// it.
    #[must_use]
    pub fn synced(&self) -> Sequence {
        self.0.log.synced()
    }

    /// Tells a listener of every commit to keys of a range from now on, in the order of the
    /// commits, until it says that it has enough or is removed. It is called while others wait.
    pub fn watch(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>), listener: Listener) -> u64 {
        self.0.watches.add(range, listener)
    }

    /// Ends what [`Store::watch`] began.
    pub fn unwatch(&self, watch: u64) {
        self.0.watches.remove(watch);
    }

    /// The last commit.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.0.log.last()
    }

    /// Keeps what was replaced behind this commit, for who asks for old versions.
    pub(super) fn retain(&self, behind: Sequence) {
        self.0.retained.store(behind, Ordering::Relaxed);
    }

    /// Writes everything to the disk, whether or not anybody is to wait for it.
    ///
    /// # Errors
    /// When the disk refuses: what nobody waited for may be lost.
    pub fn write_out(&self) -> Result<(), Unwritable> {
        self.0.log.write_out()
    }

    /// What it took to make commits safe. The slowest is the slowest since this was called last.
    #[must_use]
    pub fn commit_figures(&self) -> CommitFigures {
        self.0.log.commit_figures()
    }

    /// What there is no room for on the disk, though there should be, and what that means.
    #[must_use]
    pub fn shortage(&self) -> Option<String> {
        self.0.log.shortage()
    }

    /// When a commit is on the disk; `None` of a store in memory.
    #[must_use]
    pub fn durability(&self) -> Option<Durability> {
        self.0.log.durability()
    }

    /// Bytes of the log's segments, and how many they may be.
    #[must_use]
    pub fn log_bytes(&self) -> (u64, u64) {
        self.0.log.bytes()
    }

    /// Keys that are there.
    #[must_use]
    pub fn keys(&self) -> usize {
        (0..self.0.stripes.len()).map(|stripe| self.stripe(stripe).keys()).sum()
    }

    /// How many stripes there are.
    #[must_use]
    pub fn stripes(&self) -> usize {
        self.0.stripes.len()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::log::Durability;
    use super::super::record::RequestId;
    use super::super::write::{Action, Condition, Write};
    use super::*;
    use crate::engine::Expiry;

    /// As many as all that are remembered, and more, are moved behind the latest one.
    #[test]
    fn what_was_moved_pushes_no_request_out_at_a_restart() {
        let path = std::env::temp_dir().join(format!("knee-kv-pushed-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let options = StoreOptions {
            consistency: Consistency::Linearizable,
            stripes: 1,
            value_bytes_max: 1000,
            segment_bytes: 1 << 20,
        };
        let directory =
            DirectoryOptions { path: path.clone(), durability: Durability::Always, repair: false };
        let open = || Store::open(options, &directory, 1 << 26).unwrap().0;
        let put = |store: &Store, key: u64, number: u64| {
            let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: b"" };
            let key = key.to_le_bytes();
            let write = Write { key: &key, condition: Condition::Always, action };
            let request = Some(RequestId { client: 7, number });
            store.write(&[write], request, 1).unwrap()
        };
        let store = open();
        // More than what all shards remember, of which each has its share.
        let keys = 20_000;
        for key in 0..keys {
            put(&store, key, key);
        }
        let latest = put(&store, keys, keys);
        store.write_out().unwrap();
        let full = store.0.log.full_segments();
        assert!(!full.is_empty());
        for segment in full {
            store.rescue(segment.id).unwrap();
        }
        assert_eq!(put(&store, 0, keys), latest, "it is remembered before");
        drop(store);
        let store = open();
        assert_eq!(store.last(), latest.sequence);
        assert_eq!(put(&store, 0, keys), latest, "it was made twice");
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
