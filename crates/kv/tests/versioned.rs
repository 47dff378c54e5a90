//! The versioned store against a model, and against what happens to its files.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};

use knee_kv::engine::Expiry;
use knee_kv::versioned::{
    Action, Condition, Consistency, DirectoryError, DirectoryOptions, Durability, History, Keeper,
    Lost, ReadError, RequestId, Store, StoreOptions, Visited, What, Write, WriteError,
};
use proptest::prelude::*;

const SEGMENT_BYTES: usize = 4096;

fn options(consistency: Consistency) -> StoreOptions {
    StoreOptions { consistency, stripes: 4, value_bytes_max: 2000, segment_bytes: SEGMENT_BYTES }
}

fn in_memory(consistency: Consistency) -> Store {
    Store::in_memory(options(consistency), 1 << 26).expect("memory")
}

fn open(path: &Path) -> Result<Store, DirectoryError> {
    let directory =
        DirectoryOptions { path: path.to_owned(), durability: Durability::Always, repair: false };
    Store::open(options(Consistency::Linearizable), &directory, 1 << 26).map(|(store, _)| store)
}

/// The store that goes on without what is damaged, and what that was.
fn repaired(directory: &Directory) -> (Store, Vec<Lost>) {
    let path = directory.0.clone();
    let directory = DirectoryOptions { path, durability: Durability::Always, repair: true };
    Store::open(options(Consistency::Linearizable), &directory, 1 << 26).expect("opens")
}

fn put(value: &[u8]) -> Action<'_> {
    Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value }
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let shown = store.read(key, 1, |piece| {
        value.extend_from_slice(piece);
        true
    });
    shown.expect("nothing is damaged").found.map(|_| value)
}

/// A directory of its own, gone at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("knee-kv-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let mut segments: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|name| name == "log"))
            .collect();
        segments.sort();
        segments
    }
}

