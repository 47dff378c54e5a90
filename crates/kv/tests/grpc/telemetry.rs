//! The common report of both servers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::SystemTime;

use knee_kv_cache::MemoryLimits;
use knee_kv_store::Store as Versioned;

use knee_kv::grpc::{self, GrpcSettings, Telemetry};
use knee_kv::{MemcachedServer, MemcachedSettings};
use knee_rpc::honu::storage_client::StorageClient;
use knee_rpc::honu::{GetRequest, PutRequest as HonuPutRequest};
use knee_rpc::kv::{Change, HistoryRequest, ScanRequest, WatchRequest};
use knee_rpc::queue::DeleteQueueRequest;
use knee_rpc::queue::queue_client::QueueClient;
use knee_server::Trace;
use knee_telemetry::{Reporter, Stats};
use serde_json::Value;
use tonic::Code;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint};

use crate::grpc::serving::{
    Client, VALUE_BYTES_MAX, begin, begin_atomic, bulk_put, changed, delete, everything, insert,
    options, put, read, rest, settings, stats, update,
};

/// A writer to shared memory.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// A store behind both servers, with its report and its trace.
struct Reported {
    serving: MemcachedServer,
    grpc: grpc::GrpcServer,
    trace: Trace,
    lines: Sink,
    traced: Sink,
}

impl Reported {
    fn start() -> Reported {
        Reported::with(settings())
    }

    fn with(settings: GrpcSettings) -> Reported {
        let store = Versioned::in_memory(options(), 1 << 30).unwrap();
        let (lines, traced) = (Sink::default(), Sink::default());
        let mut reporter = Reporter::to_sink("test", Stats::Json, Box::new(lines.clone()));
        let trace = Trace::to_sink("test", traced.clone());
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let telemetry = Telemetry::new(&mut reporter, settings.threads, Some(trace.clone()));
        let grpc = grpc::GrpcServer::start(settings, store.clone(), listen(), telemetry).unwrap();
        let memcached = MemcachedSettings {
            threads: 1,
            limits: MemoryLimits { memory_bytes_max: 1 << 30, value_bytes_max: VALUE_BYTES_MAX },
            buffered_bytes_max: 256 << 20,
            connections_max: 10,
            idle_timeout: None,
        };
        let serving = MemcachedServer::start_over(
            &store,
            &memcached,
            listen(),
            reporter,
            Some(trace.clone()),
            |_| Ok(()),
        );
        Reported { serving: serving.unwrap(), grpc, trace, lines, traced }
    }

    fn url(&self) -> String {
        format!("http://{}", self.grpc.address())
    }

