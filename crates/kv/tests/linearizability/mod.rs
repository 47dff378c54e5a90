//! Concurrent histories of the store, checked against its promises.
//!
//! The checker is from todc-utils (Wing & Gong 1993, with Lowe's extensions of 2017). It searches for an order of the
//! operations that agrees with the model. Operations that did not overlap must keep their order. The model:
//!
//! * [`Consistency::Linearizable`]: the whole store is one object, and versions count its commits, without a gap.
//! * [`Consistency::Sequential`]: each key is an object, and versions count its writes, without a gap. Keys that are
//!   always written together are one object, too. Keys that are written apart have no common order.
//!
//! The same holds behind gRPC, with requests that are sent twice, and for clients of both protocols together.
//!
//! The checker must reject histories of a faulty store. The test simulates the fault in the caller, because the store
//! has no switch for it. For example, a write that reads, yields and then puts has the history of a write without a
//! lock. `KNEE_SOAK=n` runs n times as many histories.

mod history;
mod memcached;
mod model;
mod network;
mod subject;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use knee_kv::MemcachedSettings;
use knee_kv_store::{Consistency, DirectoryOptions, Durability, Grouping, Store, StoreOptions};

use self::history::{Group, Mix, Recorded, is_linearizable, overlapped, part, record};
use self::memcached::Memcached;
use self::model::{Object, OfKey, OfRequests, OfStore};
use self::network::{Remote, Sending, Served};
use self::subject::{Fault, Subject};
use crate::harness::settings;

const KEY_BY_KEY: &[Group] = &[&[0], &[1], &[2], &[3], &[4], &[5]];
const TOGETHER: &[Group] = &[&[0, 1], &[2, 3, 4], &[5]];
/// The number of histories within which the checker must find a fault.
const TRIES: u64 = 100;

fn soak() -> usize {
    std::env::var("KNEE_SOAK").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

fn options(consistency: Consistency) -> StoreOptions {
    StoreOptions { consistency, stripes: 4, value_bytes_max: 1000, segment_bytes: 16 << 10 }
}

fn in_memory(consistency: Consistency) -> Store {
    Store::in_memory(options(consistency), 1 << 28).expect("memory")
}

/// A temporary directory.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("knee-kv-linearizability-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }

    fn open(&self, consistency: Consistency, durability: Durability) -> Store {
        let directory = DirectoryOptions { path: self.0.clone(), durability, repair: false };
        Store::open(options(consistency), &directory, 1 << 28).expect("it opens").0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a history keeps the promise.
fn holds(consistency: Consistency, sending: Sending, mix: Mix, recorded: &[Recorded]) -> bool {
    let objects = match (consistency, mix) {
        (Consistency::Linearizable, _) => {
            return match sending {
                Sending::Once => is_linearizable::<Object<OfStore>>(recorded),
                Sending::Twice => is_linearizable::<Object<OfRequests>>(recorded),
            };
        }
        (Consistency::Sequential, Mix::Whole(groups)) => groups,
        (Consistency::Sequential, _) => KEY_BY_KEY,
    };
    objects.iter().all(|group| is_linearizable::<Object<OfKey>>(&part(recorded, group)))
}

/// Makes a history of its own keys; returns whether it keeps the promise.
fn history(
    store: &Store,
    consistency: Consistency,
    (mix, operations): (Mix, usize),
    fault: Option<Fault>,
    number: u64,
) -> (Vec<Recorded>, bool) {
    let counts_commits = consistency == Consistency::Linearizable;
    let subject = Subject::new(store, number, counts_commits, fault);
    let recorded = record(&[(&subject, mix)], operations, number);
    let holds = holds(consistency, Sending::Once, mix, &recorded);
    (recorded, holds)
}

/// Checks histories while space is reclaimed.
fn check(store: &Store, consistency: Consistency, histories: usize) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if !store.reclaim().expect("there is room, and no damage") {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        // Also after a panic.
        let _over = Over(&over);
        let mixes: &[(Mix, usize)] = match consistency {
            Consistency::Linearizable => &[(Mix::Any, 12), (Mix::Single, 30)],
            Consistency::Sequential => &[(Mix::Single, 30), (Mix::Whole(TOGETHER), 12)],
        };
        let (mut numbers, mut operations, mut overlaps) = (0.., 0, 0);
        for &mix in mixes {
            for number in numbers.by_ref().take(histories * soak()) {
                let (recorded, holds) = history(store, consistency, mix, None, number);
                assert!(holds, "history {number} is not {consistency:?}: {recorded:?}");
                operations += recorded.len();
                overlaps += overlapped(&recorded);
            }
        }
        assert!(100 * overlaps > operations, "{overlaps} of {operations} were concurrent with any");
        println!("{consistency:?}: {overlaps} of {operations} operations overlapped");
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn linearizable_store_in_memory_keeps_its_promise() {
    check(&in_memory(Consistency::Linearizable), Consistency::Linearizable, 30);
}

#[test]
fn sequential_store_in_memory_keeps_its_promise() {
    check(&in_memory(Consistency::Sequential), Consistency::Sequential, 30);
}

#[test]
fn durable_stores_keep_their_promise() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        for (durability, histories) in [(Durability::Always, 3), (Durability::None, 15)] {
            let directory = Directory::new(&format!("{consistency:?}-{durability:?}"));
            check(&directory.open(consistency, durability), consistency, histories);
        }
    }
}

/// The switches that change how commits share syncs.
const SWITCHES: [Grouping; 3] = [
    Grouping { dally: Duration::from_micros(500), commits_max: usize::MAX },
    Grouping { dally: Duration::ZERO, commits_max: 1 },
    Grouping { dally: Duration::from_micros(500), commits_max: 3 },
];

#[test]
fn stores_with_switches_of_syncs_keep_their_promise() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        for (number, grouping) in SWITCHES.into_iter().enumerate() {
            let directory = Directory::new(&format!("{consistency:?}-switch-{number}"));
            let store = directory.open(consistency, Durability::Always);
            store.group_commits(grouping);
            check(&store, consistency, 2);
        }
    }
}