impl Directory {
    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| (path.clone(), fs::read(path).expect("readable"))).collect()
    }

    fn restore(&self, contents: &[(PathBuf, Vec<u8>)]) {
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir(&self.0).expect("it can be made");
        for (path, bytes) in contents {
            fs::write(path, bytes).expect("writable");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One step of a history, on keys 0 to 5.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<u8>),
    Append(u8, Vec<u8>),
    Delete(u8),
    Bulk(Vec<(u8, Vec<u8>)>),
    Snapshot,
    Forget,
    Reclaim,
    Compact,
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        4 => (0..6_u8, bytes()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (0..6_u8, bytes()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => (0..6_u8).prop_map(Step::Delete),
        2 => proptest::collection::btree_map(0..6_u8, bytes(), 1..6)
            .prop_map(|writes| Step::Bulk(writes.into_iter().collect())),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Forget),
        1 => Just(Step::Reclaim),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn scanned(store: &Store, snapshot: Option<&knee_kv::versioned::Snapshot>) -> Model {
    let mut found = Model::new();
    for stripe in 0..store.stripes() {
        let mut from = Some(Vec::new());
        while let Some(first) = from {
            let range = (Bound::Included(&first[..]), Bound::Unbounded);
            let visit = |visited: &Visited<'_>| {
                let mut value = Vec::new();
                visited.value(|piece| {
                    value.extend_from_slice(piece);
                    true
                })?;
                assert!(found.insert(visited.key.to_vec(), value).is_none(), "shown twice");
                Ok(ControlFlow::Continue(()))
            };
            let scanned = store.scan_stripe(stripe, snapshot, range, 2, 1, visit);
            from = scanned.expect("nothing is damaged").next;
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_what_was_written_to_it(
        steps in proptest::collection::vec(any_step(), 1..120),
        durable: bool,
        by_key: bool,
    ) {
        let directory = Directory::new("model");
        let consistency = if by_key { Consistency::Sequential } else { Consistency::Linearizable };
        let fresh = || if durable { open(&directory.0).expect("opens") } else { in_memory(consistency) };
        let mut store = fresh();
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for step in steps {
            let writes: Vec<(Vec<u8>, Option<Vec<u8>>)> = match step {
                Step::Put(key, value) => vec![(vec![key + 1], Some(value))],
                Step::Append(key, tail) => {
                    let key = vec![key + 1];
                    let grown = [model.get(&key).cloned().unwrap_or_default(), tail.clone()].concat();
                    let write = Write { key: &key, condition: Condition::Always, action: Action::Append(&tail) };
                    let written = store.write(&[write], None, 1);
                    if grown.len() > 2000 {
                        prop_assert_eq!(written, Err(WriteError::TooLarge(0)));
                    } else {
                        prop_assert!(written.is_ok());
                        model.insert(key, grown);
                    }
                    continue;
                }
                Step::Delete(key) => vec![(vec![key + 1], None)],
                Step::Bulk(writes) => {
                    writes.into_iter().map(|(key, value)| (vec![key + 1], Some(value))).collect()
                }
                Step::Snapshot => {
                    snapshots.push((store.snapshot(), model.clone()));
                    continue;
                }
                Step::Forget => {
                    snapshots.pop();
                    continue;
                }
                Step::Reclaim => {
                    store.reclaim().expect("there is room");
                    continue;
                }
                Step::Compact => {
                    store.compact().expect("there is room");
                    continue;
                }
                Step::Reopen => {
                    if durable {
                        store.sync(u64::MAX).expect("the disk takes it");
                        snapshots.clear();
                        drop(store);
                        store = fresh();
                    }
                    continue;
                }
            };
            let asked: Vec<Write<'_>> = writes
                .iter()
                .map(|(key, value)| Write {
                    key,
                    condition: Condition::Always,
                    action: value.as_deref().map_or(Action::Delete, put),
                })
                .collect();
            let committed = store.write(&asked, None, 1).expect("it is taken");
            store.sync(committed.sequence).expect("the disk takes it");
            for (key, value) in writes {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
        }
        prop_assert_eq!(&scanned(&store, None), &model);
        for key in 1..=6_u8 {
            prop_assert_eq!(value(&store, &[key]), model.get(&vec![key]).cloned());
        }
        for (snapshot, then) in &snapshots {
            prop_assert_eq!(&scanned(&store, Some(snapshot)), then);
        }
    }
}

/// A store with values of 100 bytes of one letter under `key0`, `key1`, …, and the bytes of its log.
fn written(directory: &Directory, keys: usize) -> Model {
    let store = open(&directory.0).expect("opens");
    let mut model = Model::new();
    for number in 0..keys {
        let (key, value) =
            (format!("key{number}").into_bytes(), vec![b'a' + (number % 26) as u8; 100]);
        let write = Write { key: &key, condition: Condition::Absent, action: put(&value) };
        let committed = store.write(&[write], None, 1).expect("it is taken");
        store.sync(committed.sequence).expect("the disk takes it");
        model.insert(key, value);
    }
    model
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
fn a_directory_has_one_store_at_a_time() {
    let directory = Directory::new("lock");
    let store = open(&directory.0).expect("opens");
    assert!(matches!(open(&directory.0), Err(DirectoryError::InUse(_))));
    drop(store);
    open(&directory.0).expect("opens again");
}

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

fn set(store: &Store, key: &[u8], to: &[u8]) -> u64 {
    let write = Write { key, condition: Condition::Always, action: put(to) };
    store.write(&[write], None, 1).expect("it is taken").version
}

fn value_at(store: &Store, key: &[u8], version: u64) -> Result<Option<Vec<u8>>, ReadError> {
    let mut value = Vec::new();
    let shown = store.read_at(key, version, 1, |piece| {
        value.extend_from_slice(piece);
        true
    });
    shown.found.map(|shown| shown.map(|_| value))
}

#[test]
fn old_versions_are_there_until_a_compaction() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let store = in_memory(consistency);
        // As with a history that is never given up.
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
        let told: Vec<_> =
            past.iter().map(|past| (past.version, past.deleted, past.bytes)).collect();
        assert_eq!(told, [(first, false, 3), (second, false, 3), (third, true, 0)]);
        // A key that comes back goes on counting.
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
fn conditions_hold_for_all_writes_of_a_commit_or_none_is_made() {
    let store = in_memory(Consistency::Linearizable);
    let version = set(&store, b"a", b"one");
    let write = |key, condition| Write { key, condition, action: put(b"new") };
    let failed = |version: Option<u64>| WriteError::Condition {
        index: 1,
        version,
        sequence: version.unwrap_or(0),
    };
    let refused = [
        (write(b"a", Condition::Absent), failed(Some(version))),
        (write(b"c", Condition::Present), failed(None)),
        (write(b"a", Condition::Version(version + 1)), failed(Some(version))),
        (write(b"", Condition::Always), WriteError::Key(1)),
        (write(&[b'k'; 4097], Condition::Always), WriteError::Key(1)),
        (write(b"b", Condition::Always), WriteError::Twice(1)),
    ];
    for (second, why) in refused {
        assert_eq!(store.write(&[write(b"b", Condition::Always), second], None, 1), Err(why));
        assert_eq!(value(&store, b"b"), None);
        assert_eq!(store.last(), version);
    }
    let both = [write(b"b", Condition::Absent), write(b"a", Condition::Version(version))];
    let made = store.write(&both, None, 1).expect("both hold");
    assert_eq!((made.version, value(&store, b"b")), (2, Some(b"new".to_vec())));
}

#[test]
fn a_request_that_comes_again_is_not_made_again_also_after_a_restart() {
    let directory = Directory::new("requests");
    let mut store = open(&directory.0).expect("opens");
    let write = Write { key: b"list", condition: Condition::Always, action: Action::Append(b"x") };
    let id = |number| Some(RequestId { client: 3, number });
    let first = store.write(&[write], id(1), 1).expect("it is taken");
    assert_eq!(store.write(&[write], id(1), 1), Ok(first));
    let second = store.write(&[write], id(2), 1).expect("it is taken");
    // What has overwritten them does not make them forgotten.
    for round in 0..200_u32 {
        set(&store, b"other", &[round as u8; 200]);
    }
    let done = set(&store, b"list", b"done");
    store.sync(done).expect("the disk takes it");
    while store.reclaim().expect("there is room") {}
    drop(store);
    store = open(&directory.0).expect("opens again");
    assert_eq!(store.write(&[write], id(1), 1), Ok(first));
    assert_eq!(store.write(&[write], id(2), 1), Ok(second));
    assert_eq!(value(&store, b"list"), Some(b"done".to_vec()));
}

#[test]
fn watchers_are_told_of_every_commit_in_order() {
    let store = in_memory(Consistency::Linearizable);
    let (send, receive) = std::sync::mpsc::channel();
    let range = (Bound::Included(b"b".to_vec()), Bound::Excluded(b"d".to_vec()));
    let watch = store.watch(range, Box::new(move |event| send.send(event).is_ok()));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..250_u32 {
                    set(store, &[b'a' + thread], &round.to_le_bytes());
                }
            });
        }
    });
    store.unwatch(watch);
    set(&store, b"b", b"unseen");
    let events: Vec<_> = receive.iter().collect();
    assert_eq!(events.len(), 500);
    assert!(events.is_sorted_by(|a, b| a.sequence < b.sequence));
    for key in [b"b", b"c"] {
        let of_key = events.iter().filter(|event| event.key == key);
        let rounds = of_key.map(|event| match &event.what {
            What::Put(value) => u32::from_le_bytes(value[..].try_into().expect("four bytes")),
            other => panic!("{other:?}"),
        });
        assert!(rounds.eq(0..250));
    }
}

