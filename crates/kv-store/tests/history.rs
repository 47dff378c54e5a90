//! Old versions of keys.

use std::time::{Duration, Instant};

use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, Condition, Consistency, History, Keeper, ReadError, Write, WriteError,
};

use crate::store::{Directory, act, in_memory, open, put, scanned, set, until, value_at};

#[test]
fn old_versions_are_there_until_a_compaction() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let store = in_memory(consistency);
        // The keeper drops no old version by itself.
        let keeper = Keeper::start(store.clone(), History::All).expect("a thread");
        let first = set(&store, b"a", b"one");
        let other = set(&store, b"b", b"other");
        let second = set(&store, b"a", b"two");
        let gone =
            Write { key: b"a", condition: Condition::Version(second), action: Action::Delete };
        let third = store.write(&[gone], None, 1).expect("it is there").version;
        match consistency {
            Consistency::Linearizable => assert_eq!((first, other, second, third), (1, 2, 3, 4)),
            Consistency::Sequential => assert_eq!((first, other, second, third), (1, 1, 2, 3)),
        }
        assert_eq!(value_at(&store, b"a", first), Ok(Some(b"one".to_vec())));
        assert_eq!(value_at(&store, b"a", second), Ok(Some(b"two".to_vec())));
        assert_eq!(value_at(&store, b"a", third), Ok(None));
        assert_eq!(value_at(&store, b"a", 99), Err(ReadError::Unknown(third)));
        let past = store.history(b"a", 0, 9).expect("nothing is damaged").found;
        let shown: Vec<_> =
            past.iter().map(|past| (past.version, past.deleted, past.bytes)).collect();
        assert_eq!(shown, [(first, false, 3), (second, false, 3), (third, true, 0)]);
        // The version of a deleted key that is put again still grows.
        let fourth = set(&store, b"a", b"four");
        assert!(fourth > third);
        store.compact().expect("there is room");
        assert_eq!(value_at(&store, b"a", fourth), Ok(Some(b"four".to_vec())));
        assert_eq!(value_at(&store, b"a", second), Err(ReadError::Compacted(fourth)));
        assert_eq!(store.history(b"a", 0, 9).expect("nothing is damaged").found.len(), 1);
        drop(keeper);
    }
}

#[test]
fn old_versions_and_expired_keys_go_after_their_time() {
    let store = in_memory(Consistency::Linearizable);
    let first = set(&store, b"a", b"one");
    set(&store, b"a", b"two");
    let keeper = Keeper::start(store.clone(), History::Seconds(1)).expect("a thread");
    let old = loop {
        let began = Instant::now();
        let old = set(&store, b"b", b"old");
        set(&store, b"b", b"new");
        let shown = value_at(&store, b"b", old);
        // On a busy machine, the old version may already be gone.
        if began.elapsed() < Duration::from_secs(1) {
            assert_eq!(shown, Ok(Some(b"old".to_vec())));
            break old;
        }
    };
    until("the end of the old version", || value_at(&store, b"b", old).is_err());
    assert!(matches!(value_at(&store, b"a", first), Err(ReadError::Compacted(2))));
    // A snapshot keeps the versions that it sees, and all later ones.
    let snapshot = store.snapshot();
    let third = set(&store, b"b", b"third");
    set(&store, b"b", b"fourth");
    let kept = Instant::now();
    until("two seconds", || kept.elapsed() > Duration::from_secs(2));
    assert_eq!(scanned(&store, Some(&snapshot))[&b"b"[..]], b"new");
    drop(snapshot);
    until("the end of the third", || value_at(&store, b"b", third).is_err());
    drop(keeper);
    let action = Action::Put { flags: 0, expiry: Expiry::at(2), marks: 0, value: b"short" };
    act(&store, b"short", action);
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    until("the end of the expired key", || {
        let past = store.history(b"short", 0, 9).expect("nothing is damaged").found;
        past.last().is_none_or(|last| last.deleted)
    });
}

