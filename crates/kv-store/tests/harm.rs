//! Damaged files, and directories of another store.

use std::fs;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::FileExt;

use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, BackupError, Condition, Consistency, DirectoryError, History, Keeper, Opening, Pass,
    ReadError, ReclaimError, Store, StoreOptions, Visited, Write, WriteError,
};

use crate::store::{
    Directory, act, durable, open, options, put, repaired, scanned, set, until, value, value_at,
    written,
};

#[test]
fn directory_has_one_store_at_a_time() {
    let directory = Directory::new("lock");
    let store = open(&directory.0).expect("opens");
    assert!(matches!(open(&directory.0), Err(DirectoryError::InUse(_))));
    drop(store);
    open(&directory.0).expect("opens again");
}

#[test]
fn log_cut_within_its_last_record_loses_that_record_only() {
    let directory = Directory::new("torn");
    let mut model = written(&directory, 10);
    // The file with the keys shows how far the log was on the disk. A crash may leave an older one.
    let mut kept = directory.contents();
    kept.retain(|(path, _)| path.extension().is_none_or(|name| name != "keys"));
    // The last record begins after nine others.
    let record = (48 + 4 + 100_usize).next_multiple_of(8);
    let begin = 4096 + 9 * record;
    model.remove(&b"key9"[..]);
    for cut in (begin..begin + record).step_by(7) {
        directory.restore(&kept);
        let last = directory.segments().remove(0);
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
fn repair_sets_a_segment_without_head_aside() {
    let directory = Directory::new("headless");
    let model = written(&directory, 100);
    let segment = directory.segments().remove(1);
    let mut bytes = fs::read(&segment).expect("readable");
    bytes[3] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    assert!(matches!(open(&directory.0), Err(DirectoryError::Damaged(file, _)) if file == segment));
    let (store, report) = repaired(&directory);
    assert_eq!(report.lost.len(), 1);
    let found = scanned(&store, None);
    assert!(found.len() > 60 && found.len() < 100);
    assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
    drop(store);
    open(&directory.0).expect("what was repaired is whole");
    assert!(segment.with_extension("damaged").exists());
}

#[test]
fn flipped_bit_is_named_and_never_served() {
    let directory = Directory::new("flip");
    let model = written(&directory, 100);
    let mut segments = directory.segments();
    // Drop the two segments that the store makes ahead.
    segments.truncate(segments.len() - 2);
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
                    // The flip hit bytes after the end of the log, which is in the last segment.
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
fn damaged_record_costs_its_value_and_later_appends() {
    let directory = Directory::new("repair");
    let store = open(&directory.0).expect("opens");
    for element in 0..100_u8 {
        set(&store, &[b'k', element], &[element; 50]);
        act(&store, b"list", Action::Append(&[element]));
    }
    store.sync(u64::MAX).expect("the disk takes it");
    drop(store);
    let segment = directory.segments().remove(1);
    let mut bytes = fs::read(&segment).expect("readable");
    let at = 4096 + bytes[4096..].windows(50).position(|w| w == [30; 50]).expect("it is in there");
    bytes[at + 3] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    assert!(matches!(open(&directory.0), Err(DirectoryError::Damaged(file, _)) if file == segment));
    let (store, report) = repaired(&directory);
    assert_eq!(report.lost.len(), 1);
    assert_eq!((&report.lost[0].file, report.lost[0].bytes), (&segment, 104));
    assert_eq!(value(&store, &[b'k', 30]), None);
    for element in (0..100).filter(|&element| element != 30) {
        assert_eq!(value(&store, &[b'k', element]), Some(vec![element; 50]));
    }
    let list: Vec<u8> = (0..100).collect();
    assert_eq!(value(&store, b"list"), Some(list), "no record of it was damaged");
    drop(store);
    // Now damage a record of the list, in its present segment.
    directory.spoil(b"list\x1f", 0, b'z');
    let (store, report) = repaired(&directory);
    // The first repair has removed the first damage.
    assert_eq!(report.lost.len(), 1);
    // The list as it was before the damaged append is not its current value.
    let [doubt] = &report.doubts[..] else { panic!("{report:?}") };
    assert_eq!(doubt.key, Ok(b"list".to_vec()));
    drop(store);
    let store = open(&directory.0).expect("what was repaired is whole");
    assert_eq!(value(&store, b"list"), None);
    let before = value_at(&store, b"list", doubt.from - 1);
    assert_eq!(before, Ok(Some((0..31).collect::<Vec<u8>>())));
    for version in [doubt.from, store.last() - 1] {
        let found = value_at(&store, b"list", version);
        assert!(matches!(found, Err(ReadError::Compacted(_))), "{found:?} at {version}");
    }
    assert_eq!(value_at(&store, b"list", store.last()), Ok(None));
}

#[test]
fn key_of_appends_to_a_lost_record_is_named() {
    let directory = Directory::new("orphans");
    let store = open(&directory.0).expect("opens");
    set(&store, b"list", &[1; 50]);
    let action = Action::Append(&[2; 50]);
    act(&store, b"list", action);
    drop(store);
    directory.spoil(&[1; 50], 0, b'z');
    let (store, report) = repaired(&directory);
    let [doubt] = &report.doubts[..] else { panic!("{report:?}") };
    assert_eq!((&doubt.key, &doubt.known[..]), (&Ok(b"list".to_vec()), &[][..]));
    assert_eq!(value(&store, b"list"), None);
}

#[test]
fn value_without_one_of_its_moved_pieces_is_absent() {
    let directory = Directory::new("pieces");
    let large = StoreOptions {
        value_bytes_max: 4 << 20,
        segment_bytes: 3 << 20,
        ..options(Consistency::Linearizable)
    };
    let open = |repair| Store::open(large, &durable(&directory.0, repair), 1 << 26).expect("opens");
    let (store, _) = open(false);
    let large: Vec<u8> = (0..5 << 17).flat_map(u32::to_le_bytes).collect();
    set(&store, b"key", b"old");
    set(&store, b"other", b"something");
    let version = set(&store, b"key", &large);
    drop(store);
    // This repair moves the pieces.
    directory.spoil(b"something", 0, b'z');
    let (store, report) = open(true);
    assert!(report.doubts[0].is_about(b"other"));
    assert_eq!(value(&store, b"key"), Some(large.clone()));
    drop(store);
    directory.spoil(&large[3 << 19..][..9], 0, b'z');
    let (store, report) = open(true);
    let [doubt] = &report.doubts[..] else { panic!("{report:?}") };
    assert_eq!((&doubt.key, doubt.from), (&Ok(b"key".to_vec()), version));
    assert_eq!(value(&store, b"key"), None);
    drop(store);
    assert_eq!(value(&open(false).0, b"key"), None);
}

/// A store of forty keys, with damage in the names of `keys`.
fn unnamed(directory: &Directory, keys: &[&str]) -> Store {
    let one = StoreOptions { stripes: 1, ..options(Consistency::Linearizable) };
    let at = durable(&directory.0, false);
    let (store, _) = Store::open(one, &at, 1 << 26).expect("opens");
    for number in 0..40 {
        set(&store, format!("key{number:02}").as_bytes(), &[7; 400]);
        store.sync(store.last()).expect("the disk takes it");
    }
    // The first segment is full, so the store reads it from its file.
    for key in keys {
        directory.spoil(key.as_bytes(), 0, b'z');
    }
    store
}

/// The file changes between the two passes of a start.
#[test]
fn damage_that_only_the_second_pass_meets_is_named() {
    let directory = Directory::new("second-pass");
    written(&directory, 100);
    let kept = directory.contents();
    let segment = directory.segments().remove(1);
    for repair in [false, true] {
        directory.restore(&kept);
        let at = durable(&directory.0, repair);
        let mut harm = |Opening { pass, bytes, bytes_all }| {
            if pass == Pass::Check && bytes == bytes_all {
                let file = fs::File::options().write(true).open(&segment).expect("writable");
                file.write_all_at(b"!", 4096 + 100).expect("writable");
            }
        };
        let one = options(Consistency::Linearizable);
        let refused = Store::open_and_tell(one, &at, 1 << 26, &mut harm).map(drop);
        assert!(matches!(refused, Err(DirectoryError::Damaged(..))), "{refused:?}");
    }
}

/// A crash leaves the last segment without its seal, and a kill ends the repair before it marks what is lost.
#[test]
fn killed_repair_leaves_the_list_of_lost_keys() {
    let directory = Directory::new("killed-repair");
    let store = open(&directory.0).expect("opens");
    for value in [b"old", b"new", b"..."] {
        set(&store, if value == b"..." { b"other" } else { b"key" }, value);
        store.write_out().expect("the disk takes it");
    }
    let crashed = directory.copy();
    crashed.spoil(b"keynew", 0, b'z');
    let at = durable(&crashed.0, true);
    let mut killed = None;
    let mut copy = |opening: Opening| {
        if opening.pass == Pass::Restore {
            killed.get_or_insert_with(|| crashed.copy());
        }
    };
    let one = options(Consistency::Linearizable);
    let (store, _) = Store::open_and_tell(one, &at, 1 << 26, &mut copy).expect("opens");
    assert_eq!(value(&store, b"key"), None);
    let (store, report) = repaired(&killed.expect("there was a second pass"));
    assert_eq!(value(&store, b"key"), None, "{report:?}");
}

/// No turn of the keeper has written the keys of the full segment.
#[test]
fn keys_of_a_segment_that_was_just_sealed_are_known() {
    let directory = Directory::new("sealed");
    let store = open(&directory.0).expect("opens");
    for number in 0.. {
        set(&store, &[number], &[number; 100]);
        store.sync(store.last()).expect("the disk takes it");
        if fs::read(&directory.segments()[1]).expect("readable")[4096] != 0 {
            break;
        }
    }
    let crashed = directory.copy();
    crashed.spoil(&[20; 100], 0, b'z');
    let (_, report) = repaired(&crashed);
    let [doubt] = &report.doubts[..] else { panic!("{report:?}") };
    assert!(doubt.is_about(&[20]) && !report.has_unnamed, "{report:?}");
}

#[test]
fn scan_over_a_flipped_key_reports_damage() {
    let directory = Directory::new("unnamed");
    let store = unnamed(&directory, &["key03"]);
    for keys_max in 1..9 {
        let (mut from, mut found) = (Some(Vec::new()), Vec::new());
        let reported = loop {
            let Some(first) = from else { break None };
            let range = (Bound::Included(&first[..]), Bound::Unbounded);
            let part = store.scan_stripe(0, None, range, keys_max, 1, |visited| {
                found.push(visited.key.to_vec());
                Ok(ControlFlow::Continue(()))
            });
            match part {
                Ok(part) => from = part.next,
                Err(damage) => break Some(damage.segment),
            }
        };
        assert_eq!(reported, Some(1), "{keys_max} at a time: {} of 40 keys", found.len());
        assert_eq!(found.len(), 3, "{keys_max} at a time");
    }
    let copy = directory.0.with_extension("copy");
    assert!(matches!(store.backup(&copy), Err(BackupError::Damage(_))));
}

#[test]
fn segment_goes_once_its_damaged_record_is_replaced() {
    let directory = Directory::new("replaced");
    let store = unnamed(&directory, &["key03", "key04"]);
    let write = |key: &'static [u8], condition, action| {
        store.write(&[Write { key, condition, action }], None, 1).map(|made| made.version)
    };
    let damage = |found| matches!(found, Err(WriteError::Damage(_)));
    // A write that depends on the old value fails.
    assert!(damage(write(b"key03", Condition::Present, put(b"new"))));
    assert!(damage(write(b"key03", Condition::Absent, put(b"new"))));
    assert!(damage(write(b"key03", Condition::Always, Action::Append(b"new"))));
    write(b"key03", Condition::Always, put(b"new")).expect("it is taken");
    // `key04` is still live.
    assert!(matches!(store.compact(), Err(ReclaimError::Damage(_))));
    write(b"key04", Condition::Always, Action::Delete).expect("it is taken");
    assert_eq!(value(&store, b"key03"), Some(b"new".to_vec()));
    assert_eq!((value(&store, b"key04"), store.keys()), (None, 39));
    assert_eq!(scanned(&store, None).len(), 39);
    store.compact().expect("nothing that is asked for is damaged");
    store.sync(store.last()).expect("the disk takes it");
    drop(store);
    let store = open(&directory.0).expect("nothing is damaged");
    assert_eq!((value(&store, b"key03"), store.keys()), (Some(b"new".to_vec()), 39));
}

#[test]
fn damaged_record_in_a_snapshot_keeps_its_segment() {
    let directory = Directory::new("kept-for");
    let store = unnamed(&directory, &["key03"]);
    let snapshot = store.snapshot();
    set(&store, b"key03", b"new");
    assert!(matches!(store.compact(), Err(ReclaimError::Damage(_))));
    drop(snapshot);
    store.compact().expect("nothing that is asked for is damaged");
    store.sync(store.last()).expect("the disk takes it");
    drop(store);
    let store = open(&directory.0).expect("nothing is damaged");
    assert_eq!((value(&store, b"key03"), store.keys()), (Some(b"new".to_vec()), 40));
}

/// Space of other segments is reclaimed, whether their records are dead or kept for a snapshot.
#[test]
fn damaged_key_keeps_only_its_own_segment() {
    for asks in [false, true] {
        let directory = Directory::new("elsewhere");
        let one = StoreOptions { stripes: 1, ..options(Consistency::Linearizable) };
        let at = durable(&directory.0, false);
        let (store, _) = Store::open(one, &at, 1 << 26).expect("opens");
        let key = |number: u32| format!("key{number:02}").into_bytes();
        for number in 0..8 {
            set(&store, &key(number), &[7; 400]);
        }
        // More than half of the first segment is dead.
        for number in [0, 1, 2, 4, 5] {
            set(&store, &key(number), &[8; 400]);
        }
        let snapshot = asks.then(|| store.snapshot());
        set(&store, b"key03", &[8; 400]);
        for number in 8..28 {
            set(&store, &key(number), &[9; 400]);
        }
        store.sync(store.last()).expect("the disk takes it");
        let path = directory.spoil(b"key03\x08", 0, b'z');
        while !matches!(store.reclaim(), Ok(false)) {}
        let first = directory.0.join("00000001.log");
        assert!(!first.exists(), "what is damaged is in {path:?}");
        assert!(store.read(b"key03", 1, |_| true).is_err(), "it is damaged");
        drop(snapshot);
        set(&store, b"key03", b"new");
        store.compact().expect("nothing that is asked for is damaged");
        assert!(!path.exists(), "it has been replaced");
        assert_eq!(scanned(&store, None).len(), 28);
    }
}

#[test]
fn keys_are_in_order_once_a_damaged_one_is_replaced() {
    for action in [put(b"new"), Action::Delete] {
        let directory = Directory::new("disordered");
        let store = unnamed(&directory, &["key03", "key07"]);
        // Finding the places of these keys compares them with the damaged keys.
        for key in [b"key03\0", b"key07\0"] {
            set(&store, key, b"beside it");
        }
        let scan = || {
            let range = (Bound::Unbounded, Bound::Unbounded);
            let mut found = Vec::new();
            let visit = |visited: &Visited<'_>| {
                found.push(visited.key.to_vec());
                Ok(ControlFlow::Continue(()))
            };
            store.scan_stripe(0, None, range, 100, 1, visit).map(|_| found)
        };
        for key in [b"key03", b"key07"] {
            scan().expect_err("one cannot be read");
            act(&store, key, action);
        }
        let found = scan().expect("all can be read");
        assert!(found.is_sorted());
        assert_eq!(found.len(), if action == Action::Delete { 40 } else { 42 });
    }
}

#[test]
fn damaged_key_does_not_expire_and_delays_no_other() {
    let directory = Directory::new("over");
    let store = unnamed(&directory, &["key03"]);
    // The expiry, twenty bytes before the key, becomes 1: expired.
    directory.spoil(b"key04", -20, 1);
    for key in [b"a", b"z"] {
        let action = Action::Put { flags: 0, expiry: Expiry::at(5), marks: 0, value: b"" };
        store
            .write(&[Write { key, condition: Condition::Always, action }], None, 1)
            .expect("taken");
    }
    assert_eq!(store.keys(), 42);
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    until("the end of those whose time is over", || store.keys() < 41);
    assert_eq!(store.keys(), 40);
    assert!(store.read(b"key04", 1, |_| true).is_err(), "it is damaged");
}

#[test]
fn missing_segment_is_named_and_repair_goes_on_without_it() {
    let directory = Directory::new("missing");
    let model = written(&directory, 100);
    let segment = directory.segments().remove(1);
    fs::remove_file(&segment).expect("it is there");
    assert!(matches!(open(&directory.0), Err(DirectoryError::Damaged(file, _)) if file == segment));
    let (store, report) = repaired(&directory);
    assert_eq!(report.lost.len(), 1);
    let found = scanned(&store, None);
    assert!(found.len() > 60 && found.len() < 100);
    assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
    drop(store);
    open(&directory.0).expect("what was repaired is whole");
}

/// A new key takes the slot of a forgotten key. If the slot were still in the order of keys, a scan would show the new
/// key twice.
#[test]
fn deleted_key_is_forgotten_beside_damaged_ones() {
    let directory = Directory::new("beside");
    let one = StoreOptions { stripes: 1, ..options(Consistency::Linearizable) };
    let at = durable(&directory.0, false);
    let (store, _) = Store::open(one, &at, 1 << 26).expect("opens");
    let key = |number: u32| format!("axxxx{number:02}").into_bytes();
    let sync = || store.sync(store.last()).expect("the disk takes it");
    // A key with another first byte shares no prefix.
    set(&store, b"b", &[7; 10]);
    for number in 30..36 {
        set(&store, &key(number), &[7; 600]);
    }
    sync();
    for number in 30..36 {
        let key = key(number);
        act(&store, &key, Action::Delete);
    }
    for _ in 0..12 {
        set(&store, b"b", &[7; 600]);
    }
    sync();
    // These keys fill other segments.
    for number in 10..30 {
        set(&store, &key(number), &[7; 1200]);
    }
    sync();
    directory.spoil(b"axxxx23", 1, b'z');
    while store.reclaim().unwrap_or(true) {}
    assert_eq!(store.figures().versions, 21, "what is gone is forgotten");
    for number in 0..6 {
        set(&store, format!("c{number}").as_bytes(), &[7; 10]);
    }
    for first in [15, 21, 25, 28, 29, 31, 33, 99] {
        let (first, mut keys) = (key(first), Vec::new());
        let range = (Bound::Included(&first[..]), Bound::Unbounded);
        let scanned = store.scan_stripe(0, None, range, usize::MAX, 1, |visited| {
            keys.push(visited.key.to_vec());
            Ok(ControlFlow::Continue(()))
        });
        let all = (10..30).map(key).chain([b"b".to_vec()]);
        let all = all.chain((0..6).map(|number| format!("c{number}").into_bytes()));
        let expected: Vec<_> = all.filter(|key| *key >= first).collect();
        assert!(scanned.is_err() || keys == expected, "{scanned:?}: {keys:?}");
    }
}

/// A store whose newest value is damaged at the end of the log.
fn with_a_missing_end(name: &str) -> Directory {
    let directory = Directory::new(name);
    let store = open(&directory.0).expect("opens");
    for value in [b"old", b"new"] {
        set(&store, b"key", value);
        store.sync(store.last()).expect("the disk takes it");
        store.write_out().expect("the disk takes it");
    }
    let crashed = directory.copy();
    crashed.spoil(b"keynew", 0, b'z');
    crashed
}

#[test]
fn killed_repair_keeps_the_evidence_of_a_missing_end() {
    let crashed = with_a_missing_end("killed-end");
    let at = durable(&crashed.0, true);
    let mut killed = None;
    let mut copy = |opening: Opening| {
        if opening.pass == Pass::Restore {
            killed.get_or_insert_with(|| crashed.copy());
        }
    };
    let one = options(Consistency::Linearizable);
    Store::open_and_tell(one, &at, 1 << 26, &mut copy).expect("opens");
    let killed = killed.expect("there was a second pass");
    open(&killed.0).map(drop).expect_err("the end is missing");
    let (store, report) = repaired(&killed);
    assert_eq!(value(&store, b"key"), None, "{report:?}");
}

#[test]
fn failed_repair_keeps_the_evidence_of_a_missing_end() {
    let crashed = with_a_missing_end("failed-end");
    // The report cannot be written: a directory has the name of today's file.
    for day in 0..2 {
        let date = std::process::Command::new("date")
            .args(["-u", "+%F", "-d", &format!("+{day} day")])
            .output()
            .expect("date runs");
        let date = String::from_utf8(date.stdout).expect("text");
        fs::create_dir(crashed.0.join(format!("REPAIR-{}.txt", date.trim()))).expect("made");
    }
    let at = durable(&crashed.0, true);
    let failed = Store::open(options(Consistency::Linearizable), &at, 1 << 26).map(drop);
    failed.expect_err("the report cannot be written");
    open(&crashed.0).map(drop).expect_err("the end is missing");
}
