//! Scans: their contents, their limits, and readers that are slow or leave.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use knee_kv::grpc::GrpcSettings;
use knee_kv_cache::engine::{Change, Engine, Expiry, Item};
use knee_kv_store::{History, Items, Keeper, Store as Versioned, StoreOptions};
use knee_rpc::kv::{CompactRequest, ReadAtRequest, ScanRequest, WatchRequest};
use knee_testkit::PATIENCE;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::grpc::raw::Raw;
use crate::grpc::serving::{
    Client, Directory, Model, Random, Store, begin, begin_atomic, everything, inserted, key,
    options, patiently, put, read, rest, settings, stats, write,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_shows_its_range_in_order() {
    let store = Store::start();
    let mut client = store.client().await;
    let (mut model, mut random) = (Model::new(), Random(7));
    while model.len() < 600 {
        let mut key = format!("{:x}", random.below(1 << 20)).into_bytes();
        key.resize(key.len() + random.below(3), 0xff);
        // Some values are larger than a batch, and than the buffer of a stripe.
        let bytes = match random.below(100) {
            0..2 => 100_000,
            2..10 => 9_000,
            10..50 => 100,
            _ => 3,
        };
        model.insert(key.clone(), vec![key[0]; bytes]);
    }
    write(&store, &model);
    assert!(model.values().filter(|value| value.len() == 100_000).count() > 5);
    // All combinations of an end, a limit and a predicate.
    for round in 0..12 {
        let mut bounds = [(); 2].map(|()| format!("{:x}", random.below(1 << 20)).into_bytes());
        bounds.sort();
        let [start, mut end] = bounds;
        if round % 4 == 0 {
            end.clear();
        }
        let limit = if round % 3 == 0 { random.below(100) as u64 } else { 0 };
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
async fn slow_reader_delays_no_writer_and_holds_little_memory() {
    const KEYS: usize = 128;
    const BYTES: usize = 64 << 10;
    const WINDOW: u32 = 1 << 16;
    let store = Store::start();
    let before = inserted(&store, KEYS, |number| vec![number as u8; BYTES]);
    let mut reader = store
        .client_with(|endpoint| {
            endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW)
        })
        .await;
    let mut scan = begin_atomic(&mut reader, everything()).await;
    let first = scan.message().await.unwrap().unwrap();
    assert!(first.snapshot >= KEYS as u64);
    // All keys are written again while the reader pauses: nothing is locked.
    let mut writer = store.client().await;
    for number in 0..KEYS {
        put(&mut writer, &key(number), b"new").await.unwrap();
    }
    let Produced { entries, bytes } = produced(&mut writer).await;
    // The window and the connection's buffer are full, and one batch waits.
    assert!(bytes <= 1 << 20, "{bytes} bytes of {entries} entries were made before they were read");
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
async fn scans_are_limited_and_end_with_their_client() {
    let store = Store::with(options(), GrpcSettings { scans_max: 2, ..settings() });
    inserted(&store, 64, |_| vec![7; 64 << 10]);
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
        assert_eq!(status.message(), "2 scans are running, the most at a time: try again later");
        if leaves {
            // The client closes the connection, too, not only its calls.
            drop(client);
        }
        drop(scans);
        while stats(&mut other).await.scans_open > 0 {
            tokio::task::yield_now().await;
        }
    }
    let found = rest(begin(&mut other, everything()).await).await.unwrap();
    assert_eq!(found.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_limited() {
    let store = Store::with(options(), GrpcSettings { connections_max: 1, ..settings() });
    let mut first = store.client().await;
    put(&mut first, b"key", b"value").await.unwrap();
    // With an open call, the first connection is not idle.
    let watch = first.watch(WatchRequest::default()).await.unwrap();
    // A second connection fails at once, until the first has closed.
    let endpoint = Endpoint::from_shared(store.url()).unwrap();
    let mut second = Client::new(endpoint.connect_lazy());
    for _ in 0..100 {
        read(&mut second, b"key").await.unwrap_err();
        read(&mut first, b"key").await.unwrap();
    }
    drop((first, watch));
    let found = loop {
        if let Ok((found, _)) = read(&mut second, b"key").await {
            break found;
        }
    };
    assert_eq!(found, b"value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_for_others() {
    let silence_max = Duration::from_secs(3600);
    let settings = GrpcSettings { connections_max: 3, silence_max, ..settings() };
    let store = Store::with(options(), settings);
    let mut busy = store.client().await;
    let mut watch = busy.watch(WatchRequest::default()).await.unwrap().into_inner();
    let silent = TcpStream::connect(store.address()).unwrap();
    let idle = Raw::connect(store.address(), 1 << 16);
    let clients = async {
        for _ in 0..2 {
            let endpoint = Endpoint::from_shared(store.url()).unwrap();
            let mut client = Client::new(endpoint.connect_lazy());
            while put(&mut client, b"key", b"value").await.is_err() {}
        }
    };
    tokio::time::timeout(PATIENCE, clients).await.expect("both made room");
    // The connection with a call has kept its place.
    watch.message().await.unwrap().expect("the change");
    drop((silent, idle));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connection_makes_room_for_another() {
    let settings =
        GrpcSettings { connections_max: 1, silence_max: Duration::from_millis(20), ..settings() };
    let store = Store::with(options(), settings);
    for said in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let mut silent = TcpStream::connect(store.address()).unwrap();
        silent.write_all(said).unwrap();
        let mut client = store.client().await;
        // On a busy machine, this client may be too slow, too: repeat.
        while put(&mut client, b"key", b"value").await.is_err() {}
        drop(silent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_connection_are_limited() {
    let store = Store::with(options(), GrpcSettings { streams_max: 1, ..settings() });
    inserted(&store, 64, |_| vec![7; 64 << 10]);
    let mut busy = store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let mut other = store.client().await;
    let mut scan = begin_atomic(&mut busy, everything()).await;
    scan.message().await.unwrap().unwrap();
    // The scan has the only place of its connection, so the next call on this connection waits.
    let second = tokio::spawn(async move { read(&mut busy, &key(1)).await });
    for _ in 0..100 {
        read(&mut other, &key(1)).await.unwrap();
    }
    assert!(!second.is_finished());
    assert_eq!(stats(&mut other).await.reads, 100);
    drop(scan);
    assert_eq!(second.await.unwrap().unwrap().0.len(), 64 << 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_of_a_stalled_reader_is_freed() {
    let impatient =
        GrpcSettings { reader_idle_max: std::time::Duration::from_millis(20), ..settings() };
    let store = Store::with(options(), impatient);
    inserted(&store, 128, |_| vec![7; 64 << 10]);
    let mut client =
        store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let scan = patiently(async || client.atomic_scan(everything()).await).await.unwrap();
    // A compaction can remove the versions that the snapshot held.
    let mut writer = store.client().await;
    let last = patiently(async || put(&mut writer, &key(0), b"new").await).await.unwrap();
    let kept = ReadAtRequest { key: key(0).into(), version: last - 1 };
    while patiently(async || writer.read_at(kept.clone()).await).await.is_ok() {
        patiently(async || writer.compact(CompactRequest {}).await).await.unwrap();
    }
    rest(scan.into_inner()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_of_a_stalled_reader_loses_its_place() {
    for atomic in [true, false] {
        let settings =
            GrpcSettings { scans_max: 1, reader_idle_max: Duration::from_millis(20), ..settings() };
        let store = Store::with(options(), settings);
        inserted(&store, 128, |_| vec![7; 64 << 10]);
        let mut client =
            store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
        let hanging = patiently(async || match atomic {
            true => client.atomic_scan(everything()).await,
            false => client.scan(everything()).await,
        });
        let hanging = hanging.await.unwrap();
        let mut other = store.client().await;
        while let Err(status) = patiently(async || other.scan(everything()).await).await {
            assert_eq!(status.code(), Code::ResourceExhausted);
            tokio::task::yield_now().await;
        }
        rest(hanging.into_inner()).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_need_space_end_an_atomic_scan() {
    let small = StoreOptions { segment_bytes: 1 << 20, ..options() };
    let small = Versioned::in_memory(small, 12 << 20).unwrap();
    let _keeper = Keeper::start(small.clone(), History::Seconds(0)).unwrap();
    let store = Store::of(small, settings());
    inserted(&store, 64, |_| vec![7; 64 << 10]);
    let mut client =
        store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let hanging = begin_atomic(&mut client, everything()).await;
    // Write three times as much as the log holds.
    let writers = (0..4).map(async |_| {
        let mut writer = store.client().await;
        for _ in 0..36 {
            put(&mut writer, b"one", &[1; 256 << 10]).await.unwrap();
        }
    });
    futures_util::future::join_all(writers).await;
    let status = rest(hanging).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("no space left, and dropped"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomic_scan_that_is_too_old_is_aborted() {
    let store = Store::with(
        options(),
        GrpcSettings { snapshot_age_max: Duration::from_millis(1), ..settings() },
    );
    inserted(&store, 128, |_| vec![7; 64 << 10]);
    let mut client =
        store.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let scan = begin_atomic(&mut client, everything()).await;
    let status = rest(scan).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("goes on for too long"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomic_scan_shows_touched_values_of_its_snapshot() {
    let store = Versioned::in_memory(options(), 1 << 30).unwrap();
    let mut items = Items::new(store.clone());
    let served = Store::of(store, settings());
    inserted(&served, 64, |_| vec![7; 64 << 10]);
    let mut client =
        served.client_with(|endpoint| endpoint.initial_stream_window_size(1 << 16)).await;
    let scan = begin_atomic(&mut client, everything()).await;
    // Touch all keys: they keep their versions, and expire before the time of the scan.
    for number in 0..64 {
        let touch = |_: Option<Item<'_>>| {
            let expiry = Expiry::at(2);
            (Change::Amend { expiry, marks: 0, new_version: false, read: true }, ())
        };
        items.update(&key(number), 1, touch).0.unwrap();
    }
    let found = rest(scan).await.unwrap();
    assert_eq!(found.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_a_stalled_reader_ends_and_frees_its_store() {
    let directory = Directory::new("end");
    let mut store = Store::of(directory.open(options()), settings());
    inserted(&store, 200, |_| vec![7; 64 << 10]);
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
async fn end_of_the_server_is_reported() {
    let store = Store::start();
    let (ends, ended) = channel();
    store.serving().on_end(move || ends.send(()).unwrap());
    put(&mut store.client().await, b"key", b"value").await.unwrap();
    assert_eq!(ended.try_recv(), Err(TryRecvError::Empty));
    store.serving().shutdown().begin();
    tokio::task::block_in_place(|| ended.recv()).unwrap();
}
