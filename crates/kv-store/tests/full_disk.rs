//! A store on a full disk. Each test mounts a small disk in its own namespace.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use knee_kv_cache::engine::{Change, Engine, Expiry, Refused};
use knee_kv_store::{
    Action, Condition, Consistency, History, Items, Keeper, Store, StoreOptions, Unwritable, Write,
    WriteError,
};

use crate::store::{Directory, durable};

const SEGMENT_BYTES: usize = 64 << 10;
/// Keys that fill a little more than a third of the disk.
const KEYS: u32 = 80;
const WRITERS: u32 = 3;
const ROUNDS: u32 = 5;
const OPTIONS: StoreOptions = StoreOptions {
    consistency: Consistency::Linearizable,
    stripes: 1,
    value_bytes_max: 4000,
    segment_bytes: SEGMENT_BYTES,
};

/// Mounts a disk of 1 MiB. Only this thread sees it, and it ends with the thread.
fn mount(at: &Path) -> io::Result<()> {
    let call = |outcome| if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let mount = |at: &Path, flags, options: &std::ffi::CStr| {
        let at = std::ffi::CString::new(at.as_os_str().as_bytes())?;
        let kind = c"tmpfs".as_ptr();
        // SAFETY: the strings end with a zero and outlive the call.
        call(unsafe { libc::mount(kind, at.as_ptr(), kind, flags, options.as_ptr().cast()) })
    };
    // SAFETY: the call takes only a number.
    call(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(Path::new("/"), libc::MS_REC | libc::MS_PRIVATE, c"")?;
    mount(at, 0, c"size=1m")
}

fn open(path: &Path, bytes_max: u64) -> Store {
    Store::open(OPTIONS, &durable(path, false), bytes_max).expect("it opens").0
}

/// Overwrites keys on a full disk. Neighbours in the log die at different times, so each segment is half dead.
fn goes_on(path: &Path, bytes_max: u64) {
    let mut store = open(path, bytes_max);
    let mut last = vec![None; KEYS as usize];
    let mut refused = 0;
    for number in 0..30 * KEYS {
        let key = number * (number / 3 + 1) % KEYS;
        let value = [number as u8; 4000];
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &value };
        let write = [Write { key: &key.to_le_bytes(), condition: Condition::Always, action }];
        let mut made = store.write(&write, None, 1);
        if let Err(error) = &made {
            assert!(error.is_full(), "{error:?}");
            refused += 1;
            if refused % 10 == 0 {
                // A restarted store behaves the same.
                drop(store);
                store = open(path, bytes_max);
            }
            while store.reclaim().expect("there is room to move what is alive") {}
            made = store.write(&write, None, 1);
        }
        let made = made.expect("there is room again");
        store.sync(made.sequence).expect("the disk takes it");
        last[key as usize] = Some(value);
    }
    assert!(refused > 10, "it was full {refused} times");
    drop(store);
    let store = open(path, bytes_max);
    for (key, value) in (0..KEYS).zip(&last) {
        let mut found = Vec::new();
        let shown = store.read(&key.to_le_bytes(), 1, |piece| {
            found.extend_from_slice(piece);
            true
        });
        let is_there = shown.expect("nothing is damaged").found.is_some();
        assert_eq!(is_there.then_some(&found[..]), value.as_ref().map(|value| &value[..]));
    }
}

/// Another process takes all free blocks. Then deletes free space.
fn deletes(path: &Path) {
    let store = open(path, 1 << 30);
    for key in 0..KEYS {
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &[7; 4000] };
        let write = [Write { key: &key.to_le_bytes(), condition: Condition::Always, action }];
        let made = store.write(&write, None, 1).expect("there is room");
        store.sync(made.sequence).expect("the disk takes it");
    }
    let mut filler = fs::File::create(path.join("filler")).expect("a file");
    while filler.write_all(&[1; 4096]).is_ok() {}
    for key in 0..KEYS {
        let action = Action::Delete;
        let write = [Write { key: &key.to_le_bytes(), condition: Condition::Present, action }];
        let made = store.write(&write, None, 1).expect("a full disk takes deletes");
        store.sync(made.sequence).expect("the disk takes it");
        while store.reclaim().expect("there is room to move what is alive") {}
    }
    assert_eq!(store.keys(), 0);
    assert!(store.figures().file_bytes <= 3 * SEGMENT_BYTES as u64, "{:?}", store.figures());
}

