//! The size of the log.

use std::collections::BTreeMap;

use knee_kv_cache::engine::{Engine, Expiry};
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryError, History, Items, Keeper, Store, StoreOptions,
    Write,
};
use knee_testkit::soak;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::store::{
    Directory, Model, SEGMENT_BYTES, act, durable, open, options, scanned, set, until,
};

/// The bytes of a record besides key and value; an append has [`GROWTH_BYTES`] more.
const HEAD_BYTES: usize = 48;
const GROWTH_BYTES: usize = 24;

#[test]
fn log_takes_at_most_twice_its_live_bytes() {
    let directory = Directory::new("space");
    let mut store = open(&directory.0).expect("opens");
    let mut model = Model::new();
    for round in 0..6000_u32 {
        let key = format!("key{}", round * 7919 % 60).into_bytes();
        if round % 5 == 0 {
            act(&store, &key, Action::Delete);
            model.remove(&key);
        } else {
            let value = vec![round as u8; round as usize % 250];
            set(&store, &key, &value);
            model.insert(key, value);
        }
        if round % 50 == 0 {
            store.sync(u64::MAX).expect("the disk takes it");
            while store.reclaim().expect("there is room") {}
            let alive: usize = model.iter().map(|(key, value)| 56 + key.len() + value.len()).sum();
            let tombstones = 60 * 64;
            let segments = directory.segments().len();
            // At least half of each full segment is live. The active segment and a spare one come on top.
            let most = 2 * (alive + tombstones) / (SEGMENT_BYTES - 350) + 3;
            assert!(segments <= most, "{segments} segments of at most {most} in round {round}");
        }
        if round % 1000 == 999 {
            store.sync(u64::MAX).expect("the disk takes it");
            drop(store);
            store = open(&directory.0).expect("opens again");
            assert!(scanned(&store, None) == model, "after round {round}");
        }
    }
}

/// A stored key.
#[derive(Clone)]
struct There {
    value: Vec<u8>,
    expires: bool,
    /// The bytes and the number of the key's records.
    bytes: usize,
    records: usize,
}

/// A store whose keys come and go in every way, and its expected contents.
struct Churn {
    store: Store,
    there: BTreeMap<Vec<u8>, There>,
    random: TestRng,
}

impl Churn {
    fn below(&mut self, end: usize) -> usize {
        self.random.next_u32() as usize % end
    }

    /// Makes a random write to a random key.
    fn step(&mut self, step: usize) {
        let key = match self.below(4) {
            // Most keys come back; some live once.
            0 => format!("new{step}"),
            1 if step > 300 => format!("new{}", step - 1 - self.below(300)),
            _ => format!("key{}", self.below(100)),
        }
        .into_bytes();
        let value = vec![step as u8; self.below(150)];
        let is_there = self.there.contains_key(&key);
        // An expired key stays visible until the keeper deletes it.
        let expires = self.below(4) == 0;
        let expiry = if expires { Expiry::at(1000) } else { Expiry::NEVER };
        let new = Action::Put { flags: 0, expiry, marks: 0, value: &value };
        let (condition, action) = match self.below(8) {
            0 => (Condition::Always, new),
            1 => (Condition::Absent, new),
            2 => (Condition::Present, new),
            3 | 4 => (Condition::Always, Action::Append(&value)),
            _ => (Condition::Always, Action::Delete),
        };
        let holds = match condition {
            Condition::Absent => !is_there,
            Condition::Present => is_there,
            _ => true,
        };
        let made = self.store.write(&[Write { key: &key, condition, action }], None, 1);
        assert_eq!(made.is_ok(), holds, "{made:?}");
        match action {
            _ if !holds => {}
            Action::Append(_) if is_there => {
                let list = self.there.get_mut(&key).expect("it is there");
                list.value.extend_from_slice(&value);
                list.bytes +=
                    (HEAD_BYTES + GROWTH_BYTES + key.len() + value.len()).next_multiple_of(8);
                list.records += 1;
                if list.value.len() > 1800 {
                    self.delete(&key);
                }
            }
            Action::Append(_) => self.put(key, value, false),
            Action::Put { .. } => self.put(key, value, expires),
            Action::Delete => drop(self.there.remove(&key)),
        }
        if step > 600 {
            self.delete(format!("new{}", step - 600).as_bytes());
        }
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>, expires: bool) {
        let bytes = (HEAD_BYTES + key.len() + value.len()).next_multiple_of(8);
        self.there.insert(key, There { value, expires, bytes, records: 1 });
    }

    fn delete(&mut self, key: &[u8]) {
        act(&self.store, key, Action::Delete);
        self.there.remove(key);
    }

