//! A log that is full: who writes waits for space that can be had back, and for none that cannot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use knee_kv::engine::{Change, Engine, Expiry, Refused};
use knee_kv::versioned::{
    Condition, Consistency, DirectoryOptions, Durability, History, Items, Keeper, Room, Store,
    StoreOptions, Write, WriteError,
};

use crate::store::{Directory, put};

const SEGMENT_BYTES: usize = 64 << 10;
const SEGMENTS: u64 = 24;
const KEYS: u32 = 4000;
const WRITERS: u32 = 3;

fn options() -> StoreOptions {
    StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 4,
        value_bytes_max: 2000,
        segment_bytes: SEGMENT_BYTES,
    }
}

fn in_memory() -> Store {
    Store::in_memory(options(), SEGMENTS * SEGMENT_BYTES as u64).expect("memory")
}

fn stored(items: &mut Items, key: u32, value: &[u8]) -> Result<(), Refused> {
    let change = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
    items.update(&key.to_le_bytes(), 1, |_| (change, ())).0.map(drop)
}

/// Several writers overwrite small values with larger ones, as fast as they can, until they have written
/// the log several times over: what is alive comes to two thirds of it.
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
                    // No two writers, nor two rounds, in the same order.
                    let key = (step * 7919 + writer * 1237) % KEYS;
                    stored(&mut items, key, &[2; 200]).expect("there is space to be had back");
                }
            });
        }
    });
    assert_eq!(store.keys(), KEYS as usize);
}

#[test]
fn who_overwrites_faster_than_space_is_had_back_waits_for_it() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    overwrite(&store);
}

#[test]
fn what_was_to_be_retained_makes_way_for_who_writes() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(3600)).expect("a thread");
    let snapshot = store.revocable_snapshot();
    overwrite(&store);
    assert!(!snapshot.is_kept());
}

#[test]
fn who_overwrites_on_a_disk_waits_as_well() {
    let directory = Directory::new("full");
    let at = DirectoryOptions {
        path: directory.0.clone(),
        durability: Durability::Interval(100),
        repair: false,
    };
    let bytes_max = SEGMENTS * SEGMENT_BYTES as u64;
    let (store, _) = Store::open(options(), &at, bytes_max).expect("opens");
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    overwrite(&store);
}

#[test]
fn where_everything_is_alive_nobody_waits() {
    let store = in_memory();
    let mut items = Items::new(store.clone());
    let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let refused = (0..u32::MAX).find(|&key| stored(&mut items, key, &[1; 1000]).is_err());
    let keys = refused.expect("the log is bounded");
    assert!(keys as usize > (SEGMENTS as usize - 2) * SEGMENT_BYTES / 1100, "{keys} keys");
    // Were each to wait for as long as it may, hours would go by.
    for key in 0..10_000 {
        assert_eq!(stored(&mut items, keys + key, &[1; 1000]), Err(Refused::Full));
    }
    drop(keeper);
    // Nor for a keeper that is not there.
    stored(&mut items, 0, b"").expect_err("nobody has anything back");
}

#[test]
fn who_waits_goes_on_once_there_is_something_to_be_had_back() {
    let store = in_memory();
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    // It keeps all that is replaced, however much.
    let snapshot = store.snapshot();
    let mut items = Items::new(store.clone());
    let refused = (0..u32::MAX).find(|&round| stored(&mut items, round % 2, &[1; 1000]).is_err());
    assert!(refused.is_some_and(|rounds| rounds > 1000), "{refused:?}");
    drop(snapshot);
    stored(&mut items, 0, &[1; 1000]).expect("only two are asked for");
    // The same where every key is taken away.
    let mut key = 0;
    while stored(&mut items, key, &[1; 1000]).is_ok() {
        key += 1;
    }
    items.clear(0, 1).expect("it frees space");
    stored(&mut items, 0, &[1; 1000]).expect("nothing is asked for");
}

#[test]
fn the_end_of_the_keeper_ends_the_waiting() {
    let store = in_memory();
    let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, over) = (&store, &over);
            scope.spawn(move || {
                let mut key = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    key = (key + 1) % 400;
                    let name = (writer * 1000 + key).to_le_bytes();
                    let put = put(&[3; 500]);
                    let writes = [Write { key: &name, condition: Condition::Always, action: put }];
                    store.wait_for_room(Room::of(&writes));
                    match store.write(&writes, None, 1) {
                        Ok(_) => {}
                        Err(WriteError::Log(_)) => return,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
        while store.figures().reclaims < 20 {
            thread::yield_now();
        }
        // From now on nothing is had back, and all of them are told so soon.
        drop(keeper);
    });
    over.store(true, Ordering::Relaxed);
}
