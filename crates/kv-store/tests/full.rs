//! A full log: writers wait only if space can be reclaimed.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use knee_kv_cache::engine::{Change, Engine, Expiry, Item, Refused};
use knee_kv_store::{
    Condition, Consistency, DirectoryOptions, Durability, History, Items, Keeper, Patience, Room,
    Store, StoreOptions, Unwritable, Write, WriteError,
};

use crate::store::{Directory, durable, put, until};

const SEGMENT_BYTES: usize = 64 << 10;
const SEGMENTS: u64 = 24;
const VALUE_BYTES_MAX: usize = 40_000;
const KEYS: u32 = 4000;
const WRITERS: u32 = 3;

fn options() -> StoreOptions {
    StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 4,
        value_bytes_max: VALUE_BYTES_MAX,
        segment_bytes: SEGMENT_BYTES,
    }
}

fn in_memory() -> Store {
    Store::in_memory(options(), SEGMENTS * SEGMENT_BYTES as u64).expect("memory")
}

fn stored(items: &mut Items, key: u32, value: &[u8]) -> Result<(), Refused> {
    let change = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
    loop {
        match items.update(&key.to_le_bytes(), 1, |_| (change, ())).0 {
            // Decide again, as the servers do.
            Err(Refused::Changed) => {}
            outcome => return outcome.map(drop),
        }
    }
}

fn removed(items: &mut Items, key: u32) -> Result<(), Refused> {
    items.update(&key.to_le_bytes(), 1, |_| (Change::Remove, ())).0.map(drop)
}

/// Puts new keys from `first` on until the log is full. Returns the first key that was refused.
fn fill_from(items: &mut Items, first: u32, value: &[u8]) -> u32 {
    let refused = (first..u32::MAX).find(|&key| stored(items, key, value).is_err());
    refused.expect("the log is bounded")
}

/// Fills an empty store. Returns the number of its keys.
fn fill(items: &mut Items, value: &[u8]) -> u32 {
    let keys = fill_from(items, 0, value);
    // A segment holds whole values only. The last segment may be unused.
    let least = (SEGMENTS as usize - 1) * (SEGMENT_BYTES / (value.len() + 100));
    assert!(keys as usize >= least, "{keys} keys of at least {least}");
    keys
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Several writers overwrite small values with larger ones, as fast as they can. They write several times as much as
/// the log holds. In the end, two thirds of the log are live.
fn overwrite(store: &Store) {
    let mut items = Items::new(store.clone());
    for key in (0..KEYS).cycle().take(5 * KEYS as usize) {
        stored(&mut items, key, &[1; 20]).expect("there is space to be had back");
    }
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let mut items = items.clone();
            scope.spawn(move || {
                for step in 0..6 * KEYS {
                    // Each writer has another order of keys in each round.
                    let key = (step * 7919 + writer * 1237) % KEYS;
                    stored(&mut items, key, &[2; 200]).expect("there is space to be had back");
                }
            });
        }
    });
    assert_eq!(store.keys(), KEYS as usize);
}

#[test]
fn fast_overwrites_wait_for_space() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    overwrite(&store);
}

#[test]
fn old_versions_make_way_for_writers() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(3600)).expect("a thread");
    let snapshot = store.revocable_snapshot();
    overwrite(&store);
    assert!(!snapshot.is_kept());
}

#[test]
fn fast_overwrites_on_a_disk_wait_for_space() {
    let directory = Directory::new("full");
    let at =
        DirectoryOptions { durability: Durability::Interval(100), ..durable(&directory.0, false) };
    let bytes_max = SEGMENTS * SEGMENT_BYTES as u64;
    let (store, _) = Store::open(options(), &at, bytes_max).expect("opens");
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    overwrite(&store);
}

#[test]
fn many_writers_of_large_values_are_not_refused() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    thread::scope(|scope| {
        for writer in 1..=8 {
            let mut items = Items::new(store.clone());
            scope.spawn(move || {
                // More than half a segment: each needs one of its own.
                let value = vec![1; VALUE_BYTES_MAX];
                for step in 0..200 {
                    let key = writer * (step % 2);
                    stored(&mut items, key, &value).expect("there is space to be had back");
                }
            });
        }
    });
}

#[test]
fn commit_of_many_segments_is_not_refused() {
    let options = StoreOptions { value_bytes_max: 1 << 20, ..options() };
    let store = Store::in_memory(options, 64 * SEGMENT_BYTES as u64).expect("memory");
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let value = vec![1; 50 << 10];
    let keys: Vec<_> = (0..20_u32).map(u32::to_le_bytes).collect();
    let put = |key| Write { key, condition: Condition::Always, action: put(&value) };
    let writes: Vec<_> = keys.iter().map(|key| put(key)).collect();
    for _ in 0..50 {
        let mut patience = Patience::default();
        while let Err(error) = store.write(&writes, None, 1) {
            assert!(matches!(error, WriteError::Log(Unwritable::Full(_))), "{error:?}");
            assert!(store.wait_for_room(Room::of(&writes), &mut patience));
        }
    }
}

