//! Two servers over one PostgreSQL.

use std::collections::BTreeSet;

use knee_queue::postgres::Postgres;
use knee_rpc::queue::DeleteQueueRequest;
use tokio::task::JoinSet;
use tonic::Code;

use crate::harness::cluster::Cluster;
use crate::server::{LONG_MS, Server, create, register, remove, send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_at_one_server_gets_what_is_sent_through_another() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Server::start(Postgres::open(&options).await.unwrap());
    let other = Server::start(Postgres::open(&options).await.unwrap());
    let mut client = other.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let mut waiters = JoinSet::new();
    for _ in 0..10 {
        let mut waiter = one.client().await;
        waiters.spawn(async move { remove(&mut waiter, (me, queue), LONG_MS).await });
    }
    // Some of them wait by now and some do not: each gets one.
    let sent: BTreeSet<String> = (0..10).map(|number| number.to_string()).collect();
    for content in &sent {
        send(&mut client, (me, me, queue), content.as_str()).await.unwrap();
    }
    let mut received = BTreeSet::new();
    while let Some(outcome) = waiters.join_next().await {
        assert!(received.insert(outcome.unwrap().unwrap().unwrap()));
    }
    assert_eq!(received, sent);
    // What is gone is gone at both.
    let mut waiter = one.client().await;
    let waiting = tokio::spawn(async move { remove(&mut waiter, (me, queue), LONG_MS).await });
    client.delete_queue(DeleteQueueRequest { queue }).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::NotFound);
}
