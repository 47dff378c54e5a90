//! The contents of a directory after a crash, a restart or damage.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use knee_kv_store::{
    Action, Condition, Consistency, DirectoryError, DirectoryOptions, Durability, Opening, Pass,
    Report, Store, StoreOptions, Write,
};
use proptest::prelude::*;

use crate::store::{Directory, durable, put, value};

const SEGMENT_BYTES: usize = 4096;
/// The place at which the records of a file begin.
const RECORDS: usize = 4096;

const OPTIONS: StoreOptions = StoreOptions {
    consistency: Consistency::Linearizable,
    stripes: 4,
    value_bytes_max: 20_000,
    segment_bytes: SEGMENT_BYTES,
};

/// Those of a store that a crash ends, and of the store that opens its directory.
const DURABILITIES: [(Durability, Durability); 3] = [
    (Durability::Always, Durability::Always),
    (Durability::None, Durability::None),
    (Durability::None, Durability::Always),
];

fn open_with(
    Directory(path): &Directory,
    repair: bool,
    bytes_max: u64,
) -> Result<(Store, Report), DirectoryError> {
    Store::open(OPTIONS, &durable(path, repair), bytes_max)
}

fn open(directory: &Directory) -> Result<Store, DirectoryError> {
    open_with(directory, false, 1 << 26).map(|(store, _)| store)
}

fn open_at(Directory(path): &Directory, durability: Durability) -> Store {
    let options = DirectoryOptions { path: path.clone(), durability, repair: false };
    Store::open(OPTIONS, &options, 1 << 26).unwrap().0
}

fn write<'a>(key: &'a [u8], action: Action<'a>) -> Write<'a> {
    Write { key, condition: Condition::Always, action }
}

fn commit(store: &Store, writes: &[Write<'_>]) -> u64 {
    let made = store.write(writes, None, 1).expect("it is taken");
    store.sync(made.sequence).expect("the disk takes it");
    made.version
}

fn set(store: &Store, key: &[u8], value: &[u8]) -> u64 {
    commit(store, &[write(key, put(value))])
}

fn reclaim(store: &Store) {
    while store.reclaim().expect("there is room") {}
}

fn overwrite(path: &Path, range: Range<usize>, byte: u8) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![byte; range.len()], range.start as u64).unwrap();
}

/// A store whose commit of the keys `a` and `b` begins in its first segment and ends in the second.
fn with_a_commit_over_two_segments(directory: &Directory) -> Store {
    let store = open(directory).unwrap();
    set(&store, b"fill", &[1; 2000]);
    set(&store, b"fill too", &[1; 1000]);
    commit(&store, &[write(b"a", put(&[7; 500])), write(b"b", put(&[8; 900]))]);
    store
}

#[test]
fn commit_outlives_the_segment_of_its_end() {
    let directory = Directory::new("over-two");
    let store = with_a_commit_over_two_segments(&directory);
    for _ in 0..10 {
        set(&store, b"other", &[2; 1000]);
    }
    reclaim(&store);
    // Test both a crashed and a closed store.
    let crashed = directory.copy();
    drop(store);
    for directory in [directory, crashed] {
        for _ in 0..2 {
            let store = open(&directory).unwrap();
            assert_eq!(value(&store, b"a"), Some(vec![7; 500]));
            assert_eq!(value(&store, b"b"), Some(vec![8; 900]));
        }
    }
}

#[test]
fn incomplete_commit_never_comes_back() {
    for (durability, later) in DURABILITIES {
        let directory = Directory::new("cut-off");
        let store = open_at(&directory, durability);
        set(&store, b"fill", &[1; 2000]);
        set(&store, b"fill too", &[1; 1000]);
        let crashed = directory.copy();
        commit(&store, &[write(b"a", put(&[7; 500])), write(b"b", put(&[8; 900]))]);
        // Only the part of the commit in the first segment reached the disk.
        let first = directory.segments().remove(0);
        fs::copy(&first, crashed.0.join(first.file_name().unwrap())).unwrap();
        drop(store);
        for round in 0..4 {
            let store = open_at(&crashed, later);
            assert_eq!(value(&store, b"a"), None, "start {round}, {durability:?}");
            assert_eq!(value(&store, b"b"), None, "start {round}, {durability:?}");
            set(&store, b"other", &[2; 1000]);
            reclaim(&store);
            if round % 2 == 0 {
                // Copy the files as a crash would leave them now.
                let copy = crashed.copy();
                drop(store);
                let store = open_at(&copy, later);
                assert_eq!(value(&store, b"a"), None, "crash {round}, {durability:?}");
            }
        }
    }
}