    fn memcached(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Ends the servers. Returns the lines of the report and of the trace.
    async fn end(self) -> (Vec<Value>, Vec<String>) {
        let Reported { serving, grpc, trace, lines, traced } = self;
        let ended = tokio::task::spawn_blocking(move || {
            serving.shutdown().begin();
            serving.join_with(|| {
                grpc.shutdown().begin();
                grpc.join().unwrap();
            })
        });
        ended.await.unwrap().unwrap();
        trace.finish();
        let lines = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, traced.text().lines().map(str::to_owned).collect())
    }
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_fronts_count_in_the_same_lines() {
    let store = Reported::start();
    let mut client = Client::connect(store.url()).await.unwrap();
    stats(&mut client).await;
    let loaded = unix_s();
    insert(&mut client, b"a", b"12345").await.unwrap();
    insert(&mut client, b"a", b"").await.unwrap_err();
    update(&mut client, b"none", b"").await.unwrap_err();
    put(&mut client, b"b", b"1").await.unwrap();
    read(&mut client, b"a").await.unwrap();
    read(&mut client, b"none").await.unwrap_err();
    read(&mut client, b"").await.unwrap_err();
    bulk_put(&mut client, vec![changed(b"c", b"1"), changed(b"d", b"2")]).await.unwrap();
    delete(&mut client, b"b").await.unwrap();
    delete(&mut client, b"none").await.unwrap();
    assert_eq!(rest(begin(&mut client, everything()).await).await.unwrap().len(), 3);
    let limited = ScanRequest { limit: 2, ..everything() };
    assert_eq!(rest(begin_atomic(&mut client, limited).await).await.unwrap().len(), 2);
    let inverted = ScanRequest { start: "b".into(), end: "a".into(), ..everything() };
    client.atomic_scan(inverted).await.unwrap_err();
    let mut history =
        client.history(HistoryRequest { key: "a".into() }).await.unwrap().into_inner();
    while history.message().await.unwrap().is_some() {}
    let mut honu = StorageClient::connect(store.url()).await.unwrap();
    honu.get_value(GetRequest { key: "none".into() }).await.unwrap();
    honu.get_value(GetRequest { key: String::new() }).await.unwrap();
    let value = HonuPutRequest { key: "e".into(), value: "1".into(), track_visibility: false };
    honu.put_value(value).await.unwrap();
    let mut memcached = TcpStream::connect(store.memcached()).unwrap();
    memcached.write_all(b"set f 0 0 1\r\nx\r\nadd f 0 0 1\r\ny\r\nget a\r\nget none\r\n").unwrap();
    let mut answer =
        vec![0; b"STORED\r\nNOT_STORED\r\nVALUE a 0 5\r\n12345\r\nEND\r\nEND\r\n".len()];
    memcached.read_exact(&mut answer).unwrap();
    let after = unix_s();
    stats(&mut client).await;
    drop((client, honu, memcached));
    let (lines, traced) = store.end().await;

    let summary = lines.last().unwrap();
    assert_eq!(summary["type"], "summary");
    let counts = |line: &Value, op: &str| {
        ["count", "errors", "items", "hits", "misses"]
            .map(|field| line["ops"][op][field].as_u64().unwrap_or(0))
    };
    for (op, expected) in [
        // An insert and an update failed by their conditions, which is no error.
        ("insert", [2, 0, 2, 0, 1]),
        ("update", [1, 0, 1, 0, 1]),
        ("put", [2, 0, 2, 0, 0]),
        // This includes reads through honu's interface.
        ("read", [5, 2, 5, 1, 2]),
        ("bulk_put", [1, 0, 2, 0, 0]),
        ("delete", [2, 0, 2, 1, 1]),
        ("scan", [1, 0, 3, 0, 0]),
        ("atomic_scan", [2, 1, 2, 0, 0]),
        ("other", [3, 0, 1, 0, 0]),
        ("set", [2, 0, 2, 0, 1]),
        ("get", [2, 0, 2, 1, 1]),
    ] {
        assert_eq!(counts(summary, op), expected, "{op}");
        let windows = lines.iter().filter(|line| line["type"] == "window");
        let sum = windows.map(|line| counts(line, op)[0]).sum::<u64>();
        assert_eq!(sum, expected[0], "the windows add up to the summary: {op}");
        assert!(summary["ops"][op]["service_sum_ns"].as_u64().unwrap() > 0, "{op}");
    }
    // Each change has the field numbers and lengths of the key, the value's message and the value.
    assert_eq!(summary["ops"]["bulk_put"]["bytes_in"], 2 * (2 + 2 + 1 + 2 + 2 + 1));
    assert!(summary["ops"]["scan"]["bytes_out"].as_u64().unwrap() > 5 + 1 + 1);
    let at = |field: &str| summary[field].as_f64().unwrap();
    // `Stats` does not count as a request.
    assert!(loaded - 0.001 <= at("first_request_unix_s"), "{loaded}: {summary}");
    assert!(at("first_request_unix_s") < at("last_request_unix_s"));
    assert!(at("last_request_unix_s") <= after + 0.001, "{after}: {summary}");
    let threads = summary["threads"].as_array().unwrap();
    let names: Vec<_> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["grpc-0", "grpc-1", "grpc-beside", "net-0"]);
    assert!(threads.iter().all(|thread| thread["cpu_s"].as_f64().unwrap() > 0.0), "{threads:?}");
    assert_eq!(summary["connections"], 0);
    let figures = ["keys", "versions", "snapshots_open", "reclaims"].map(|name| &summary[name]);
    assert_eq!(figures, [5, 6, 0, 0], "a, c, d, e and f are there, and b was: {summary}");
    let bytes = |name: &str| summary[name].as_u64().unwrap();
    assert!(0 < bytes("file_live_bytes") && bytes("file_live_bytes") < bytes("file_bytes"));