/// The keys that several writers put at the same time, until each writer was refused 200 times. `what` returns a key
/// and a value for each writer and step.
fn written(store: &Store, what: impl Fn(u32, u32) -> (u32, &'static [u8]) + Sync) -> Vec<u32> {
    let there = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 1..=WRITERS {
            let (mut items, there, what) = (Items::new(store.clone()), &there, &what);
            scope.spawn(move || {
                let mut refused = 0;
                for step in 0.. {
                    let (key, value) = what(writer, step);
                    match put(&mut items, key, value) {
                        Ok(()) => there.lock().expect("no thread panics").push(key),
                        Err(Refused::NoSpace) => refused += 1,
                        // A delete of an earlier round was forgotten in between.
                        Err(Refused::Changed) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    if refused == 200 {
                        break;
                    }
                }
            });
        }
    });
    there.into_inner().expect("no thread panics")
}

fn put(items: &mut Items, key: u32, value: &[u8]) -> Result<(), Refused> {
    let put = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
    items.update(&key.to_le_bytes(), 1, |_| (put, ())).0.map(drop)
}

fn remove(items: &mut Items, key: u32) {
    let removed = items.update(&key.to_le_bytes(), 1, |_| (Change::Remove, ())).0;
    removed.expect("a full disk takes deletes");
}

/// Another process takes all of the disk but `left` bytes.
fn taken_but(path: &Path, left: u64) -> fs::File {
    let mut filler = fs::File::create(path.join("filler")).expect("a file");
    while filler.write_all(&[1; 4096]).is_ok() {}
    let filled = filler.metadata().expect("it is open").len();
    filler.set_len(filled.saturating_sub(left)).expect("it is larger");
    filler
}

/// Several threads write while the keeper moves live records, until nothing can be reclaimed. Writes do not follow the
/// moves into the reserved segments, so that there is room for every delete.
fn takes_deletes(path: &Path) {
    for round in 0..ROUNDS {
        let store = open(path, 1 << 30);
        let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        // Values have all sizes, and some are overwritten.
        let there = written(&store, |writer, step| {
            let bytes = (step * 7919 + round) as usize % 50 * 80;
            (writer << 20 | (step - step % 7 / 4), &[1; 4000][..bytes])
        });
        let mut items = Items::new(store.clone());
        there.into_iter().for_each(|key| remove(&mut items, key));
        assert_eq!(store.keys(), 0);
        drop(keeper);
    }
}

/// The deletes are spread over all segments, so each segment is mostly live for long.
fn takes_deletes_in_any_order(path: &Path) {
    const STEP: u32 = 7919;
    let begin = || {
        let store = open(path, 1 << 30);
        let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        (Items::new(store.clone()), store, keeper)
    };
    let (mut items, store, keeper) = begin();
    let put = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &[1; 20] };
    let keys =
        (0..).find(|key: &u32| items.update(&key.to_le_bytes(), 1, |_| (put, ())).0.is_err());
    let keys = keys.expect("the disk is small");
    assert_ne!(keys % STEP, 0, "a prime meets all keys");
    drop((items, store, keeper));
    let order: Vec<_> = (0..keys)
        .map(|round| (u64::from(round) * u64::from(STEP) % u64::from(keys)) as u32)
        .collect();
    for keys in order.chunks(keys as usize / 7) {
        let (mut items, _store, _keeper) = begin();
        for key in keys {
            let removed = items.update(&key.to_le_bytes(), 1, |_| (Change::Remove, ())).0;
            removed.expect("a full disk takes deletes");
        }
    }
    assert_eq!(begin().1.keys(), 0);
}