#[test]
fn incomplete_commit_over_segments_never_comes_back() {
    for (durability, later) in DURABILITIES {
        let directory = Directory::new("cut-later");
        let store = open_at(&directory, durability);
        set(&store, b"fill", &[1; 2000]);
        set(&store, b"fill too", &[1; 1000]);
        let writes =
            [write(b"a", put(&[7; 500])), write(b"b", put(&[8; 900])), write(b"c", put(&[9; 900]))];
        commit(&store, &writes);
        let crashed = directory.copy();
        drop(store);
        // The crash came within the last record.
        let path = crashed.segments().remove(1);
        let at = fs::read(&path).unwrap().windows(9).position(|window| window == [9; 9]).unwrap();
        overwrite(&path, at..2 * RECORDS, 0);
        for start in 0..4 {
            let store = open_at(&crashed, later);
            for key in [b"a", b"b", b"c"] {
                assert_eq!(value(&store, key), None, "start {start}, {durability:?}");
            }
            set(&store, b"other", &[3; 900]);
            reclaim(&store);
        }
    }
}

#[test]
fn emptied_segment_is_named() {
    type Harm = fn(&Path);
    let harms: [(&str, usize, Harm); 6] = [
        ("cut within its first record", 1, |path| cut(path, RECORDS + 100)),
        ("cut to no record", 1, |path| cut(path, RECORDS + 48)),
        ("cut to nothing", 1, |path| cut(path, 100)),
        ("the last one cut behind a record", usize::MAX, |path| cut(path, RECORDS + 960)),
        ("overwritten with zeros", 1, |path| overwrite(path, RECORDS..RECORDS + 4096, 0)),
        ("without its end", 1, |path| overwrite(path, RECORDS + 3000..RECORDS + 4096, 0)),
    ];
    for (harm, segment, inflict) in harms {
        let directory = Directory::new("harmed");
        let store = open(&directory).unwrap();
        for n in 0..19_u8 {
            set(&store, &[b'k', n], &[n; 900]);
        }
        drop(store);
        let segments = directory.segments();
        // The last two segments are made ahead, and empty.
        let path = &segments[segment.min(segments.len() - 3)];
        inflict(path);
        let refused = open(&directory).map(|_| ()).expect_err(harm);
        assert!(
            matches!(&refused, DirectoryError::Damaged(file, _) if file == path),
            "{harm}: {refused}"
        );
        let (store, report) = open_with(&directory, true, 1 << 26).expect(harm);
        assert!(report.lost.iter().any(|lost| lost.file == *path), "{harm}: {report:?}");
        let there =
            |store: &Store| (0..19_u8).filter(|&n| value(store, &[b'k', n]).is_some()).count();
        let kept = there(&store);
        assert!(kept >= 15, "{harm}: {kept} keys of 19 are left");
        drop(store);
        // After the repair, the store opens without one.
        let store = open(&directory).expect(harm);
        assert_eq!(there(&store), kept, "{harm}");
    }
}

fn cut(path: &Path, length: usize) {
    fs::File::options().write(true).open(path).unwrap().set_len(length as u64).unwrap();
}

#[test]
fn flip_in_the_last_record_of_a_closed_store_is_named() {
    let directory = Directory::new("last");
    let store = open(&directory).unwrap();
    set(&store, b"key", &[1; 100]);
    let crashed = directory.copy();
    drop(store);
    for directory in [&directory, &crashed] {
        overwrite(&directory.segments()[0], RECORDS + 80..RECORDS + 81, 9);
    }
    let refused = open(&directory).map(|_| ()).expect_err("it was on the disk");
    assert!(refused.to_string().contains("from byte 4096 on"), "{refused}");
    // After a crash, the record counts as cut off.
    assert_eq!(value(&open(&crashed).unwrap(), b"key"), None);
}

/// The system has every commit that a client may see, so a killed process loses none.
#[test]
fn seen_commits_outlive_a_kill_at_any_durability() {
    for durability in [Durability::Always, Durability::Interval(600_000), Durability::None] {
        let directory = Directory::new("handed");
        let store = open_at(&directory, durability);
        // Over several segments, and with a commit over two of them.
        for n in 0..20_u8 {
            commit(&store, &[write(&[n], put(&[n; 900])), write(&[n, n], put(&[n; 500]))]);
            let killed = open(&directory.copy()).unwrap();
            for n in 0..=n {
                assert_eq!(value(&killed, &[n]), Some(vec![n; 900]), "{durability:?}");
                assert_eq!(value(&killed, &[n, n]), Some(vec![n; 500]), "{durability:?}");
            }
        }
    }
}

