//! The versioned store: every change makes a version, and readers may take snapshots.
//!
//! The hash of a key chooses its stripe; each stripe has a lock. A write locks the stripes of its keys in order, and
//! checks its conditions. Then it appends its records to the log as one commit, and enters them in the tables before it
//! unlocks. So a thread that locks a stripe sees every commit that ended before, and no part of another. A snapshot is
//! a number: the last commit that it sees. Taking one does not wait. Its versions are kept until it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

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
use super::types::{Durability, Grouping, StoreOptions, Unwritable, lock};
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
    /// Versions that were replaced after this commit are kept.
    pub(super) retained: AtomicU64,
    /// Keys that were deleted before this commit may be forgotten.
    pub(super) compacted: AtomicU64,
    /// Versions before this commit are unknown unless they are still in a table.
    pub(super) dropped: AtomicU64,
    /// A key may have been there before this commit, although no record says so.
    pub(super) unsure: AtomicU64,
    /// Whether old versions may be reclaimable. Writers set it; the sweep clears it.
    pub(super) has_past: AtomicBool,
    /// Whether a recovery found old versions that no sweep has looked at.
    pub(super) unswept: AtomicBool,
    pub(super) requests: Requests,
    pub(super) clearing: Clearing,
    pub(super) pressure: Pressure,
    /// The largest version of a forgotten key, where versions count the writes of each key.
    pub(super) floor: AtomicU64,
    /// Segments that cannot be reclaimed because of a damaged record. Locked while a segment is reclaimed.
    pub(super) reclaiming: Mutex<BTreeMap<SegmentId, Damage>>,
    /// Segments whose damaged record has since been replaced.
    pub(super) harmed: Mutex<BTreeSet<SegmentId>>,
    pub(super) reclaims: AtomicU64,
    pub(super) reclaim_sum_ns: AtomicU64,
    pub(super) watches: Watches,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Write out commits that no caller waited for. No caller is left to receive an error.
        let _ = self.log.close();
    }
}

impl Store {
    /// An empty store in memory, with a log of at most `bytes_max`.
    ///
    /// # Errors
    /// When the system has no memory for a segment, or the segment size is out of range.
    pub fn in_memory(options: StoreOptions, bytes_max: u64) -> io::Result<Store> {
        let log = Log::new(None, Recovered::nothing(options.segment_bytes), bytes_max)?;
        Ok(Store::new(log, options))
    }

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
            unsure: AtomicU64::new(0),
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

    /// Waits until a commit is as durable as configured.
    ///
    /// # Errors
    /// When a write to the disk fails: the commit may be lost, and no client may see it.
    pub fn sync(&self, sequence: Sequence) -> Result<(), Unwritable> {
        if self.0.log.synced() >= sequence { Ok(()) } else { self.0.log.sync(sequence) }
    }

    /// Sets how commits share syncs. Takes effect once, and only with [`Durability::Always`].
    pub fn group_commits(&self, grouping: Grouping) {
        self.0.log.group_commits(grouping);
    }

    /// Until when a sync waits for further commits; `None` if it waits for none.
    pub(super) fn dallies_until(&self) -> Option<Instant> {
        self.0.log.dallies_until()
    }

    /// The last commit that is as durable as configured: clients may see commits up to it.
    pub fn synced(&self) -> Sequence {
        self.0.log.synced()
    }

    /// Calls a listener for every later change of a key in a range, in the order of the commits. The watch ends when
    /// the listener returns `false` or is removed. Writers wait for the call.
    pub fn watch(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>), listener: Listener) -> u64 {
        self.0.watches.add(range, listener)
    }

    /// Removes the listener of a [`Store::watch`].
    pub fn unwatch(&self, watch: u64) {
        self.0.watches.remove(watch);
    }

    /// The last commit.
    pub fn last(&self) -> Sequence {
        self.0.log.last()
    }

    /// Keeps versions that were replaced after this commit, for readers of old versions.
    pub(super) fn retain(&self, behind: Sequence) {
        self.0.retained.store(behind, Ordering::Relaxed);
    }

    /// Writes everything to the disk, even commits that no client waits for.
    ///
    /// # Errors
    /// When a write to the disk fails: commits that no client waited for may be lost.
    pub fn write_out(&self) -> Result<(), Unwritable> {
        self.0.log.write_out()
    }

    /// Counts and times of synced commits. The slowest commit is that since the last call.
    pub fn commit_figures(&self) -> CommitFigures {
        self.0.log.commit_figures()
    }

    /// Why a segment could not be made, and the consequence.
    pub fn shortage(&self) -> Option<String> {
        self.0.log.shortage()
    }

    /// When a commit is on the disk; `None` for a store in memory.
    pub fn durability(&self) -> Option<Durability> {
        self.0.log.durability()
    }

    /// Bytes of the log's segments, and their limit.
    pub fn log_bytes(&self) -> (u64, u64) {
        self.0.log.bytes()
    }

    /// Whether a write of this size need not make a segment: it finds space, or is refused at once. Making a segment
    /// takes the disk some milliseconds. Another writer may take the space first.
    pub fn is_ready_for(&self, room: Room) -> bool {
        self.0.log.is_ready_for(room)
    }

    /// Makes segments for a write of this size, within the log's limit. No key is locked during this.
    ///
    /// # Errors
    /// When the disk has no space.
    pub fn make_ready_for(&self, room: Room) -> Result<(), Unwritable> {
        self.0.log.make_ready_for(room)
    }

    /// The figures of the store.
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
            figures.versions += table.records_kept() as u64;
        }
        figures
    }

    /// Number of keys.
    pub fn keys(&self) -> usize {
        (0..self.0.stripes.len()).map(|stripe| self.stripe(stripe).keys()).sum()
    }

    /// Number of stripes.
    pub fn stripes(&self) -> usize {
        self.0.stripes.len()
    }
}