/// A removed segment restores the reserve at once, although tables mapped its file. Another process takes every other
/// block.
fn refills_its_reserve(path: &Path) {
    let options = StoreOptions { stripes: 4, ..OPTIONS };
    let directory = durable(path, false);
    let (store, _) = Store::open(options, &directory, 1 << 30).expect("it opens");
    let write = |key: u32, action| {
        let write = [Write { key: &key.to_le_bytes(), condition: Condition::Always, action }];
        store.write(&write, None, 1).and_then(|made| Ok(store.sync(made.sequence)?))
    };
    let put = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &[7; 4000] };
    let keys = (0..).find(|&key| write(key, put).is_err()).expect("the disk is small");
    let mut filler = taken_but(path, 0);
    // Two thirds of each segment die. The first move takes a reserved segment.
    for key in (0..keys).filter(|key| key % 3 > 0) {
        write(key, Action::Delete).expect("a full disk takes deletes");
    }
    assert!(store.reclaim().expect("there is room to move what is alive"));
    while filler.write_all(&[1; 4096]).is_ok() {}
    assert_eq!(store.shortage(), None);
    write(keys, put).expect("the reserve is whole");
}

#[test]
fn removed_segment_restores_the_reserve() {
    on_a_disk("restores", refills_its_reserve);
}

#[test]
fn full_disk_takes_deletes_in_any_order_over_restarts() {
    on_a_disk("order", takes_deletes_in_any_order);
}

#[test]
fn disk_filled_during_moves_takes_deletes() {
    on_a_disk("filled", takes_deletes);
}

#[test]
fn disk_full_of_dead_records_is_freed() {
    on_a_disk("dead", |path| goes_on(path, 1 << 30));
}

#[test]
fn disk_full_to_its_last_block_takes_deletes() {
    on_a_disk("last-block", deletes);
}

