//! The versioned store: every change makes a version, every reader may have a snapshot.
//!
//! Keys are dealt to stripes by their hash, each behind a lock. A write locks the stripes of its keys in their order,
//! decides, appends its records to the log as one commit, and enters them in the tables before it unlocks. So a
//! thread that locks a stripe sees every commit that ended before, and no part of another. A snapshot is a number:
//! the last commit that it sees. Taking one waits for nothing. What it sees is kept until it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use knee_kv_cache::KeyHash;
use knee_kv_cache::versions::{CommitFigures, Figures};

use super::clearing::Clearing;
use super::log::{Log, Recovered};
use super::place::SegmentId;
use super::pressure::Pressure;
use super::record::Sequence;
use super::requests::Requests;
use super::room::Room;
use super::snapshots::Snapshots;
use super::table::{Damage, Table};
use super::types::{Durability, StoreOptions, Unwritable, lock};
use super::watch::{Listener, Watches};

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
    /// Keys that were deleted before this commit may be forgotten.
    pub(super) compacted: AtomicU64,
    /// Versions before this commit are known only if they are still in a table.
    pub(super) dropped: AtomicU64,
    /// Old versions may be reclaimable. Writers set it; the sweep clears it.
    pub(super) has_past: AtomicBool,
    /// A recovery found old versions that no sweep has looked at.
    pub(super) unswept: AtomicBool,
    pub(super) requests: Requests,
    pub(super) clearing: Clearing,
    pub(super) pressure: Pressure,
    /// The largest version of a forgotten key, where versions count the writes of each key.
    pub(super) floor: AtomicU64,
    /// Segments that cannot be reclaimed, as a record in them is damaged. Locked while one is reclaimed.
    pub(super) reclaiming: Mutex<BTreeMap<SegmentId, Damage>>,
    /// Segments with a damaged record that was replaced since.
    pub(super) harmed: Mutex<BTreeSet<SegmentId>>,
    pub(super) reclaims: AtomicU64,
    pub(super) reclaim_sum_ns: AtomicU64,
    pub(super) watches: Watches,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Writes without a caller that waits. No caller is left for an error.
        let _ = self.log.close();
    }
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

    /// A store over a log.
    pub(super) fn new(log: Log, options: StoreOptions) -> Store {
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
    /// When the disk refuses: the commit may be lost, and no client may see it.
    pub fn sync(&self, sequence: Sequence) -> Result<(), Unwritable> {
        if self.0.log.synced() >= sequence { Ok(()) } else { self.0.log.sync(sequence) }
    }

    /// The last commit that clients may see: it is as safe as the store was asked to make it.
    #[must_use]
    pub fn synced(&self) -> Sequence {
        self.0.log.synced()
    }

    /// Calls a listener for every change of a key in a range from now on, in the order of the commits, until it
    /// returns `false` or is removed. Writers wait for the call.
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

    /// Keeps versions that were replaced after this commit, for readers of old versions.
    pub(super) fn retain(&self, behind: Sequence) {
        self.0.retained.store(behind, Ordering::Relaxed);
    }

    /// Writes everything to the disk, also commits that no client waits for.
    ///
    /// # Errors
    /// When the disk refuses: writes without a caller that waits may be lost.
    pub fn write_out(&self) -> Result<(), Unwritable> {
        self.0.log.write_out()
    }

    /// Counts and times of commits that were made safe. The slowest is the slowest since the last call.
    #[must_use]
    pub fn commit_figures(&self) -> CommitFigures {
        self.0.log.commit_figures()
    }

    /// Why a segment could not be made, and what that means.
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

    /// Whether writes that need so much room find it, or are refused at once. Otherwise they make a segment, which takes
    /// the disk some milliseconds. Another writer may take the room first.
    #[must_use]
    pub fn is_ready_for(&self, room: Room) -> bool {
        self.0.log.is_ready_for(room)
    }

    /// Makes room, unless that would be beyond the log's limit. No key is locked during that.
    ///
    /// # Errors
    /// When the disk has none.
    pub fn make_ready_for(&self, room: Room) -> Result<(), Unwritable> {
        self.0.log.make_ready_for(room)
    }

    /// Its figures.
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
