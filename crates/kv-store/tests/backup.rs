//! Copies of a store, made while others write to it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, BackupError, Condition, Consistency, DirectoryOptions, Durability, History, Keeper,
    ReadError, Snapshot, Store, StoreOptions, Unwritable, Visited, Write, WriteError,
};

use knee_testkit::alone;

const SEGMENT_BYTES: usize = 1 << 21;

fn options(consistency: Consistency) -> StoreOptions {
    StoreOptions { consistency, stripes: 4, value_bytes_max: 4 << 20, segment_bytes: SEGMENT_BYTES }
}

fn open(path: &Path, consistency: Consistency) -> Store {
    let directory =
        DirectoryOptions { path: path.to_owned(), durability: Durability::Always, repair: false };
    Store::open(options(consistency), &directory, 1 << 26).expect("it opens").0
}

/// A temporary directory for stores and their copies.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("knee-kv-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("it can be made");
        Place(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().expect("text")).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn put(value: &[u8]) -> Action<'_> {
    Action::Put { flags: 7, expiry: Expiry::at(u32::MAX), marks: 0, value }
}

fn made(store: &Store, key: &[u8], action: Action<'_>) -> u64 {
    let write = Write { key, condition: Condition::Always, action };
    store.write(&[write], None, 1).expect("it is taken").version
}

/// Keys with their versions, flags, expiry and values.
type Seen = BTreeMap<Vec<u8>, (u64, u32, Expiry, Vec<u8>)>;

fn seen(store: &Store, snapshot: Option<&Snapshot>) -> Seen {
    let mut all = Seen::new();
    for stripe in 0..store.stripes() {
        let visit = |visited: &Visited<'_>| {
            let mut value = Vec::new();
            visited.value(|piece| {
                value.extend_from_slice(piece);
                true
            })?;
            let shown = visited.shown;
            all.insert(visited.key.to_vec(), (shown.version, shown.flags, shown.expiry, value));
            Ok(ControlFlow::Continue(()))
        };
        let range = (Bound::Unbounded, Bound::Unbounded);
        let scanned = store.scan_stripe(stripe, snapshot, range, usize::MAX, 1, visit);
        assert_eq!(scanned.expect("nothing is damaged").next, None);
    }
    all
}

#[test]
fn copy_is_the_store_at_one_commit_with_its_versions() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let place = Place::new("backup");
        let store = open(&place.0.join("store"), consistency);
        let _keeper = Keeper::start(store.clone(), History::Seconds(60)).expect("a thread");
        for element in 0..3000_u32 {
            made(&store, b"list", Action::Append(&element.to_le_bytes()));
        }
        made(&store, b"large", put(&vec![9; 3 << 20]));
        made(&store, b"empty", put(b""));
        let first = made(&store, b"gone", put(b"value"));
        let gone = made(&store, b"gone", Action::Delete);
        let snapshot = store.snapshot();
        let copy = place.0.join("copy");
        fs::create_dir(&copy).expect("an empty directory will do");
        let sequence = store.backup(&copy).expect("there is room");
        assert_eq!(sequence, snapshot.sequence());
        made(&store, b"later", put(b"not in the copy"));
        for _ in 0..2 {
            let copied = open(&copy, consistency);
            assert!(seen(&copied, None) == seen(&store, Some(&snapshot)));
            assert_eq!(copied.last(), sequence);
            let old = copied.read_at(b"gone", first, 1, |_| true).found;
            assert!(matches!(old, Err(ReadError::Compacted(_))), "{old:?}");
        }
        let copied = open(&copy, consistency);
        let next = made(&copied, b"gone", put(b"back"));
        assert!(next > gone, "{next} after {gone}");
    }
}

#[test]
fn copy_of_a_full_log_may_take_more_segments() {
    const PAIRS: u8 = 10;
    let place = Place::new("packed");
    let options = StoreOptions { stripes: 1, ..options(Consistency::Linearizable) };
    let store = Store::in_memory(options, u64::from(PAIRS) << 21).expect("memory");
    for pair in 0..PAIRS {
        // A segment holds one value of each size, but not two of the larger ones.
        made(&store, &[0, pair], put(&[pair; 1_000_000]));
        made(&store, &[1, pair], put(&vec![pair; 1 << 20]));
    }
    let write = Write { key: b"more", condition: Condition::Always, action: put(&[7; 500_000]) };
    let refused = store.write(&[write], None, 1).expect_err("there is no room");
    assert!(matches!(refused, WriteError::Log(Unwritable::Full(_))), "{refused:?}");
    let copy = place.0.join("copy");
    store.backup(&copy).expect("it is made");
    assert!(seen(&open(&copy, Consistency::Linearizable), None) == seen(&store, None));
}

