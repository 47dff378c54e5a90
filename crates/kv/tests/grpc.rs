//! The gRPC front, through the network.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use knee_kv::grpc::proto::honu::storage_client::StorageClient;
use knee_kv::grpc::proto::honu::{GetReply, GetRequest, PutReply, PutRequest as HonuPutRequest};
use knee_kv::grpc::proto::v1::{
    AppendRequest, BulkPutRequest, Change, CompactRequest, DeleteRequest, HistoryRequest,
    InsertRequest, Nothing, PutRequest, ReadAtRequest, ScanRequest, UpdateRequest, Value, change,
    past,
};
use knee_kv::versioned::{Consistency, KEY_BYTES_MAX, Store as Versioned, StoreOptions};
use serving::{
    Client, Directory, Model, Store, VALUE_BYTES_MAX, begin, begin_atomic, everything, key,
    options, put, read, rest, settings, stats, value,
};
use tokio::task::JoinSet;
use tonic::{Code, Status};

mod serving;

/// The numbers that a seed gives (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

async fn insert(client: &mut Client, key: &[u8], bytes: &[u8]) -> Result<u64, Status> {
    let request =
        InsertRequest { key: key.to_vec().into(), value: value(bytes), ..InsertRequest::default() };
    client.insert(request).await.map(|response| response.into_inner().version)
}

async fn update(client: &mut Client, key: &[u8], bytes: &[u8]) -> Result<u64, Status> {
    let request =
        UpdateRequest { key: key.to_vec().into(), value: value(bytes), ..UpdateRequest::default() };
    client.update(request).await.map(|response| response.into_inner().version)
}

async fn delete(client: &mut Client, key: &[u8]) -> Result<u64, Status> {
    let request = DeleteRequest { key: key.to_vec().into(), ..DeleteRequest::default() };
    client.delete(request).await.map(|response| response.into_inner().version)
}

async fn bulk_put(client: &mut Client, changes: Vec<Change>) -> Result<u64, Status> {
    let request = BulkPutRequest { changes, request: None };
    client.bulk_put(request).await.map(|response| response.into_inner().version)
}

fn changed(key: &[u8], bytes: &[u8]) -> Change {
    let put = Value { value: bytes.to_vec().into(), ..Value::default() };
    Change { key: key.to_vec().into(), action: Some(change::Action::Put(put)), condition: None }
}

async fn inserted(store: &Store, keys: usize, bytes: impl Fn(usize) -> Vec<u8>) -> Model {
    let mut client = store.client().await;
    let mut model = Model::new();
    for number in 0..keys {
        insert(&mut client, &key(number), &bytes(number)).await.unwrap();
        model.insert(key(number), bytes(number));
    }
    model
}

async fn joined(mut tasks: JoinSet<()>) {
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap();
    }
}