#[test]
fn log_full_of_live_records_refuses_writes_and_moves_none() {
    // Large values leave a part of each segment empty, which cannot be reclaimed.
    for value in [1000, 25_000] {
        let store = in_memory();
        let mut items = Items::new(store.clone());
        let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        let value = vec![1; value];
        let keys = fill(&mut items, &value);
        for key in 0..1000 {
            assert_eq!(stored(&mut items, keys + key, &value), Err(Refused::Full));
        }
        drop(keeper);
        // Without a keeper no write waits.
        assert_eq!(stored(&mut items, keys, &value), Err(Refused::Full));
        assert_eq!(store.figures().reclaims, 0);
    }
}

#[test]
fn deletes_and_overwrites_make_room() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let mut items = Items::new(store.clone());
    let value = [1; 5000];
    let keys = fill(&mut items, &value);
    // Delete a quarter of each segment: too little to be reclaimed without a waiting writer.
    for key in (0..keys).step_by(4) {
        removed(&mut items, key).expect("it frees space");
    }
    until("that there is room", || stored(&mut items, keys, &value).is_ok());
    let keys = 1 + fill_from(&mut items, keys, &value);
    for key in (1..keys).step_by(4) {
        // This write may be refused.
        let _ = stored(&mut items, key, b"");
    }
    until("that there is room", || stored(&mut items, keys, &value).is_ok());
    fill_from(&mut items, keys, &value);
    items.clear(0, 1).expect("it frees space");
    until("that there is room", || stored(&mut items, 0, &value).is_ok());
}

#[test]
fn compaction_makes_room() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::All).expect("a thread");
    let mut items = Items::new(store.clone());
    // Two of five writes overwrite key 0, whose old versions are kept.
    let key = |step: u32| if step % 5 < 2 { 0 } else { step };
    let refused = (0..u32::MAX).find(|&step| stored(&mut items, key(step), &[1; 1000]).is_err());
    assert!(refused.is_some_and(|steps| steps > 1000), "{refused:?}");
    store.compact().expect("nothing is damaged");
    until("that there is room", || stored(&mut items, 0, &[1; 1000]).is_ok());
}

#[test]
fn dropped_snapshot_makes_room() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    // The snapshot keeps all replaced versions.
    let snapshot = store.snapshot();
    let mut items = Items::new(store.clone());
    let refused = (0..u32::MAX).find(|&round| stored(&mut items, round % 2, &[1; 1000]).is_err());
    assert!(refused.is_some_and(|rounds| rounds > 1000), "{refused:?}");
    drop(snapshot);
    until("that there is room", || stored(&mut items, 0, &[1; 1000]).is_ok());
}

/// The keeper moves live records to segments beyond the limit. Writes must not fill these: deletes need them.
#[test]
fn log_filled_during_moves_takes_deletes() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let there = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (mut items, there) = (Items::new(store.clone()), &there);
            scope.spawn(move || {
                let mut refused = 0;
                for step in 0..u32::MAX {
                    // Values have all sizes, and some are overwritten.
                    let key = writer << 20 | (step - step % 7 / 4);
                    let bytes = (step * 7919 % 50) as usize * 500;
                    match stored(&mut items, key, &vec![1; bytes]) {
                        Ok(()) => lock(there).push(key),
                        Err(_) => refused += 1,
                    }
                    if refused == 200 {
                        break;
                    }
                }
            });
        }
    });
    let mut items = Items::new(store.clone());
    for key in &*lock(&there) {
        removed(&mut items, *key).expect("it frees space");
    }
    assert_eq!(store.keys(), 0);
}

#[test]
fn small_values_are_deleted_from_a_full_log_in_any_order() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let mut items = Items::new(store.clone());
    let keys = fill(&mut items, &[1; 20]);
    // The deletes are spread over all segments, so each segment is mostly live for long.
    const STEP: u32 = 7919;
    assert_ne!(keys % STEP, 0, "a prime meets all keys");
    for round in 0..keys {
        let key = (u64::from(round) * u64::from(STEP) % u64::from(keys)) as u32;
        removed(&mut items, key).expect("it frees space");
    }
    assert_eq!(store.keys(), 0);
}

#[test]
fn dead_records_of_the_newest_segment_are_reclaimed() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let mut items = Items::new(store.clone());
    let segments = || store.figures().file_bytes / SEGMENT_BYTES as u64;
    // Fill all segments but the last one with live records.
    let mut key = 1;
    while segments() < SEGMENTS {
        stored(&mut items, key, &[1; 1000]).expect("there is room");
        key += 1;
    }
    for _ in 0..1000 {
        stored(&mut items, 0, &[1; 1000]).expect("there is space to be had back");
    }
}