/// Runs a test on its own disk, if the user may mount one.
fn on_a_disk(name: &str, test: impl FnOnce(&Path)) {
    let path = std::env::temp_dir().join(format!("knee-kv-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("a directory");
    match mount(&path) {
        Ok(()) => test(&path),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            // Write to the descriptor: a passed test's captured output is not shown.
            let line = format!("SKIPPED: full disks: this user may not mount one ({error})\n");
            io::stderr().write_all(line.as_bytes()).expect("a standard error");
        }
        Err(error) => panic!("no disk can be mounted: {error}"),
    }
}

#[test]
fn log_at_its_limit_is_freed() {
    let path = std::env::temp_dir().join(format!("knee-kv-limit-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    goes_on(&path, 13 * SEGMENT_BYTES as u64);
    fs::remove_dir_all(&path).expect("it is there");
}

/// Another process takes all free blocks while the store is closed. The store opens, and its reserve takes deletes.
fn opens(path: &Path) {
    let directory = durable(path, false);
    let write = |store: &Store, key: u32, action| {
        let write = [Write { key: &key.to_le_bytes(), condition: Condition::Always, action }];
        store.write(&write, None, 1).and_then(|made| Ok(store.sync(made.sequence)?))
    };
    let put = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &[7; 4000] };
    let fill = || {
        let mut filler = fs::File::create(path.join("filler")).expect("a file");
        while filler.write_all(&[1; 4096]).is_ok() {}
    };
    let refused = |store: &Store| {
        let refused = write(store, KEYS, put).expect_err("no block is left");
        assert!(matches!(refused, WriteError::Log(Unwritable::NoSpace(_))), "{refused:?}");
    };
    // A store that has only used its first segment has no reserve.
    let store = open(path, 1 << 30);
    write(&store, 0, put).expect("there is room");
    drop(store);
    fill();
    let store = open(path, 1 << 30);
    assert_eq!(store.keys(), 1);
    refused(&store);
    assert!(store.shortage().is_some());
    fs::remove_file(path.join("filler")).expect("it is there");
    // The store makes its next attempt after some time.
    while write(&store, 0, put).is_err() {
        std::thread::yield_now();
    }
    for key in 0..KEYS {
        write(&store, key, put).expect("there is room again");
    }
    drop(store);
    fill();
    for round in 1..=4 {
        let (store, _) = Store::open(OPTIONS, &directory, 1 << 30).expect("it opens");
        refused(&store);
        // Reclaim like the keeper: each earlier run has left a segment that is not full.
        while store.reclaim().expect("there is room to move what is alive") {}
        for key in (0..KEYS).filter(|key| key % 4 + 1 == round) {
            write(&store, key, Action::Delete).expect("a full disk takes deletes");
            while store.reclaim().expect("there is room to move what is alive") {}
        }
        assert_eq!(store.keys() as u32, KEYS / 4 * (4 - round));
        // Another process takes the freed blocks at once.
        fill();
    }
}

/// Another process takes all free blocks. The list of keys grows with its segment nevertheless, also when the store is
/// opened again.
fn lists_keys(path: &Path) {
    for round in 7..9_u32 {
        let store = open(path, 1 << 30);
        let mut items = Items::new(store.clone());
        // The first write makes the reserve.
        put(&mut items, round << 20, b"").expect("there is room");
        let _filler = taken_but(path, 0);
        let keys = (1..).find(|key| put(&mut items, round << 20 | key, b"").is_err());
        assert!(keys.expect("the disk is small") > 1000);
        // Only a later record shows that the others were on the disk.
        for _ in 0..2 {
            store.sync(store.last()).expect("the disk takes it");
            remove(&mut items, round << 20);
        }
        let crashed = ManuallyDrop::new(Directory(path.to_owned())).copy();
        let key = (round << 20 | 900).to_le_bytes();
        crashed.spoil(&[&key[..], &[0; 4]].concat(), 0, b'z');
        let at = durable(&crashed.0, true);
        let (_, report) = Store::open(OPTIONS, &at, 1 << 30).expect("it is repaired");
        let [doubt] = &report.doubts[..] else { panic!("{report:?}") };
        assert!(doubt.is_about(&key) && !report.has_unnamed, "{report:?}");
        fs::remove_file(path.join("filler")).expect("it is there");
    }
}

#[test]
fn full_disk_takes_the_keys_of_its_segments() {
    on_a_disk("keys", lists_keys);
}

#[test]
fn store_opens_on_a_full_disk() {
    on_a_disk("opens", opens);
}

/// Another process takes each block as soon as it is free.
fn deletes_beside_a_neighbour(path: &Path) {
    let store = open(path, 1 << 30);
    let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let mut items = Items::new(store.clone());
    let keys = (0..)
        .find(|key: &u32| {
            let refused = put(&mut items, *key, &[1; 200]).is_err();
            store.sync(store.last()).expect("the disk takes it");
            refused
        })
        .expect("small");
    let mut neighbour = taken_but(path, 0);
    for round in 0..keys {
        let key = (u64::from(round) * 7919 % u64::from(keys)) as u32;
        let removed = items.update(&key.to_le_bytes(), 1, |_| (Change::Remove, ())).0;
        store.sync(store.last()).expect("the disk takes it");
        assert!(removed.is_ok(), "delete {round} of {keys}: {removed:?} {:?}", store.figures());
        while neighbour.write_all(&[1; 4096]).is_ok() {}
    }
    assert_eq!(store.keys(), 0);
    drop(keeper);
}

#[test]
fn full_disk_takes_deletes_beside_a_neighbour_that_takes_all_space() {
    on_a_disk("neighbour", deletes_beside_a_neighbour);
}

/// An older version made no lists for spares, and a power cut may take them.
fn opens_without_lists(path: &Path) {
    let store = open(path, 1 << 30);
    let mut items = Items::new(store.clone());
    for key in 0..2000 {
        put(&mut items, key, &[1; 20]).expect("room");
    }
    drop((items, store));
    let entries = fs::read_dir(path).expect("readable");
    let mut lists: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "keys"))
        .collect();
    lists.sort();
    for list in &lists[lists.len() - 2..] {
        fs::remove_file(list).expect("it is there");
    }
    let _filler = taken_but(path, 0);
    open(path, 1 << 30);
}

#[test]
fn store_whose_spares_have_no_lists_opens_on_a_full_disk() {
    on_a_disk("no-lists", opens_without_lists);
}
