//! Requests that are sent again.

use knee_rpc::kv::{AppendRequest, BulkPutRequest, RequestId};

use crate::grpc::serving::{
    Client, Directory, Store, changed, options, put, read, settings, stats,
};

async fn append(client: &mut Client, tail: &'static str, request: RequestId) -> u64 {
    let request = AppendRequest {
        key: "key".into(),
        tail: tail.into(),
        request: Some(request),
        ..AppendRequest::default()
    };
    client.append(request).await.unwrap().into_inner().version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_request_is_done_once_also_after_a_restart() {
    let directory = Directory::new("repeating");
    let mut store = Store::of(directory.open(options()), settings());
    let mut client = store.client().await;
    let [first, second, bulk] = [1, 2, 3].map(|number| RequestId { client: 7, number });
    let made = append(&mut client, "a", first).await;
    let bulk_put = BulkPutRequest { changes: vec![changed(b"x", b"old")], request: Some(bulk) };
    let made_in_bulk = client.bulk_put(bulk_put.clone()).await.unwrap().into_inner().version;
    put(&mut client, b"x", b"new").await.unwrap();
    for _ in 0..2 {
        let commits = stats(&mut client).await.last_commit;
        assert_eq!(append(&mut client, "a", first).await, made);
        let again = client.bulk_put(bulk_put.clone()).await.unwrap().into_inner();
        assert_eq!(again.version, made_in_bulk);
        assert_eq!(stats(&mut client).await.last_commit, commits, "nothing was written");
        assert_eq!(read(&mut client, b"key").await.unwrap(), (b"a".to_vec(), made));
        assert_eq!(read(&mut client, b"x").await.unwrap().0, b"new");
        drop(client);
        tokio::task::block_in_place(|| store.shut_down());
        store = Store::of(directory.open(options()), settings());
        client = store.client().await;
    }
    // Another number or another client means another request.
    let other = RequestId { client: 8, number: 1 };
    assert!(made < append(&mut client, "b", second).await);
    assert!(made < append(&mut client, "c", other).await);
    assert_eq!(read(&mut client, b"key").await.unwrap().0, b"abc");
}
