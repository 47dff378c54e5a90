//! What the log takes.

use knee_kv::versioned::{Action, Condition, Write};

use crate::store::{Directory, Model, SEGMENT_BYTES, open, put, scanned};

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
