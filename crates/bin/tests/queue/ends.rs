//! What `knee-queue` says at its end of what it has not done.

use knee_queue::database::Database;
use knee_queue::operation::ANYBODY;
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{Outgoing, RemoveRequest, SendRequest};
use tokio::task::spawn_blocking;

use crate::harness::cluster::Cluster;
use crate::harness::desk::Desk;
use crate::program::{Program, QUEUE};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_all_the_time_leaves_some_for_saying_what_others_were_not_told() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let other = Desk::open(&options).await;
    let (client, queue) = other.begin().await;
    let _arrivals = other.0.arrivals().await.unwrap();
    other.0.watch(queue).await.unwrap();
    let database = cluster.connect(options.address.rsplit('/').next().unwrap()).await;
    let never = "CREATE OR REPLACE FUNCTION knee_queue.tell(p_arrivals text) RETURNS void
        LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$";
    database.batch_execute(never).await.unwrap();
    let server = Program::serve(QUEUE, &["--database", &options.address]);
    let mut asks = QueueClient::connect(format!("http://{}", server.address())).await.unwrap();
    let messages = vec![Outgoing { receiver: ANYBODY, queue, content: "it".to_owned() }];
    asks.send(SendRequest { sender: client, messages }).await.unwrap();
    database.batch_execute("BEGIN; LOCK TABLE knee_queue.message").await.unwrap();
    let request = RemoveRequest { receiver: client, queue, count: 1, wait_ms: 0 };
    let removes = tokio::spawn(async move { asks.remove(request).await });
    let blocked = "SELECT FROM pg_locks WHERE NOT granted AND mode = 'RowShareLock'
        AND relation = 'knee_queue.message'::regclass
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    other.at_last(async || database.query(blocked, &[]).await.unwrap().pop().map(drop)).await;
    server.signal(libc::SIGTERM);
    let ended = spawn_blocking(|| server.end()).await.unwrap();
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    assert!(ended.errors.contains("it ends though others"), "{}", ended.errors);
    // Calls took all the time there was.
    assert!(!ended.errors.contains("it ends later"), "{}", ended.errors);
    assert!(removes.await.unwrap().is_err());
}
