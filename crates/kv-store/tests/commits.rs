//! Commits are atomic, made once, and reported to watchers.

use std::ops::Bound;

use knee_kv_store::{
    Action, Condition, Consistency, RequestId, Store, StoreOptions, What, Write, WriteError,
};

use crate::store::{Directory, in_memory, open, options, put, set, value};

#[test]
fn failed_condition_refuses_the_whole_commit() {
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
fn repeated_request_is_made_once_over_a_restart() {
    let directory = Directory::new("requests");
    let mut store = open(&directory.0).expect("opens");
    let write = Write { key: b"list", condition: Condition::Always, action: Action::Append(b"x") };
    let id = |number| Some(RequestId { client: 3, number });
    let first = store.write(&[write], id(1), 1).expect("it is taken");
    assert_eq!(store.write(&[write], id(1), 1), Ok(first));
    let second = store.write(&[write], id(2), 1).expect("it is taken");
    // Later writes do not make the store forget the requests.
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
fn watchers_see_every_commit_in_order() {
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

#[test]
fn oversized_record_and_bad_segment_size_are_refused() {
    for segment_bytes in [0, 1000, (8 << 24) - 7, usize::MAX] {
        let options = StoreOptions { segment_bytes, ..options(Consistency::Linearizable) };
        let refused = Store::in_memory(options, 1 << 26).expect_err("no such segment");
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{segment_bytes}");
    }
    let store = in_memory(Consistency::Linearizable);
    for action in [put(b""), Action::Append(b"3"), Action::Delete] {
        let write = Write { key: &[b'k'; 4096], condition: Condition::Always, action };
        let refused = WriteError::TooLarge { index: 0, bytes_max: 0 };
        assert_eq!(store.write(&[write], None, 1), Err(refused));
    }
}