    /// Overwrites several keys in one commit.
    fn bulk(&mut self, step: usize) {
        let value = vec![step as u8; self.below(150)];
        let keys: Vec<Vec<u8>> = (0..20)
            .map(|number| format!("key{}", (step + 7 * number) % 100).into_bytes())
            .collect();
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &value };
        let writes: Vec<Write<'_>> =
            keys.iter().map(|key| Write { key, condition: Condition::Always, action }).collect();
        self.store.write(&writes, None, 1).expect("it is taken");
        keys.into_iter().for_each(|key| self.put(key, value.clone(), false));
    }

    /// Lets the keeper delete the expired keys.
    fn expire(&mut self) {
        self.there.retain(|_, there| !there.expires);
        let keeper = Keeper::start(self.store.clone(), History::Seconds(0)).expect("a thread");
        until("that keys are deleted", || self.store.keys() == self.there.len());
        drop(keeper);
    }

    fn flush(&mut self) {
        Items::new(self.store.clone()).clear(0, 1).expect("it is taken");
        self.there.clear();
    }

    fn expect_whole(&self, step: usize) {
        let is: Model =
            self.there.iter().map(|(key, there)| (key.clone(), there.value.clone())).collect();
        assert!(scanned(&self.store, None) == is, "in step {step}");
    }

    /// Delete records take at most a quarter of the live bytes, or less than a segment. At least half of every segment
    /// but the active one is live.
    fn expect_bounded(&self, step: usize) {
        let there: usize = self.there.values().map(|there| there.bytes).sum();
        let most = (there + SEGMENT_BYTES).max(there * 4 / 3);
        let figures = self.store.figures();
        let live = figures.live_bytes as usize;
        assert!(there <= live && live <= most, "{live} bytes of {there} to {most} in step {step}");
        let most = (live / (SEGMENT_BYTES / 2 - HEAD_BYTES) + 1) * SEGMENT_BYTES;
        let takes = figures.file_bytes as usize;
        assert!(takes <= most, "{takes} bytes of {most} in step {step}");
        let records: usize = self.there.values().map(|there| there.records).sum();
        let most = records + (live - there) / HEAD_BYTES;
        let versions = figures.versions as usize;
        assert!(versions <= most, "{versions} records of {most} in step {step}");
    }
}

#[test]
fn churn_leaves_the_log_bounded() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let directory = Directory::new("churn");
        let at = durable(&directory.0, false);
        let open = || Store::open(options(consistency), &at, 1 << 26).expect("opens").0;
        let random = TestRng::from_seed(RngAlgorithm::XorShift, &[7; 16]);
        let mut churn = Churn { store: open(), there: BTreeMap::new(), random };
        let mut snapshot = None;
        let mut largest = 0;
        for step in 0..3000 * soak() as usize {
            churn.step(step);
            match step % 1000 {
                500 => snapshot = Some(churn.store.snapshot()),
                899 => snapshot = None,
                _ => {}
            }
            if step % 50 == 0 {
                churn.bulk(step);
            }
            if step % 2500 == 1249 {
                churn.flush();
            }
            if step % 100 != 99 {
                continue;
            }
            churn.store.sync(churn.store.last()).expect("the disk takes it");
            if step % 500 == 299 {
                churn.expire();
            }
            churn.store.compact().expect("there is room");
            if snapshot.is_none() {
                churn.expect_bounded(step);
                largest = largest.max(churn.store.figures().file_bytes);
            }
            if step % 1500 == 1499 {
                churn.expect_whole(step);
                // Close the store before the directory is opened again.
                churn.store = Store::in_memory(options(consistency), 1 << 16).expect("memory");
                churn.store = open();
                churn.expect_whole(step);
            }
        }
        // There are some hundred keys, however many steps there were.
        assert!(largest < 40 * SEGMENT_BYTES as u64, "{largest} bytes");
    }
}

#[test]
fn store_keeps_the_size_of_its_larger_segments() {
    let directory = Directory::new("larger");
    let at = durable(&directory.0, false);
    let smaller = options(Consistency::Linearizable);
    let larger = StoreOptions { segment_bytes: 64 << 10, ..smaller };
    let (store, _) = Store::open(larger, &at, 1 << 26).expect("opens");
    for number in 0..2000_u32 {
        // A sixth of the records stays live.
        let key = if number % 6 == 0 { number } else { 1 };
        set(&store, &key.to_be_bytes(), &[7; 400]);
    }
    store.sync(store.last()).expect("the disk takes it");
    drop(store);
    let (store, _) = Store::open(smaller, &at, 1 << 26).expect("opens");
    while store.reclaim().expect("there is room") {}
    let figures = store.figures();
    let lengths = directory.segments().into_iter();
    let lengths = lengths.map(|file| file.metadata().expect("it is there").len());
    lengths.for_each(|length| assert_eq!(length, 4096 + (64 << 10)));
    assert!(figures.file_bytes < 2 * figures.live_bytes + 2 * (64 << 10), "{figures:?}");
    drop(store);
    let Err(DirectoryError::Other(_, what)) = Store::open(smaller, &at, 100_000) else {
        panic!("two segments do not fit")
    };
    assert!(what.contains("they need 135072 bytes"), "{what}");
}
