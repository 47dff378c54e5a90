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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::directory::{Directory, DirectoryError};
use super::log::{Durability, Log, Recovered, Unwritable};
use super::reclaim::ReclaimError;
use super::record::{Growth, Kind, Record, RequestId, Sequence, record_bytes};
use super::recovery::{Lost, read_segments, records};
use super::requests::Requests;
use super::table::{Damage, SlotId, Table, View};
use super::watch::{Event, Listener, Watches, What};
use crate::engine::{Expiry, Second, Version};
use crate::memory::KeyHash;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Values are written in pieces of at most so much.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// Which order versions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// One order of all writes, that of the log: versions count the commits of the store.
    Linearizable,
    /// An order for each key: versions count the writes of the key.
    Sequential,
}

/// What must be so for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// The key is not there.
    Absent,
    /// The key is there.
    Present,
    /// The key is there, in this version.
    Version(Version),
}

/// What is to happen to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// It has this value from now on.
    Put {
        /// The client's number.
        flags: u32,
        /// When it ends.
        expiry: Expiry,
        /// Bits that the layer above keeps beside it.
        marks: u8,
        /// The value.
        value: &'a [u8],
    },
    /// Its value grows by this; what is not there is an empty value.
    Append(&'a [u8]),
    /// It is gone from now on.
    Delete,
}

/// One key's part of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What must be so; one condition that fails, and the commit does not happen.
    pub condition: Condition,
    /// What happens.
    pub action: Action<'a>,
}

/// What became durable, or will: see [`Store::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place among all commits of the store.
    pub sequence: Sequence,
    /// The version that its keys have now; with several keys and versions by the key, the largest.
    pub version: Version,
}

/// Why a write did not happen. Nothing of it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The condition of the write with this index does not hold; the key is in this version, or
    /// not there.
    Condition(usize, Option<Version>),
    /// The key of the write with this index is empty or too long.
    Key(usize),
    /// The value of the write with this index would be too large.
    TooLarge(usize),
    /// Two writes are of this key.
    Twice(usize),
    /// The log takes nothing.
    Log(Unwritable),
    /// What is there cannot be read.
    Damage(Damage),
}

/// Why a version cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// It was dropped by a compaction; versions from this one on are there.
    Compacted(Version),
    /// No such version has been made yet; this is the last one.
    Unknown(Version),
    /// What is there cannot be read.
    Damage(Damage),
}

impl From<Damage> for WriteError {
    fn from(damage: Damage) -> WriteError {
        WriteError::Damage(damage)
    }
}

impl From<Damage> for ReadError {
    fn from(damage: Damage) -> ReadError {
        ReadError::Damage(damage)
    }
}

impl From<Unwritable> for WriteError {
    fn from(unwritable: Unwritable) -> WriteError {
        WriteError::Log(unwritable)
    }
}

/// A version of a key, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The commit that made it: not to be told of to anybody before it is safe, see [`Store::sync`].
    pub sequence: Sequence,
    /// The version.
    pub version: Version,
    /// The client's number.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Bytes of the value.
    pub value_bytes: usize,
}

impl From<View> for Shown {
    fn from(view: View) -> Shown {
        let View { sequence, version, flags, expiry, value_bytes, .. } = view;
        Shown { sequence, version, flags, expiry, value_bytes }
    }
}

