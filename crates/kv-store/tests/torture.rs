//! Random histories of a store that is killed again and again, against a model of all its commits.
//!
//! Segments are small, so values reach over their ends; space is reclaimed all the time. A kill leaves the files as
//! they are, or as they may be in the middle of a sync. If the process ends, the sync has written its first bytes; if
//! the power fails, any of its sectors. Then the store must equal its state after one of its commits, without losing an
//! acknowledged commit. It must not repeat versions. `KNEE_SOAK=n` runs n times as many histories.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};

use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryOptions, Durability, Snapshot, Store, StoreOptions,
    Write,
};
use knee_testkit::soak;

const STEPS: usize = 400;
/// The bytes of a segment's file before its records.
const FILE_HEAD_BYTES: usize = 4096;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// The files of a directory.
type Image = BTreeMap<PathBuf, Vec<u8>>;

/// How a sync is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tear {
    /// The first of its bytes are written.
    Process,
    /// Any of the sectors are written.
    Power,
}

/// Random numbers (xorshift64): every run has the same histories.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn open(path: &Path, consistency: Consistency) -> Store {
    let options =
        StoreOptions { consistency, stripes: 4, value_bytes_max: 1 << 24, segment_bytes: 4096 };
    let directory =
        DirectoryOptions { path: path.to_owned(), durability: Durability::Always, repair: false };
    Store::open(options, &directory, 1 << 26).expect("it opens").0
}

fn image(path: &Path) -> Image {
    let entries = fs::read_dir(path).expect("the directory is there");
    entries
        .map(|entry| entry.expect("an entry"))
        .map(|entry| (entry.file_name().into(), fs::read(entry.path()).expect("a file")))
        .collect()
}

fn lay(path: &Path, image: &Image) {
    let _ = fs::remove_dir_all(path);
    fs::create_dir_all(path).expect("a directory");
    for (name, bytes) in image {
        fs::write(path.join(name), bytes).expect("a file");
    }
}

/// The files after the sync between two images was cut off.
fn torn(before: &Image, after: &Image, random: &mut Random, tear: Tear) -> Image {
    let unit = match tear {
        Tear::Process => 8,
        Tear::Power => 512,
    };
    let mut left = after.clone();
    let mut changed = Vec::new();
    for (name, bytes) in after {
        if name.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let mut old = before.get(name).cloned().unwrap_or_else(|| vec![0; bytes.len()]);
        old[..FILE_HEAD_BYTES].copy_from_slice(&bytes[..FILE_HEAD_BYTES]);
        for at in (FILE_HEAD_BYTES..bytes.len()).step_by(unit) {
            let range = at..bytes.len().min(at + unit);
            if old[range.clone()] != bytes[range.clone()] {
                changed.push((name.clone(), at, old[range].to_vec()));
            }
        }
    }
    let keep = random.below(changed.len() + 1);
    for (index, (name, at, old)) in changed.into_iter().enumerate() {
        let is_written = match tear {
            Tear::Process => index < keep,
            Tear::Power => random.below(2) == 0,
        };
        if !is_written && let Some(bytes) = left.get_mut(&name) {
            bytes[at..at + old.len()].copy_from_slice(&old);
        }
    }
    left
}

fn scanned(store: &Store, snapshot: Option<&Snapshot>) -> Model {
    let mut found = Model::new();
    for stripe in 0..store.stripes() {
        let mut from = Some(Vec::new());
        while let Some(first) = from {
            let range = (Bound::Included(&first[..]), Bound::Unbounded);
            let part = store.scan_stripe(stripe, snapshot, range, 3, 1, |visited| {
                let mut value = Vec::new();
                visited.value(|piece| {
                    value.extend_from_slice(piece);
                    true
                })?;
                assert!(found.insert(visited.key.to_vec(), value).is_none(), "shown twice");
                Ok(ControlFlow::Continue(()))
            });
            from = part.expect("nothing is damaged").next;
        }
    }
    found
}

/// A key's part of a planned commit.
struct Part {
    key: Vec<u8>,
    what: What,
    value: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Put,
    Append,
    Delete,
}

/// Random changes of different keys, drawn from a few keys.
fn parts(random: &mut Random, step: usize) -> Vec<Part> {
    let count = if random.below(3) == 0 { 1 + random.below(6) } else { 1 };
    let mut parts: Vec<Part> = Vec::new();
    while parts.len() < count {
        let key = vec![1 + random.below(9) as u8; 1 + random.below(3)];
        if parts.iter().any(|part| part.key == key) {
            continue;
        }
        let bytes = match random.below(20) {
            0 => 0,
            1..8 => random.below(60),
            8..16 => random.below(900),
            _ => random.below(3500),
        };
        let what = match random.below(10) {
            0..5 => What::Put,
            5..8 => What::Append,
            _ => What::Delete,
        };
        parts.push(Part { key, what, value: vec![step as u8; bytes] });
    }
    parts
}

