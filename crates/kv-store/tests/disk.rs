//! Failed reads of the disk, and failed syncs.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

use knee_kv_store::{
    Consistency, DirectoryError, DirectoryOptions, Durability, Store, StoreOptions,
};

use crate::store::{Directory, durable, open, options, scanned, set};

/// An instruction of a seccomp filter: code, operand, and the instructions to skip if it is true or false.
type Instruction = (u32, u32, u8, u8);

fn load(at: u32) -> Instruction {
    (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

fn is(call: libc::c_long, jt: u8, jf: u8) -> Instruction {
    (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, jt, jf)
}

fn end(with: u32) -> Instruction {
    (libc::BPF_RET | libc::BPF_K, with, 0, 0)
}

const FAILS: u32 = libc::SECCOMP_RET_ERRNO | libc::EIO as u32;
/// The offset of the call's number in `struct seccomp_data`.
const CALL: u32 = 0;

/// Makes every later read of this thread fail if it covers the byte at `place` of a file.
fn fail_to_read(place: u32) {
    let is_behind = |jt, jf| (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, place, jt, jf);
    // The offsets of the call's third argument (length) and fourth argument (place).
    let (length, offset) = (32, 40);
    filter_calls(&[
        load(CALL),
        is(libc::SYS_pread64, 0, 6),
        load(length),
        (libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
        load(offset),
        is_behind(2, 0),
        (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0, 0, 0),
        is_behind(1, 0),
        end(libc::SECCOMP_RET_ALLOW),
        end(FAILS),
    ]);
}

/// Applies the filter to all later calls of this thread.
fn filter_calls(filter: &[Instruction]) {
    let of = |&(code, k, jt, jf): &Instruction| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter: Vec<_> = filter.iter().map(of).collect();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the calls get numbers, and a program that outlives them.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn unreadable_block_is_named_and_the_rest_is_rescued() {
    let directory = Directory::new("unreadable");
    let options = StoreOptions { segment_bytes: 64 << 10, ..options(Consistency::Linearizable) };
    let opened = |repair| Store::open(options, &durable(&directory.0, repair), 1 << 26);
    let (store, _) = opened(false).expect("opens");
    for key in 0..100_u8 {
        set(&store, &[key], &[key; 400]);
    }
    drop(store);
    fail_to_read(4096 + 20_000);
    let refused = opened(false).expect_err("it cannot be read");
    assert!(matches!(&refused, DirectoryError::Damaged(_, what) if what.contains("cannot read")));
    let (store, report) = opened(true).expect("opens without it");
    assert_eq!(report.lost.len(), 1);
    assert!((88..=90).contains(&store.keys()), "{} keys", store.keys());
    let whole = |(key, value): (Vec<u8>, Vec<u8>)| value == [key[0]; 400];
    assert!(scanned(&store, None).into_iter().all(whole));
}

#[test]
fn unsynced_bytes_are_written_again() {
    let directory = Directory::new("again");
    let opened = || open(&directory.0).expect("opens");
    let again = written_again(&directory, opened, 400, || ());
    assert!(again[..5].iter().all(|&again| again), "{again:?}");
}

#[test]
fn unsynced_bytes_before_a_bad_block_are_written_again() {
    let directory = Directory::new("again-unreadable");
    let options = StoreOptions {
        segment_bytes: 64 << 10,
        value_bytes_max: 5000,
        ..options(Consistency::Linearizable)
    };
    let opened = || Store::open(options, &durable(&directory.0, false), 1 << 26).expect("opens").0;
    // Twelve records and a seal leave the last block of a segment empty.
    let again = written_again(&directory, opened, 5000, || fail_to_read(4096 + (60 << 10) + 100));
    assert!(again[..3].iter().all(|&again| again), "{again:?}");
}

#[test]
fn undurable_bytes_are_written_again_for_a_durable_store() {
    for (durability, again) in [(Durability::None, false), (Durability::Always, true)] {
        let directory = Directory::new("again-lazy");
        let open = |durability| {
            let path = directory.0.clone();
            let at = DirectoryOptions { path, durability, repair: false };
            Store::open(options(Consistency::Linearizable), &at, 1 << 26).expect("opens").0
        };
        let store = open(Durability::None);
        for key in 0..40_u8 {
            set(&store, &[key], &[key; 400]);
        }
        drop(store);
        let mut segments = directory.segments();
        segments.truncate(5);
        let made = SystemTime::UNIX_EPOCH;
        for segment in &segments {
            let file = File::options().write(true).open(segment).expect("opens");
            file.set_modified(made).expect("set");
        }
        assert_eq!(open(durability).keys(), 40);
        for segment in segments {
            let modified = segment.metadata().expect("it is there").modified().expect("has one");
            assert_eq!(modified > made, again, "{segment:?} for {durability:?}");
        }
    }
}

/// Writes forty keys and simulates a crash. Calls `before`, opens the store, and returns for each segment whether the
/// store wrote it again. It always writes some of the last segments again.
fn written_again(
    directory: &Directory,
    opened: impl Fn() -> Store,
    value_bytes: usize,
    before: impl FnOnce(),
) -> Vec<bool> {
    let store = opened();
    for key in 0..40_u8 {
        set(&store, &[key], &vec![key; value_bytes]);
    }
    store.sync(store.last()).expect("the disk takes it");
    let image = directory.contents();
    drop(store);
    directory.restore(&image);
    let made = SystemTime::UNIX_EPOCH;
    let segments = directory.segments();
    for segment in &segments {
        File::options().write(true).open(segment).expect("opens").set_modified(made).expect("set");
    }
    before();
    assert_eq!(opened().keys(), 40);
    let is_again =
        |segment: &PathBuf| segment.metadata().is_ok_and(|is| is.modified().ok() > Some(made));
    segments.iter().map(is_again).collect()
}

/// The system reports a failed write only once: the next sync succeeds.
#[test]
fn source_of_a_move_stays_after_a_failed_sync() {
    let directory = Directory::new("moved");
    let at =
        DirectoryOptions { path: directory.0.clone(), durability: Durability::None, repair: false };
    let store = Store::open(options(Consistency::Linearizable), &at, 1 << 26).expect("opens").0;
    // A quarter of the first two segments is live.
    for key in (0..8_u8).chain([0, 1, 2, 4, 5, 6]).chain(8..12) {
        set(&store, &[key], &[key; 900]);
    }
    store.write_out().expect("the disk takes it");
    let before = directory.segments();
    std::thread::scope(|scope| {
        let fails = || {
            filter_calls(&[
                load(CALL),
                is(libc::SYS_syncfs, 0, 1),
                end(FAILS),
                end(libc::SECCOMP_RET_ALLOW),
            ]);
            store.reclaim().expect_err("the disk has failed")
        };
        scope.spawn(fails).join().expect("it fails");
    });
    store.reclaim().expect_err("part of it may be on the disk");
    assert!(before.iter().all(|segment| segment.exists()));
}

#[test]
fn blocks_of_the_next_manifest_outlive_a_restart() {
    let directory = Directory::new("manifest");
    drop(open(&directory.0).expect("opens"));
    let copies = ["MANIFEST", "MANIFEST.copy"].map(|name| directory.0.join(name));
    let files = copies.map(|copy| File::open(copy).expect("it is there"));
    drop(open(&directory.0).expect("opens"));
    for file in files {
        let links = file.metadata().expect("it is open").nlink();
        assert_eq!(links, 1, "another process may have them");
    }
}