    assert_eq!(traced.len(), 23, "{traced:#?}");
    for (begin, end) in [
        ("test: trace insert \"a\" received=", " status=Ok"),
        ("test: trace insert \"a\" received=", " status=AlreadyExists"),
        ("test: trace read \"none\" received=", " bytes_in=6 bytes_out=0 status=NotFound"),
        ("test: trace atomic_scan \"b\" received=", " status=InvalidArgument"),
        ("test: trace history \"a\" received=", " status=Ok"),
        ("test: trace put \"e\" received=", " status=Ok"),
        ("test: trace set \"set f 0 0 1\" received=", " bytes_in=16 bytes_out=8 status=STORED"),
        ("test: trace get \"get a\" received=", " status=VALUE"),
        ("test: trace get \"get none\" received=", " status=END"),
    ] {
        let found = traced.iter().any(|line| {
            line.starts_with(begin)
                && line.ends_with("us")
                && line.rsplit_once(" total=").is_some_and(|(front, _)| front.ends_with(end))
        });
        assert!(found, "{begin}…{end} in {traced:#?}");
    }
}

/// Sends every call to the path of a read.
#[derive(Clone)]
struct AsRead(Channel);

impl<B> Service<http::Request<B>> for AsRead
where
    Channel: Service<http::Request<B>>,
{
    type Response = <Channel as Service<http::Request<B>>>::Response;
    type Error = <Channel as Service<http::Request<B>>>::Error;
    type Future = <Channel as Service<http::Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        *request.uri_mut() = http::Uri::from_static("http://store/knee.kv.v1.KeyValue/Read");
        self.0.call(request)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_request_is_counted_as_an_error() {
    let store = Reported::with(GrpcSettings { messages_bytes_max: 12 << 20, ..settings() });
    let mut client = Client::connect(store.url()).await.unwrap();
    let status = put(&mut client, b"key", &vec![1; 5 << 20]).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    // An encoded change has two bytes. Decoded, the changes exceed the memory.
    let status = bulk_put(&mut client, vec![Change::default(); 256 << 10]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    // Send a number in place of a key.
    let channel = Endpoint::from_shared(store.url()).unwrap().connect().await.unwrap();
    let mut other = QueueClient::new(AsRead(channel));
    let status = other.delete_queue(DeleteQueueRequest { queue: 7 }).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("the request cannot be read: "), "{status}");
    put(&mut client, b"key", b"value").await.unwrap();
    let (lines, traced) = store.end().await;
    let ops = &lines.last().unwrap()["ops"];
    for (op, count, errors) in [("put", 2, 1), ("bulk_put", 1, 1), ("read", 1, 1)] {
        assert_eq!(
            (&ops[op]["count"], &ops[op]["errors"]),
            (&count.into(), &errors.into()),
            "{op}"
        );
    }
    for (path, status) in [
        ("put \"/knee.kv.v1.KeyValue/Put", "OutOfRange"),
        ("bulk_put", "ResourceEx"),
        ("read", "InvalidArgument"),
    ] {
        let found = traced.iter().any(|line| {
            line.starts_with(&format!("test: trace {path}"))
                && line.contains(&format!(" status={status}"))
        });
        assert!(found, "{path} {status} in {traced:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_scan_is_an_error_and_cancelled_watch_is_not() {
    let store = Reported::start();
    let mut client = Client::connect(store.url()).await.unwrap();
    for number in 0..50 {
        put(&mut client, format!("{number:03}").as_bytes(), &[b'v'; 64 << 10]).await.unwrap();
    }
    let mut scan = begin(&mut client, everything()).await;
    let shown = scan.message().await.unwrap().unwrap().entries.len();
    let mut watch = client.watch(WatchRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    drop((scan, watch, client));
    // Wait before ending the server, which would end the calls, too.
    while store.traced.text().matches(" status=Cancelled ").count() < 2 {
        tokio::task::yield_now().await;
    }
    let (lines, _) = store.end().await;
    // The server counts each call once.
    let watch = &lines.last().unwrap()["ops"]["other"];
    assert_eq!((watch["count"].as_u64(), watch["errors"].as_u64()), (Some(1), Some(0)));
    let scan = &lines.last().unwrap()["ops"]["scan"];
    assert_eq!((scan["count"].as_u64(), scan["errors"].as_u64()), (Some(1), Some(1)));
    // Unread entries count, too.
    assert!((shown as u64..50).contains(&scan["items"].as_u64().unwrap()), "{scan}");
}