#[test]
fn stores_with_switches_of_syncs_keep_their_promise_behind_both_protocols() {
    for (number, grouping) in SWITCHES.into_iter().enumerate() {
        for subject in OF_ONE {
            let directory = Directory::new(&format!("{:?}-both-{number}", subject.0));
            let store = directory.open(subject.0, Durability::Always);
            store.group_commits(grouping);
            let rejected = first_rejected_over_both(&store, subject, None, soak() as u64);
            assert_eq!(rejected, None, "{subject:?} with {grouping:?}");
        }
    }
}

/// The first of `histories` histories over the network that breaks the promise.
fn first_rejected_over_network(
    (consistency, mix): (Consistency, Mix),
    sending: Sending,
    fault: Option<Fault>,
    histories: u64,
) -> Option<u64> {
    let served = Served::start(&in_memory(consistency));
    let counts_commits = consistency == Consistency::Linearizable;
    (0..histories).find(|&number| {
        let remote = Remote::new(&served, number, counts_commits, sending, fault);
        let recorded = record(&[(&remote, mix)], 12, number);
        assert!(overlapped(&recorded) > 0, "nothing was concurrent");
        !holds(consistency, sending, mix, &recorded)
    })
}

/// Writes of several keys. A scan without a snapshot sees only a part of such a write.
const WHOLE: [(Consistency, Mix); 2] = [
    (Consistency::Linearizable, Mix::Whole(TOGETHER)),
    (Consistency::Sequential, Mix::Whole(TOGETHER)),
];
/// Writes that include writes of one key, which a missing lock breaks.
const OF_ONE: [(Consistency, Mix); 2] =
    [(Consistency::Linearizable, Mix::Any), (Consistency::Sequential, Mix::Single)];

#[test]
fn stores_over_the_network_keep_their_promise() {
    for subject in WHOLE.into_iter().chain(OF_ONE) {
        let rejected = first_rejected_over_network(subject, Sending::Once, None, 3 * soak() as u64);
        assert_eq!(rejected, None, "{subject:?}");
    }
}

