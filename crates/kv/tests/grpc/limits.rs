//! What all calls may take together, and whom a call holds up.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use knee_kv::grpc::Settings;
use knee_kv::versioned::StoreOptions;
use knee_rpc::kv::{BulkPutRequest, Change};
use tonic::Code;

use crate::raw::{Raw, field};
use crate::serving::{Client, Directory, Store, options, put, read, settings, stats};

/// Nothing that is waited for here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Room for two calls of 60 KiB and their buffers, and a small one.
fn limited() -> Store {
    Store::with(options(), Settings { messages_bytes_max: 190 << 10, ..settings() })
}

/// Lets others take room, and puts a large value until that is refused for want of it. One of them may
/// be refused itself.
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
    let message = "the messages of all calls take 194560 bytes, and no more are taken or sent";
    assert!(status.message().starts_with(message), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_have_a_limit_together() {
    let store = limited();
    let mut client = store.client().await;
    let mut half = [(); 10].map(|()| Raw::connect(store.address(), 1 << 16));
    let mut calls = half.iter_mut();
    refused(&mut client, || {
        if let Some(raw) = calls.next() {
            raw.begin("/knee.kv.v1.KeyValue/Put", 60 << 10, &[0x0a; 50 << 10]);
        }
    })
    .await;
    // Once they are gone, all of it is free again.
    drop(half);
    while put(&mut client, b"large", &[1; 160 << 10]).await.is_err() {}
    for _ in 0..10 {
        put(&mut client, b"large", &[1; 160 << 10]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_have_a_limit_together() {
    let store = limited();
    let mut client = store.client().await;
    put(&mut client, b"key", &[1; 60 << 10]).await.unwrap();
    // Both interfaces: an answer may not leave, or only some bytes of it.
    let mut slow = [0, 1 << 10].map(|window_bytes| Raw::connect(store.address(), window_bytes));
    let methods = ["/knee.kv.v1.KeyValue/Read", "/rpc.Storage/GetValue"];
    let request = field(1, b"key");
    // So few that it is not their number that is too much.
    let mut calls = 0..6;
    refused(&mut client, || {
        for index in calls.by_ref().take(2) {
            slow[index % 2].begin(methods[index % 2], request.len(), &request);
        }
    })
    .await;
    drop(slow);
    while read(&mut client, b"key").await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_many_small_parts_counts_as_what_it_takes() {
    let store = limited();
    let mut client = store.client().await;
    // Two bytes each, where they come from.
    let request = BulkPutRequest { changes: vec![Change::default(); 4096], request: None };
    let status = client.bulk_put(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_makes_a_segment_holds_up_nobody() {
    let directory = Directory::new("segment");
    let tight = StoreOptions { segment_bytes: 4096, value_bytes_max: 3500, ..options() };
    let store = Store::of(directory.open(tight), Settings { threads: 1, ..settings() });
    let mut client = store.client().await;
    put(&mut client, b"there", &[1; 2000]).await.unwrap();
    // Whoever enters a segment in the manifest waits until somebody reads this.
    let fresh = directory.0.join("MANIFEST.new");
    fs::remove_file(&fresh).unwrap();
    let path = CString::new(fresh.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a zero and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let mut writer = store.client().await;
    let writing = tokio::spawn(async move { put(&mut writer, b"large", &[2; 3000]).await });
    let others = async {
        while stats(&mut client).await.writes < 2 {}
        assert_eq!(read(&mut client, b"there").await.unwrap().0, [1; 2000]);
    };
    let served = tokio::time::timeout(PATIENCE, others).await;
    assert!(!writing.is_finished());
    let reader = fs::File::open(&fresh).unwrap();
    served.expect("others are served meanwhile");
    // A pipe cannot be synced.
    assert_eq!(writing.await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
    drop(reader);
    fs::remove_file(&fresh).unwrap();
    put(&mut client, b"large", &[2; 3000]).await.unwrap();
}
