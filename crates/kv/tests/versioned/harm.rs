//! Files that are not what was written to them, and directories that somebody else has.

use std::fs;
use std::path::PathBuf;

use knee_kv::versioned::{Action, Condition, DirectoryError, Write};

use crate::store::{Directory, open, put, repaired, scanned, set, value, written};

#[test]
fn a_directory_has_one_store_at_a_time() {
    let directory = Directory::new("lock");
    let store = open(&directory.0).expect("opens");
    assert!(matches!(open(&directory.0), Err(DirectoryError::InUse(_))));
    drop(store);
    open(&directory.0).expect("opens again");
}

#[test]
fn a_log_that_ends_anywhere_in_its_last_record_loses_that_record_only() {
    let directory = Directory::new("torn");
    let mut model = written(&directory, 10);
    let kept = directory.contents();
    // Ten records; the last one begins behind nine of them.
    let record = (48 + 4 + 100_usize).next_multiple_of(8);
    let begin = 4096 + 9 * record;
    model.remove(&b"key9"[..]);
    for cut in (begin..begin + record).step_by(7) {
        directory.restore(&kept);
        let last = directory.segments().pop().expect("a segment");
        let mut torn = fs::read(&last).expect("readable");
        torn[cut..].fill(0);
        fs::write(&last, torn).expect("writable");
        for again in 0..2 {
            let store = open(&directory.0).expect("a crash is no damage");
            assert_eq!(scanned(&store, None), model, "cut at {cut}, opened before: {again}");
            let write = Write { key: b"more", condition: Condition::Always, action: put(b"!") };
            let committed = store.write(&[write], None, 1).expect("it is taken");
            store.sync(committed.sequence).expect("the disk takes it");
            model.insert(b"more".to_vec(), b"!".to_vec());
        }
        model.remove(&b"more"[..]);
    }
}

#[test]
fn a_segment_without_its_head_is_set_aside_by_a_repair() {
    let directory = Directory::new("headless");
    let model = written(&directory, 100);
    let segment = directory.segments().remove(1);
    let mut bytes = fs::read(&segment).expect("readable");
    bytes[3] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    assert!(matches!(open(&directory.0), Err(DirectoryError::Damaged(file, _)) if file == segment));
    let (store, lost) = repaired(&directory);
    assert_eq!(lost.len(), 1);
    let found = scanned(&store, None);
    assert!(found.len() > 60 && found.len() < 100);
    assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
    drop(store);
    open(&directory.0).expect("what was repaired is whole");
    assert!(segment.with_extension("damaged").exists());
}

#[test]
fn one_flipped_bit_is_named_and_never_served() {
    let directory = Directory::new("flip");
    let model = written(&directory, 100);
    let segments = directory.segments();
    assert!(segments.len() > 3);
    for (index, segment) in segments.iter().enumerate() {
        let whole = fs::read(segment).expect("readable");
        let used = 4096 + 20 * 152;
        for at in (0..used).step_by(1013) {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            fs::write(segment, &flipped).expect("writable");
            match open(&directory.0) {
                Err(DirectoryError::Damaged(file, _)) => assert_eq!(&file, segment),
                Err(other) => panic!("{other}"),
                Ok(store) => {
                    // Only behind the end of the log does nobody miss it.
                    assert_eq!(
                        index,
                        segments.len() - 1,
                        "flipped byte {at} of {segment:?} went unnoticed"
                    );
                    let found = scanned(&store, None);
                    assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
                }
            }
            fs::write(segment, &whole).expect("writable");
        }
    }
}

#[test]
fn a_damaged_record_costs_what_it_held_and_what_grew_from_it() {
    let directory = Directory::new("repair");
    let store = open(&directory.0).expect("opens");
    for element in 0..100_u8 {
        set(&store, &[b'k', element], &[element; 50]);
        let write = Write {
            key: b"list",
            condition: Condition::Always,
            action: Action::Append(&[element]),
        };
        store.write(&[write], None, 1).expect("it is taken");
    }
    store.sync(u64::MAX).expect("the disk takes it");
    drop(store);
    let segment = directory.segments().remove(1);
    let mut bytes = fs::read(&segment).expect("readable");
    let at = 4096 + bytes[4096..].windows(50).position(|w| w == [30; 50]).expect("it is in there");
    bytes[at + 3] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    assert!(matches!(open(&directory.0), Err(DirectoryError::Damaged(file, _)) if file == segment));
    let (store, lost) = repaired(&directory);
    assert_eq!(lost.len(), 1);
    assert_eq!((&lost[0].file, lost[0].bytes), (&segment, 104));
    assert_eq!(value(&store, &[b'k', 30]), None);
    for element in (0..100).filter(|&element| element != 30) {
        assert_eq!(value(&store, &[b'k', element]), Some(vec![element; 50]));
    }
    let list: Vec<u8> = (0..100).collect();
    assert_eq!(value(&store, b"list"), Some(list), "no record of it was damaged");
    drop(store);
    // One of the list's records, this time, wherever it has gone.
    let place = |path: &PathBuf| {
        fs::read(path).expect("readable").windows(5).position(|w| w == b"list\x1f")
    };
    let segment = directory.segments().into_iter().find(|path| place(path).is_some());
    let segment = segment.expect("it is somewhere");
    let at = place(&segment).expect("it is in there");
    let mut bytes = fs::read(&segment).expect("readable");
    bytes[at] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    let (store, lost) = repaired(&directory);
    // The first damage is gone with its file.
    assert_eq!(lost.len(), 1);
    drop(store);
    let store = open(&directory.0).expect("what was repaired is whole");
    assert_eq!(value(&store, b"list"), Some((0..31).collect::<Vec<u8>>()));
}