#[test]
fn revocable_snapshot_of_a_full_log_makes_way() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let mut items = Items::new(store.clone());
    let mut key = 1;
    while store.figures().file_bytes < SEGMENTS * SEGMENT_BYTES as u64 {
        stored(&mut items, key, &[1; 1000]).expect("there is room");
        key += 1;
    }
    let snapshot = store.revocable_snapshot();
    for _ in 0..1000 {
        stored(&mut items, 0, &[1; 1000]).expect("there is space to be had back");
    }
    assert!(!snapshot.is_kept());
}

#[test]
fn change_of_a_changed_item_is_decided_again() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            let mut items = Items::new(store.clone());
            scope.spawn(move || {
                for _ in 0..500 {
                    loop {
                        let mut count = [0; 20_000];
                        let next = &mut count;
                        // The update changes the item that it has read, or nothing.
                        let added = items.update(b"count", 1, |item: Option<Item<'_>>| {
                            if let Some(item) = item {
                                next.copy_from_slice(item.value);
                            }
                            next[0] += 1;
                            next[1] += u8::from(next[0] == 100);
                            next[0] %= 100;
                            let put = Change::Put {
                                flags: 0,
                                expiry: Expiry::NEVER,
                                marks: 0,
                                value: next,
                            };
                            (put, ())
                        });
                        match added.0 {
                            Err(Refused::Changed) => {}
                            outcome => {
                                break outcome.map(drop).expect("there is space to be had back");
                            }
                        }
                    }
                }
            });
        }
    });
    let mut items = Items::new(store.clone());
    let count = items.get(b"count", 1, |item| item.expect("it is there").value[..2].to_vec());
    assert_eq!(count, Ok(vec![0, 5 * WRITERS as u8]));
}

#[test]
fn log_shrinks_to_a_smaller_limit() {
    let directory = Directory::new("smaller");
    let at =
        DirectoryOptions { durability: Durability::Interval(100), ..durable(&directory.0, false) };
    let open = |segments: u64| {
        Store::open(options(), &at, segments * SEGMENT_BYTES as u64).expect("opens").0
    };
    let store = open(SEGMENTS);
    let mut items = Items::new(store.clone());
    let keys = fill(&mut items, &[1; 1000]);
    // Most keys are deleted, but each segment keeps some live records.
    for key in (0..keys).filter(|key| key % 5 < 3) {
        removed(&mut items, key).expect("it frees space");
        store.sync(store.last()).expect("the disk takes it");
    }
    drop((items, store));
    let store = open(SEGMENTS / 2);
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let mut items = Items::new(store.clone());
    until("that there is room", || stored(&mut items, 0, &[1; 1000]).is_ok());
    // A move may take one segment beyond the limit.
    let bytes_max = SEGMENTS / 2 * SEGMENT_BYTES as u64;
    until("that it is within its limit", || store.figures().file_bytes <= bytes_max);
}

#[test]
fn reopened_full_log_takes_overwrites() {
    let directory = Directory::new("again");
    let at =
        DirectoryOptions { durability: Durability::Interval(100), ..durable(&directory.0, false) };
    let open = || Store::open(options(), &at, SEGMENTS * SEGMENT_BYTES as u64).expect("opens").0;
    let store = open();
    let mut items = Items::new(store.clone());
    let mut key = 0;
    while store.figures().file_bytes < SEGMENTS * SEGMENT_BYTES as u64 {
        stored(&mut items, key, &[1; 1000]).expect("there is room");
        key += 1;
    }
    // More than half of the last segment is live.
    (0..40).for_each(|more| stored(&mut items, key + more, &[1; 1000]).expect("there is room"));
    drop((items, store));
    for _ in 0..3 {
        let store = open();
        let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        let mut items = Items::new(store.clone());
        for _ in 0..200 {
            stored(&mut items, 0, &[1; 1000]).expect("there is space to be had back");
        }
    }
}

/// A killed store leaves a segment that is not full. After its restart, the store begins another one.
#[test]
fn full_log_takes_writes_after_each_kill() {
    let directory = Directory::new("killed");
    let bytes_max = SEGMENTS * SEGMENT_BYTES as u64;
    for life in 0..5 {
        let path = directory.0.join(life.to_string());
        let at = durable(&path, false);
        let store = Store::open(options(), &at, bytes_max).expect("opens").0;
        drop(Keeper::start(store.clone(), History::Seconds(0)).expect("a thread"));
        let mut items = Items::new(store.clone());
        // Without a keeper no write waits.
        stored(&mut items, life, &[1; 1000]).expect("it was within its limit");
        while stored(&mut items, 100, &[1; 1000]).is_ok() {}
        store.write_out().expect("the disk takes it");
        // Copy the files as a kill would leave them now.
        let next = directory.0.join((life + 1).to_string());
        fs::create_dir(&next).expect("a directory");
        for entry in fs::read_dir(&at.path).expect("the directory is there") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), next.join(entry.file_name())).expect("a copy");
        }
    }
}
