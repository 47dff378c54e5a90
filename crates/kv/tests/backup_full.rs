//! A copy of a store for which there is no room.

use std::fs;

use knee_kv::engine::Expiry;
use knee_kv::versioned::{
    Action, BackupError, Condition, Consistency, DirectoryOptions, Durability, Store, StoreOptions,
    Unwritable, Write,
};

use crate::harness::alone;

#[test]
fn full_disk_leaves_no_copy() {
    alone("backup_full::without_room_a_copy_is_refused");
}

#[test]
#[ignore = "limits the files of its process, so it has one of its own"]
fn without_room_a_copy_is_refused() {
    let place = std::env::temp_dir().join(format!("knee-kv-full-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).expect("it can be made");
    let options = StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 4,
        value_bytes_max: 1 << 20,
        segment_bytes: 1 << 21,
    };
    let path = place.join("store");
    let directory = DirectoryOptions { path, durability: Durability::Always, repair: false };
    let store = Store::open(options, &directory, 1 << 26).expect("it opens").0;
    let action = Action::Put { flags: 7, expiry: Expiry::at(u32::MAX), marks: 0, value: b"value" };
    let write = Write { key: b"key", condition: Condition::Always, action };
    store.write(&[write], None, 1).expect("it is taken");
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is read while the call lasts, and the signal is ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let refused = store.backup(&place.join("copy"));
    match refused {
        Err(BackupError::Io(..) | BackupError::Log(Unwritable::NoSpace(_))) => {}
        other => panic!("{other:?}"),
    }
    let entries = fs::read_dir(&place).expect("it is there");
    let names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["store"]);
    drop(store);
    fs::remove_dir_all(&place).expect("it can be removed");
}
