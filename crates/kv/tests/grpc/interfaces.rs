//! Both gRPC interfaces, besides reads and writes of one key.

use knee_kv::grpc::GrpcSettings;
use knee_kv_store::{Consistency, Store as Versioned, StoreOptions};
use knee_rpc::honu::storage_client::StorageClient;
use knee_rpc::honu::{GetReply, GetRequest, PutReply, PutRequest as HonuPutRequest};
use knee_rpc::kv::{
    AppendRequest, Change, CompactRequest, HistoryRequest, Nothing, PutRequest, ReadAtRequest,
    ReadRequest, Value, change, past,
};
use tonic::Code;

use crate::grpc::raw::{Raw, field};
use crate::grpc::serving::{
    Store, begin, bulk_put, changed, delete, everything, insert, key, options, put, read, rest,
    settings, stats,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_put_with_a_failed_condition_changes_nothing() {
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
async fn honu_client_finds_honus_answers() {
    let store = Store::with(options(), GrpcSettings { pid: 8, ..settings() });
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
    // Knee's own service has the same data.
    assert_eq!(read(&mut store.client().await, b"foo").await.unwrap(), (b"baz".to_vec(), 2));

    let reply = honu.get_value(get("")).await.unwrap().into_inner();
    assert_eq!((reply.success, &reply.error[..]), (false, "the key is empty"));
}

/// The fields' numbers and types are those of honu's `storage.proto`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honus_messages_keep_their_encoding() {
    let store = Store::with(options(), GrpcSettings { pid: 8, ..settings() });
    let mut raw = Raw::connect(store.address(), 1 << 16);
    let success = || vec![1 << 3, 1];
    let mut ask = |method: &str, fields: &[Vec<u8>]| {
        raw.ask(&format!("/rpc.Storage/{method}"), &fields.concat())
    };
    let tracked = vec![3 << 3, 1];
    for (version, value, tracked, warning) in [
        ("1.8", &b"bar"[..], vec![], vec![]),
        ("2.8", b"\xff\0", tracked, field(4, b"warning: replicas are not tracking visibility")),
        // A value that is empty is not sent.
        ("3.8", b"", vec![], vec![]),
    ] {
        let mut sent = vec![field(1, b"foo"), tracked];
        let mut read = vec![success(), field(2, version.as_bytes()), field(3, b"foo")];
        if !value.is_empty() {
            sent.push(field(2, value));
            read.push(field(4, value));
        }
        let written = [success(), field(2, b"foo"), field(3, version.as_bytes()), warning];
        assert_eq!(ask("PutValue", &sent), written.concat());
        assert_eq!(ask("GetValue", &[field(1, b"foo")]), read.concat());
    }
    // Unknown fields of a later version are ignored.
    let more = [field(1, b"none"), field(15, b"more")];
    let missing = [field(3, b"none"), field(5, b"key 'none' not found in namespace")];
    assert_eq!(ask("GetValue", &more), missing.concat());
    assert_eq!(ask("GetValue", &[]), field(5, b"the key is empty"));
    assert_eq!(ask("PutValue", &[field(2, b"x")]), field(4, b"the key is empty"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_stay_until_a_compaction() {
    let sequential = StoreOptions { consistency: Consistency::Sequential, ..options() };
    for options in [options(), sequential] {
        let versioned = Versioned::in_memory(options, 1 << 30).unwrap();
        // Test the widest range of versions.
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
async fn stats_count_calls_and_entries() {
    let store = Store::start();
    let mut client = store.client().await;
    assert_eq!(stats(&mut client).await.first_call_unix_ns, 0);
    for number in 0..10 {
        put(&mut client, &key(number), b"12345").await.unwrap();
    }
    read(&mut client, &key(3)).await.unwrap();
    let value = Some(Value { value: "x".into(), flags: 9, ttl_s: 1000 });
    client.put(PutRequest { key: key(3).into(), value, ..Default::default() }).await.unwrap();
    let entry = client.read(ReadRequest { key: key(3).into() }).await;
    let entry = entry.unwrap().into_inner().entry.unwrap();
    assert_eq!(entry.flags, 9);
    rest(begin(&mut client, everything()).await).await.unwrap();
    let stats = stats(&mut client).await;
    assert_eq!((stats.keys, stats.last_commit), (10, 11));
    assert_eq!((stats.reads, stats.writes, stats.scans), (2, 11, 1));
    assert_eq!((stats.scan_entries, stats.scan_bytes), (10, 10 * 9 + 9 * 5 + 1));
    assert!(stats.first_call_unix_ns > 0 && stats.last_call_unix_ns >= stats.first_call_unix_ns);
    assert!(stats.versions >= stats.keys, "{stats:?}");
    assert!(0 < stats.live_bytes && stats.live_bytes < stats.file_bytes);
    let expires = u64::from(entry.expires_at_s);
    let now = stats.last_call_unix_ns / 1_000_000_000;
    assert!((now..=now + 1000).contains(&expires), "{expires} at {now}");
}
