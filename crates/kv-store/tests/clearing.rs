//! Clears: at once or at a set second, for all servers of a store, and over restarts.

use std::ops::Bound;
use std::sync::{Arc, Mutex};

use knee_kv_cache::engine::{Change, Engine, Expiry};
use knee_kv_store::{
    Action, Condition, Consistency, Event, History, Items, Keeper, ReadError, RequestId, Store,
    StoreOptions, What, Write,
};

use crate::store::{Directory, durable, until};

const OPTIONS: StoreOptions = StoreOptions {
    consistency: Consistency::Linearizable,
    stripes: 4,
    value_bytes_max: 1000,
    segment_bytes: 4096,
};

fn put(store: &Store, key: &[u8], value: &[u8], now: u32) -> Result<(), String> {
    let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
    let write = Write { key, condition: Condition::Always, action };
    store.write(&[write], None, now).map(|_| ()).map_err(|error| format!("{error:?}"))
}

fn is_there(store: &Store, key: &[u8], now: u32) -> bool {
    store.read(key, now, |_| true).unwrap().found.is_some()
}

fn open(Directory(path): &Directory) -> Store {
    Store::open(OPTIONS, &durable(path, false), 1 << 26).unwrap().0
}

/// Waits until the keeper has deleted all keys but this many.
fn wait_for_keys(store: &Store, keys: usize) {
    until("the end of the others", || store.keys() <= keys);
    assert_eq!(store.keys(), keys);
}

#[test]
fn clear_does_not_wait_for_each_key() {
    let store = Store::in_memory(OPTIONS, 1 << 20).unwrap();
    for key in 0..100_u8 {
        put(&store, &[key], b"old", 1).unwrap();
    }
    let before = store.last();
    Items::new(store.clone()).clear(1, 1).unwrap();
    assert_eq!(store.last(), before + 1);
    assert!(!is_there(&store, &[7], 1));
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).unwrap();
    wait_for_keys(&store, 0);
}

#[test]
fn delayed_clear_spares_later_writes() {
    for first_is_a_read in [false, true] {
        let store = Store::in_memory(OPTIONS, 1 << 20).unwrap();
        let mut items = Items::new(store.clone());
        put(&store, b"old", b"1", 1).unwrap();
        items.clear(10, 1).unwrap();
        assert!(is_there(&store, b"old", 9));
        if first_is_a_read {
            assert!(!is_there(&store, b"old", 15));
        }
        put(&store, b"new", b"2", 15).unwrap();
        assert!(items.get(b"new", 20, |item| item.is_some()).unwrap());
        assert!(!items.get(b"old", 20, |item| item.is_some()).unwrap());
        assert!(!is_there(&store, b"old", 20));
    }
}

#[test]
fn full_store_is_cleared_and_read() {
    let store = Store::in_memory(OPTIONS, 8 * 4096).unwrap();
    let mut items = Items::new(store.clone());
    let mut keys = 0_u16;
    while put(&store, &keys.to_le_bytes(), &[0; 8], 1).is_ok() {
        keys += 1;
    }
    items.clear(10, 1).unwrap();
    assert!(items.get(&[0, 0], 9, |item| item.is_some()).unwrap());
    assert!(!items.get(&[0, 0], 20, |item| item.is_some()).unwrap());
    // The space of cleared keys is reclaimed.
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).unwrap();
    let began = std::time::Instant::now();
    while store.keys() > 0 || put(&store, b"new", &[0; 900], 20).is_err() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", store.figures());
        std::thread::yield_now();
    }
}

#[test]
fn repeated_request_is_answered_while_a_clear_is_late() {
    let store = Store::in_memory(OPTIONS, 8 * 4096).unwrap();
    let id = |number| Some(RequestId { client: 1, number });
    let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: b"1" };
    let write = [Write { key: b"key", condition: Condition::Absent, action }];
    let made = store.write(&write, id(0), 1).unwrap();
    while put(&store, b"other", &[0; 8], 1).is_ok() {}
    // Deletes may take one more segment. Here they fill it, too.
    let delete = [Write { key: b"nothing", condition: Condition::Always, action: Action::Delete }];
    let refused = (1..).find(|&number| store.write(&delete, id(number), 1).is_err()).unwrap();
    Items::new(store.clone()).clear(10, 1).unwrap();
    store.write(&delete, id(refused), 20).unwrap_err();
    assert_eq!(store.write(&write, id(0), 20).unwrap(), made);
}