/// Transfers between accounts, by versions, from several threads: every snapshot has the same sum.
#[test]
fn snapshots_never_see_half_a_commit() {
    const ACCOUNTS: u64 = 8;
    const TRANSFERS: usize = 2000;
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let store = in_memory(consistency);
        let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        let key = |account: u64| format!("account{account}").into_bytes();
        for account in 0..ACCOUNTS {
            set(&store, &key(account), &100_u64.to_le_bytes());
        }
        let read = |account| {
            let mut bytes = Vec::new();
            let shown = store.read(&key(account), 1, |piece| {
                bytes.extend_from_slice(piece);
                true
            });
            let version = shown.expect("nothing is damaged").found.expect("it is there").version;
            (u64::from_le_bytes(bytes.try_into().expect("eight bytes")), version)
        };
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (store, read, key) = (&store, &read, &key);
                scope.spawn(move || {
                    let (mut made, mut draw) = (0, thread);
                    while made < TRANSFERS {
                        draw =
                            draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(thread + 1);
                        let (from, to) = (draw >> 33 & 7, draw >> 43 & 7);
                        let ((less, had), (more, has)) = (read(from), read(to));
                        if from == to || less == 0 {
                            continue;
                        }
                        let (less, more) = ((less - 1).to_le_bytes(), (more + 1).to_le_bytes());
                        let (from, to) = (key(from), key(to));
                        let writes = [
                            Write {
                                key: &from,
                                condition: Condition::Version(had),
                                action: put(&less),
                            },
                            Write {
                                key: &to,
                                condition: Condition::Version(has),
                                action: put(&more),
                            },
                        ];
                        made += usize::from(store.write(&writes, None, 1).is_ok());
                    }
                });
            }
            for _ in 0..300 {
                let snapshot = store.snapshot();
                let seen = scanned(&store, Some(&snapshot));
                let balance =
                    |value: &Vec<u8>| u64::from_le_bytes(value[..].try_into().expect("eight"));
                let sum: u64 = seen.values().map(balance).sum();
                assert_eq!((seen.len(), sum), (8, 800));
            }
        });
    }
}