#[test]
fn figures_count_keys_versions_and_snapshots() {
    let store = in_memory(Consistency::Linearizable);
    for key in [b"a", b"b", b"c"] {
        set(&store, key, b"one");
    }
    let old = store.snapshot();
    set(&store, b"a", b"two");
    act(&store, b"b", Action::Delete);
    let _new = store.snapshot();
    let figures = store.figures();
    assert_eq!((figures.keys, figures.versions, figures.snapshots_open), (2, 5, 2));
    assert!(figures.snapshot_age.is_some());
    assert!(figures.live_bytes >= 5 * 56 && figures.file_bytes >= figures.live_bytes);
    drop(old);
    store.compact().expect("there is room");
    let figures = store.figures();
    assert_eq!((figures.keys, figures.versions, figures.snapshots_open), (2, 3, 1));
}

#[test]
fn history_comes_in_parts_that_name_their_commit() {
    let store = in_memory(Consistency::Sequential);
    let _keeper = Keeper::start(store.clone(), History::All).expect("a thread");
    set(&store, b"b", b"other");
    for version in 1..=5_u8 {
        set(&store, b"a", &vec![version; usize::from(version)]);
    }
    let write = Write { key: b"a", condition: Condition::Always, action: Action::Delete };
    let gone = store.write(&[write], None, 1).expect("it is taken");
    let versions = |from, most| {
        let past = store.history(b"a", from, most).expect("nothing is damaged");
        assert_eq!(past.sequence, gone.sequence);
        past.found.iter().map(|past| (past.version, past.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(versions(0, 2), [(1, 1), (2, 2)]);
    assert_eq!(versions(3, 3), [(3, 3), (4, 4), (5, 5)]);
    assert_eq!(versions(6, 3), [(6, 0)]);
    assert_eq!(versions(7, 3), []);
    set(&store, b"b", b"later");
    // Reads and failed conditions name the commit that deleted the key.
    let read = store.read(b"a", 1, |_| true).expect("nothing is damaged");
    assert_eq!((read.sequence, read.found), (gone.sequence, None));
    let sequence = gone.sequence;
    let update = Write { key: b"a", condition: Condition::Present, action: put(b"new") };
    let failed = Err(WriteError::Condition { index: 0, version: None, sequence });
    assert_eq!(store.write(&[update], None, 1), failed);
    let nothing = Write { key: b"a", condition: Condition::Always, action: Action::Delete };
    assert_eq!(store.write(&[nothing], None, 1).map(|made| made.sequence), Ok(sequence));
    assert_eq!(store.read_at(b"a", 6, 1, |_| true).sequence, sequence);
    // Index 1 means that the condition at index 0 holds.
    let later = set(&store, b"b", b"latest");
    let holds = Write { key: b"b", condition: Condition::Present, action: put(b"") };
    let failed =
        Err(WriteError::Condition { index: 1, version: None, sequence: gone.sequence + 2 });
    assert_eq!((later, store.write(&[holds, update], None, 1)), (3, failed));
    let never = store.read(b"c", 1, |_| true).expect("nothing is damaged");
    assert_eq!((never.sequence, never.found), (0, None));
}

/// A delete record may be reclaimed before the value that it deleted. The value must not reappear.
#[test]
fn deleted_version_stays_hidden_without_its_delete_record() {
    let directory = Directory::new("went");
    let store = open(&directory.0).expect("opens");
    set(&store, b"key", b"old");
    for stays in [b"stays1", b"stays2"] {
        set(&store, stays, &[1; 1500]);
    }
    // The next records fill another segment, which is dead in the end.
    set(&store, b"goes", &[2; 1500]);
    let deleted = act(&store, b"key", Action::Delete);
    for number in 0..8 {
        set(&store, b"goes", &[number; 1500]);
    }
    set(&store, b"key", b"new");
    for number in 0..8 {
        set(&store, b"goes", &[number; 1500]);
    }
    store.sync(store.last()).expect("the disk takes it");
    while store.reclaim().expect("there is room") {}
    drop(store);
    let store = open(&directory.0).expect("opens");
    assert!(directory.0.join("00000001.log").exists());
    let shown = value_at(&store, b"key", deleted);
    assert!(matches!(shown, Err(ReadError::Compacted(_))), "{shown:?}");
}
