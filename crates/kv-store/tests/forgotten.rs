//! Keys and requests that a store may forget, and the space that this frees.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use knee_kv_cache::engine::{Change, Engine, Expiry};
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryOptions, Durability, History, Items, Keeper,
    ReadError, ReclaimError, RequestId, Store, StoreOptions, Unwritable, Write, WriteError,
};

use crate::store::{Directory, act, durable, put};

const OPTIONS: StoreOptions = StoreOptions {
    consistency: Consistency::Sequential,
    stripes: 1,
    value_bytes_max: 1000,
    segment_bytes: 4096,
};

fn open(path: &Path, consistency: Consistency) -> Store {
    open_within(path, consistency, 1 << 20)
}

fn open_within(path: &Path, consistency: Consistency, bytes_max: u64) -> Store {
    let directory = durable(path, false);
    let options = StoreOptions { consistency, ..OPTIONS };
    Store::open(options, &directory, bytes_max).expect("it opens").0
}

fn set(store: &Store, key: &[u8], to: &[u8]) -> u64 {
    let write = Write { key, condition: Condition::Always, action: put(to) };
    let committed = store.write(&[write], None, 1).expect("it is taken");
    store.sync(committed.sequence).expect("the disk takes it");
    committed.version
}

#[test]
fn kept_history_outlives_a_restart() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let directory = Directory::new("kept");
        let mut first = 0;
        for start in 0..3_u8 {
            let store = open(&directory.0, consistency);
            let _keeper = Keeper::start(store.clone(), History::All).expect("a thread");
            let version = set(&store, b"key", &[start; 900]);
            if start == 0 {
                first = version;
            }
            while store.reclaim().expect("there is room") {}
            let past = store.history(b"key", 0, 9).expect("nothing is damaged").found;
            assert_eq!(past.len(), usize::from(start) + 1);
            let shown = store.read_at(b"key", first, 1, |piece| piece == [0; 900]).found;
            assert!(matches!(shown, Ok(Some(_))), "{shown:?} after start {start}");
        }
    }
}

#[test]
fn dropped_version_is_never_reported_as_absent() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let directory = Directory::new("dropped");
        let mut store = open(&directory.0, consistency);
        set(&store, b"before", b"");
        let first = set(&store, b"key", &[1; 900]);
        let second = set(&store, b"key", &[2; 900]);
        for _ in 0..10 {
            set(&store, b"other", &[2; 900]);
        }
        while store.reclaim().expect("there is room") {}
        for _ in 0..2 {
            let dropped = store.read_at(b"key", first, 1, |_| true).found;
            assert_eq!(dropped, Err(ReadError::Compacted(second)), "{consistency:?}");
            drop(store);
            store = open(&directory.0, consistency);
        }
    }
}