// The six tests of seed 003, with its names. Where it slowed the store down to see what happens in
// between, here many clients are at it at once.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simple_read_write() {
    let store = Store::start();
    let mut model = inserted(&store, 200, |number| number.to_string().into_bytes()).await;
    let mut client = store.client().await;
    let (mut random, mut last) = (Random(1), 0);
    for round in 0..300 {
        let key = key(random.below(200));
        let bytes = format!("update {round}").into_bytes();
        let version = update(&mut client, &key, &bytes).await.unwrap();
        assert!(version > last, "version {version} behind {last}");
        last = version;
        model.insert(key.clone(), bytes.clone());
        assert_eq!(read(&mut client, &key).await.unwrap(), (bytes, version));
    }
    assert_eq!(rest(begin(&mut client, everything()).await).await.unwrap(), model);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_read() {
    let store = Store::start();
    let model = Arc::new(inserted(&store, 100, |number| vec![number as u8; number * 10]).await);
    let mut clients = JoinSet::new();
    for seed in 1..=8 {
        let (mut client, model) = (store.client().await, Arc::clone(&model));
        clients.spawn(async move {
            let mut random = Random(seed);
            for _ in 0..100 {
                let key = key(random.below(100));
                assert_eq!(&read(&mut client, &key).await.unwrap().0, &model[&key]);
            }
        });
    }
    joined(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_read_write() {
    let directory = Directory::new("multi-read-write");
    let store = Store::of(directory.open(options()), settings());
    inserted(&store, 40, |_| b"0".to_vec()).await;
    // What was acknowledged for each key, at least: the values count up.
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..40).map(|_| AtomicU64::new(0)).collect());
    let mut clients = JoinSet::new();
    for seed in 1..=8 {
        let (mut client, acknowledged) = (store.client().await, Arc::clone(&acknowledged));
        clients.spawn(async move {
            let mut random = Random(seed as u64);
            for round in 1..=20_u64 {
                // Each client writes keys of its own and reads all.
                let own = 5 * (seed - 1) + random.below(5);
                let next = acknowledged[own].load(Ordering::SeqCst) + round;
                let bytes = next.to_string().into_bytes();
                update(&mut client, &key(own), &bytes).await.unwrap();
                acknowledged[own].store(next, Ordering::SeqCst);
                for _ in 0..10 {
                    let number = random.below(40);
                    let least = acknowledged[number].load(Ordering::SeqCst);
                    let (bytes, _) = read(&mut client, &key(number)).await.unwrap();
                    let found: u64 = String::from_utf8(bytes).unwrap().parse().unwrap();
                    assert!(found >= least, "key {number}: {found} after {least} was acknowledged");
                }
            }
        });
    }
    joined(clients).await;
    // It is all there in the next life of the directory.
    drop(store);
    let store = Store::of(directory.open(options()), settings());
    let found = rest(begin(&mut store.client().await, everything()).await).await.unwrap();
    for (number, value) in acknowledged.iter().enumerate() {
        let value = value.load(Ordering::SeqCst).to_string().into_bytes();
        assert_eq!(found[&key(number)], value);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomic_update() {
    let store = Store::start();
    let of = |number: u64| number.to_le_bytes().repeat(8 << 10);
    put(&mut store.client().await, b"key", &of(0)).await.unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (mut client, acknowledged) = (store.client().await, Arc::clone(&acknowledged));
        clients.spawn(async move {
            loop {
                let least = acknowledged.load(Ordering::SeqCst);
                let (bytes, _) = read(&mut client, b"key").await.unwrap();
                let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == of(found), "part of update {found}");
                assert!(found >= least, "{found} after {least} was acknowledged");
                if least == 100 {
                    return;
                }
            }
        });
    }
    let mut client = store.client().await;
    for number in 1..=100 {
        update(&mut client, b"key", &of(number)).await.unwrap();
        acknowledged.store(number, Ordering::SeqCst);
    }
    joined(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan() {
    const KEYS: usize = 600;
    let store = Store::start();
    let before = inserted(&store, KEYS, |number| format!("old{number:0>3000}").into_bytes()).await;
    let old = || ScanRequest {
        predicate: "string(value).startsWith('old')".to_owned(),
        ..ScanRequest::default()
    };
    let small = |endpoint: tonic::transport::Endpoint| {
        endpoint.initial_stream_window_size(1 << 16).initial_connection_window_size(1 << 16)
    };
    let mut scanner = store.client_with(small).await;
    let mut writer = store.client().await;
    for deletes in [false, true] {
        // Both have begun, and are held up by a reader that does not go on.
        let mut plain = begin(&mut scanner, old()).await;
        let first = plain.message().await.unwrap().unwrap().entries.len();
        let mut other = store.client_with(small).await;
        let atomic = begin_atomic(&mut other, old()).await;
        for number in (0..KEYS).rev() {
            if deletes {
                assert!(delete(&mut writer, &key(number)).await.unwrap() > 0);
            } else {
                update(&mut writer, &key(number), b"new").await.unwrap();
            }
        }
        let late = rest(plain).await.unwrap().len();
        assert!(first > 0 && first + late < KEYS, "{first} and {late} of {KEYS}");
        assert!(
            rest(atomic).await.unwrap() == before,
            "an atomic scan sees what was written later"
        );
        assert!(rest(begin_atomic(&mut scanner, old()).await).await.unwrap().is_empty());
        for (key, bytes) in &before {
            put(&mut writer, key, bytes).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_put_is_seen_as_a_whole_or_not_at_all() {
    const KEYS: usize = 3000;
    let store = Store::start();
    let of = |round: usize| round.to_string().into_bytes();
    let all = |round: usize| (0..KEYS).map(|number| changed(&key(number), &of(round))).collect();
    let mut writer = store.client().await;
    bulk_put(&mut writer, all(0)).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for seed in 1..=3 {
        let (mut client, over) = (store.client().await, Arc::clone(&over));
        clients.spawn(async move {
            let (mut random, mut last) = (Random(seed), 0);
            while !over.load(Ordering::SeqCst) {
                if seed == 1 {
                    // All that one moment has.
                    let found = rest(begin_atomic(&mut client, everything()).await).await.unwrap();
                    let values: std::collections::BTreeSet<_> = found.values().collect();
                    assert_eq!((found.len(), values.len()), (KEYS, 1));
                } else {
                    // Once a value of a round is there, no value of an earlier one is.
                    let (bytes, _) = read(&mut client, &key(random.below(KEYS))).await.unwrap();
                    let round: u64 = String::from_utf8(bytes).unwrap().parse().unwrap();
                    assert!(round >= last, "round {round} after round {last}");
                    last = round;
                }
            }
        });
    }
    for round in 1..=12 {
        let version = bulk_put(&mut writer, all(round)).await.unwrap();
        assert_eq!(read(&mut writer, &key(round)).await.unwrap(), (of(round), version));
    }
    over.store(true, Ordering::SeqCst);
    joined(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_puts_have_conditions_and_all_must_hold() {
    let store = Store::start();
    let mut client = store.client().await;
    let version = put(&mut client, b"a", b"1").await.unwrap();
    let with = |key: &[u8], condition| Change { condition: Some(condition), ..changed(key, b"2") };
    for (condition, code, message) in [
        (change::Condition::IfAbsent(Nothing {}), Code::AlreadyExists, "key 'a' is there"),
        (change::Condition::IfVersion(version + 1), Code::Aborted, "not in version 2"),
    ] {
        let status = bulk_put(&mut client, vec![changed(b"b", b"2"), with(b"a", condition)]);
        let status = status.await.unwrap_err();
        assert_eq!(status.code(), code);
        assert!(status.message().contains(message), "{status}");
        assert_eq!(read(&mut client, b"b").await.unwrap_err().code(), Code::NotFound);
    }
    let absent = with(b"c", change::Condition::IfPresent(Nothing {}));
    let status = bulk_put(&mut client, vec![changed(b"b", b"2"), absent]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);

    let mut appended = with(b"a", change::Condition::IfVersion(version));
    appended.action = Some(change::Action::Append(b"2".to_vec().into()));
    let mut deleted = changed(b"b", b"");
    deleted.action = Some(change::Action::Delete(Nothing {}));
    let absent = with(b"c", change::Condition::IfAbsent(Nothing {}));
    let version = bulk_put(&mut client, vec![appended, deleted, absent]).await.unwrap();
    assert_eq!(read(&mut client, b"a").await.unwrap(), (b"12".to_vec(), version));
    assert_eq!(read(&mut client, b"c").await.unwrap(), (b"2".to_vec(), version));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honu_clients_find_what_honu_said() {
    let store = Store::with(options(), knee_kv::grpc::Settings { pid: 8, ..settings() });
    let mut honu = StorageClient::connect(store.url()).await.unwrap();
    let get = |key: &str| GetRequest { key: key.to_owned() };
    let put = |value: &'static [u8], track_visibility| HonuPutRequest {
        key: "foo".to_owned(),
        value: value.into(),
        track_visibility,
    };
    let reply = honu.get_value(get("foo")).await.unwrap().into_inner();
    let error = "key 'foo' not found in namespace".to_owned();
    assert_eq!(reply, GetReply { key: "foo".to_owned(), error, ..GetReply::default() });

    let reply = honu.put_value(put(b"bar", false)).await.unwrap().into_inner();
    let (key, version) = ("foo".to_owned(), "1.8".to_owned());
    assert_eq!(reply, PutReply { success: true, key, version, error: String::new() });
    let reply = honu.put_value(put(b"baz", true)).await.unwrap().into_inner();
    assert_eq!((reply.success, &reply.version[..]), (true, "2.8"));
    assert_eq!(reply.error, "warning: replicas are not tracking visibility");

    let reply = honu.get_value(get("foo")).await.unwrap().into_inner();
    let (key, version) = ("foo".to_owned(), "2.8".to_owned());
    let value = b"baz".to_vec().into();
    assert_eq!(reply, GetReply { success: true, version, key, value, error: String::new() });
    // The other service has the same data.
    assert_eq!(read(&mut store.client().await, b"foo").await.unwrap(), (b"baz".to_vec(), 2));

    let reply = honu.get_value(get("")).await.unwrap().into_inner();
    assert_eq!((reply.success, &reply.error[..]), (false, "the key is empty"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_a_key_are_kept_until_a_compaction() {
    let sequential = StoreOptions { consistency: Consistency::Sequential, ..options() };
    for options in [options(), sequential] {
        let versioned = Versioned::in_memory(options, 1 << 30).unwrap();
        // Somebody may ask for everything.
        let held = versioned.snapshot();
        let store = Store::of(versioned, settings());
        let mut client = store.client().await;
        let mut at = Vec::new();
        at.push(put(&mut client, b"k", b"one").await.unwrap());
        let append = AppendRequest { key: "k".into(), tail: "+".into(), ..Default::default() };
        at.push(client.append(append).await.unwrap().into_inner().version);
        at.push(delete(&mut client, b"k").await.unwrap());
        at.push(insert(&mut client, b"k", b"two").await.unwrap());
        assert_eq!(at, [1, 2, 3, 4]);
        for (version, expected) in
            [(1, Some("one")), (2, Some("one+")), (3, None), (4, Some("two"))]
        {
            let found = client.read_at(ReadAtRequest { key: "k".into(), version }).await;
            match (found, expected) {
                (Ok(found), Some(expected)) => {
                    let entry = found.into_inner().entry.unwrap();
                    assert_eq!((&entry.value[..], entry.version), (expected.as_bytes(), version));
                }
                (Err(status), None) => {
                    assert_eq!(status.message(), "key 'k' was not there in version 3");
                    assert_eq!(status.code(), Code::NotFound);
                }
                other => panic!("version {version}: {other:?}"),
            }
        }
        let history = |key: &'static str| HistoryRequest { key: key.into() };
        let mut past = client.history(history("k")).await.unwrap().into_inner();
        let past = past.message().await.unwrap().unwrap().versions;
        let past: Vec<_> =
            past.iter().map(|past| (past.version, past.kind(), past.bytes)).collect();
        use past::Kind::{Append, Delete, Put};
        assert_eq!(past, [(1, Put, 3), (2, Append, 1), (3, Delete, 0), (4, Put, 3)]);
        assert_eq!(client.history(history("x")).await.unwrap_err().code(), Code::NotFound);

        let status = client.read_at(ReadAtRequest { key: "k".into(), version: 5 }).await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange);
        assert_eq!(status.message(), "version 5 has not been made yet: the last one is 4");

        drop(held);
        client.compact(CompactRequest {}).await.unwrap();
        let status = client.read_at(ReadAtRequest { key: "k".into(), version: 1 }).await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange);
        assert_eq!(status.message(), "version 1 was compacted: versions from 4 on are there");
        assert_eq!(read(&mut client, b"k").await.unwrap(), (b"two".to_vec(), 4));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_request_is_said() {
    let store = Store::start();
    let mut client = store.client().await;
    put(&mut client, b"there", b"1").await.unwrap();
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let scan = |start: &'static str, end: &'static str, predicate: &str| ScanRequest {
        start: start.into(),
        end: end.into(),
        predicate: predicate.to_owned(),
        limit: 0,
    };
    let conditional =
        PutRequest { key: "there".into(), value: value("2"), if_version: Some(7), request: None };
    let idle = Change { action: None, ..changed(b"a", b"") };
    let twice = vec![changed(b"a", b"1"), changed(b"b", b"1"), changed(b"a", b"2")];
    let mut failed = Vec::new();
    failed.push((read(&mut client, b"").await.err(), Code::InvalidArgument, "the key is empty"));
    failed.push((
        put(&mut client, b"", b"").await.err(),
        Code::InvalidArgument,
        "the key is empty",
    ));
    let error = put(&mut client, &long, b"").await.err();
    failed.push((error, Code::InvalidArgument, "the key has 4097 bytes, more than 4096"));
    let error = put(&mut client, b"big", &vec![0; VALUE_BYTES_MAX + 1]).await.err();
    failed.push((error, Code::InvalidArgument, "the value of key 'big' would be larger"));
    let error = put(&mut client, b"big", &vec![0; 5 << 20]).await.err();
    failed.push((error, Code::OutOfRange, "decoded message length too large"));
    let error = read(&mut client, b"not\xff").await.err();
    failed.push((error, Code::NotFound, r"key 'not\xff' is not there"));
    let error = update(&mut client, b"not", b"").await.err();
    failed.push((error, Code::NotFound, "key 'not' is not there"));
    let error = insert(&mut client, b"there", b"").await.err();
    failed.push((error, Code::AlreadyExists, "key 'there' is there, in version 1"));
    let error = client.put(conditional).await.err();
    failed.push((error, Code::Aborted, "key 'there' is in version 1, not in version 7"));
    let error = bulk_put(&mut client, twice).await.err();
    failed.push((error, Code::InvalidArgument, "key 'a' is written twice"));
    let error = bulk_put(&mut client, vec![idle]).await.err();
    failed.push((error, Code::InvalidArgument, "change 0 does not say what is to happen"));
    let error = client.scan(scan("b", "a", "")).await.err();
    failed.push((error, Code::InvalidArgument, "the range is inverted: its start 'b' is behind"));
    let error = client.atomic_scan(scan("b", "a", "")).await.err();
    failed.push((error, Code::InvalidArgument, "the range is inverted"));
    let error = client.scan(scan("", "", "size >")).await.err();
    failed.push((error, Code::InvalidArgument, "does not parse: ERROR: <input>:1:7: Syntax error"));
    let deep = "(".repeat(1000);
    let error = client.scan(scan("", "", &deep)).await.err();
    failed.push((error, Code::InvalidArgument, "does not parse"));
    let error = rest(begin(&mut client, scan("", "", "size / 0 == 1")).await).await.err();
    failed.push((error, Code::InvalidArgument, "fails for key 'there': Division by zero"));
    let error = rest(begin_atomic(&mut client, scan("", "", "size")).await).await.err();
    failed.push((error, Code::InvalidArgument, "it is a int, not a bool"));
    for (error, code, message) in failed {
        let status = error.expect(message);
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(message), "{status} is not: {message}");
    }
    assert!(rest(begin(&mut client, scan("a", "a", "")).await).await.unwrap().is_empty());
    assert_eq!(delete(&mut client, b"not").await.unwrap(), 0);
    assert_eq!(rest(begin(&mut client, everything()).await).await.unwrap().len(), 1);
    assert_eq!(stats(&mut client).await.scans_open, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_refuses_writes_and_is_read() {
    let small = Versioned::in_memory(StoreOptions { segment_bytes: 2 << 20, ..options() }, 4 << 20);
    let store = Store::of(small.unwrap(), settings());
    let mut client = store.client().await;
    let mut model = Model::new();
    let status = loop {
        let (key, bytes) = (key(model.len()), vec![1; 100_000]);
        match put(&mut client, &key, &bytes).await {
            Ok(_) => model.insert(key, bytes),
            Err(status) => break status,
        };
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "the store is full: the limit of 4194304 bytes is reached");
    assert!(model.len() > 30);
    assert!(rest(begin(&mut client, everything()).await).await.unwrap() == model);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_named_and_never_served() {
    use std::os::unix::fs::FileExt;
    let directory = Directory::new("damage");
    let tight = StoreOptions { segment_bytes: 4096, value_bytes_max: 2000, ..options() };
    let store = Store::of(directory.open(tight), settings());
    let mut client = store.client().await;
    for number in 0..50 {
        put(&mut client, &key(number), &[b'v'; 300]).await.unwrap();
    }
    let mut segments: Vec<_> = std::fs::read_dir(&directory.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|name| name == "log"))
        .collect();
    segments.sort();
    // A bit of the first value, in the file that is mapped.
    let bytes = std::fs::read(&segments[0]).unwrap();
    let at = bytes.windows(9).position(|window| window == &key(0)[..]).unwrap() + 100;
    let file = std::fs::OpenOptions::new().write(true).open(&segments[0]).unwrap();
    file.write_at(&[bytes[at] ^ 1], at as u64).unwrap();
    for error in [
        read(&mut client, &key(0)).await.unwrap_err(),
        rest(begin(&mut client, everything()).await).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::DataLoss, "{error}");
        assert!(error.message().contains("is damaged: the record at"), "{error}");
    }
    assert_eq!(read(&mut client, &key(49)).await.unwrap().0, [b'v'; 300]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broken_log_may_have_lost_is_not_told() {
    let directory = Directory::new("broken");
    let tight = StoreOptions { segment_bytes: 4096, value_bytes_max: 2000, ..options() };
    let store = Store::of(directory.open(tight), settings());
    let mut client = store.client().await;
    put(&mut client, b"safe", b"1").await.unwrap();
    // The log cannot go on to another segment without the file of the one before.
    for entry in std::fs::read_dir(&directory.0).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|name| name == "log") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let mut number = 0;
    let status = loop {
        match put(&mut client, &key(number), &[b'v'; 300]).await {
            Ok(_) => number += 1,
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().starts_with("the disk failed (No such file"), "{status}");
    // The write that was not acknowledged is not shown, nor that anything else is missing.
    for key in [&key(number)[..], b"missing"] {
        assert_eq!(read(&mut client, key).await.unwrap_err().code(), Code::Unavailable);
    }
    let error = rest(begin(&mut client, everything()).await).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(put(&mut client, b"more", b"").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(read(&mut client, b"safe").await.unwrap().0, b"1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_show_what_was_asked_for_in_order() {
    let store = Store::start();
    let mut client = store.client().await;
    let (mut model, mut random) = (Model::new(), Random(7));
    for _ in 0..1500 {
        let mut key = format!("{:x}", random.below(1 << 20)).into_bytes();
        key.resize(key.len() + random.below(3), 0xff);
        // Some are larger than a batch, and than what a stripe has room for.
        let bytes = match random.below(100) {
            0..2 => 200_000,
            2..10 => 9_000,
            10..50 => 100,
            _ => 3,
        };
        let bytes = vec![key[0]; bytes];
        put(&mut client, &key, &bytes).await.unwrap();
        model.insert(key, bytes);
    }
    assert!(model.values().filter(|value| value.len() == 200_000).count() > 5);
    for round in 0..40 {
        let mut bounds = [(); 2].map(|()| format!("{:x}", random.below(1 << 20)).into_bytes());
        bounds.sort();
        let [start, mut end] = bounds;
        if round % 4 == 0 {
            end.clear();
        }
        let limit = if round % 3 == 0 { random.below(300) as u64 } else { 0 };
        let least = if round % 2 == 0 { 50 } else { 0 };
        let request = ScanRequest {
            start: start.clone().into(),
            end: end.clone().into(),
            predicate: if least == 0 { String::new() } else { format!("size >= {least}") },
            limit,
        };
        let most = if limit == 0 { usize::MAX } else { limit as usize };
        let expected: Model = model
            .range(start..)
            .take_while(|(key, _)| end.is_empty() || **key < end)
            .filter(|(_, value)| value.len() >= least)
            .take(most)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let atomic = rest(begin_atomic(&mut client, request.clone()).await).await.unwrap();
        assert!(atomic == expected, "{request:?}: {} of {}", atomic.len(), expected.len());
        assert!(rest(begin(&mut client, request).await).await.unwrap() == expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_holds_up_nobody_and_no_memory() {
    const KEYS: usize = 512;
    const BYTES: usize = 64 << 10;
    const WINDOW: u32 = 1 << 16;
    let store = Store::start();
    let before = inserted(&store, KEYS, |number| vec![number as u8; BYTES]).await;
    let mut reader = store
        .client_with(|endpoint| {
            endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW)
        })
        .await;
    let mut scan = begin_atomic(&mut reader, everything()).await;
    let first = scan.message().await.unwrap().unwrap();
    assert!(first.snapshot >= KEYS as u64);
    // While nobody reads on, all keys are written again, so nothing is locked.
    let mut writer = store.client().await;
    for number in 0..KEYS {
        put(&mut writer, &key(number), b"new").await.unwrap();
    }
    let Produced { entries, bytes } = produced(&mut writer).await;
    // The window, what the connection buffers, and the batch that waits for both.
    assert!(bytes <= 1 << 20, "{bytes} bytes of {entries} entries were made for nobody");
    let mut found: Model =
        first.entries.iter().map(|e| (e.key.to_vec(), e.value.to_vec())).collect();
    found.extend(rest(scan).await.unwrap());
    assert!(found == before);
    assert_eq!(produced(&mut writer).await.entries, KEYS as u64);
}

struct Produced {
    entries: u64,
    bytes: u64,
}

async fn produced(client: &mut Client) -> Produced {
    let stats = stats(client).await;
    Produced { entries: stats.scan_entries, bytes: stats.scan_bytes }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_ends_with_its_client_and_scans_are_limited() {
    let store = Store::with(options(), knee_kv::grpc::Settings { scans_max: 2, ..settings() });
    inserted(&store, 256, |_| vec![7; 64 << 10]).await;
    let mut other = store.client().await;
    for leaves in [false, true] {
        let mut client =
            store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
        let mut scans = Vec::new();
        for _ in 0..2 {
            let mut scan = begin_atomic(&mut client, everything()).await;
            assert!(scan.message().await.unwrap().is_some());
            scans.push(scan);
        }
        let status = other.scan(everything()).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "2 scans go on, and no more are served at a time");
        if leaves {
            // The connection is gone, not only the calls.
            drop(client);
        }
        drop(scans);
        while stats(&mut other).await.scans_open > 0 {
            tokio::task::yield_now().await;
        }
    }
    let found = rest(begin(&mut other, everything()).await).await.unwrap();
    assert_eq!(found.len(), 256);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_limited() {
    let store =
        Store::with(options(), knee_kv::grpc::Settings { connections_max: 1, ..settings() });
    let mut first = store.client().await;
    put(&mut first, b"key", b"value").await.unwrap();
    // Its system takes the second one's call, but it is not answered before the first one has gone.
    let second = tokio::spawn({
        let endpoint = tonic::transport::Endpoint::from_shared(store.url()).unwrap();
        let mut second = Client::new(endpoint.connect_lazy());
        async move { read(&mut second, b"key").await }
    });
    for _ in 0..100 {
        read(&mut first, b"key").await.unwrap();
    }
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(second.await.unwrap().unwrap().0, b"value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_nobody_reads_is_let_go() {
    let impatient = knee_kv::grpc::Settings {
        snapshot_idle_max: std::time::Duration::from_millis(20),
        ..settings()
    };
    let store = Store::with(options(), impatient);
    inserted(&store, 128, |_| vec![7; 64 << 10]).await;
    let mut client =
        store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let scan = begin_atomic(&mut client, everything()).await;
    // What it held can be forgotten: then its versions are gone.
    let mut writer = store.client().await;
    let last = put(&mut writer, &key(0), b"new").await.unwrap();
    let kept = ReadAtRequest { key: key(0).into(), version: last - 1 };
    while writer.read_at(kept.clone()).await.is_ok() {
        writer.compact(CompactRequest {}).await.unwrap();
    }
    let status = rest(scan).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("nothing was read for too long"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_lets_go_of_its_store_though_a_reader_hangs() {
    let directory = Directory::new("end");
    let mut store = Store::of(directory.open(options()), settings());
    inserted(&store, 200, |_| vec![7; 64 << 10]).await;
    let mut client =
        store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let mut hanging = begin_atomic(&mut client, everything()).await;
    assert!(hanging.message().await.unwrap().is_some());
    tokio::task::block_in_place(|| store.shut_down());
    assert!(rest(hanging).await.is_err());
    let store = Store::of(directory.open(options()), settings());
    let found = rest(begin(&mut store.client().await, everything()).await).await.unwrap();
    assert_eq!(found.len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_counts_what_it_did() {
    let store = Store::start();
    let mut client = store.client().await;
    assert_eq!(stats(&mut client).await.first_call_unix_ns, 0);
    for number in 0..10 {
        put(&mut client, &key(number), b"12345").await.unwrap();
    }
    read(&mut client, &key(3)).await.unwrap();
    let value = Some(Value { value: "x".into(), flags: 9, ttl_s: 1000 });
    client.put(PutRequest { key: key(3).into(), value, ..Default::default() }).await.unwrap();
    let entry = client.read(knee_kv::grpc::proto::v1::ReadRequest { key: key(3).into() }).await;
    let entry = entry.unwrap().into_inner().entry.unwrap();
    assert_eq!(entry.flags, 9);
    rest(begin(&mut client, everything()).await).await.unwrap();
    let stats = stats(&mut client).await;
    assert_eq!((stats.keys, stats.last_commit), (10, 11));
    assert_eq!((stats.reads, stats.writes, stats.scans), (2, 11, 1));
    assert_eq!((stats.scan_entries, stats.scan_bytes), (10, 10 * 9 + 9 * 5 + 1));
    assert!(stats.first_call_unix_ns > 0 && stats.last_call_unix_ns >= stats.first_call_unix_ns);
    let expires = u64::from(entry.expires_at_s);
    let now = stats.last_call_unix_ns / 1_000_000_000;
    assert!((now..=now + 1000).contains(&expires), "{expires} at {now}");
}