#[test]
fn cleared_keys_stay_gone_after_a_restart() {
    let directory = Directory::new("clearing");
    let open = || open(&directory);
    let mut store = open();
    for key in 0..100_u8 {
        put(&store, &[key], &[key; 100], 1).unwrap();
    }
    let before = store.snapshot();
    let version = store.last();
    Items::new(store.clone()).clear(10, 1).unwrap();
    // The first read after the set time makes the clear, with a single record.
    let read = store.read(&[7], 10, |_| true).unwrap();
    assert_eq!((read.found, read.sequence), (None, version + 1));
    store.sync(read.sequence).unwrap();
    assert_eq!(store.keys(), 100);
    let shown = store.read_at(&[7], version, 10, |_| true);
    assert!(shown.found.unwrap().is_some());
    assert_eq!(store.read_at(&[7], version + 1, 10, |_| true).found, Ok(None));
    let seen = |snapshot: Option<&knee_kv_store::Snapshot>| {
        let mut keys = 0;
        for stripe in 0..store.stripes() {
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            let scanned = store.scan_stripe(stripe, snapshot, all, usize::MAX, 10, |_| {
                keys += 1;
                Ok(std::ops::ControlFlow::Continue(()))
            });
            scanned.unwrap();
        }
        keys
    };
    assert_eq!((seen(Some(&before)), seen(Some(&store.snapshot())), seen(None)), (100, 0, 0));
    put(&store, b"later", b"1", 10).unwrap();
    store.sync(store.last()).unwrap();
    drop(before);
    for _ in 0..3 {
        drop(store);
        store = open();
        assert!(!is_there(&store, &[7], 10) && is_there(&store, b"later", 10));
        while store.reclaim().unwrap() {}
    }
    let keeper = Keeper::start(store.clone(), History::Seconds(0)).unwrap();
    wait_for_keys(&store, 1);
    drop(keeper);
    drop(store);
    assert_eq!(open().keys(), 1);
}

#[test]
fn append_after_a_clear_starts_empty() {
    let store = Store::in_memory(OPTIONS, 1 << 26).unwrap();
    let keys = 2000_u16;
    for key in 0..keys {
        put(&store, &key.to_le_bytes(), b"old", 1).unwrap();
    }
    let mut items = Items::new(store.clone());
    std::thread::scope(|scope| {
        let mut growing = items.clone();
        let grow = scope.spawn(move || {
            for key in 0..keys {
                let grow = |item: Option<knee_kv_cache::engine::Item<'_>>| {
                    (if item.is_some() { Change::Append(b"+") } else { Change::Keep }, ())
                };
                growing.update(&key.to_le_bytes(), 1, grow).0.unwrap();
            }
        });
        while store.last() < u64::from(keys) + 100 {
            std::thread::yield_now();
        }
        items.clear(1, 1).unwrap();
        grow.join().unwrap();
    });
    // Appends during the clear save no key.
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).unwrap();
    wait_for_keys(&store, 0);
}

#[test]
fn watcher_sees_new_values_before_late_deletes() {
    let store = Store::in_memory(OPTIONS, 1 << 20).unwrap();
    put(&store, b"cleared", b"old", 1).unwrap();
    let action = Action::Put { flags: 0, expiry: Expiry::at(5), marks: 0, value: b"old" };
    store.write(&[Write { key: b"over", condition: Condition::Always, action }], None, 1).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&heard);
    let all = (Bound::Unbounded, Bound::Unbounded);
    let hear = move |event: Event| {
        events.lock().unwrap().push(event.what);
        true
    };
    store.watch(all, Box::new(hear));
    let append = |key, now| {
        let write = Write { key, condition: Condition::Always, action: Action::Append(b"new") };
        store.write(&[write], None, now).unwrap();
    };
    append(b"over", 7);
    // The first write after the set time makes the clear; the events of its keys come later.
    Items::new(store.clone()).clear(9, 7).unwrap();
    append(b"cleared", 9);
    append(b"cleared", 9);
    let new = || What::Put(b"new".to_vec());
    assert_eq!(*heard.lock().unwrap(), [new(), new(), What::Appended(b"new".to_vec())]);
}

#[test]
fn records_moved_during_a_clear_stay_gone() {
    for round in 0..3 {
        let directory = Directory::new("clearing-moved");
        let store = open(&directory);
        for key in 0..1000_u16 {
            put(&store, &key.to_le_bytes(), &[7; 200], 1).unwrap();
        }
        store.sync(store.last()).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Acquire) {
                    store.sync(store.last()).unwrap();
                    while store.reclaim().unwrap() {}
                }
            });
            let mut items = Items::new(store.clone());
            items.clear(1, 1).unwrap();
            items.settle().unwrap();
            over.store(true, std::sync::atomic::Ordering::Release);
        });
        let keeper = Keeper::start(store.clone(), History::Seconds(0)).unwrap();
        // Compactions drop the dead records, then the delete records.
        for number in 0..200_u8 {
            put(&store, b"after", &[number; 200], 1).unwrap();
            if number % 20 == 0 {
                store.sync(store.last()).unwrap();
                store.compact().unwrap();
            }
        }
        store.sync(store.last()).unwrap();
        wait_for_keys(&store, 1);
        drop(keeper);
        drop(store);
        assert_eq!(open(&directory).keys(), 1, "round {round}");
    }
}

#[test]
fn old_version_hides_cleared_keys_after_another_clear() {
    let store = Store::in_memory(OPTIONS, 1 << 20).unwrap();
    let mut items = Items::new(store.clone());
    let snapshot = store.snapshot();
    put(&store, b"key", b"value", 1).unwrap();
    let cleared = store.last() + 1;
    items.clear(1, 1).unwrap();
    drop(snapshot);
    items.clear(1, 1).unwrap();
    for _ in 0..2 {
        let shown = store.read_at(b"key", cleared, 1, |_| true).found;
        assert!(matches!(shown, Ok(None) | Err(ReadError::Compacted(_))), "{shown:?}");
        store.compact().unwrap();
    }
}