#[test]
fn a_list_grows_by_what_is_appended_to_it() {
    let directory = Directory::new("list");
    let options = StoreOptions {
        value_bytes_max: 1 << 24,
        segment_bytes: 1 << 18,
        ..options(Consistency::Linearizable)
    };
    let at = DirectoryOptions {
        path: directory.0.clone(),
        durability: Durability::Always,
        repair: false,
    };
    let open = || Store::open(options, &at, 1 << 28).expect("opens").0;
    let mut store = open();
    let mut list = Vec::new();
    for element in 0..30_000_u32 {
        let element = element.to_le_bytes();
        let write =
            Write { key: b"list", condition: Condition::Always, action: Action::Append(&element) };
        store.write(&[write], None, 1).expect("it is taken");
        list.extend_from_slice(&element);
        // Something to be reclaimed between, so that the list's records move.
        set(&store, b"other", &[7; 300]);
    }
    assert_eq!(value(&store, b"list").as_ref(), Some(&list));
    for _ in 0..2 {
        store.sync(u64::MAX).expect("the disk takes it");
        while store.reclaim().expect("there is room") {}
        drop(store);
        store = open();
        assert!(value(&store, b"list").as_ref() == Some(&list));
    }
    // The list is 96 bytes for each element of four, and what is alive is half of the log at least.
    let bytes = directory.segments().len() << 18;
    assert!(bytes < 2 * 30_000 * 96 + (4 << 18), "{bytes} bytes");
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

/// Waits for something that the keeper does.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{what} did not come");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_replaced_is_forgotten_after_its_time_and_expired_keys_go() {
    let store = in_memory(Consistency::Linearizable);
    let first = set(&store, b"a", b"one");
    set(&store, b"a", b"two");
    let keeper = Keeper::start(store.clone(), History::Seconds(1)).expect("a thread");
    let old = set(&store, b"b", b"old");
    set(&store, b"b", b"new");
    assert_eq!(value_at(&store, b"b", old), Ok(Some(b"old".to_vec())));
    until("the end of the old version", || value_at(&store, b"b", old).is_err());
    assert!(matches!(value_at(&store, b"a", first), Err(ReadError::Compacted(2))));
    // A snapshot keeps what it sees, and what came after that, for longer.
    let snapshot = store.snapshot();
    let third = set(&store, b"b", b"third");
    set(&store, b"b", b"fourth");
    let kept = std::time::Instant::now();
    until("three seconds", || kept.elapsed() > std::time::Duration::from_secs(3));
    assert_eq!(scanned(&store, Some(&snapshot))[&b"b"[..]], b"new");
    drop(snapshot);
    until("the end of the third", || value_at(&store, b"b", third).is_err());
    drop(keeper);
    let action = Action::Put { flags: 0, expiry: Expiry::at(2), marks: 0, value: b"short" };
    let write = Write { key: b"short", condition: Condition::Always, action };
    store.write(&[write], None, 1).expect("it is taken");
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    until("the end of the expired key", || {
        let past = store.history(b"short", 0, 9).expect("nothing is damaged").found;
        past.last().is_none_or(|last| last.deleted)
    });
}