#[test]
fn restarts_do_not_fill_the_log() {
    let directory = Directory::new("restarts");
    for round in 0..40_u8 {
        let (store, _) = open_with(&directory, false, 16 * SEGMENT_BYTES as u64).unwrap();
        reclaim(&store);
        for part in 0..3_u8 {
            let key = [b'k', round, part];
            let written = store.write(&[write(&key, put(&[0; 20]))], None, 1);
            assert!(written.is_ok(), "start {round}: {written:?}");
        }
        for _ in 0..60 {
            let written = store.write(&[write(b"churn", put(&[0; 60]))], None, 1);
            assert!(written.is_ok(), "start {round}: {written:?}");
        }
        reclaim(&store);
    }
}

#[test]
fn versions_stay_unique_over_restarts() {
    let directory = Directory::new("versions");
    let store = open(&directory).unwrap();
    set(&store, b"live", &[1; 1500]);
    set(&store, b"dead", &[2; 1500]);
    set(&store, b"x", &[3; 500]);
    for bytes in [1000, 1000, 700] {
        set(&store, b"dead", &vec![2; bytes]);
    }
    for key in [&b"x"[..], b"dead"] {
        commit(&store, &[write(key, Action::Delete)]);
    }
    let last = store.last();
    reclaim(&store);
    drop(store);
    for _ in 0..3 {
        let store = open(&directory).unwrap();
        assert!(store.last() >= last, "{} after {last}", store.last());
    }
    let next = set(&open(&directory).unwrap(), b"new", b"x");
    assert!(next > last, "version {next} again: the last one before the restart was {last}");
}

#[test]
fn append_without_its_base_is_dropped() {
    let directory = Directory::new("grown");
    let store = open(&directory).unwrap();
    let _all = store.snapshot();
    set(&store, b"a", b"old old old");
    let _old = store.snapshot();
    set(&store, b"a", b"new new new");
    commit(&store, &[write(b"a", Action::Append(b"+tail"))]);
    for _ in 0..6 {
        set(&store, b"z", &[1; 900]);
    }
    drop(store);
    drop((_all, _old));
    let segment = directory.segments().remove(0);
    let bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(7).position(|window| window == b"new new").unwrap();
    overwrite(&segment, at..at + 1, b'X');
    let (store, report) = open_with(&directory, true, 1 << 26).unwrap();
    assert_eq!(report.lost.len(), 1);
    assert_ne!(
        value(&store, b"a").as_deref(),
        Some(&b"old old old+tail"[..]),
        "no client wrote that"
    );
}

#[test]
fn store_of_another_consistency_is_refused() {
    let directory = Directory::new("consistency");
    set(&open(&directory).unwrap(), b"a", b"1");
    let options = StoreOptions { consistency: Consistency::Sequential, ..OPTIONS };
    let other = durable(&directory.0, true);
    let refused = Store::open(options, &other, 1 << 26).map(|_| ()).expect_err("versions differ");
    assert!(refused.to_string().contains("linearizable"), "{refused}");
}

/// A manifest as text, with its checksum.
fn with_checksum(json: &str) -> String {
    format!("{json}\n{:08x}\n", crc32c::crc32c(json.as_bytes()))
}

#[test]
fn store_of_another_format_is_refused() {
    let directory = Directory::new("format");
    drop(open(&directory).unwrap());
    for name in ["MANIFEST", "MANIFEST.copy"] {
        let manifest = directory.0.join(name);
        let text = fs::read_to_string(&manifest).unwrap();
        let (json, _) = text.split_once('\n').unwrap();
        let before = json.replace("\"format\":5", "\"format\":4");
        fs::write(&manifest, with_checksum(&before)).unwrap();
    }
    for repair in [false, true] {
        let refused = open_with(&directory, repair, 1 << 26).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("format 4 is unknown; this program reads format 5"), "{refused}");
    }
}