#[test]
fn faults_are_caught_over_the_network() {
    let subjects = [
        (Fault::TornBulk, WHOLE),
        (Fault::NoSnapshot, WHOLE),
        (Fault::StaleSnapshot, WHOLE),
        (Fault::DroppedLock, OF_ONE),
    ];
    for (fault, subjects) in subjects {
        for subject in subjects {
            let rejected =
                first_rejected_over_network(subject, Sending::Once, Some(fault), 5 * TRIES);
            assert!(rejected.is_some(), "{fault:?} was not caught: {subject:?}");
        }
    }
}

#[test]
fn request_that_is_sent_twice_counts_once() {
    for subject in WHOLE.into_iter().chain(OF_ONE) {
        let rejected = |fault, histories| {
            first_rejected_over_network(subject, Sending::Twice, fault, histories)
        };
        assert_eq!(rejected(None, 2 * soak() as u64), None, "{subject:?}");
        let caught = rejected(Some(Fault::MadeAgain), TRIES);
        assert!(caught.is_some(), "a request that is made again was not caught: {subject:?}");
    }
}

/// The first of `histories` histories of both protocols that breaks the promise. Only memcached's clients may have a
/// fault.
fn first_rejected_over_both(
    store: &Store,
    (consistency, mix): (Consistency, Mix),
    fault: Option<Fault>,
    histories: u64,
) -> Option<u64> {
    let settings = MemcachedSettings { threads: 2, ..settings() };
    let (over_grpc, over_memcached) =
        (Served::start(store), crate::harness::Store::over(store, settings));
    let counts_commits = consistency == Consistency::Linearizable;
    (0..histories).find(|&number| {
        let remote = Remote::new(&over_grpc, number, counts_commits, Sending::Once, None);
        let memcached = Memcached::beside(&remote, &over_memcached, fault);
        let recorded = record(&[(&remote, mix), (&memcached, Mix::Commands)], 16, number);
        !holds(consistency, Sending::Once, mix, &recorded)
    })
}

#[test]
fn store_behind_both_protocols_keeps_its_promise() {
    for subject in OF_ONE {
        let store = in_memory(subject.0);
        let rejected = first_rejected_over_both(&store, subject, None, 5 * soak() as u64);
        assert_eq!(rejected, None, "{subject:?}");
        let (store, fault) = (in_memory(subject.0), Some(Fault::DroppedLock));
        let caught = first_rejected_over_both(&store, subject, fault, 5 * TRIES);
        assert!(caught.is_some(), "a dropped lock was not caught: {subject:?}");
    }
}

/// Histories of the whole store are accepted, and one of the faulty store is rejected.
fn is_caught(fault: Fault, consistency: Consistency, mix: Mix) {
    let first_rejected = |fault, histories| {
        let store = in_memory(consistency);
        (0..histories).find(|&number| !history(&store, consistency, (mix, 12), fault, number).1)
    };
    let accepted = 10 * soak() as u64;
    assert_eq!(first_rejected(None, accepted), None, "a whole store was rejected");
    let caught = first_rejected(Some(fault), TRIES);
    assert!(caught.is_some(), "{fault:?} was not caught in {TRIES} histories");
}

#[test]
fn dropped_lock_is_caught() {
    is_caught(Fault::DroppedLock, Consistency::Linearizable, Mix::Any);
    is_caught(Fault::DroppedLock, Consistency::Sequential, Mix::Single);
}

#[test]
fn torn_bulk_put_is_caught() {
    // Two commits count as two even without concurrency.
    is_caught(Fault::TornBulk, Consistency::Linearizable, Mix::Any);
    is_caught(Fault::TornBulk, Consistency::Sequential, Mix::Whole(TOGETHER));
}

#[test]
fn scan_without_a_snapshot_is_caught() {
    is_caught(Fault::NoSnapshot, Consistency::Linearizable, Mix::Any);
    is_caught(Fault::NoSnapshot, Consistency::Sequential, Mix::Whole(TOGETHER));
}

#[test]
fn stale_snapshot_is_caught() {
    is_caught(Fault::StaleSnapshot, Consistency::Linearizable, Mix::Any);
    is_caught(Fault::StaleSnapshot, Consistency::Sequential, Mix::Whole(TOGETHER));
}