#[test]
fn copy_has_no_half_bulk_put() {
    const KEYS: u8 = 8;
    let place = Place::new("bulk");
    let store = open(&place.0.join("store"), Consistency::Linearizable);
    let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            let (store, over) = (&store, &over);
            scope.spawn(move || {
                let mut round = 0_u32;
                while !over.load(Ordering::Acquire) {
                    round += 1;
                    let value = round.to_le_bytes().repeat(100);
                    let keys: Vec<_> = (0..KEYS).map(|key| [thread, key]).collect();
                    let condition = Condition::Always;
                    let write = |key| Write { key, condition, action: put(&value) };
                    let writes: Vec<_> = keys.iter().map(|key| write(key)).collect();
                    store.write(&writes, None, 1).expect("it is taken");
                }
            });
        }
        for round in 0..3 {
            let path = place.0.join(format!("copy{round}"));
            let outcome = store.backup(&path);
            let copied =
                outcome.is_ok().then(|| seen(&open(&path, Consistency::Linearizable), None));
            if round == 2 || outcome.is_err() {
                over.store(true, Ordering::Release);
            }
            outcome.expect("there is room");
            for thread in 0..2_u8 {
                let of_thread = copied.iter().flatten().filter(|(key, _)| key[0] == thread);
                let mut of_thread = of_thread.map(|(_, value)| value).collect::<Vec<_>>();
                of_thread.dedup();
                assert!(of_thread.len() <= 1, "the parts of one commit differ");
            }
        }
    });
    assert!(seen(&store, None).len() == 2 * usize::from(KEYS));
}

#[test]
fn copy_replaces_nothing() {
    let place = Place::new("occupied");
    let store = open(&place.0.join("store"), Consistency::Linearizable);
    let taken = place.0.join("taken");
    fs::create_dir(&taken).expect("it can be made");
    fs::write(taken.join("file"), b"something").expect("writable");
    let refused = store.backup(&taken);
    assert!(matches!(refused, Err(BackupError::Occupied)));
    let refused = store.backup(&place.0.join("store"));
    assert!(matches!(refused, Err(BackupError::Occupied)));
    assert_eq!(place.names(), ["store", "taken"]);
}

#[test]
fn only_one_of_several_copies_to_a_place_succeeds() {
    let place = Place::new("one-place");
    let stores = [(); 3].map(|()| {
        let store = Store::in_memory(options(Consistency::Linearizable), 1 << 26).expect("memory");
        for key in 0..100_u8 {
            made(&store, &[key], put(&[key; 100]));
        }
        store
    });
    for round in 0..10 {
        let to = place.0.join(format!("copy{round}"));
        let together = Barrier::new(6);
        let copy = |store: &Store| {
            together.wait();
            store.backup(&to)
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let copy = &copy;
            let stores = stores.iter().cycle().take(6);
            let copies: Vec<_> = stores.map(|store| scope.spawn(move || copy(store))).collect();
            copies.into_iter().map(|copy| copy.join().expect("it ends")).collect()
        });
        let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(made, 1, "{round}: {outcomes:?}");
        let is_other =
            |error: &BackupError| matches!(error, BackupError::InUse | BackupError::Occupied);
        let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        assert!(refused.clone().all(is_other), "{round}: {:?}", refused.collect::<Vec<_>>());
        assert_eq!(open(&to, Consistency::Linearizable).keys(), 100, "{round}");
    }
}

#[test]
fn damaged_store_leaves_no_copy() {
    let place = Place::new("unreadable");
    let store = open(&place.0.join("store"), Consistency::Linearizable);
    for key in 0..100_u8 {
        let committed = made(&store, &[key], put(&[key; 60_000]));
        store.sync(committed).expect("the disk takes it");
    }
    let segment = place.0.join("store/00000002.log");
    let mut bytes = fs::read(&segment).expect("readable");
    bytes[4096 + 1000] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    let refused = store.backup(&place.0.join("copy"));
    assert!(matches!(refused, Err(BackupError::Damage(_))), "{refused:?}");
    assert_eq!(place.names(), ["store"]);
}

#[test]
fn full_disk_leaves_no_copy() {
    alone("backup::without_room_a_copy_is_refused");
}

#[test]
#[ignore = "limits the size of files of its whole process"]
fn without_room_a_copy_is_refused() {
    let place = Place::new("no-room");
    let store = open(&place.0.join("store"), Consistency::Linearizable);
    made(&store, b"key", put(b"value"));
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is read while the call lasts, and the signal is ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let refused = store.backup(&place.0.join("copy"));
    match refused {
        Err(BackupError::Io(..) | BackupError::Log(Unwritable::NoSpace(_))) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(place.names(), ["store"]);
}