#[test]
fn figures_say_what_is_kept_and_for_whom() {
    let store = in_memory(Consistency::Linearizable);
    for key in [b"a", b"b", b"c"] {
        set(&store, key, b"one");
    }
    let old = store.snapshot();
    set(&store, b"a", b"two");
    let write = Write { key: b"b", condition: Condition::Always, action: Action::Delete };
    store.write(&[write], None, 1).expect("it is taken");
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
fn a_history_comes_in_parts_and_an_answer_names_the_commit_it_tells_of() {
    let store = in_memory(Consistency::Sequential);
    let _keeper = Keeper::start(store.clone(), History::All).expect("a thread");
    set(&store, b"b", b"other");
    for version in 1..=5_u8 {
        set(&store, b"a", &vec![version; usize::from(version)]);
    }
    let write = Write { key: b"a", condition: Condition::Always, action: Action::Delete };
    let gone = store.write(&[write], None, 1).expect("it is taken");
    let told = |from, most| {
        let past = store.history(b"a", from, most).expect("nothing is damaged");
        assert_eq!(past.sequence, gone.sequence);
        past.found.iter().map(|past| (past.version, past.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(told(0, 2), [(1, 1), (2, 2)]);
    assert_eq!(told(3, 3), [(3, 3), (4, 4), (5, 5)]);
    assert_eq!(told(6, 3), [(6, 0)]);
    assert_eq!(told(7, 3), []);
    set(&store, b"b", b"later");
    // What is not there was deleted by a commit, and the one that looked says which.
    let read = store.read(b"a", 1, |_| true).expect("nothing is damaged");
    assert_eq!((read.sequence, read.found), (gone.sequence, None));
    let sequence = gone.sequence;
    let update = Write { key: b"a", condition: Condition::Present, action: put(b"new") };
    let failed = Err(WriteError::Condition { index: 0, version: None, sequence });
    assert_eq!(store.write(&[update], None, 1), failed);
    let nothing = Write { key: b"a", condition: Condition::Always, action: Action::Delete };
    assert_eq!(store.write(&[nothing], None, 1).map(|made| made.sequence), Ok(sequence));
    assert_eq!(store.read_at(b"a", 6, 1, |_| true).sequence, sequence);
    // Which condition failed says of those before that they hold.
    let later = set(&store, b"b", b"latest");
    let holds = Write { key: b"b", condition: Condition::Present, action: put(b"") };
    let failed =
        Err(WriteError::Condition { index: 1, version: None, sequence: gone.sequence + 2 });
    assert_eq!((later, store.write(&[holds, update], None, 1)), (3, failed));
    let never = store.read(b"c", 1, |_| true).expect("nothing is damaged");
    assert_eq!((never.sequence, never.found), (0, None));
}

#[test]
fn a_scan_goes_on_with_the_key_that_it_was_stopped_at() {
    let one = StoreOptions { stripes: 1, ..options(Consistency::Linearizable) };
    let store = Store::in_memory(one, 1 << 20).expect("memory");
    for key in 0..10_u8 {
        set(&store, &[key], b"value");
    }
    let (mut seen, mut from) = (Vec::new(), Some(vec![0]));
    while let Some(first) = from {
        let before = seen.len();
        let visit = |visited: &Visited<'_>| {
            if seen.len() == before + 3 {
                return Ok(ControlFlow::Break(()));
            }
            seen.push(visited.key.to_vec());
            Ok(ControlFlow::Continue(()))
        };
        let range = (Bound::Included(&first[..]), Bound::Excluded(&[8][..]));
        let scanned = store.scan_stripe(0, None, range, usize::MAX, 1, visit);
        let scanned = scanned.expect("nothing is damaged");
        // The key that it was stopped at has been looked at, too.
        let last = scanned.next.as_ref().map_or(8, |next| u64::from(next[0]) + 1);
        assert_eq!(scanned.sequence, last);
        from = scanned.next;
    }
    assert_eq!(seen, (0..8).map(|key| vec![key]).collect::<Vec<_>>());
}
