//! Calls that wait for messages, over real databases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::grpc::Settings;
use knee_queue::operation::{Answer, Request};
use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};
use knee_rpc::queue::{CountsRequest, DeleteQueueRequest, ReadAllRequest};
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

use super::server::{
    LONG_MS, PATIENCE, Server, create, register, remove, send, send_small, settings, soon, until,
};
use crate::harness::cluster::Cluster;
use crate::harness::no_log;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_get_messages_sent_through_another_server() {
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
    // Some calls wait by now and some do not: each gets a message.
    let sent: BTreeSet<String> = (0..10).map(|number| number.to_string()).collect();
    for content in &sent {
        send(&mut client, (me, me, queue), content.as_str()).await.unwrap();
    }
    let mut received = BTreeSet::new();
    while let Some(outcome) = soon(waiters.join_next()).await {
        assert!(received.insert(outcome.unwrap().unwrap().unwrap()));
    }
    assert_eq!(received, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answer_holds_neither_worker_nor_connection() {
    let cluster = Cluster::shared();
    let options = Options { connections: 1, ..cluster.migrated().await };
    // Connections are scarce in both cases; workers only in the first.
    for workers in [1, 10] {
        let database = Postgres::open(&options).await.unwrap();
        let server = Server::with(Settings { workers, ..settings() }, database);
        let (mut client, slow) = (server.client().await, server.narrow_client().await);
        let me = register(&mut client).await;
        let queue = create(&mut client, me).await;
        send_small(&mut client, (me, queue), 5000).await;
        let mut reads = JoinSet::new();
        for _ in 0..5 {
            let mut slow = slow.clone();
            let request = ReadAllRequest { receiver: me, queue };
            reads.spawn(async move { slow.read_all(request).await });
        }
        let unread = timeout(PATIENCE, reads.join_all()).await.expect("all of them begin");
        for _ in 0..10 {
            let counts = timeout(PATIENCE, client.counts(CountsRequest {})).await;
            counts.expect("others are served").unwrap();
        }
        drop(unread);
    }
}

/// A database that counts removes.
struct Counting<D> {
    database: D,
    looks: Arc<AtomicU64>,
}

impl<D: Database> Database for Counting<D> {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        let looks = matches!(request, Request::Remove { .. });
        let answer = self.database.call(request, stages).await;
        self.looks.fetch_add(looks.into(), Ordering::Relaxed);
        answer
    }

    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>> {
        self.database.arrivals()
    }
}

/// Starts calls that wait at one server, and deletes their queue at the other server, which may be the same.
async fn queue_goes(looks: &AtomicU64, one: &Server, other: &Server) {
    let mut client = other.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let mut waiters = JoinSet::new();
    for _ in 0..3 {
        let mut waiter = one.client().await;
        waiters.spawn(async move { remove(&mut waiter, (me, queue), LONG_MS).await });
    }
    until("each looks", || looks.load(Ordering::Relaxed) >= 3).await;
    client.delete_queue(DeleteQueueRequest { queue }).await.unwrap();
    while let Some(outcome) = soon(waiters.join_next()).await {
        assert_eq!(outcome.unwrap().unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_deleted_in_sqlite_ends_waiting_calls() {
    let options = sqlite::Options { file: None, durable: true, log: no_log() };
    let looks = Arc::<AtomicU64>::default();
    let database = Sqlite::open(&options).unwrap();
    let server = Server::start(Counting { database, looks: Arc::clone(&looks) });
    queue_goes(&looks, &server, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_deleted_at_another_server_ends_waiting_calls() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let looks = Arc::<AtomicU64>::default();
    let database = Postgres::open(&options).await.unwrap();
    let one = Server::start(Counting { database, looks: Arc::clone(&looks) });
    let other = Server::start(Postgres::open(&options).await.unwrap());
    queue_goes(&looks, &one, &other).await;
}
