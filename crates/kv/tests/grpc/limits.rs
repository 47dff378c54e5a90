//! Limits of all calls together, and calls that must not delay others.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use knee_kv::grpc::GrpcSettings;
use knee_kv_store::StoreOptions;
use knee_rpc::Message;
use knee_rpc::kv::{BulkPutRequest, Change, ScanRequest};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::grpc::raw::{Raw, field};
use crate::grpc::serving::{
    Client, Directory, Store, begin, bulk_put, changed, everything, options, put, read, rest,
    settings, stats,
};

/// Far longer than any wait of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

const PUT: &str = "/knee.kv.v1.KeyValue/Put";
const READ: &str = "/knee.kv.v1.KeyValue/Read";

/// A disk that takes no segment: a copy of the manifest is a pipe, and its writer waits for a reader.
struct Stalled(PathBuf);

impl Stalled {
    fn begin(fresh: &Path) -> Stalled {
        fs::remove_file(fresh).unwrap();
        let path = CString::new(fresh.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a zero and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        Stalled(fresh.to_owned())
    }

    /// Waits until a thread of this test waits for a reader of the pipe (`wait_for_partner` in Linux's fs/pipe.c).
    async fn waits(&self) {
        let is_waiting = || {
            fs::read_dir("/proc/self/task").unwrap().any(|task| {
                let place = fs::read_to_string(task.unwrap().path().join("wchan"));
                place.is_ok_and(|place| place == "wait_for_partner")
            })
        };
        let waits = async {
            while !is_waiting() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.expect("a segment is made");
    }

    fn read(&self) -> fs::File {
        fs::File::open(&self.0).unwrap()
    }

    /// Lets the disk take segments again. The pipe still needs a reader: without one, a further attempt would wait for
    /// ever.
    fn end(self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Room for four calls of 50 KiB and their buffers, each of another connection.
fn limited() -> Store {
    Store::with(options(), GrpcSettings { messages_bytes_max: 380 << 10, ..settings() })
}

/// A part of a message with a value of 60 KiB.
fn part() -> Vec<u8> {
    [&[0x12, 0x80, 0xe0, 0x03], &[7; 50 << 10][..]].concat()
}

const LARGE_BYTES: usize = 160 << 10;

/// Puts a large value, if there is room for it.
async fn put_large(client: &mut Client) -> Result<u64, Status> {
    put(client, b"large", &[1; LARGE_BYTES]).await
}

/// Repeats the put until there is room.
async fn put_large_in_time(client: &mut Client) {
    let refused = async { while put_large(client).await.is_err() {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("there is room for it");
}

/// Lets other calls take memory, until a put is refused. Another call may be refused, too.
async fn refused(client: &mut Client, mut take: impl FnMut()) {
    let refused = async {
        loop {
            take();
            if let Err(status) = put(client, b"other", &[2; 50 << 10]).await {
                return status;
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, refused).await.expect("it is refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message =
        ": the messages of all calls take at most 389120 bytes, those of a connection no more than";
    assert!(status.message().contains(message), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_requests_share_a_limit() {
    let store = limited();
    let mut client = store.client().await;
    let mut half = [(); 10].map(|()| Raw::connect(store.address(), 1 << 16));
    let mut calls = half.iter_mut();
    refused(&mut client, || {
        if let Some(raw) = calls.next() {
            raw.begin(PUT, 60 << 10, &part());
        }
    })
    .await;
    // After the calls have ended, their memory is free.
    drop(half);
    for _ in 0..10 {
        put_large_in_time(&mut client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_share_a_limit() {
    let store = limited();
    let mut client = store.client().await;
    put(&mut client, b"key", &[1; 50 << 10]).await.unwrap();
    // The calls go to both interfaces, with an empty or a small window. While a put runs, a call may be refused. More
    // calls follow, until they fill the limit without the put.
    let variants = [(READ, 0), ("/rpc.Storage/GetValue", 1 << 10)];
    let mut variants = variants.iter().cycle();
    let request = field(1, b"key");
    let mut slow = Vec::new();
    refused(&mut client, || {
        for &(method, window_bytes) in variants.by_ref().take(2) {
            let mut raw = Raw::connect(store.address(), window_bytes);
            raw.begin(method, request.len(), &request);
            slow.push(raw);
        }
    })
    .await;
    drop(slow);
    while read(&mut client, b"key").await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_of_many_small_changes_counts_decoded() {
    let store = limited();
    let mut client = store.client().await;
    // An encoded change has two bytes.
    let request = BulkPutRequest { changes: vec![Change::default(); 4096], request: None };
    let status = client.bulk_put(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_takes_no_more_than_it_leaves_to_others() {
    let store =
        Store::with(options(), GrpcSettings { messages_bytes_max: 512 << 10, ..settings() });
    let mut client = store.client().await;
    put(&mut client, b"key", &[1; 50 << 10]).await.unwrap();
    let request = field(1, b"key");
    for (method, bytes, part) in [(PUT, 60 << 10, part()), (READ, request.len(), request)] {
        let mut stalled = Raw::connect(store.address(), 0);
        for _ in 0..8 {
            stalled.begin(method, bytes, &part);
        }
        // The stalled connection keeps its memory, and gets no more.
        stalled.wait_for_end();
        for _ in 0..20 {
            put(&mut client, b"other", &[1; 40 << 10]).await.unwrap();
            read(&mut client, b"key").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_with_stalled_calls_is_closed() {
    let settings = GrpcSettings {
        messages_bytes_max: 512 << 10,
        reader_idle_max: Duration::from_millis(50),
        ..settings()
    };
    let store = Store::with(options(), settings);
    let mut client = store.client().await;
    put_large_in_time(&mut client).await;
    let request = field(1, b"large");
    // No byte of an answer leaves, or some bytes do.
    for window_bytes in [0, 1 << 10, 1 << 16] {
        for (method, bytes, part) in
            [(PUT, 60 << 10, part()), (READ, request.len(), request.clone())]
        {
            let mut stalled = Raw::connect(store.address(), window_bytes);
            for _ in 0..3 {
                stalled.begin(method, bytes, &part);
            }
            // The stalled client stays connected.
            for _ in 0..20 {
                put_large_in_time(&mut client).await;
            }
        }
    }
}

/// Starts `calls` equal calls on a connection. Reads the first answer in parts, for twice as long as a connection may
/// stall, and then all answers. Returns their lengths. On a busy machine, repeats with a longer permitted stall.
async fn read_slowly(keys: &[&[u8]], method: &str, request: &[u8], calls: usize) -> Vec<usize> {
    /// A part of a large answer.
    const PART_BYTES: u32 = 16 << 10;
    const WINDOW_BYTES: u32 = 1 << 10;
    let mut idle_max = Duration::from_millis(200);
    loop {
        let store =
            Store::with(options(), GrpcSettings { reader_idle_max: idle_max, ..settings() });
        let mut client = store.client().await;
        for key in keys {
            while put(&mut client, key, &[1; LARGE_BYTES]).await.is_err() {}
        }
        let mut reader = Raw::connect(store.address(), WINDOW_BYTES);
        let began = Instant::now();
        let streams: Vec<_> =
            (0..calls).map(|_| reader.begin(method, request.len(), request)).collect();
        let (mut came, mut taken) = (began, WINDOW_BYTES);
        let mut moves = true;
        while began.elapsed() < 2 * idle_max {
            // Simulate a slow link.
            std::thread::sleep(idle_max / 4);
            reader.take(streams[0], PART_BYTES);
            taken += PART_BYTES;
            reader.wait_for_bytes(streams[0], taken as usize);
            // The part came in time.
            moves &= came.elapsed() < idle_max / 2;
            came = Instant::now();
        }
        streams.iter().for_each(|&stream| reader.take(stream, 1 << 20));
        let answers = reader.answers(calls);
        if moves && came.elapsed() < idle_max / 2 {
            return streams.iter().map(|stream| answers[stream]).collect();
        }
        idle_max *= 2;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_survives_while_another_is_read_slowly() {
    let answers = read_slowly(&[b"large"], READ, &field(1, b"large"), 2).await;
    assert!(answers.iter().all(|&bytes| bytes > LARGE_BYTES), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_that_is_read_slowly_is_not_ended() {
    let request = ScanRequest::default().encode_to_vec();
    let answers = read_slowly(&[b"a", b"b"], "/knee.kv.v1.KeyValue/Scan", &request, 1).await;
    assert!(answers[0] > 2 * LARGE_BYTES, "{answers:?}: it was given up behind the first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_without_its_client_keeps_its_share() {
    let directory = Directory::new("cancelled");
    let tight = StoreOptions { segment_bytes: 4096, value_bytes_max: 3500, ..options() };
    let settings = GrpcSettings { messages_bytes_max: 512 << 10, connections_max: 2, ..settings() };
    let store = Store::of(directory.open(tight), settings);
    let fresh = directory.0.join("MANIFEST.copy");
    let stalled = Stalled::begin(&fresh);
    let mut client = store.client().await;
    let mut leaving = Raw::connect(store.address(), 1 << 16);
    let changes = (0..60_u8).map(|key| changed(&[key], &[7; 3000])).collect();
    let request = BulkPutRequest { changes, request: None }.encode_to_vec();
    leaving.begin("/knee.kv.v1.KeyValue/BulkPut", request.len(), &request);
    while stats(&mut client).await.writes == 0 {}
    // A client that left before would have cancelled its call.
    stalled.waits().await;
    drop(leaving);
    // The server notices that the client left when it accepts another client.
    let mut other = store.client().await;
    while read(&mut other, b"none").await.is_err_and(|status| status.code() != Code::NotFound) {}
    for _ in 0..100 {
        let status = put_large(&mut other).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    let reader = stalled.read();
    // Now there is room; the value is refused as too large.
    let refused =
        async { while put_large(&mut other).await.unwrap_err().code() != Code::InvalidArgument {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("its room is free");
    stalled.end();
    drop(reader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_that_makes_a_segment_delays_no_call() {
    let directory = Directory::new("segment");
    let tight = StoreOptions { segment_bytes: 4096, value_bytes_max: 3500, ..options() };
    let store = Store::of(directory.open(tight), GrpcSettings { threads: 1, ..settings() });
    let mut client = store.client().await;
    put(&mut client, b"there", &[1; 2000]).await.unwrap();
    let stalled = Stalled::begin(&directory.0.join("MANIFEST.copy"));
    let mut writer = store.client().await;
    let writing = tokio::spawn(async move { put(&mut writer, b"large", &[2; 3000]).await });
    let others = async {
        while stats(&mut client).await.writes < 2 {}
        assert_eq!(read(&mut client, b"there").await.unwrap().0, [1; 2000]);
    };
    let served = tokio::time::timeout(PATIENCE, others).await;
    assert!(!writing.is_finished());
    let reader = stalled.read();
    served.expect("other calls are served");
    // The sync of a pipe fails, which is no lack of space.
    assert_eq!(writing.await.unwrap().unwrap_err().code(), Code::Unavailable);
    stalled.end();
    drop(reader);
    // The store makes its next attempt after some time.
    while put(&mut client, b"large", &[2; 3000]).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_wait_for_a_segment_delay_no_scan() {
    let directory = Directory::new("waiting");
    let tight = StoreOptions { segment_bytes: 4096, value_bytes_max: 3500, ..options() };
    let store = Store::of(directory.open(tight), settings());
    let mut client = store.client().await;
    put(&mut client, b"there", &[1; 2000]).await.unwrap();
    let stalled = Stalled::begin(&directory.0.join("MANIFEST.copy"));
    // Make twice as many writes as there are blocking threads.
    let writer = store.client().await;
    let mut writing = JoinSet::new();
    for number in 0..64_u8 {
        let (mut one, mut bulk) = (writer.clone(), writer.clone());
        let changes = vec![changed(&[number], &[3; 3000])];
        writing.spawn(async move { put(&mut one, &[number], &[2; 3000]).await });
        writing.spawn(async move { bulk_put(&mut bulk, changes).await });
    }
    let others = async {
        while stats(&mut client).await.writes < 129 {}
        assert_eq!(rest(begin(&mut client, everything()).await).await.unwrap().len(), 1);
    };
    let served = tokio::time::timeout(PATIENCE, others).await;
    let reader = stalled.read();
    served.expect("other calls are served");
    // The sync of a pipe fails: no write gets a segment.
    while let Some(outcome) = writing.join_next().await {
        assert_eq!(outcome.unwrap().unwrap_err().code(), Code::Unavailable);
    }
    stalled.end();
    drop(reader);
    while put(&mut client, b"large", &[2; 3000]).await.is_err() {}
}
