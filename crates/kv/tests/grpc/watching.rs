//! `Watch`: changes of keys.

use std::time::Duration;

use knee_kv::grpc::GrpcSettings;
use knee_kv_store::{Consistency, StoreOptions};
use knee_rpc::kv::{AppendRequest, Event, WatchRequest, WatchResponse, past::Kind};
use tokio::task::JoinSet;
use tonic::{Code, Status, Streaming};

use crate::grpc::serving::{
    Client, Directory, Random, Store, bulk_put, changed, delete, joined, key, options, patiently,
    put, settings,
};

fn all_values() -> WatchRequest {
    WatchRequest { values: true, ..WatchRequest::default() }
}

/// A watch, and the commit after which it begins.
async fn watch(client: &mut Client, request: WatchRequest) -> (Streaming<WatchResponse>, u64) {
    let mut watch = client.watch(request).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.events, []);
    (watch, first.commit)
}

/// The next `count` events.
async fn events(watch: &mut Streaming<WatchResponse>, count: usize) -> Result<Vec<Event>, Status> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(watch.message().await?.expect("it goes on").events);
    }
    assert_eq!(events.len(), count);
    Ok(events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_shows_the_changes_of_its_range() {
    let store = Store::start();
    let mut client = store.client().await;
    put(&mut client, b"b", b"before").await.unwrap();
    let range = WatchRequest { start: "b".into(), end: "d".into(), values: true };
    let (mut shown, from) = watch(&mut client, range.clone()).await;
    assert_eq!(from, 1);
    let (mut bare, _) = watch(&mut client, WatchRequest { values: false, ..range }).await;
    for outside in [&b"a"[..], b"d"] {
        put(&mut client, outside, b"outside").await.unwrap();
    }
    put(&mut client, b"b", b"one").await.unwrap();
    let append = AppendRequest { key: "c".into(), tail: "12".into(), ..Default::default() };
    client.append(append.clone()).await.unwrap();
    client.append(append).await.unwrap();
    delete(&mut client, b"b").await.unwrap();
    bulk_put(&mut client, vec![changed(b"c", b""), changed(b"x", b"y")]).await.unwrap();
    let expected = [
        ("b", Kind::Put, 4, "one"),
        ("c", Kind::Put, 5, "12"),
        ("c", Kind::Append, 6, "12"),
        ("b", Kind::Delete, 7, ""),
        ("c", Kind::Put, 8, ""),
    ];
    let event = |key: &'static str, kind: Kind, version, value: &'static str, values| Event {
        key: key.into(),
        kind: kind.into(),
        version,
        value: if values { value.into() } else { "".into() },
        bytes: value.len() as u64,
    };
    for (watch, values) in [(&mut shown, true), (&mut bare, false)] {
        let events = events(watch, expected.len()).await.unwrap();
        assert_eq!(
            events,
            expected.map(|(k, kind, version, v)| event(k, kind, version, v, values))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_under_load_is_complete_and_in_order() {
    const WRITERS: usize = 4;
    const WRITES: usize = 80;
    for (name, consistency) in
        [("watch", Consistency::Linearizable), ("watch-by-key", Consistency::Sequential)]
    {
        let directory = Directory::new(name);
        let store =
            Store::of(directory.open(StoreOptions { consistency, ..options() }), settings());
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let mut client = store.client().await;
            writers.spawn(async move {
                let mut random = Random(writer as u64 + 1);
                for write in 0..WRITES {
                    let key = key(random.below(5));
                    put(&mut client, &key, format!("{writer} {write}").as_bytes()).await.unwrap();
                }
            });
        }
        // The watch begins while the writers write.
        let mut client = store.client().await;
        put(&mut client, b"x", b"").await.unwrap();
        let (mut watch, from) = watch(&mut client, all_values()).await;
        joined(writers).await;
        let last = put(&mut client, b"last", b"").await.unwrap();
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Event| event.key != "last") {
            let response = watch.message().await.unwrap().unwrap();
            assert!(response.commit > from);
            events.extend(response.events);
        }
        // Each commit has one key here.
        if consistency == Consistency::Linearizable {
            let versions: Vec<u64> = events.iter().map(|event| event.version).collect();
            assert_eq!(versions, (from + 1..=last).collect::<Vec<_>>());
        } else {
            let commits = (WRITERS * WRITES + 2) as u64;
            assert_eq!(events.len() as u64, commits - from);
            for number in 0..5 {
                let of_key = events.iter().filter(|event| event.key == key(number));
                let versions: Vec<u64> = of_key.map(|event| event.version).collect();
                assert!(versions.windows(2).all(|two| two[1] == two[0] + 1), "{versions:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watch_is_aborted_and_delays_no_writer() {
    const WINDOW: u32 = 1 << 16;
    let store = Store::start();
    let mut slow = store
        .client_with(|endpoint| {
            endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW)
        })
        .await;
    let (mut watching, from) = watch(&mut slow, all_values()).await;
    let mut client = store.client().await;
    // Write more than the buffers of client and server hold.
    for number in 0..200 {
        put(&mut client, &key(number), &[b'v'; 64 << 10]).await.unwrap();
    }
    let mut next = from + 1;
    let status = loop {
        match watching.message().await {
            Ok(response) => {
                for event in response.expect("it goes on").events {
                    assert_eq!(event.version, next, "there is no gap");
                    next += 1;
                }
            }
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().starts_with("client too slow: "), "{status}");
    assert!((2..201).contains(&next), "{next}");
    // A new watch begins now.
    let (mut watching, _) = watch(&mut slow, all_values()).await;
    put(&mut client, b"k", b"v").await.unwrap();
    assert_eq!(events(&mut watching, 1).await.unwrap()[0].key, "k");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_is_named_after_all_of_its_events() {
    const KEYS: u8 = 8;
    let store = Store::start();
    let mut client = store.client().await;
    let (mut watch, _) = watch(&mut client, all_values()).await;
    // Write more events than fit a message.
    let changes = (0..KEYS).map(|number| changed(&[number], &[number; 40 << 10])).collect();
    let version = bulk_put(&mut client, changes).await.unwrap();
    let (mut events, mut commit, mut answers) = (0, 0, 0);
    while commit < version {
        let response = watch.message().await.unwrap().unwrap();
        events += response.events.len();
        commit = response.commit;
        answers += 1;
    }
    assert_eq!((events, commit), (usize::from(KEYS), version));
    assert!(answers > 1);
}

/// The channel of a watch takes the first commit, but only a part of the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_overflows_a_watch_is_not_named() {
    const KEYS: u8 = 50;
    const WINDOW: u32 = 1 << 16;
    let store = Store::start();
    let mut slow = store
        .client_with(|endpoint| {
            endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW)
        })
        .await;
    let (mut watch, _) = watch(&mut slow, all_values()).await;
    let mut client = store.client().await;
    let mut versions = Vec::new();
    for _ in 0..2 {
        let changes = (0..KEYS).map(|number| changed(&[number], &[number; 64 << 10])).collect();
        versions.push(bulk_put(&mut client, changes).await.unwrap());
    }
    let (mut events, mut commit) = (0, 0);
    let status = loop {
        match watch.message().await {
            Ok(response) => {
                let response = response.expect("it goes on");
                events += response.events.len();
                commit = response.commit;
            }
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Aborted, "{status}");
    assert!((usize::from(KEYS)..2 * usize::from(KEYS)).contains(&events), "{events}");
    assert_eq!(commit, versions[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_without_events_outlives_the_stall_limit() {
    let reader_idle_max = Duration::from_millis(200);
    let store = Store::with(options(), GrpcSettings { reader_idle_max, ..settings() });
    let mut client = store.client().await;
    let (mut quiet, _) = watch(&mut client, all_values()).await;
    tokio::time::sleep(5 * reader_idle_max).await;
    let mut writer = store.client().await;
    patiently(async || put(&mut writer, b"key", b"value").await).await.unwrap();
    assert_eq!(events(&mut quiet, 1).await.unwrap()[0].key, "key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_a_stalled_client_loses_its_place() {
    const WINDOW: u32 = 1 << 16;
    let reader_idle_max = Duration::from_millis(20);
    let settings = GrpcSettings { watches_max: 1, reader_idle_max, ..settings() };
    let store = Store::with(options(), settings);
    let mut slow = store
        .client_with(|endpoint| {
            endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW)
        })
        .await;
    let hanging = patiently(async || slow.watch(all_values()).await).await;
    let mut hanging = hanging.unwrap().into_inner();
    let mut client = store.client().await;
    // The second value fills the window, and the client stalls.
    for number in 0..10 {
        let (key, value) = (key(number), [b'v'; 64 << 10]);
        patiently(async || put(&mut client, &key, &value).await).await.unwrap();
    }
    while let Err(status) = patiently(async || client.watch(all_values()).await).await {
        assert_eq!(status.code(), Code::ResourceExhausted);
        tokio::task::yield_now().await;
    }
    while hanging.message().await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_limited_and_end_with_client_and_server() {
    let mut store = Store::with(options(), GrpcSettings { watches_max: 1, ..settings() });
    let (mut client, mut other) = (store.client().await, store.client().await);
    let inverted = WatchRequest { start: "b".into(), end: "a".into(), values: false };
    assert_eq!(client.watch(inverted).await.unwrap_err().code(), Code::InvalidArgument);
    let (held, _) = watch(&mut client, all_values()).await;
    let status = other.watch(all_values()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "1 watches are running, the most at a time: try again later");
    drop(held);
    let mut watching = loop {
        match other.watch(all_values()).await {
            Ok(watching) => break watching.into_inner(),
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
        }
        tokio::task::yield_now().await;
    };
    watching.message().await.unwrap().unwrap();
    tokio::task::spawn_blocking(move || store.shut_down()).await.unwrap();
    let status = watching.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "the server ends: watch again later");
}
