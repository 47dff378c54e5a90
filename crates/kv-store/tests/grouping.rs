//! Commits that share syncs: limits of a group, and waiting for company.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use knee_kv_store::{Condition, Consistency, Grouping, Store, StoreOptions, Write};

use crate::store::{Directory, durable, open, options, put, set, value};

/// Longer than a test waits: so a group that is not full by then fails the test.
const FOREVER: Duration = Duration::from_secs(600);

fn grouped(directory: &Directory, dally: Duration, commits_max: usize) -> Store {
    let store = open(&directory.0).expect("opens");
    store.group_commits(Grouping { dally, commits_max });
    store
}

/// The groups that were synced, and their records.
fn synced(store: &Store) -> (u64, u64) {
    let figures = store.commit_figures();
    (figures.groups, figures.records)
}

#[test]
fn group_has_at_most_its_largest_number_of_commits() {
    for (commits_max, groups) in [(1, 7), (3, 3), (7, 1), (usize::MAX, 1)] {
        let directory = Directory::new(&format!("batch-{commits_max}"));
        let store = grouped(&directory, Duration::ZERO, commits_max);
        for number in 0..6_u8 {
            set(&store, &[number], &[number; 100]);
        }
        // A commit of two keys is one commit.
        let write = |key| Write { key, condition: Condition::Always, action: put(b"both") };
        let last = store.write(&[write(b"x"), write(b"y")], None, 1).expect("fits").sequence;
        store.sync(1).expect("the disk takes it");
        assert_eq!(store.synced(), commits_max.min(7) as u64);
        store.sync(last).expect("the disk takes it");
        assert_eq!((store.synced(), synced(&store)), (last, (groups, 8)), "{commits_max}");
        drop(store);
        let store = open(&directory.0).expect("opens again");
        assert_eq!(value(&store, &[5]), Some(vec![5; 100]));
        assert_eq!(value(&store, b"y"), Some(b"both".to_vec()));
    }
}

#[test]
fn limited_groups_span_segments_and_survive_a_restart() {
    for commits_max in [1, 2, 5] {
        let directory = Directory::new(&format!("batch-segments-{commits_max}"));
        let options = StoreOptions { segment_bytes: 4096, ..options(Consistency::Linearizable) };
        let opened =
            || Store::open(options, &durable(&directory.0, false), 1 << 26).expect("opens").0;
        let store = opened();
        store.group_commits(Grouping { dally: Duration::ZERO, commits_max });
        let mut last = 0;
        for number in 0..100_u8 {
            last = set(&store, &[number], &[number; 900]);
            if number % 7 == 0 {
                store.sync(last - u64::from(number % 3)).expect("the disk takes it");
            }
        }
        // Records of later commits wait in the segment that a group ends in.
        store.sync(last).expect("the disk takes it");
        assert_eq!(store.synced(), last);
        let (groups, records) = synced(&store);
        assert!(groups >= 100_u64.div_ceil(commits_max as u64), "{groups}");
        assert_eq!(records, 100);
        drop(store);
        let store = opened();
        for number in 0..100_u8 {
            assert_eq!(value(&store, &[number]), Some(vec![number; 900]), "{number}");
        }
    }
}

#[test]
fn dallying_commit_begins_its_sync_when_company_fills_the_group() {
    let directory = Directory::new("company");
    let store = grouped(&directory, FOREVER, 2);
    thread::scope(|scope| {
        for key in [b"a", b"b"] {
            let store = store.clone();
            scope.spawn(move || store.sync(set(&store, key, b"1")).expect("the disk takes it"));
        }
    });
    assert_eq!(synced(&store), (1, 2));
}

#[test]
fn lonely_commit_waits_for_its_dally_and_no_longer() {
    let directory = Directory::new("lonely");
    let dally = Duration::from_millis(30);
    let store = grouped(&directory, dally, usize::MAX);
    let (began, committed) = (Instant::now(), set(&store, b"a", b"1"));
    store.sync(committed).expect("the disk takes it");
    assert!(began.elapsed() >= dally);
    assert_eq!(synced(&store), (1, 1));
}

#[test]
fn upkeep_does_not_wait_for_company() {
    let directory = Directory::new("upkeep");
    let store = grouped(&directory, FOREVER, usize::MAX);
    let committed = set(&store, b"a", b"1");
    store.write_out().expect("the disk takes it");
    assert_eq!(store.synced(), committed);
    set(&store, b"b", b"2");
    // The end of the store writes out what no caller waited for.
    drop(store);
    assert_eq!(value(&open(&directory.0).expect("opens"), b"b"), Some(b"2".to_vec()));
}

#[test]
fn upkeep_ends_the_wait_of_another_thread() {
    let directory = Directory::new("upkeep-ends");
    let store = grouped(&directory, FOREVER, usize::MAX);
    let committed = set(&store, b"a", b"1");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| store.sync(committed));
        // Long enough for the thread to begin its wait; the result is the same if it does not.
        thread::sleep(Duration::from_millis(30));
        store.write_out().expect("the disk takes it");
        assert!(store.synced() >= committed);
        waiting.join().expect("no panic").expect("the disk takes it");
    });
}

#[test]
fn upkeep_writes_everything_beside_limited_groups() {
    let directory = Directory::new("upkeep-limited");
    let store = grouped(&directory, Duration::ZERO, 1);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for key in [b"a", b"b", b"c", b"d"] {
            let (store, over) = (&store, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    store.sync(set(store, key, b"1")).expect("the disk takes it");
                }
            });
        }
        let missed = (0..200).find(|_| {
            let last = store.last();
            store.write_out().expect("the disk takes it");
            store.synced() < last
        });
        over.store(true, Ordering::Relaxed);
        assert_eq!(missed, None);
    });
}
