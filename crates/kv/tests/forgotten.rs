//! What a store may forget, and what it has back for it.

use std::fs;

use knee_kv::engine::Expiry;
use knee_kv::versioned::{
    Action, Condition, Consistency, DirectoryOptions, Durability, Store, StoreOptions, Write,
    WriteError,
};

const OPTIONS: StoreOptions = StoreOptions {
    consistency: Consistency::Sequential,
    stripes: 1,
    value_bytes_max: 1000,
    segment_bytes: 4096,
};

fn put(value: &[u8]) -> Action<'_> {
    Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value }
}

#[test]
fn a_version_of_a_key_that_is_gone_is_never_met_again() {
    let path = std::env::temp_dir().join(format!("knee-kv-forgotten-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    let directory =
        DirectoryOptions { path: path.clone(), durability: Durability::Always, repair: false };
    let (store, _) = Store::open(OPTIONS, &directory, 1 << 20).expect("it opens");
    let write = |key: &[u8], condition, action| {
        let committed = store.write(&[Write { key, condition, action }], None, 1)?;
        store.sync(committed.sequence).expect("the disk takes it");
        Ok(committed.version)
    };
    let first = write(b"key", Condition::Absent, put(b"one")).expect("it is taken");
    write(b"key", Condition::Version(first), Action::Delete).expect("it is taken");
    for _ in 0..3 {
        for _ in 0..20 {
            write(b"other", Condition::Always, put(&[0; 900])).expect("it is taken");
        }
        while store.reclaim().expect("there is room") {}
    }
    let other = write(b"key", Condition::Absent, put(b"another")).expect("it is taken");
    let late = write(b"key", Condition::Version(first), put(b"late"));
    let _ = fs::remove_dir_all(&path);
    assert!(other > first, "version {first} was made twice");
    assert!(
        matches!(late, Err(WriteError::Condition { index: 0, .. })),
        "a late write was taken: {late:?}"
    );
}

#[test]
fn a_store_in_memory_has_space_back() {
    let store = Store::in_memory(OPTIONS, 1 << 20).expect("memory");
    for round in 0..10_000 {
        let action = put(&[7; 900]);
        let write = Write { key: b"key", condition: Condition::Always, action };
        let written = store.write(&[write], None, 1);
        assert!(written.is_ok(), "{written:?} in round {round}, with 900 bytes alive");
        while store.reclaim().expect("there is room") {}
    }
}

#[test]
fn what_was_closed_in_good_order_is_there_whatever_the_durability() {
    for durability in [Durability::Interval(1), Durability::None] {
        let path = std::env::temp_dir().join(format!("knee-kv-closed-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let directory = DirectoryOptions { path: path.clone(), durability, repair: false };
        let (store, _) = Store::open(OPTIONS, &directory, 1 << 20).expect("it opens");
        let write = Write { key: b"key", condition: Condition::Always, action: put(b"value") };
        let committed = store.write(&[write], None, 1).expect("it is taken");
        store.sync(committed.sequence).expect("the disk takes it");
        drop(store);
        let (store, _) = Store::open(OPTIONS, &directory, 1 << 20).expect("it opens");
        let shown = store.read(b"key", 1, |_| true).expect("nothing is damaged").found;
        let _ = fs::remove_dir_all(&path);
        assert!(shown.is_some(), "{durability:?}: what was written is gone");
    }
}
