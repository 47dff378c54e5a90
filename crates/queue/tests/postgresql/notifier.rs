//! Servers that notify each other of arrivals.

use knee_queue::database::{Arrival, Database};
use knee_queue::operation::ANYBODY;
use knee_queue::postgres::Postgres;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::harness::cluster::{Cluster, name};
use crate::harness::desk::{Desk, LONG, PATIENCE, lease_of};
use crate::harness::proxy::Proxy;

/// Waits until this many servers listen. `look` must have no open transaction.
pub(crate) async fn listening(desk: &Desk<Postgres>, look: &Client, servers: i64) {
    let listening = "SELECT count(*) FROM pg_stat_activity
        WHERE query = 'LISTEN knee_queue' AND state = 'idle' AND datname = current_database()";
    desk.at_last(async || {
        let row = look.query_one(listening, &[]).await.unwrap();
        (row.get::<_, i64>(0) == servers).then_some(())
    })
    .await;
}

/// Waits for an arrival.
pub(crate) async fn heard(arrivals: &mut Receiver<Option<Arrival>>, expected: Arrival) {
    let heard = async { while arrivals.recv().await.unwrap() != Some(expected) {} };
    timeout(PATIENCE, heard).await.unwrap_or_else(|_| panic!("{expected:?} is not heard of"));
}

#[tokio::test]
async fn server_is_notified_of_arrivals_at_another_server() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Desk::open(&options).await;
    let two = Desk::open(&options).await;
    let look = cluster.connect(name(&options)).await;
    let mut arrivals = two.0.arrivals();
    listening(&two, &look, 2).await;
    let (client, queue) = one.begin().await;
    let arrival = Arrival { queue, receiver: ANYBODY };
    one.send(client, ANYBODY, queue, "x").await;
    heard(&mut arrivals, arrival).await;
    let leased = one.lease(client, queue, 1, LONG).await;
    one.release(&[lease_of(&leased[0])]).await;
    heard(&mut arrivals, arrival).await;
    // After a lost connection, the listener reconnects.
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE query = 'LISTEN knee_queue' AND datname = current_database()";
    look.query(cut, &[]).await.unwrap();
    listening(&two, &look, 0).await;
    listening(&two, &look, 2).await;
    one.send(client, ANYBODY, queue, "y").await;
    heard(&mut arrivals, arrival).await;
}

/// For a while, the database accepts no new connection of listener and notifier.
#[tokio::test]
async fn server_without_notifications_still_answers() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let (proxy, through) = Proxy::start(&options).await;
    let desk = Desk::open(&through).await;
    let (client, queue) = desk.begin().await;
    proxy.refuse(true);
    let database = cluster.connect(name(&options)).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE query ~ 'LISTEN|notify_arrivals' AND pid <> pg_backend_pid()
                   AND datname = current_database()";
    database.query(cut, &[]).await.unwrap();
    desk.send(client, client, queue, "x").await;
    assert_eq!(desk.remove(client, queue, 1).await.len(), 1);
    proxy.refuse(false);
    listening(&desk, &database, 1).await;
}
