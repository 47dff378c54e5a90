//! Unread answers: their memory, and its end.

use std::time::Duration;

use knee_kv::grpc::GrpcSettings;
use knee_kv_store::Store as Versioned;
use knee_rpc::Message;
use knee_rpc::kv::StatsRequest;
use tonic::Code;

use crate::grpc::raw::{Raw, field};
use crate::grpc::serving::{Client, Store, everything, options, patiently, put, settings};

/// Far longer than any wait of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

const READ: &str = "/knee.kv.v1.KeyValue/Read";

/// A store with a value of this many bytes, stored through a server with other settings.
async fn with_value(bytes: usize, settings: GrpcSettings) -> Store {
    let data = Versioned::in_memory(options(), 1 << 30).unwrap();
    let roomy = Store::of(data.clone(), crate::grpc::serving::settings());
    put(&mut roomy.client().await, b"key", &vec![7; bytes]).await.unwrap();
    Store::of(data, settings)
}

/// Begins scans until one is served.
async fn scan_in_time(client: &mut Client) {
    let scanned = async {
        while let Err(status) = patiently(async || client.scan(everything()).await).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, scanned).await.expect("there is a place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_answers_count_until_they_are_read() {
    let tight = GrpcSettings { messages_bytes_max: 380 << 10, ..settings() };
    let store = with_value(15 << 10, tight).await;
    // The answers are ready, and wait for their reader.
    let mut readers = [(); 3].map(|()| Raw::connect(store.address(), 1));
    let request = field(1, b"key");
    for reader in &mut readers {
        for _ in 0..20 {
            reader.begin(READ, request.len(), &request);
        }
    }
    let mut client = store.client().await;
    let refused = async {
        loop {
            if let Err(status) = put(&mut client, b"other", &[2; 50 << 10]).await {
                return status;
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, refused).await.expect("there is no room for it");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    drop(readers);
    while put(&mut client, b"other", &[2; 50 << 10]).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_without_a_window_loses_its_place() {
    let hasty =
        GrpcSettings { scans_max: 1, reader_idle_max: Duration::from_millis(20), ..settings() };
    let store = with_value(9, hasty).await;
    let mut client = store.client().await;
    let mut readers = Vec::new();
    let request = everything().encode_to_vec();
    let begun = async {
        let mut scans = 0;
        while scans == 0 {
            // On a busy machine, the server may have closed the last reader's connection: use a new one.
            let mut reader = Raw::connect(store.address(), 0);
            reader.begin("/knee.kv.v1.KeyValue/Scan", request.len(), &request);
            let stats = patiently(async || client.stats(StatsRequest {}).await).await;
            scans = stats.unwrap().into_inner().scans;
            readers.push(reader);
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.expect("it begins");
    scan_in_time(&mut client).await;
}