#[test]
fn manifest_is_rebuilt_from_the_segments() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        for harm in [None, Some(&b"{}"[..])] {
            let directory = Directory::new("rebuilt");
            let open = |repair| {
                let at = durable(&directory.0, repair);
                Store::open(StoreOptions { consistency, ..OPTIONS }, &at, 1 << 26)
            };
            let (store, _) = open(false).unwrap();
            for n in 0..30_u8 {
                set(&store, &[n], &[n; 900]);
            }
            // Delete records and dead segments, and a forgotten key with the largest version of all.
            let versions = (0..40).map(|_| set(&store, &[0], &[0; 900])).max().unwrap();
            for n in 0..10_u8 {
                commit(&store, &[write(&[n], Action::Delete)]);
            }
            reclaim(&store);
            let last = store.last();
            drop(store);
            for name in ["MANIFEST", "MANIFEST.copy"] {
                match harm {
                    Some(bytes) => fs::write(directory.0.join(name), bytes).unwrap(),
                    None => fs::remove_file(directory.0.join(name)).unwrap(),
                }
            }
            let refused = open(false).map(|_| ()).unwrap_err();
            assert!(matches!(refused, DirectoryError::Damaged(..)), "{refused}");
            for repair in [true, false] {
                let (store, report) = open(repair).unwrap();
                assert_eq!((report.is_rebuilt, report.lost.len()), (repair, 0));
                assert_eq!(store.keys(), 20);
                assert!((10..30_u8).all(|n| value(&store, &[n]) == Some(vec![n; 900])));
                assert!(store.last() > last);
                let version = set(&store, &[0], b"again");
                assert!(version > versions, "version {version} after {versions}");
                commit(&store, &[write(&[0], Action::Delete)]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16 * knee_testkit::soak(), ..ProptestConfig::default() })]

    /// A crash may keep any subset of the sectors that were written since the last sync.
    #[test]
    fn torn_batch_leaves_no_half_commit(
        safe in proptest::collection::vec(1..600_usize, 0..8),
        batch in proptest::collection::vec(proptest::collection::vec(1..1500_usize, 1..5), 1..6),
        missing in proptest::collection::vec(any::<bool>(), 64),
    ) {
        let directory = Directory::new("torn");
        let store = open(&directory).unwrap();
        for (n, &bytes) in safe.iter().enumerate() {
            set(&store, format!("safe{n}").as_bytes(), &vec![1; bytes]);
        }
        let before = directory.copy();
        for (commit, keys) in batch.iter().enumerate() {
            let keys: Vec<(String, Vec<u8>)> = keys
                .iter()
                .enumerate()
                .map(|(n, &bytes)| (format!("{commit}-{n}"), vec![2; bytes]))
                .collect();
            let writes: Vec<_> =
                keys.iter().map(|(key, value)| write(key.as_bytes(), put(value))).collect();
            store.write(&writes, None, 1).expect("it is taken");
        }
        // A single sync covers all commits; the crash keeps some of its sectors.
        store.sync(store.last()).unwrap();
        let crashed = directory.copy();
        drop(store);
        let mut missing = missing.iter().cycle();
        for path in crashed.segments() {
            let old = fs::read(before.0.join(path.file_name().unwrap())).unwrap_or_default();
            let new = fs::read(&path).unwrap();
            for at in (RECORDS..new.len()).step_by(512) {
                let sector = at..new.len().min(at + 512);
                let was = old.get(sector.clone()).unwrap_or(&[0; 512][..sector.len()]);
                if was != &new[sector.clone()] && *missing.next().unwrap() {
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    file.write_all_at(was, at as u64).unwrap();
                }
            }
        }
        for start in 0..3 {
            let store = open(&crashed);
            prop_assert!(store.is_ok(), "start {}: {}", start, store.unwrap_err());
            let store = store.unwrap();
            for (n, &bytes) in safe.iter().enumerate() {
                prop_assert_eq!(value(&store, format!("safe{n}").as_bytes()), Some(vec![1; bytes]));
            }
            let mut is_over = false;
            for (commit, keys) in batch.iter().enumerate() {
                let there: Vec<bool> = (0..keys.len())
                    .map(|n| value(&store, format!("{commit}-{n}").as_bytes()).is_some())
                    .collect();
                prop_assert!(
                    there.iter().all(|&is| is == there[0]), "start {}: half of a commit: {:?}", start, there
                );
                prop_assert!(!(is_over && there[0]), "a commit without the one before it");
                is_over |= !there[0];
            }
            set(&store, b"again", &[3; 900]);
            reclaim(&store);
        }
    }
}

#[test]
fn opening_reports_progress_of_both_passes() {
    let directory = Directory::new("progress");
    let store = open(&directory).unwrap();
    for number in 0..40_u8 {
        set(&store, &[number], &[number; 1000]);
    }
    drop(store);
    let options = durable(&directory.0, false);
    let mut reported = Vec::new();
    let tell = &mut |opening: Opening| reported.push(opening);
    Store::open_and_tell(OPTIONS, &options, 1 << 26, tell).unwrap();
    let (checked, restored): (Vec<_>, Vec<_>) =
        reported.iter().partition(|opening| opening.pass == Pass::Check);
    assert!(reported.starts_with(&checked.iter().copied().copied().collect::<Vec<_>>()));
    for pass in [checked, restored] {
        assert!(pass.len() > 5, "{pass:?}");
        assert!(pass.is_sorted_by_key(|opening| opening.bytes), "{pass:?}");
        assert!(pass.iter().all(|opening| opening.bytes_all == pass[0].bytes_all), "{pass:?}");
        assert_eq!(pass[pass.len() - 1].bytes, pass[0].bytes_all);
        assert!(pass[0].bytes_all > 40_000, "{pass:?}");
    }
}
