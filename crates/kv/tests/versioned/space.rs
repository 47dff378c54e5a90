//! What the log takes.

use knee_kv::versioned::{
    Action, Condition, Consistency, DirectoryOptions, Durability, Store, StoreOptions, Write,
};

use crate::store::{Directory, Model, SEGMENT_BYTES, open, options, put, scanned, set};

#[test]
fn the_log_takes_no_more_than_twice_what_is_alive_however_long_it_is_written_to() {
    let directory = Directory::new("space");
    let mut store = open(&directory.0).expect("opens");
    let mut model = Model::new();
    for round in 0..6000_u32 {
        let key = format!("key{}", round * 7919 % 60).into_bytes();
        if round % 5 == 0 {
            let write = Write { key: &key, condition: Condition::Always, action: Action::Delete };
            store.write(&[write], None, 1).expect("it is taken");
            model.remove(&key);
        } else {
            let value = vec![round as u8; round as usize % 250];
            let write = Write { key: &key, condition: Condition::Always, action: put(&value) };
            store.write(&[write], None, 1).expect("it is taken");
            model.insert(key, value);
        }
        if round % 50 == 0 {
            store.sync(u64::MAX).expect("the disk takes it");
            while store.reclaim().expect("there is room") {}
            let alive: usize = model.iter().map(|(key, value)| 56 + key.len() + value.len()).sum();
            let tombstones = 60 * 64;
            let segments = directory.segments().len();
            // What is full is half alive at least; one segment is written to, and one is not yet.
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

#[test]
fn segments_that_were_made_larger_are_had_back_and_counted_by_what_they_take() {
    let directory = Directory::new("larger");
    let at = DirectoryOptions {
        path: directory.0.clone(),
        durability: Durability::Always,
        repair: false,
    };
    let smaller = options(Consistency::Linearizable);
    let larger = StoreOptions { segment_bytes: 64 << 10, ..smaller };
    let (store, _) = Store::open(larger, &at, 1 << 26).expect("opens");
    for number in 0..2000_u32 {
        // One of six stays.
        let key = if number % 6 == 0 { number } else { 1 };
        set(&store, &key.to_be_bytes(), &[7; 400]);
    }
    store.sync(store.last()).expect("the disk takes it");
    drop(store);
    let (store, _) = Store::open(smaller, &at, 1 << 26).expect("opens");
    while store.reclaim().expect("there is room") {}
    let figures = store.figures();
    let lengths = directory.segments().into_iter();
    let takes: u64 = lengths.map(|file| file.metadata().expect("it is there").len() - 4096).sum();
    assert!(takes < 2 * figures.live_bytes + (64 << 10), "{takes} bytes of files: {figures:?}");
    assert!(
        figures.file_bytes <= takes && takes <= figures.file_bytes + 2 * 4096,
        "{takes}: {figures:?}"
    );
}
