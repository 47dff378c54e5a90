//! Connections: requests that wait for one, calls that are lost with one, and requests combined into one call.

use std::sync::Arc;
use std::time::Duration;

use super::notifier::{heard, listening};
use knee_queue::database::{Arrival, Database, Failure};
use knee_queue::operation::{Answer, Request};
use knee_queue::postgres::{self, Options, Postgres};
use tokio::time::{sleep, timeout};

use super::{ends, held_up, hold_up_senders, sending};
use crate::harness::cluster::Cluster;
use crate::harness::cluster::name;
use crate::harness::desk::{Desk, PATIENCE, contents, outgoing};
use crate::harness::proxy::Proxy;

#[tokio::test]
async fn request_without_free_connection_fails_in_time() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let client = cluster.connect(name(&options)).await;
    for combine_max in [1, 4] {
        let options = Options {
            connections: 1,
            connection_wait: Duration::from_millis(100),
            combine_max,
            ..options.clone()
        };
        let desk = Desk::open(&options).await;
        let (a, queue) = desk.begin().await;
        hold_up_senders(&client, queue).await;
        let outgoing = || vec![outgoing(a, queue, "x")];
        let (first, second) = tokio::join!(desk.send_all(a, outgoing()), async {
            sleep(Duration::from_millis(20)).await;
            let second = desk.send_all(a, outgoing()).await;
            client.batch_execute("COMMIT").await.unwrap();
            second
        });
        assert!(first.is_ok(), "{first:?}");
        assert!(matches!(&second, Err(Failure::TooLate(_))), "{second:?}");
        // The late request was not done, and will not be.
        assert_eq!(desk.remove(a, queue, 9).await.len(), 1);
    }
}

#[tokio::test]
async fn connections_are_granted_in_order() {
    let cluster = Cluster::shared();
    let options = Options { connections: 1, ..cluster.migrated().await };
    let desk = Arc::new(Desk::open(&options).await);
    let (client, queue) = desk.begin().await;
    let lock = cluster.connect(name(&options)).await;
    hold_up_senders(&lock, queue).await;
    let held = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    let mut sends = Vec::new();
    for n in 0..20 {
        let desk = Arc::clone(&desk);
        sends.push(tokio::spawn(
            async move { desk.send(client, client, queue, &n.to_string()).await },
        ));
        // On the only thread, the request runs until it has to wait.
        tokio::task::yield_now().await;
    }
    lock.batch_execute("COMMIT").await.unwrap();
    ends(held).await;
    let mut numbers = Vec::new();
    for send in sends {
        numbers.push(timeout(PATIENCE, send).await.expect("it is answered").unwrap());
    }
    assert!(numbers.is_sorted(), "{numbers:?}");
}

/// The database's machine hangs, but its kernel still accepts connections.
#[tokio::test]
async fn silent_database_fails_calls_in_time() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    // This one has the usual time limits.
    let patient = Desk::open(&options).await;
    let (client, queue) = patient.begin().await;
    let (proxy, options) = Proxy::start(&options).await;
    let options = Options {
        address: format!("{}?connect_timeout=1", options.address),
        connections: 1,
        call_max: Duration::from_secs(1),
        ..options
    };
    proxy.hold(true);
    let opened = timeout(PATIENCE, Postgres::open(&options)).await.expect("it ends");
    assert!(matches!(&opened, Err(Failure::Unavailable(_))), "{opened:?}");
    proxy.hold(false);
    for combine_max in [1, 4] {
        let options = Options { combine_max, ..options.clone() };
        // On a stalled machine, a slow connection may be given up.
        let opened = patient.at_last(async || Postgres::open(&options).await.ok());
        let desk = Desk(opened.await);
        let send = || desk.send_all(client, vec![outgoing(client, queue, "x")]);
        patient.at_last(async || send().await.ok()).await;
        proxy.silence(true);
        let failed = timeout(PATIENCE, send()).await.expect("it ends");
        assert!(matches!(&failed, Err(Failure::Unknown(_))), "{failed:?}");
        // A lost connection frees its slot, and so does one that cannot be opened.
        for _ in 0..2 {
            let failed = timeout(PATIENCE, send()).await.expect("it ends");
            assert!(matches!(&failed, Err(Failure::Unavailable(_))), "{failed:?}");
        }
        proxy.silence(false);
        patient.at_last(async || send().await.ok()).await;
        proxy.silence(true);
        let failed = timeout(PATIENCE, desk.ask(Request::Counts)).await.expect("it ends");
        assert!(matches!(&failed, Err(Failure::Unavailable(_))), "{failed:?}");
        proxy.silence(false);
    }
}

/// A read that the database refused is not repeated.
#[tokio::test]
async fn read_is_repeated_only_after_a_lost_connection() {
    let cluster = Cluster::shared();
    let options = Options { connections: 1, ..cluster.migrated().await };
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let database = cluster.connect(name(&options)).await;
    // A sequence also counts calls that are rolled back.
    let fails = "CREATE SEQUENCE reads;
        GRANT ALL ON SEQUENCE reads TO PUBLIC;
        CREATE OR REPLACE FUNCTION knee_queue.counts(
            OUT messages bigint, OUT clients bigint, OUT queues bigint
        ) LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('reads') = 1 THEN RAISE 'no' USING ERRCODE = 'query_canceled'; END IF;
            IF currval('reads') = 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            messages := 7; clients := 0; queues := 0;
        END $$";
    database.batch_execute(fails).await.unwrap();
    let failed = desk.ask(Request::Counts).await;
    assert!(matches!(&failed, Err(Failure::Unavailable(_))), "{failed:?}");
    let counts = desk.ask(Request::Counts).await;
    assert!(matches!(&counts, Ok(Answer::Counts(counts)) if counts.messages == 7), "{counts:?}");
    desk.send(client, client, queue, "x").await;
}