/// A store, its states after each commit, and the states that it may lose.
struct History {
    path: PathBuf,
    consistency: Consistency,
    tear: Tear,
    random: Random,
    /// `None` during a kill.
    store: Option<Store>,
    states: Vec<Model>,
    /// The last acknowledged state.
    synced: usize,
    last: u64,
    snapshots: Vec<(Snapshot, usize)>,
    /// The largest version, and the largest acknowledged one.
    version: u64,
    version_synced: u64,
    /// The same for each key, if versions count the writes of a key.
    versions: BTreeMap<Vec<u8>, u64>,
    versions_synced: BTreeMap<Vec<u8>, u64>,
}

impl History {
    fn new(seed: u64, tear: Tear) -> History {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let consistency = match random.below(3) {
            0 => Consistency::Sequential,
            _ => Consistency::Linearizable,
        };
        let name = format!("knee-kv-torture-{tear:?}-{}-{seed}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        History {
            store: Some(open(&path, consistency)),
            path,
            consistency,
            tear,
            random,
            states: vec![Model::new()],
            synced: 0,
            last: 0,
            snapshots: Vec::new(),
            version: 0,
            version_synced: 0,
            versions: BTreeMap::new(),
            versions_synced: BTreeMap::new(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn step(&mut self, step: usize) {
        match self.random.below(100) {
            0..62 => self.write(step),
            62..76 => self.sync(),
            76..86 => {
                while self.random.below(4) > 0 && self.store().reclaim().expect("there is room") {}
            }
            86..88 => self.store().compact().expect("there is room"),
            88..91 => self.snapshots.push((self.store().snapshot(), self.states.len() - 1)),
            91..93 => {
                let snapshot = self.random.below(self.snapshots.len() + 1);
                if snapshot < self.snapshots.len() {
                    self.snapshots.remove(snapshot);
                }
            }
            93..96 => {
                assert_eq!(scanned(self.store(), None), self.states[self.states.len() - 1]);
                for (snapshot, state) in &self.snapshots {
                    assert_eq!(scanned(self.store(), Some(snapshot)), self.states[*state]);
                }
            }
            _ => self.end(),
        }
    }

    fn write(&mut self, step: usize) {
        let mut state = self.states[self.states.len() - 1].clone();
        let parts = parts(&mut self.random, step);
        let mut changes = false;
        let writes: Vec<Write<'_>> = parts
            .iter()
            .map(|Part { key, what, value }| {
                let action = match what {
                    What::Put => {
                        state.insert(key.clone(), value.clone());
                        Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value }
                    }
                    What::Append => {
                        state.entry(key.clone()).or_default().extend_from_slice(value);
                        Action::Append(value)
                    }
                    What::Delete => {
                        changes |= state.remove(key).is_some();
                        Action::Delete
                    }
                };
                changes |= action != Action::Delete;
                Write { key, condition: Condition::Always, action }
            })
            .collect();
        let made = self.store().write(&writes, None, 1).expect("it is taken");
        if !changes {
            return;
        }
        self.states.push(state);
        self.last = made.sequence;
        match (self.consistency, &writes[..]) {
            (Consistency::Linearizable, _) => {
                assert!(made.version > self.version, "{made:?} after {}", self.version);
                self.version = made.version;
            }
            (Consistency::Sequential, [write]) => {
                let before = self.versions.insert(write.key.to_vec(), made.version).unwrap_or(0);
                assert!(made.version > before, "{made:?} after {before}");
            }
            // The version belongs to only one of the keys.
            (Consistency::Sequential, _) => {}
        }
    }

    fn sync(&mut self) {
        self.store().sync(self.last).expect("the disk takes it");
        self.synced = self.states.len() - 1;
        self.version_synced = self.version;
        self.versions_synced = self.versions.clone();
    }

    /// Closes or kills the store, and opens the remaining files.
    fn end(&mut self) {
        let left = match self.random.below(4) {
            0 => Some(image(&self.path)),
            1 | 2 => {
                let before = image(&self.path);
                self.store().sync(self.last).expect("the disk takes it");
                let after = image(&self.path);
                Some(torn(&before, &after, &mut self.random, self.tear))
            }
            _ => {
                self.sync();
                None
            }
        };
        self.snapshots.clear();
        self.store = None;
        if let Some(left) = left {
            lay(&self.path, &left);
        }
        self.store = Some(open(&self.path, self.consistency));
        let found = scanned(self.store(), None);
        let state = (self.synced..self.states.len()).rev().find(|&at| self.states[at] == found);
        let Some(state) = state else {
            panic!("it is nothing that it was since it was synced: {found:?}");
        };
        let last = self.store().last();
        // A version may return if its commit was lost.
        if self.consistency == Consistency::Linearizable {
            let acknowledged = self.version_synced;
            assert!(last >= acknowledged, "it goes on with {last} after {acknowledged}");
            self.version = last;
        }
        self.versions = self.versions_synced.clone();
        self.states.truncate(state + 1);
        self.synced = state;
        self.last = last;
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.snapshots.clear();
        self.store = None;
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn torture(tear: Tear, histories: u64) {
    for seed in 1..=histories * u64::from(soak()) {
        let mut history = History::new(seed, tear);
        for step in 0..STEPS {
            let run = std::panic::AssertUnwindSafe(|| history.step(step));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("in step {step} of history {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn acknowledged_writes_outlive_kills() {
    torture(Tear::Process, 2);
}

#[test]
fn acknowledged_writes_outlive_power_failures() {
    torture(Tear::Power, 2);
}