#[test]
fn damaged_segment_is_reported_once_and_others_are_reclaimed() {
    let directory = Directory::new("reclaimed");
    let store = open(&directory.0, Consistency::Linearizable);
    set(&store, b"kept", &[1; 900]);
    for _ in 0..7 {
        set(&store, b"key", &[1; 900]);
    }
    let segment = fs::File::options().write(true).open(directory.0.join("00000001.log"));
    segment.expect("it is there").write_all_at(b"X", 4096 + 200).expect("writable");
    let mut reported = 0;
    for _ in 0..200 {
        set(&store, b"key", &[1; 900]);
        match store.reclaim() {
            Ok(_) => {}
            Err(ReclaimError::Damage(damage)) => {
                assert_eq!((damage.segment, damage.offset), (1, 0));
                reported += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(reported, 1);
    assert!(
        directory.segments().len() < 6,
        "{} segments, all but one of them dead",
        directory.segments().len()
    );
}

#[test]
fn compacted_versions_stay_gone_after_a_restart() {
    let directory = Directory::new("compacted");
    let mut store = open(&directory.0, Consistency::Linearizable);
    let mut keeper = Keeper::start(store.clone(), History::All).expect("a thread");
    let first = set(&store, b"key", b"one");
    set(&store, b"key", b"two");
    store.compact().expect("there is room");
    let kept = set(&store, b"key", b"three");
    for _ in 0..2 {
        let found = store.read_at(b"key", first, 1, |_| true).found;
        assert!(matches!(found, Err(ReadError::Compacted(_))), "{found:?}");
        let past = store.history(b"key", 0, 9).expect("nothing is damaged").found;
        assert_eq!(past.iter().map(|past| past.version).collect::<Vec<_>>(), [kept - 1, kept]);
        drop((keeper, store));
        store = open(&directory.0, Consistency::Linearizable);
        keeper = Keeper::start(store.clone(), History::All).expect("a thread");
    }
}

#[test]
fn version_of_a_deleted_key_is_never_reused() {
    let directory = Directory::new("forgotten");
    let store = open(&directory.0, Consistency::Sequential);
    let write = |key: &[u8], condition, action| {
        let committed = store.write(&[Write { key, condition, action }], None, 1)?;
        store.sync(committed.sequence).expect("the disk takes it");
        Ok(committed.version)
    };
    let first = write(b"key", Condition::Absent, put(b"one")).expect("it is taken");
    write(b"key", Condition::Version(first), Action::Delete).expect("it is taken");
    for _ in 0..3 {
        for _ in 0..20 {
            write(b"other", Condition::Always, put(&[0; 900])).expect("it is taken");
        }
        while store.reclaim().expect("there is room") {}
    }
    let other = write(b"key", Condition::Absent, put(b"another")).expect("it is taken");
    let late = write(b"key", Condition::Version(first), put(b"late"));
    assert!(other > first, "version {first} was made twice");
    assert!(
        matches!(late, Err(WriteError::Condition { index: 0, .. })),
        "a late write was taken: {late:?}"
    );
}

#[test]
fn store_in_memory_reclaims_space() {
    let store = Store::in_memory(OPTIONS, 1 << 20).expect("memory");
    for round in 0..10_000 {
        let action = put(&[7; 900]);
        let write = Write { key: b"key", condition: Condition::Always, action };
        let written = store.write(&[write], None, 1);
        assert!(written.is_ok(), "{written:?} in round {round}, with 900 bytes alive");
        while store.reclaim().expect("there is room") {}
    }
}

/// The keeper looks for expired keys when it starts. A key that was touched before stays.
#[test]
fn expired_keys_go_in_few_commits_and_touched_ones_stay() {
    let store = Store::in_memory(OPTIONS, 1 << 24).expect("memory");
    let mut items = Items::new(store.clone());
    for key in 0..1000_u16 {
        let action = Action::Put { flags: 0, expiry: Expiry::at(5), marks: 0, value: b"value" };
        let key = key.to_le_bytes();
        act(&store, &key, action);
    }
    let key = 500_u16.to_le_bytes();
    let more = Change::Amend { expiry: Expiry::NEVER, marks: 0, new_version: false, read: false };
    items.update(&key, 4, |_| (more, ())).0.expect("it is taken");
    let before = store.last();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let began = std::time::Instant::now();
    while store.keys() > 1 {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "they do not go");
        std::thread::yield_now();
    }
    assert!(store.last() <= before + 20, "{} commits", store.last() - before);
    let shown = store.read(&key, 9, |_| true).expect("nothing is damaged").found;
    assert!(shown.is_some());
}

#[test]
fn full_store_takes_deletes_and_reclaims_space() {
    let directory = Directory::new("filled");
    for store in [
        Store::in_memory(OPTIONS, 1 << 16).expect("memory"),
        open_within(&directory.0, Consistency::Linearizable, 1 << 16),
    ] {
        let (mut deleted, mut number) = (0_u32, 0_u32);
        for _ in 0..3 {
            let full = loop {
                let (key, value) = (number.to_le_bytes(), [7; 700]);
                let write = Write { key: &key, condition: Condition::Always, action: put(&value) };
                match store.write(&[write], None, 1) {
                    Ok(_) => number += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(full, WriteError::Log(Unwritable::Full(_))), "{full:?}");
            // The deletes are spread over all segments, so that for long no segment is worth reclaiming.
            let keys = std::mem::replace(&mut deleted, number)..number;
            for key in (0..5).flat_map(|first| keys.clone().skip(first).step_by(5)) {
                let key = key.to_le_bytes();
                let action = Action::Delete;
                let write = Write { key: &key, condition: Condition::Present, action };
                let made = store.write(&[write], None, 1).expect("a delete is taken");
                store.sync(made.sequence).expect("the disk takes it");
                while store.reclaim().expect("there is room") {}
            }
            assert_eq!(store.keys(), 0);
        }
    }
}

#[test]
fn closed_store_is_complete_at_any_durability() {
    for durability in [Durability::Interval(1), Durability::None] {
        let directory = Directory::new("closed");
        let path = directory.0.clone();
        let options = DirectoryOptions { path, durability, repair: false };
        let (store, _) = Store::open(OPTIONS, &options, 1 << 20).expect("it opens");
        let write = Write { key: b"key", condition: Condition::Always, action: put(b"value") };
        let committed = store.write(&[write], None, 1).expect("it is taken");
        store.sync(committed.sequence).expect("the disk takes it");
        drop(store);
        let (store, _) = Store::open(OPTIONS, &options, 1 << 20).expect("it opens");
        let shown = store.read(b"key", 1, |_| true).expect("nothing is damaged").found;
        assert!(shown.is_some(), "{durability:?}: what was written is gone");
    }
}

/// Puts and deletes new keys, while their space is reclaimed.
fn come_and_go(store: &Store, keys: u32, value: &[u8]) {
    for number in 0..keys {
        let key = number.to_be_bytes();
        for action in [put(value), Action::Delete] {
            let write = Write { key: &key, condition: Condition::Always, action };
            let made = store.write(&[write], None, 1);
            assert!(made.is_ok(), "{made:?} after {number} keys: {:?}", store.figures());
        }
        if number % 50 == 0 {
            store.sync(store.last()).expect("the disk takes it");
            while store.reclaim().expect("there is room") {}
        }
    }
}

#[test]
fn deleted_keys_leave_nothing_behind() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let directory = Directory::new("come-and-go");
        let durable = open_within(&directory.0, consistency, 64 * 4096);
        let options = StoreOptions { consistency, ..OPTIONS };
        let volatile = Store::in_memory(options, 64 * 4096).expect("memory");
        for store in [&durable, &volatile] {
            // These keys are never written again: their segment stays the first one.
            for cold in 0..7 {
                set(store, &[b'c', cold], &[7; 400]);
            }
            come_and_go(store, 2000, &[7; 40]);
            come_and_go(store, 2000, b"");
            let figures = store.figures();
            // At most a quarter of the live bytes are delete records, and at most half of the log is dead.
            assert!(figures.file_bytes <= 12 * 4096, "{consistency:?}: {figures:?}");
            assert!(figures.versions < 7 + 200, "{consistency:?}: {figures:?}");
        }
        drop(durable);
        let store = open_within(&directory.0, consistency, 64 * 4096);
        assert_eq!(store.keys(), 7);
        // The store repeats no version, although it has forgotten the key.
        let again = set(&store, &0_u32.to_be_bytes(), b"");
        let least = if consistency == Consistency::Sequential { 3 } else { 8000 };
        assert!(again >= least, "{consistency:?}: version {again} again");
    }
}

#[test]
fn repeated_delete_of_nothing_deletes_nothing() {
    let directory = Directory::new("nothing");
    let store = open(&directory.0, Consistency::Linearizable);
    let delete = |key| Write { key, condition: Condition::Always, action: Action::Delete };
    let id = |number| Some(RequestId { client: 3, number });
    let one = store.write(&[delete(b"a")], id(1), 1).expect("it is taken");
    let both = store.write(&[delete(b"a"), delete(b"b")], id(2), 1).expect("it is taken");
    assert_eq!((one.version, both.version), (0, 0));
    set(&store, b"a", b"put later");
    drop(store);
    let store = open(&directory.0, Consistency::Linearizable);
    assert_eq!(store.write(&[delete(b"a")], id(1), 1), Ok(one));
    assert_eq!(store.write(&[delete(b"a"), delete(b"b")], id(2), 1), Ok(both));
    assert_eq!(store.keys(), 1, "what was put later is gone");
}

/// Fills a log with keys that expire at 10.
fn fill(store: &Store) -> u32 {
    for number in 0_u32.. {
        let action = Action::Put { flags: 0, expiry: Expiry::at(10), marks: 0, value: b"v" };
        let write = Write { key: &number.to_be_bytes(), condition: Condition::Always, action };
        if store.write(&[write], None, 1).is_err() {
            return number;
        }
    }
    unreachable!("the log has a limit")
}

#[test]
fn log_full_of_expired_keys_is_freed() {
    let options = StoreOptions { segment_bytes: 1 << 16, ..OPTIONS };
    let store = Store::in_memory(options, 16 << 16).expect("memory");
    fill(&store);
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let began = std::time::Instant::now();
    let write = Write { key: b"another", condition: Condition::Always, action: put(&[7; 1000]) };
    while store.write(&[write], None, 11).is_err() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", store.figures());
        std::thread::yield_now();
    }
}