/// The first call to get a connection takes earlier waiting calls along.
#[tokio::test]
async fn combined_call_is_answered_by_any_free_connection() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let options = Options { connections: 3, combine_max: 2, ..options };
    let desk = Arc::new(Desk::open(&options).await);
    let (client, queue) = desk.begin().await;
    sent_and_removed(&desk, client, queue).await;
    // Two of the three connections open only when the test lets them.
    let connections = async |count| {
        desk.at_last(async || (proxy.connections() == count).then_some(())).await;
    };
    // Connections of the schema check, two background jobs, the listener, the notifier and a request.
    connections(6).await;
    let lock = cluster.connect(name(&options)).await;
    hold_up_senders(&lock, queue).await;
    let held = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    proxy.hold(true);
    let first = sending(&desk, client, queue);
    connections(7).await;
    let second = sending(&desk, client, queue);
    connections(8).await;
    let third = sending(&desk, client, queue);
    // The third request gets the free connection, and one of the two earlier requests goes along.
    lock.batch_execute("COMMIT").await.unwrap();
    ends(held).await;
    ends(third).await;
    proxy.hold(false);
    ends(first).await;
    ends(second).await;
}

/// The database's encoding lacks a character of the refused message.
#[tokio::test]
async fn refused_message_fails_no_combined_request() {
    let cluster = Cluster::shared();
    let create =
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    cluster.connect("postgres").await.batch_execute(create).await.unwrap();
    let options = Options { connections: 1, combine_max: 4, ..cluster.options("latin") };
    postgres::migrate(&options).await.unwrap();
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let lock = cluster.connect("latin").await;
    hold_up_senders(&lock, queue).await;
    let send = |content| desk.send_all(client, vec![outgoing(client, queue, content)]);
    let (first, second, refused, last, ()) =
        tokio::join!(send("first"), send("second"), send("\u{2603}"), send("last"), async {
            held_up(&desk, &lock, 1).await;
            lock.batch_execute("COMMIT").await.unwrap();
        });
    assert!(matches!(&refused, Err(Failure::Invalid(_))), "{refused:?}");
    for sent in [first, second, last] {
        sent.unwrap();
    }
    assert_eq!(contents(&desk.remove(client, queue, 9).await), ["first", "second", "last"]);
}

/// If another call answers the request that opens a connection, the next request gets the connection.
#[tokio::test]
async fn opening_connection_is_kept_for_the_next_request() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let options = Options { connections: 2, combine_max: 4, ..options };
    let desk = Arc::new(Desk::open(&options).await);
    let (client, queue) = desk.begin().await;
    sent_and_removed(&desk, client, queue).await;
    let connections = async |count| {
        desk.at_last(async || (proxy.connections() == count).then_some(())).await;
    };
    // Connections of the schema check, two background jobs, the listener, the notifier and a request.
    connections(6).await;
    let lock = cluster.connect(name(&options)).await;
    hold_up_senders(&lock, queue).await;
    let held = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    proxy.hold(true);
    let opens = sending(&desk, client, queue);
    connections(7).await;
    lock.batch_execute("COMMIT").await.unwrap();
    ends(held).await;
    // The next call gets the free connection, and takes along the call that still opens one.
    ends(sending(&desk, client, queue)).await;
    ends(opens).await;
    proxy.hold(false);
    // Both connections are needed now.
    hold_up_senders(&lock, queue).await;
    let one = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    let two = sending(&desk, client, queue);
    held_up(&desk, &lock, 2).await;
    lock.batch_execute("COMMIT").await.unwrap();
    ends(one).await;
    ends(two).await;
    assert_eq!(proxy.connections(), 7);
}

/// A send whose client left keeps its connection until it ends. Both servers announce its message.
#[tokio::test]
async fn send_of_a_client_that_left_is_announced() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let elsewhere = Desk::open(&options).await;
    let lock = cluster.connect(name(&options)).await;
    listening(&elsewhere, &lock, 1).await;
    for combine_max in [1, 4] {
        let options = Options { connections: 2, combine_max, ..options.clone() };
        let desk = Arc::new(Desk::open(&options).await);
        let (client, queue) = desk.begin().await;
        let mut arrivals = [desk.0.arrivals(), elsewhere.0.arrivals()];
        hold_up_senders(&lock, queue).await;
        let sending = sending(&desk, client, queue);
        held_up(&desk, &lock, 1).await;
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        // The other connection is free.
        timeout(PATIENCE, desk.counts()).await.expect("the other connection answers");
        lock.batch_execute("COMMIT").await.unwrap();
        for arrivals in &mut arrivals {
            heard(arrivals, Arrival { queue, receiver: client }).await;
        }
        assert_eq!(desk.remove(client, queue, 9).await.len(), 1);
    }
}

#[tokio::test]
async fn unused_connections_are_closed_except_one() {
    let cluster = Cluster::shared();
    let options =
        Options { idle_max: Some(Duration::from_millis(100)), ..cluster.migrated().await };
    let desk = Desk::open(&options).await;
    tokio::join!(desk.counts(), desk.counts(), desk.counts(), desk.counts());
    let client = cluster.connect("postgres").await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1
                 AND query LIKE '%counts%'";
    desk.at_last(async || {
        let open: i64 = client.query_one(count, &[&name(&options)]).await.unwrap().get(0);
        (open == 1).then_some(())
    })
    .await;
    desk.counts().await;
}

/// Opens the connections of a request and of the notifier.
async fn sent_and_removed(desk: &Desk<Postgres>, client: u32, queue: u32) {
    desk.send(client, client, queue, "x").await;
    desk.remove(client, queue, 1).await;
}