/// A record of a key's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// The version that it made.
    pub version: Version,
    /// Whether the key was gone from then on.
    pub deleted: bool,
    /// Whether the value was that of the version before, grown by these bytes.
    pub appended: bool,
    /// Bytes that were written.
    pub bytes: usize,
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
    /// Bytes of a segment of the log: it takes the largest piece of a value at least.
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
    /// Who may still ask for what was there at some commit, and how many of them.
    snapshots: Mutex<BTreeMap<Sequence, usize>>,
    /// Commits from it on are kept, whatever replaced them.
    retained: AtomicU64,
    /// Of keys that were gone before this commit it is not known that they ever were.
    pub(super) compacted: AtomicU64,
    requests: Mutex<Requests>,
    /// Held by whoever takes segments apart.
    pub(super) reclaiming: Mutex<()>,
    watches: Watches,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What nobody waited for. Nobody is left who could be told that it failed.
        let _ = self.log.write_out();
    }
}

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
    /// When the system has no memory for a segment.
    pub fn in_memory(options: StoreOptions, bytes_max: u64) -> io::Result<Store> {
        let nothing =
            Recovered { segments: Vec::new(), next: 1, last: 0, damaged: BTreeSet::new() };
        let log = Log::new(None, nothing, options.segment_bytes, bytes_max)?;
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
        let mut lost = Vec::new();
        let path = &directory.path;
        let (kept, manifest) = Directory::open(path)?;
        let recovered = read_segments(&kept, &manifest, directory.repair.then_some(&mut lost))?;
        let damaged = recovered.damaged.clone();
        let log = Log::new(
            Some((kept, directory.durability)),
            recovered,
            options.segment_bytes,
            bytes_max,
        )
        .map_err(|error| DirectoryError::Io(path.clone(), error))?;
        let store = Store::new(log, options);
        store.0.compacted.store(manifest.compacted, Ordering::Relaxed);
        store
            .restore()
            .map_err(|damage| DirectoryError::Damaged(path.clone(), damage.to_string()))?;
        for id in damaged {
            store.rescue(id).map_err(|error| match error {
                ReclaimError::Log(error) => {
                    DirectoryError::Io(path.clone(), io::Error::other(format!("{error:?}")))
                }
                ReclaimError::Damage(damage) => {
                    DirectoryError::Damaged(path.clone(), damage.to_string())
                }
            })?;
        }
        Ok((store, lost))
    }

    /// Puts the records of all segments in the tables. Where some were lost, now or before, what
    /// grew from them stays in the log, and is left out each time.
    fn restore(&self) -> Result<(), Damage> {
        let mut pending = Vec::new();
        for segment in self.0.log.segments() {
            let mut outcome = Ok(());
            records(&segment, &mut pending, |found| {
                if outcome.is_err() {
                    return;
                }
                let Some(segment) = self.0.log.segment(found.at.segment) else { return };
                let record = segment.record(found.at.offset());
                let Record { key, sequence, version, .. } = record;
                if let Some(request) = record.request {
                    segment.note_request();
                    let mut requests = lock(&self.0.requests);
                    let others = requests.made(request).map_or(0, |made| made.version);
                    let version = version.max(others);
                    requests.remember(request, Committed { sequence, version });
                }
                let hash = self.0.hash.hash(key);
                outcome = self.stripe(self.stripe_of(hash)).restore(hash, key, &found);
            });
            outcome?;
        }
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
        Ok(())
    }

    /// A store over a log.
    fn new(log: Log, options: StoreOptions) -> Store {
        let log = Arc::new(log);
        let stripes = options.stripes.next_power_of_two();
        Store(Arc::new(Inner {
            stripes: (0..stripes).map(|_| Mutex::new(Table::new(Arc::clone(&log)))).collect(),
            log,
            hash: KeyHash::random(),
            options,
            snapshots: Mutex::new(BTreeMap::new()),
            retained: AtomicU64::new(u64::MAX),
            compacted: AtomicU64::new(0),
            requests: Mutex::new(Requests::default()),
            reclaiming: Mutex::new(()),
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

    /// The commit from which on everything is kept: what was replaced before it is not asked for.
    pub(super) fn horizon(&self, now: Sequence) -> Sequence {
        self.horizon_of_snapshots(self.0.retained.load(Ordering::Relaxed).min(now))
    }

    /// The same with nothing retained but what snapshots ask for.
    pub(super) fn horizon_of_snapshots(&self, now: Sequence) -> Sequence {
        lock(&self.0.snapshots).keys().next().map_or(now, |&oldest| oldest.min(now))
    }

    /// Makes all of the writes as one commit, or none of them. A request with an id that was made
    /// already is not made again: what came of it then is returned.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(
        &self,
        writes: &[Write<'_>],
        request: Option<RequestId>,
        now: Second,
    ) -> Result<Committed, WriteError> {
        let Some(id) = request else { return self.write_once(writes, None, now) };
        // Held until it is made: the same request may come twice at once.
        let mut requests = lock(&self.0.requests);
        if let Some(committed) = requests.made(id) {
            return Ok(committed);
        }
        let committed = self.write_once(writes, request, now)?;
        requests.remember(id, committed);
        Ok(committed)
    }

    fn write_once(
        &self,
        writes: &[Write<'_>],
        request: Option<RequestId>,
        now: Second,
    ) -> Result<Committed, WriteError> {
        let hashes: Vec<u64> = writes.iter().map(|write| self.0.hash.hash(write.key)).collect();
        let mut locked = self.lock_stripes(&hashes);
        let mut planned = Vec::with_capacity(writes.len());
        for (index, (write, &hash)) in writes.iter().zip(&hashes).enumerate() {
            if write.key.is_empty() || write.key.len() > KEY_BYTES_MAX {
                return Err(WriteError::Key(index));
            }
            let table = table_of(&mut locked, self.stripe_of(hash));
            let slot = table.find(hash, write.key)?;
            let view = match slot {
                Some(slot) => table.view(slot, Sequence::MAX)?,
                None => None,
            };
            let view = view.filter(|view| !view.expiry.is_over(now));
            self.check(index, write, view.as_ref())?;
            // The version of a key that is gone counts on: it is not to be met again.
            if view.is_none() && matches!(write.action, Action::Delete) {
                continue;
            }
            let before = match (self.0.options.consistency, slot) {
                (Consistency::Sequential, Some(slot)) => table.newest_version(slot),
                _ => 0,
            };
            let version = before + 1;
            planned.push(Planned { write: *write, hash, slot, view, version, keeps: None });
        }
        if let Some(index) = twice(writes, &hashes) {
            return Err(WriteError::Twice(index));
        }
        if planned.is_empty() {
            // Nothing was there to delete.
            return Ok(Committed { sequence: self.0.log.last(), version: 0 });
        }
        self.append(&planned, request, &mut locked, now)
    }

    pub(super) fn check(
        &self,
        index: usize,
        write: &Write<'_>,
        view: Option<&View>,
    ) -> Result<(), WriteError> {
        let holds = match write.condition {
            Condition::Always => true,
            Condition::Absent => view.is_none(),
            Condition::Present => view.is_some(),
            Condition::Version(version) => view.is_some_and(|view| view.version == version),
        };
        if !holds {
            return Err(WriteError::Condition(index, view.map(|view| view.version)));
        }
        let bytes = match write.action {
            Action::Put { value, .. } => value.len(),
            Action::Append(tail) => view.map_or(0, |view| view.value_bytes) + tail.len(),
            Action::Delete => 0,
        };
        if bytes > self.0.options.value_bytes_max {
            return Err(WriteError::TooLarge(index));
        }
        Ok(())
    }

    /// Locks the stripes of some keys, each once, in their order: so nobody waits in a circle.
    fn lock_stripes(&self, hashes: &[u64]) -> Vec<(usize, MutexGuard<'_, Table>)> {
        let mut stripes: Vec<usize> = hashes.iter().map(|&hash| self.stripe_of(hash)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| (stripe, self.stripe(stripe))).collect()
    }

    pub(super) fn append(
        &self,
        planned: &[Planned<'_>],
        request: Option<RequestId>,
        locked: &mut [(usize, MutexGuard<'_, Table>)],
        now: Second,
    ) -> Result<Committed, WriteError> {
        let sizes = planned.iter().flat_map(|plan| {
            plan.pieces().map(|(kind, piece)| {
                record_bytes(kind, plan.write.key.len(), piece.len(), request.is_some())
            })
        });
        let mut left = sizes.clone().count();
        let mut commit = self.0.log.begin(sizes)?;
        let sequence = commit.sequence;
        let mut version = 0;
        let mut replaced = Vec::new();
        for plan in planned {
            let version_here = plan.keeps.unwrap_or(match self.0.options.consistency {
                Consistency::Linearizable => sequence,
                Consistency::Sequential => plan.version,
            });
            version = version.max(version_here);
            let table = table_of(locked, self.stripe_of(plan.hash));
            let (flags, expiry, marks) = plan.attributes();
            let mut slot = plan.slot;
            let mut growth = plan.growth();
            for (part, (kind, value)) in plan.pieces().enumerate() {
                left -= 1;
                let at = commit.append(&Record {
                    kind,
                    sequence,
                    part: part as u32,
                    version: version_here,
                    flags,
                    expiry,
                    marks,
                    more: left > 0,
                    moved: false,
                    request,
                    growth: growth.grow(kind, value.len()),
                    key: plan.write.key,
                    value,
                });
                slot = Some(table.push(plan.hash, slot, at, now));
            }
            // In the order of the commits: nobody else commits meanwhile.
            self.0.watches.tell(plan.write.key, || Event {
                sequence,
                version: version_here,
                key: plan.write.key.to_vec(),
                what: match plan.write.action {
                    Action::Put { value, .. } => What::Put(value.to_vec()),
                    Action::Append(tail) => What::Appended(tail.to_vec()),
                    Action::Delete => What::Deleted,
                },
            });
            if let Some(slot) = slot
                && !matches!(plan.write.action, Action::Append(_))
            {
                replaced.push((plan.hash, slot));
            }
        }
        drop(commit);
        // Not before the commit has its place: a snapshot that is taken now sees it, or is known.
        let horizon = self.horizon(sequence);
        for (hash, slot) in replaced {
            table_of(locked, self.stripe_of(hash)).prune(slot, horizon);
        }
        Ok(Committed { sequence, version })
    }

    /// Shows the newest version of a key, and its value in pieces to `visit`, which says whether
    /// it wants more.
    ///
    /// # Errors
    /// Damage, which nothing is shown of.
    pub fn read(
        &self,
        key: &[u8],
        now: Second,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Shown>, Damage> {
        let hash = self.0.hash.hash(key);
        let mut table = self.stripe(self.stripe_of(hash));
        let Some(slot) = table.find(hash, key)? else { return Ok(None) };
        let Some(view) = table.view(slot, Sequence::MAX)? else { return Ok(None) };
        if view.expiry.is_over(now) {
            return Ok(None);
        }
        table.pieces(&view, visit)?;
        table.note_use(slot, now, true);
        Ok(Some(view.into()))
    }

    /// What a key was in this version of the store, or of its own where versions are by the key.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_at(
        &self,
        key: &[u8],
        version: Version,
        now: Second,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Shown>, ReadError> {
        let hash = self.0.hash.hash(key);
        let table = self.stripe(self.stripe_of(hash));
        let slot = table.find(hash, key)?;
        let by_key = self.0.options.consistency == Consistency::Sequential;
        let last = match slot {
            _ if !by_key => self.0.log.last(),
            Some(slot) => table.newest_version(slot),
            None => 0,
        };
        if version > last {
            return Err(ReadError::Unknown(last));
        }
        let compacted = self.0.compacted.load(Ordering::Relaxed);
        let Some(slot) = slot else {
            return if version < compacted {
                Err(ReadError::Compacted(compacted))
            } else {
                Ok(None)
            };
        };
        let Some(view) = table.view_at_version(slot, version)? else {
            let (first, had_more) = table.first_version(slot);
            let forgotten = version < first && (had_more || !by_key && version < compacted);
            return if forgotten { Err(ReadError::Compacted(first)) } else { Ok(None) };
        };
        if view.expiry.is_over(now) {
            return Ok(None);
        }
        table.pieces(&view, visit)?;
        Ok(Some(view.into()))
    }

    /// What is known of a key's past, oldest first.
    ///
    /// # Errors
    /// Damage.
    pub fn history(&self, key: &[u8]) -> Result<Vec<Past>, Damage> {
        let hash = self.0.hash.hash(key);
        let table = self.stripe(self.stripe_of(hash));
        let Some(slot) = table.find(hash, key)? else { return Ok(Vec::new()) };
        let mut past: Vec<Past> = Vec::new();
        for record in table.past(slot) {
            let record = record?;
            let bytes = record.value.len();
            match past.last_mut() {
                // Further pieces of one write.
                Some(last) if record.part > 0 && last.version == record.version => {
                    last.bytes += bytes;
                }
                _ => past.push(Past {
                    version: record.version,
                    deleted: record.kind == Kind::Delete,
                    appended: record.kind == Kind::Append,
                    bytes,
                }),
            }
        }
        Ok(past)
    }

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

    /// Visits the keys of a range that a snapshot sees, or without one those that are there when
    /// their turn comes, stripe by stripe, each stripe's in order.
    ///
    /// # Errors
    /// Damage.
    pub fn scan_stripe(
        &self,
        stripe: usize,
        snapshot: Option<&Snapshot>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        keys_max: usize,
        now: Second,
        mut visit: impl FnMut(&[u8], Shown, &[u8]),
    ) -> Result<Option<Vec<u8>>, Damage> {
        let table = self.stripe(stripe);
        let at = snapshot.map_or(Sequence::MAX, Snapshot::sequence);
        let (first, exclusive) = match range.0 {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => (&[][..], false),
        };
        let mut value = Vec::new();
        for (visited, slot) in table.slots_from(first).enumerate() {
            let key = table.key(slot);
            let over = match range.1 {
                Bound::Included(last) => key > last,
                Bound::Excluded(end) => key >= end,
                Bound::Unbounded => false,
            };
            if over {
                return Ok(None);
            }
            if visited >= keys_max {
                return Ok(Some(key.to_vec()));
            }
            if exclusive && key == first {
                continue;
            }
            let Some(view) = table.view(slot, at)? else { continue };
            if view.expiry.is_over(now) {
                continue;
            }
            value.clear();
            table.pieces(&view, |piece| {
                value.extend_from_slice(piece);
                true
            })?;
            visit(key, view.into(), &value);
        }
        Ok(None)
    }

    /// Waits until a commit is as safe as the store was asked to make it.
    ///
    /// # Errors
    /// When the disk refuses: the commit may be lost, and is not to be told of.
    pub fn sync(&self, sequence: Sequence) -> Result<(), Unwritable> {
        if self.0.log.synced() >= sequence { Ok(()) } else { self.0.log.sync(sequence) }
    }

    /// Tells a listener of every commit to keys of a range from now on, in the order of the commits,
    /// until it says that it has enough or is removed. It is called while others wait.
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

    pub(super) fn prepare(&self) -> Result<(), Unwritable> {
        self.0.log.prepare()
    }

    pub(super) fn write_out(&self) -> Result<(), Unwritable> {
        self.0.log.write_out()
    }

    /// When a commit is on the disk; `None` of a store in memory.
    #[must_use]
    pub fn durability(&self) -> Option<Durability> {
        self.0.log.durability()
    }

    /// Keys that are there, and those that are gone but not forgotten.
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

/// A write that will happen.
pub(super) struct Planned<'a> {
    pub(super) write: Write<'a>,
    pub(super) hash: u64,
    pub(super) slot: Option<SlotId>,
    pub(super) view: Option<View>,
    /// By the key.
    pub(super) version: Version,
    /// The version that it keeps, instead of a new one.
    pub(super) keeps: Option<Version>,
}

impl<'a> Planned<'a> {
    fn attributes(&self) -> (u32, Expiry, u8) {
        match (self.write.action, &self.view) {
            (Action::Put { flags, expiry, marks, .. }, _) => (flags, expiry, marks),
            (Action::Append(_), Some(view)) => (view.flags, view.expiry, view.marks),
            _ => (0, Expiry::NEVER, 0),
        }
    }

    /// What the value is before the first piece.
    fn growth(&self) -> Growing {
        match (self.write.action, &self.view) {
            (Action::Append(_), Some(view)) => {
                Growing { whole: view.value_bytes as u64, records: view.records() as u64 }
            }
            _ => Growing { whole: 0, records: 0 },
        }
    }

    /// The records' kinds and values.
    fn pieces(&self) -> impl Iterator<Item = (Kind, &'a [u8])> + Clone + use<'a> {
        let (first, value) = match self.write.action {
            Action::Put { value, .. } => (Kind::Put, value),
            Action::Append(tail) if self.view.is_some() => (Kind::Append, tail),
            Action::Append(tail) => (Kind::Put, tail),
            Action::Delete => (Kind::Delete, &[][..]),
        };
        let empty = value.is_empty().then_some((first, value));
        empty.into_iter().chain(
            value
                .chunks(PIECE_BYTES_MAX)
                .enumerate()
                .map(move |(part, piece)| (if part == 0 { first } else { Kind::Append }, piece)),
        )
    }
}

/// A value as its records are appended.
struct Growing {
    whole: u64,
    records: u64,
}

impl Growing {
    /// Adds a record; what an append says of the value then.
    fn grow(&mut self, kind: Kind, bytes: usize) -> Option<Growth> {
        self.whole += bytes as u64;
        self.records += 1;
        (kind == Kind::Append).then_some(Growth { whole: self.whole, depth: self.records - 1 })
    }
}

fn table_of<'a>(locked: &'a mut [(usize, MutexGuard<'_, Table>)], stripe: usize) -> &'a mut Table {
    let at = locked.binary_search_by_key(&stripe, |(stripe, _)| *stripe);
    &mut locked[at.expect("the stripes of all keys are locked")].1
}

/// The first write of a key that an earlier one is of.
fn twice(writes: &[Write<'_>], hashes: &[u64]) -> Option<usize> {
    let mut seen = BTreeMap::new();
    writes
        .iter()
        .zip(hashes)
        .enumerate()
        .find_map(|(index, (write, &hash))| seen.insert((hash, write.key), index).map(|_| index))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
