//! Each refusal has its status and its reason.

use bytes::Bytes;
use knee_kv_store::{KEY_BYTES_MAX, Store as Versioned, StoreOptions};
use knee_rpc::kv::{
    AppendRequest, Change, HistoryRequest, InsertRequest, PutRequest, ReadAtRequest, ScanRequest,
    UpdateRequest, WatchRequest,
};
use tonic::Code;

use crate::grpc::serving::{
    Directory, Model, Store, VALUE_BYTES_MAX, begin, begin_atomic, bulk_put, changed, delete,
    everything, insert, key, options, put, read, rest, settings, stats, update, value,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_request_is_refused_with_the_reason() {
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
    let limit = format!(
        "the value of key 'big' would be larger than the {VALUE_BYTES_MAX} bytes that the store takes, \
         which is the server's --value-bytes-max"
    );
    failed.push((error, Code::InvalidArgument, &limit));
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
    let error = bulk_put(&mut client, Vec::new()).await.err();
    failed.push((error, Code::InvalidArgument, "the bulk put has no changes: give at least one"));
    let valueless = "the request has no value for key 'there': set value";
    let put_request = PutRequest { key: "there".into(), ..PutRequest::default() };
    failed.push((client.put(put_request).await.err(), Code::InvalidArgument, valueless));
    let insert_request = InsertRequest { key: "there".into(), ..InsertRequest::default() };
    failed.push((client.insert(insert_request).await.err(), Code::InvalidArgument, valueless));
    let update_request = UpdateRequest { key: "there".into(), ..UpdateRequest::default() };
    failed.push((client.update(update_request).await.err(), Code::InvalidArgument, valueless));
    let error = bulk_put(&mut client, vec![idle]).await.err();
    failed.push((error, Code::InvalidArgument, "change 0 has no action"));
    let error = client.scan(scan("b", "a", "")).await.err();
    failed.push((error, Code::InvalidArgument, "the range is inverted: its start 'b' is after"));
    let error = client.atomic_scan(scan("b", "a", "")).await.err();
    failed.push((error, Code::InvalidArgument, "the range is inverted"));
    let error = client.scan(scan("", "", "size >")).await.err();
    failed.push((error, Code::InvalidArgument, "does not parse: ERROR: <input>:1:7: Syntax error"));
    let deep = "(".repeat(1000);
    let error = client.scan(scan("", "", &deep)).await.err();
    failed.push((error, Code::InvalidArgument, "does not parse"));
    let long_predicate = format!("size{} > 0", " ".repeat(1024));
    let error = client.scan(scan("", "", &long_predicate)).await.err();
    failed.push((error, Code::InvalidArgument, "the predicate has 1032 bytes, more than 1024"));
    let costly = format!("size({}value) > 0", "value + ".repeat(8));
    let error = client.scan(scan("", "", &costly)).await.err();
    failed.push((error, Code::InvalidArgument, "names 'value' more than 8 times"));
    let looping = "[1, 2].all(x, x > 0)";
    let error = rest(begin_atomic(&mut client, scan("", "", looping)).await).await.err();
    failed.push((error, Code::InvalidArgument, "the predicate fails for key 'there': "));
    let oversized = ScanRequest { end: long.clone().into(), ..everything() };
    let error = client.scan(oversized).await.err();
    failed.push((error, Code::InvalidArgument, "the end of the range has 4097 bytes, more than"));
    let oversized = WatchRequest { start: long.clone().into(), ..WatchRequest::default() };
    let error = client.watch(oversized).await.err();
    failed.push((error, Code::InvalidArgument, "the start of the range has 4097 bytes, more than"));
    let error = client.read_at(ReadAtRequest { key: "there".into(), version: 0 }).await.err();
    failed.push((error, Code::OutOfRange, "there is no version 0: versions begin with 1"));
    for key in [&b""[..], &long] {
        let which = if key.is_empty() { "the key is empty" } else { "the key has 4097 bytes" };
        let key = Bytes::copy_from_slice(key);
        let at = ReadAtRequest { key: key.clone(), version: 1 };
        failed.push((client.read_at(at).await.err(), Code::InvalidArgument, which));
        let history = HistoryRequest { key: key.clone() };
        failed.push((client.history(history).await.err(), Code::InvalidArgument, which));
        let append = AppendRequest { key: key.clone(), ..AppendRequest::default() };
        failed.push((client.append(append).await.err(), Code::InvalidArgument, which));
        failed.push((insert(&mut client, &key, b"").await.err(), Code::InvalidArgument, which));
        failed.push((update(&mut client, &key, b"").await.err(), Code::InvalidArgument, which));
        failed.push((delete(&mut client, &key).await.err(), Code::InvalidArgument, which));
        let bulk = bulk_put(&mut client, vec![changed(b"a", b""), changed(&key, b"")]).await;
        failed.push((bulk.err(), Code::InvalidArgument, which));
    }
    let error = rest(begin(&mut client, scan("", "", "size / 0 == 1")).await).await.err();
    failed.push((error, Code::InvalidArgument, "fails for key 'there': Division by zero"));
    for (error, code, message) in failed {
        let status = error.expect(message);
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(message), "{status} is not: {message}");
    }
    assert!(rest(begin(&mut client, scan("a", "a", "")).await).await.unwrap().is_empty());
    assert_eq!(delete(&mut client, b"not").await.unwrap(), 0);
    // An empty value is one.
    let version = update(&mut client, b"there", b"").await.unwrap();
    assert_eq!(read(&mut client, b"there").await.unwrap(), (Vec::new(), version));
    assert_eq!(rest(begin(&mut client, everything()).await).await.unwrap().len(), 1);
    assert_eq!(stats(&mut client).await.scans_open, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_store_refuses_writes_and_serves_reads() {
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
    assert_eq!(
        status.message(),
        "the store is full: the limit of 4194304 bytes is reached, which is the server's --memory-mb"
    );
    assert!(model.len() > 30);
    assert!(rest(begin(&mut client, everything()).await).await.unwrap() == model);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_reported_and_not_served() {
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
    // Flip a bit of the first value, in the mapped file.
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
async fn broken_log_serves_no_write_that_it_may_lose() {
    let directory = Directory::new("broken");
    let store = Store::of(directory.open(options()), settings());
    let mut client = store.client().await;
    put(&mut client, b"safe", b"1").await.unwrap();
    directory.fill_up();
    let status = put(&mut client, &key(0), &[b'v'; 300]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().starts_with("the disk failed (No space left"), "{status}");
    // Unacknowledged writes are not shown.
    let unknown = read(&mut client, &key(0)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable);
    assert_eq!(read(&mut client, b"missing").await.unwrap_err().code(), Code::NotFound);
    let error = rest(begin(&mut client, everything()).await).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(put(&mut client, b"more", b"").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(read(&mut client, b"safe").await.unwrap().0, b"1");
}
