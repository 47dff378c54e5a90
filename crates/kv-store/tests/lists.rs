//! Values that grow by appends.

use knee_kv_store::{Action, Consistency, Store, StoreOptions};

use crate::store::{Directory, act, durable, options, set, value};

#[test]
fn append_extends_a_list() {
    let directory = Directory::new("list");
    let options = StoreOptions {
        value_bytes_max: 1 << 24,
        segment_bytes: 1 << 18,
        ..options(Consistency::Linearizable)
    };
    let at = durable(&directory.0, false);
    let open = || Store::open(options, &at, 1 << 28).expect("opens").0;
    let mut store = open();
    let mut list = Vec::new();
    for element in 0..8_000_u32 {
        let element = element.to_le_bytes();
        act(&store, b"list", Action::Append(&element));
        list.extend_from_slice(&element);
        // Other writes leave dead records in between, so that the list's records move.
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
    // Each element of four bytes takes 96 bytes, and at least half of the log is live.
    let bytes = directory.segments().len() << 18;
    assert!(bytes < 2 * 8_000 * 96 + (4 << 18), "{bytes} bytes");
}
