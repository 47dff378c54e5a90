//! What is PostgreSQL's own: migrations, who is let in, connections, and several servers on one database.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::database::{Arrival, Database, Failure};
use knee_queue::operation::{ANYBODY, Answer, Request};
use knee_queue::postgres::{self, Options, Postgres};
use knee_random::Random;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::harness::cluster::{Cluster, Stop};
use crate::harness::desk::{Desk, LONG, PATIENCE, contents, lease_of, outgoing};
use crate::harness::proxy::Proxy;

fn name(options: &Options) -> &str {
    options.address.rsplit('/').next().unwrap()
}

/// Whoever sends to the queue waits, until `COMMIT`.
async fn hold_up_senders(client: &Client, queue: u32) {
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock(1263420741, {queue})");
    client.batch_execute(&lock).await.unwrap();
}

/// Returns when so many senders are held up.
async fn held_up<D: Database>(desk: &Desk<D>, client: &Client, senders: i64) {
    let count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    desk.at_last(async || {
        let held_up: i64 = client.query_one(count, &[]).await.unwrap().get(0);
        (held_up == senders).then_some(())
    })
    .await;
}

/// Sends a message from a client to itself.
fn sending(desk: &Arc<Desk<Postgres>>, client: u32, queue: u32) -> JoinHandle<()> {
    let desk = Arc::clone(desk);
    tokio::spawn(async move {
        desk.send(client, client, queue, "x").await;
    })
}

async fn ends(sending: JoinHandle<()>) {
    timeout(PATIENCE, sending).await.expect("it is answered").unwrap();
}

#[tokio::test]
async fn migrations_are_installed_once_and_known_again() {
    let cluster = Cluster::shared();
    let options = cluster.options(&cluster.database().await);
    let Err(Failure::NotMigrated(told)) = Postgres::open(&options).await else {
        panic!("it opens")
    };
    assert!(told.contains("knee-queue migrate"), "{told}");
    // Two at once: one does it, the other one finds it done.
    let (one, two) = tokio::join!(postgres::migrate(&options), postgres::migrate(&options));
    let mut done = [one.unwrap(), two.unwrap()].concat();
    assert_eq!(done, ["001_messages"]);
    done = postgres::migrate(&options).await.unwrap();
    assert!(done.is_empty(), "{done:?}");
    let desk = Desk(Postgres::open(&options).await.unwrap());
    desk.client().await;

    let client = cluster.connect(name(&options)).await;
    for (change, named) in [
        ("UPDATE knee_queue.migration SET checksum = 1", "different builds"),
        ("INSERT INTO knee_queue.migration VALUES (999, 'later', 0)", "999_later"),
    ] {
        client.batch_execute(&format!("BEGIN; {change}; COMMIT")).await.unwrap();
        for failed in
            [postgres::migrate(&options).await.err(), Postgres::open(&options).await.err()]
        {
            let Some(Failure::NotMigrated(told)) = failed else { panic!("{failed:?}") };
            assert!(told.contains(named), "{told}");
        }
        client.batch_execute("DROP SCHEMA knee_queue CASCADE").await.unwrap();
        postgres::migrate(&options).await.unwrap();
    }
    // A schema that is lost while the server runs.
    client.batch_execute("DROP SCHEMA knee_queue CASCADE").await.unwrap();
    let failed = desk.ask(Request::Counts).await;
    assert!(matches!(&failed, Err(Failure::NotMigrated(_))), "{failed:?}");
}

/// No call's limit is its own.
#[tokio::test]
async fn a_migration_takes_as_long_as_it_takes() {
    let cluster = Cluster::shared();
    let options = Options {
        call_max: Duration::from_millis(50),
        ..cluster.options(&cluster.database().await)
    };
    let client = cluster.connect(name(&options)).await;
    // What somebody holds who migrates.
    client
        .batch_execute(&format!("SELECT pg_advisory_lock({})", 0x6b6e_6565_0001_i64))
        .await
        .unwrap();
    let (done, ()) = tokio::join!(postgres::migrate(&options), async {
        sleep(Duration::from_millis(500)).await;
        client.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    });
    assert_eq!(done.unwrap(), ["001_messages"]);
}

#[tokio::test]
async fn who_is_not_let_in_is_told_so_without_his_password() {
    let mut cluster = Cluster::start(false);
    let options = cluster.migrated().await;
    let client = cluster.connect("postgres").await;
    client.batch_execute("CREATE ROLE guest LOGIN PASSWORD 'right-one'").await.unwrap();
    drop(client);
    cluster.let_in_by_password("guest");
    let place = std::env::temp_dir().join(format!("knee-password-{}", std::process::id()));
    let guest = Options {
        address: options.address.replace("knee@", "guest@"),
        password_file: Some(place.clone()),
        ..options.clone()
    };
    std::fs::write(&place, "wrong-one\n").unwrap();
    let failed = Postgres::open(&guest).await.unwrap_err();
    assert!(matches!(&failed, Failure::NotAllowed(_)), "{failed:?}");
    assert!(failed.to_string().contains("guest") && !failed.to_string().contains("wrong-one"));
    std::fs::write(&place, "right-one\n").unwrap();
    // Let in, but without any rights.
    let failed = Postgres::open(&guest).await.unwrap_err();
    assert!(matches!(&failed, Failure::NotAllowed(_)), "{failed:?}");
    assert!(failed.to_string().contains("permission denied"), "{failed}");
    // Those that docs/knee-queue.md names are enough.
    let rights = "GRANT USAGE ON SCHEMA knee_queue TO guest;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA knee_queue TO guest;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA knee_queue TO guest";
    cluster.connect(name(&options)).await.batch_execute(rights).await.unwrap();
    assert!(postgres::migrate(&guest).await.unwrap().is_empty());
    let desk = Desk(Postgres::open(&guest).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let mut arrivals = desk.0.arrivals().await.unwrap();
    desk.0.watch(queue).await.unwrap();
    desk.send(client, client, queue, "x").await;
    arrivals.recv().await.unwrap();
    assert_eq!(contents(&desk.read(client, queue, 0, 9).await), ["x"]);
    let lease = desk.lease(client, queue, 1, Duration::from_millis(1)).await;
    assert_eq!(lease.len(), 1);
    // The keeper has them, too: it lets the message come back, and has its horizon.
    desk.at_last(async || desk.remove(client, queue, 1).await.pop()).await;
    desk.delete(queue).await.unwrap();
    let nowhere = Options { address: format!("{}x", options.address), ..options.clone() };
    let failed = Postgres::open(&nowhere).await.unwrap_err();
    assert!(matches!(&failed, Failure::NotAllowed(_)), "{failed:?}");
    std::fs::remove_file(&place).unwrap();

    cluster.stop(Stop::Fast);
    let failed = Postgres::open(&options).await.unwrap_err();
    assert!(matches!(&failed, Failure::Unavailable(_)), "{failed:?}");
}

#[tokio::test]
async fn a_read_only_database_answers_reads_and_says_so() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    desk.send(client, client, queue, "x").await;
    let read_only = Options {
        address: format!("{}?options=-cdefault_transaction_read_only=on", options.address),
        ..options
    };
    let desk = Desk(Postgres::open(&read_only).await.unwrap());
    let failed = desk.send_all(client, vec![outgoing(client, queue, "y")]).await;
    let Err(Failure::Unavailable(told)) = failed else { panic!("{failed:?}") };
    assert!(told.contains("read-only"), "{told}");
    assert_eq!(desk.read(client, queue, 0, 9).await.len(), 1);
}

#[tokio::test]
async fn a_full_disk_takes_nothing_more_and_loses_nothing() {
    let cluster = Cluster::start_on_disk(64);
    let desk = Desk(Postgres::open(&cluster.migrated().await).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let mut random = Random::stream(1, 1);
    let mut kept = Vec::new();
    // What cannot be compressed. One by one, or two at once, which are sent both or not at all.
    let mut send = async |kept: &mut Vec<String>| {
        let mut content = || -> String {
            (0..100_000).map(|_| char::from(b' ' + random.below(95) as u8)).collect()
        };
        let contents: Vec<_> = (0..1 + kept.len() % 2).map(|_| content()).collect();
        let messages = contents.iter().map(|content| outgoing(client, queue, content)).collect();
        let sent = desk.send_all(client, messages).await;
        kept.extend(sent.is_ok().then_some(contents).into_iter().flatten());
        sent
    };
    for _ in 0..3 {
        send(&mut kept).await.unwrap();
    }
    cluster.fill_disk();
    let failed = loop {
        if let Err(failed) = send(&mut kept).await {
            break failed;
        }
    };
    assert!(matches!(&failed, Failure::Full(told) if told.contains("No space left")), "{failed:?}");
    assert_eq!(contents(&desk.read(client, queue, 0, 1000).await), kept);
    // What is there can be had.
    assert_eq!(contents(&desk.remove(client, queue, 2).await), kept[..2]);
    for _ in 0..3 {
        let failed = send(&mut kept).await;
        assert!(matches!(&failed, Err(Failure::Full(_))), "{failed:?}");
    }
    cluster.make_room();
    for _ in 0..3 {
        send(&mut kept).await.unwrap();
    }
    assert_eq!(contents(&desk.remove(client, queue, 1000).await), kept[2..]);
}

/// Whatever somebody has set role or database to; but whoever waits for more than the disk may do so.
#[tokio::test]
async fn what_is_answered_is_on_the_disk_whatever_the_database_is_set_to() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let database = cluster.connect(name(&options)).await;
    let tells = "CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.content := current_setting('synchronous_commit'); RETURN NEW; END $$;
        CREATE TRIGGER tells BEFORE INSERT ON knee_queue.message
            FOR EACH ROW EXECUTE FUNCTION tells()";
    database.batch_execute(tells).await.unwrap();
    for (set, is) in [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")] {
        let alter = format!("ALTER DATABASE {} SET synchronous_commit = {set}", name(&options));
        database.batch_execute(&alter).await.unwrap();
        let desk = Desk(Postgres::open(&options).await.unwrap());
        let client = desk.client().await;
        let queue = desk.queue(client).await;
        desk.send(client, client, queue, "").await;
        assert_eq!(desk.remove(client, queue, 1).await[0].content, is, "{set}");
    }
}

/// Else who removes would fail where somebody else does, and who begins to wait would miss what is sent.
#[tokio::test]
async fn calls_see_what_is_committed_whatever_the_database_is_set_to() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let database = cluster.connect(name(&options)).await;
    let tells = "CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.content := current_setting('transaction_isolation'); RETURN NEW; END $$;
        CREATE TRIGGER tells BEFORE INSERT ON knee_queue.message
            FOR EACH ROW EXECUTE FUNCTION tells()";
    database.batch_execute(tells).await.unwrap();
    let set = format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'",
        name(&options)
    );
    database.batch_execute(&set).await.unwrap();
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    desk.send(client, client, queue, "").await;
    assert_eq!(contents(&desk.remove(client, queue, 1).await), ["read committed"]);
}

/// Of some errors nobody knows whether they came behind the commit.
#[tokio::test]
async fn a_change_is_said_not_to_be_done_only_where_it_is_not() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let database = cluster.connect(name(&options)).await;
    let fails = "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.content = 'ended' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            RAISE 'no' USING ERRCODE = NEW.content; END $$;
        CREATE TRIGGER fails BEFORE INSERT ON knee_queue.message
            FOR EACH ROW EXECUTE FUNCTION fails()";
    database.batch_execute(fails).await.unwrap();
    for (code, is_known) in [
        ("53100", true),
        ("58030", true),
        ("40P01", true),
        ("08006", false),
        ("40003", false),
        ("ended", false),
    ] {
        let failed = desk.send_all(client, vec![outgoing(client, queue, code)]).await.unwrap_err();
        assert_eq!(!matches!(failed, Failure::Unknown(_)), is_known, "{code}: {failed:?}");
    }
}

#[tokio::test]
async fn a_connection_is_waited_for_in_turn_and_not_for_ever() {
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
        let desk = Desk(Postgres::open(&options).await.unwrap());
        let a = desk.client().await;
        let queue = desk.queue(a).await;
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
        // What was too late was not done, nor is it later.
        assert_eq!(desk.remove(a, queue, 9).await.len(), 1);
    }
}

/// As one whose machine hangs, which takes connections all the same.
#[tokio::test]
async fn a_database_that_says_nothing_is_not_waited_for_for_ever() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let options = Options {
        address: format!("{}?connect_timeout=1", options.address),
        connections: 1,
        call_max: Duration::from_millis(500),
        ..options
    };
    proxy.hold(true);
    let opened = timeout(PATIENCE, Postgres::open(&options)).await.expect("it ends");
    assert!(matches!(&opened, Err(Failure::Unavailable(_))), "{opened:?}");
    proxy.hold(false);
    for combine_max in [1, 4] {
        let options = Options { combine_max, ..options.clone() };
        let desk = Desk(Postgres::open(&options).await.unwrap());
        let client = desk.client().await;
        let queue = desk.queue(client).await;
        proxy.silence(true);
        let send = || desk.send_all(client, vec![outgoing(client, queue, "x")]);
        let failed = timeout(PATIENCE, send()).await.expect("it ends");
        assert!(matches!(&failed, Err(Failure::Unknown(_))), "{failed:?}");
        // The turn is not lost with the connection, nor with one that cannot be opened.
        for _ in 0..2 {
            let failed = timeout(PATIENCE, send()).await.expect("it ends");
            assert!(matches!(&failed, Err(Failure::Unavailable(_))), "{failed:?}");
        }
        let failed = timeout(PATIENCE, desk.0.arrivals()).await.expect("it ends");
        assert!(matches!(&failed, Err(Failure::Unavailable(_))), "{failed:?}");
        proxy.silence(false);
        send().await.unwrap();
        proxy.silence(true);
        let failed = timeout(PATIENCE, desk.ask(Request::Counts)).await.expect("it ends");
        assert!(matches!(&failed, Err(Failure::Unavailable(_))), "{failed:?}");
        proxy.silence(false);
    }
}

/// What is asked again is what a lost connection has left open, not what the database has refused.
#[tokio::test]
async fn a_read_is_made_again_only_where_its_connection_was_lost() {
    let cluster = Cluster::shared();
    let options = Options { connections: 1, ..cluster.migrated().await };
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let database = cluster.connect(name(&options)).await;
    // A sequence counts what is undone, too.
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

/// Though whoever has a connection first takes others along, who came earlier.
#[tokio::test]
async fn a_combined_call_is_answered_whoever_else_has_a_connection() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let options = Options { connections: 3, combine_max: 2, ..options };
    let desk = Arc::new(Desk(Postgres::open(&options).await.unwrap()));
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    // Two of three that may be open are being opened, for as long as this test likes.
    let connections = async |count| {
        desk.at_last(async || (proxy.connections() == count).then_some(())).await;
    };
    // The first looked at the schema, one keeps, and one asked for client and queue.
    connections(3).await;
    let lock = cluster.connect(name(&options)).await;
    hold_up_senders(&lock, queue).await;
    let held = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    proxy.hold(true);
    let first = sending(&desk, client, queue);
    connections(4).await;
    let second = sending(&desk, client, queue);
    connections(5).await;
    let third = sending(&desk, client, queue);
    // It has the connection that comes free, while both others come before it.
    lock.batch_execute("COMMIT").await.unwrap();
    ends(held).await;
    ends(third).await;
    proxy.hold(false);
    ends(first).await;
    ends(second).await;
}

/// As one that the database's encoding has no letter for.
#[tokio::test]
async fn a_message_that_is_refused_fails_nobody_who_is_combined_with_it() {
    let cluster = Cluster::shared();
    let create =
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    cluster.connect("postgres").await.batch_execute(create).await.unwrap();
    let options = Options { connections: 1, combine_max: 4, ..cluster.options("latin") };
    postgres::migrate(&options).await.unwrap();
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
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

/// It is not opened in vain when its request is answered by another one.
#[tokio::test]
async fn a_connection_that_is_being_opened_is_kept_for_who_comes_next() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let options = Options { connections: 2, combine_max: 4, ..options };
    let desk = Arc::new(Desk(Postgres::open(&options).await.unwrap()));
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let connections = async |count| {
        desk.at_last(async || (proxy.connections() == count).then_some(())).await;
    };
    // The first looked at the schema, one keeps, and one asked for client and queue.
    connections(3).await;
    let lock = cluster.connect(name(&options)).await;
    hold_up_senders(&lock, queue).await;
    let held = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    proxy.hold(true);
    let opens = sending(&desk, client, queue);
    connections(4).await;
    lock.batch_execute("COMMIT").await.unwrap();
    ends(held).await;
    // Whoever comes has the connection that is free, and takes along who still opens one.
    ends(sending(&desk, client, queue)).await;
    ends(opens).await;
    proxy.hold(false);
    // Both of them are needed.
    hold_up_senders(&lock, queue).await;
    let one = sending(&desk, client, queue);
    held_up(&desk, &lock, 1).await;
    let two = sending(&desk, client, queue);
    held_up(&desk, &lock, 2).await;
    lock.batch_execute("COMMIT").await.unwrap();
    ends(one).await;
    ends(two).await;
    assert_eq!(proxy.connections(), 4);
}

/// What is under way ends, is told of here and elsewhere, and has its connection until then.
#[tokio::test]
async fn what_was_sent_by_who_left_is_told_of_and_holds_up_nobody() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let elsewhere = Postgres::open(&options).await.unwrap();
    let lock = cluster.connect(name(&options)).await;
    for combine_max in [1, 4] {
        let options = Options { connections: 2, combine_max, ..options.clone() };
        let desk = Arc::new(Desk(Postgres::open(&options).await.unwrap()));
        let client = desk.client().await;
        let queue = desk.queue(client).await;
        let mut arrivals = [desk.0.arrivals().await.unwrap(), elsewhere.arrivals().await.unwrap()];
        desk.0.watch(queue).await.unwrap();
        hold_up_senders(&lock, queue).await;
        let sending = sending(&desk, client, queue);
        held_up(&desk, &lock, 1).await;
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        // By the other one of the two connections.
        timeout(PATIENCE, desk.counts()).await.expect("others are answered meanwhile");
        lock.batch_execute("COMMIT").await.unwrap();
        for arrivals in &mut arrivals {
            let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
            assert_eq!(told, Arrival { queue, receiver: client });
        }
        assert_eq!(desk.remove(client, queue, 9).await.len(), 1);
    }
}

#[tokio::test]
async fn connections_that_nobody_uses_are_closed_but_for_one() {
    let cluster = Cluster::shared();
    let options =
        Options { idle_max: Some(Duration::from_millis(100)), ..cluster.migrated().await };
    let desk = Desk(Postgres::open(&options).await.unwrap());
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

#[tokio::test]
async fn servers_tell_each_other_of_what_arrives_where_somebody_watches() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Desk(Postgres::open(&options).await.unwrap());
    let two = Desk(Postgres::open(&options).await.unwrap());
    let client = one.client().await;
    let (queue, other) = (one.queue(client).await, one.queue(client).await);
    let mut arrivals = two.0.arrivals().await.unwrap();
    two.0.watch(queue).await.unwrap();
    one.send(client, client, other, "nobody watches").await;
    one.send(client, ANYBODY, queue, "x").await;
    let first = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(first, Arrival { queue, receiver: ANYBODY });
    let leased = one.lease(client, queue, 1, LONG).await;
    one.release(&[lease_of(&leased[0])]).await;
    let second = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(second, Arrival { queue, receiver: ANYBODY });
    // Who listens learns that he may have missed something, and can listen again.
    let client = cluster.connect(name(&options)).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    client.query(cut, &[]).await.unwrap();
    let ended = async { while arrivals.recv().await.is_ok() {} };
    timeout(PATIENCE, ended).await.expect("it ends");
    two.0.arrivals().await.unwrap();
}

/// As where a database takes no more connections: those who listen there already go on doing so.
#[tokio::test]
async fn what_others_could_not_be_told_is_told_later() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let other = Desk(Postgres::open(&options).await.unwrap());
    let (proxy, through) = Proxy::start(&options).await;
    let desk = Desk(Postgres::open(&through).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let mut arrivals = other.0.arrivals().await.unwrap();
    other.0.watch(queue).await.unwrap();
    // The first looked at the schema, one keeps, and one asked for client and queue.
    desk.at_last(async || (proxy.connections() == 3).then_some(())).await;
    proxy.refuse(true);
    let database = cluster.connect(name(&options)).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE query LIKE '%begin\\_round%' AND pid <> pg_backend_pid()
                   AND datname = current_database()";
    // Whichever of the two servers it belongs to; both keep, and only one can connect anew.
    desk.at_last(async || {
        database.query(cut, &[]).await.unwrap();
        (proxy.connections() > 3).then_some(())
    })
    .await;
    desk.send(client, client, queue, "x").await;
    let tried = proxy.connections();
    desk.at_last(async || (proxy.connections() > tried + 2).then_some(())).await;
    proxy.refuse(false);
    let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(told, Arrival { queue, receiver: client });
}

#[tokio::test]
async fn who_listens_by_a_connection_that_is_lost_at_once_is_told_and_can_listen_again() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let desk = Desk(Postgres::open(&options).await.unwrap());
    proxy.cut_listeners(true);
    // It may be lost before there is an answer, or behind it.
    if let Ok(mut arrivals) = desk.0.arrivals().await {
        let told = timeout(PATIENCE, arrivals.recv()).await.expect("it ends");
        assert_eq!(told, Err(RecvError::Closed));
    }
    proxy.cut_listeners(false);
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let mut arrivals = desk.0.arrivals().await.unwrap();
    desk.0.watch(queue).await.unwrap();
    desk.send(client, client, queue, "x").await;
    let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(told, Arrival { queue, receiver: client });
}

/// Whoever begins to wait in a queue waits for those who are sending there, and that may take them long.
#[tokio::test]
async fn who_begins_to_wait_stops_neither_the_keeper_nor_who_tells() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk(Postgres::open(&options).await.unwrap()));
    let elsewhere = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let watched = desk.queue(client).await;
    let mut arrivals = elsewhere.0.arrivals().await.unwrap();
    elsewhere.0.watch(watched).await.unwrap();
    let _arrivals = desk.0.arrivals().await.unwrap();
    let lock = cluster.connect(name(&options)).await;
    lock.batch_execute("BEGIN").await.unwrap();
    let mut watches = Vec::new();
    for held_up_too in 1..=2 {
        let queue = desk.queue(client).await;
        let sends = format!("SELECT pg_advisory_xact_lock_shared(1263420741, {queue})");
        lock.batch_execute(&sends).await.unwrap();
        // Many of them are one to the database.
        for _ in 0..10 {
            let desk = Arc::clone(&desk);
            watches.push(tokio::spawn(async move { desk.0.watch(queue).await }));
        }
        held_up(&desk, &lock, held_up_too).await;
        if held_up_too == 1 {
            desk.0.watch(watched).await.unwrap();
        }
    }
    desk.send(client, client, watched, "x").await;
    let arrival = Arrival { queue: watched, receiver: client };
    let told = async { while arrivals.recv().await.unwrap() != arrival {} };
    timeout(PATIENCE, told).await.expect("it is told");
    drop(elsewhere);
    desk.lease(client, watched, 1, Duration::ZERO).await;
    assert_eq!(desk.lease_at_last(client, watched, LONG).await.0.content, "x");
    lock.batch_execute("COMMIT").await.unwrap();
    for watch in watches {
        watch.await.unwrap().unwrap();
    }
}

/// Who begins to wait while somebody sends is told, or finds the message when he looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_arrival_is_missed_by_who_begins_to_wait() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Desk(Postgres::open(&options).await.unwrap());
    let two = Desk(Postgres::open(&options).await.unwrap());
    let client = one.client().await;
    let mut arrivals = two.0.arrivals().await.unwrap();
    for round in 0..40 {
        let queue = one.queue(client).await;
        let send = async {
            sleep(Duration::from_micros(100 * round)).await;
            one.send(client, client, queue, "x").await;
        };
        let wait = async {
            two.0.watch(queue).await.unwrap();
            while two.remove(client, queue, 1).await.is_empty() {
                while arrivals.recv().await.unwrap().queue != queue {}
            }
        };
        timeout(PATIENCE, async { tokio::join!(send, wait) }).await.expect("it is not missed");
    }
}

/// Its own and nobody's come in the order in which they arrived, also where some arrive, and others are
/// removed, while they are looked for.
#[tokio::test]
async fn what_is_sent_meanwhile_does_not_come_before_what_was_sent_earlier() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk(Postgres::open(&options).await.unwrap()));
    let client = desk.client().await;
    let other = cluster.connect(name(&options)).await;
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted
        AND relation = 'knee_queue.message'::regclass";
    for (count, meanwhile, first) in
        [(10, "", vec!["1"]), (1, "DELETE FROM knee_queue.message;", vec![])]
    {
        let queue = desk.queue(client).await;
        desk.send(client, ANYBODY, queue, "1").await;
        // It can be read what there is, and not be locked.
        other.batch_execute("BEGIN; LOCK knee_queue.message IN EXCLUSIVE MODE").await.unwrap();
        let remover = Arc::clone(&desk);
        let removing = tokio::spawn(async move { remover.remove(client, queue, count).await });
        desk.at_last(async || {
            let row = other.query_one(waits, &[]).await.unwrap();
            (row.get::<_, i64>(0) == 1).then_some(())
        })
        .await;
        let send = format!(
            "{meanwhile} SELECT knee_queue.send({client}, {client}, {queue}, '2');
             SELECT knee_queue.send({client}, {ANYBODY}, {queue}, '3'); COMMIT"
        );
        other.batch_execute(&send).await.unwrap();
        assert_eq!(contents(&removing.await.unwrap()), first, "{count} of them");
        assert_eq!(contents(&desk.remove(client, queue, 10).await), ["2", "3"]);
    }
}

/// However many receivers there are: what has to go is looked for among some of them at a time.
#[tokio::test]
async fn a_round_goes_on_where_it_was_and_removes_what_is_old_and_what_is_gone() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    // Without a server, whose keeper would come in between.
    let database = cluster.connect(name(&options)).await;
    let fill = "INSERT INTO knee_queue.queue (creator, attempts_max, retention)
            VALUES (0, 0, '1 hour'), (0, 0, NULL);
        INSERT INTO knee_queue.deleted_queue VALUES (3);
        INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
        SELECT nextval('knee_queue.message_id'), q, 0, r,
               now() - CASE r WHEN 9 THEN interval '2 hours' ELSE '0' END, 'x'
        FROM generate_series(1, 9) r, generate_series(1, 3) q, generate_series(1, 2)";
    database.batch_execute(fill).await.unwrap();
    let begin = async || {
        let row = database.query_one("SELECT * FROM knee_queue.begin_round()", &[]).await.unwrap();
        (row.get::<_, bool>(0), row.get::<_, Vec<i32>>(1))
    };
    assert_eq!(begin().await, (true, vec![]), "not all may know yet");
    let taker = cluster.connect(name(&options)).await;
    let take = "BEGIN; DELETE FROM knee_queue.message WHERE receiver = 5 AND queue = 3";
    taker.batch_execute(take).await.unwrap();
    let sweep = "SELECT * FROM knee_queue.sweep($1, $2, 2, 0)";
    for passes_over in [true, false] {
        let (mut at, mut steps, mut passed_over) = (Some((0, 0)), 0, false);
        while let Some((receiver, queue)) = at {
            let row = database.query_one(sweep, &[&receiver, &queue]).await.unwrap();
            at = row.get::<_, Option<i32>>(0).zip(row.get(1));
            assert!(at.is_none_or(|at| at >= (receiver, queue) && at <= (9, 3)));
            passed_over |= row.get::<_, bool>(3);
            steps += 1;
        }
        assert_eq!(passed_over, passes_over);
        // One for each pair that stays or was passed over, one for each full batch, and the end.
        assert_eq!(steps, if passes_over { 28 } else { 19 });
        taker.batch_execute("ROLLBACK").await.unwrap();
    }
    let left =
        "SELECT count(*) FILTER (WHERE queue = 1), count(*) FILTER (WHERE queue = 2), count(*)
        FROM knee_queue.message";
    let left = database.query_one(left, &[]).await.unwrap();
    assert_eq!([0, 1, 2].map(|column| left.get::<_, i64>(column)), [16, 18, 34]);
    // Whoever did not know has ended; other databases' transactions count as well.
    let gone = async {
        while begin().await.1 != [3] {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("it is known at last");
    database.batch_execute("SELECT knee_queue.end_round('{3}')").await.unwrap();
    assert_eq!(begin().await, (true, vec![]));
}

/// A put back message is below every floor.
#[tokio::test]
async fn floors_do_not_hide_what_comes_back() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Desk(Postgres::open(&options).await.unwrap());
    let two = Desk(Postgres::open(&options).await.unwrap());
    let client = one.client().await;
    let queue = one.queue(client).await;
    for n in 0..20 {
        one.send(client, [client, ANYBODY][n % 2], queue, &n.to_string()).await;
    }
    let leased = one.lease(client, queue, 2, LONG).await;
    let begun = Instant::now();
    let mut next = 2;
    // The other server's floors rise over the leased ones.
    while begun.elapsed() < Duration::from_millis(900) {
        if next < 20 {
            assert_eq!(two.remove(client, queue, 1).await[0].content, next.to_string());
            next += 1;
        } else {
            assert!(two.remove(client, queue, 1).await.is_empty());
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(one.release(&[lease_of(&leased[1])]).await, []);
    assert_eq!(two.remove(client, queue, 2).await[0].content, "1");
    let lease =
        one.ask(Request::Extend { leases: vec![lease_of(&leased[0])], visibility: Duration::ZERO });
    assert_eq!(lease.await, Ok(Answer::Ended(Vec::new())));
    let back = two.at_last(async || two.remove(client, queue, 1).await.pop()).await;
    assert_eq!(back.content, "0");
}

/// Whoever has a number, and takes his time, is found below those who were quicker.
#[tokio::test]
async fn floors_do_not_hide_who_sends_late() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let late = cluster.connect(name(&options)).await;
    // Alone; among others; and among others who come when it has been looked what is decided.
    let (never, always, later) = (Duration::MAX, Duration::ZERO, Duration::from_millis(600));
    for others_after in [never, always, later] {
        late.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let row = late.query_one("SELECT nextval('knee_queue.message_id')", &[]).await.unwrap();
        let id: i64 = row.get(0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1200) {
            if begun.elapsed() >= others_after {
                desk.send(client, client, queue, "quick").await;
                assert_eq!(desk.remove(client, queue, 1).await.len(), 1);
            }
            assert_eq!(desk.remove(client, queue, 1).await, []);
            sleep(Duration::from_millis(20)).await;
        }
        let insert = format!(
            "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
             VALUES ({id}, {queue}, {client}, {client}, now(), 'late'); COMMIT"
        );
        late.batch_execute(&insert).await.unwrap();
        assert_eq!(desk.remove(client, queue, 1).await[0].content, "late");
    }
}

/// A floor rises to what is known to be given: a number too many hides a message that is still to come.
#[tokio::test]
async fn no_message_has_yet_to_come_below_what_is_known_of_their_numbers() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let (giver, looker) =
        tokio::join!(cluster.connect(name(&options)), cluster.connect(name(&options)));
    let last = async || -> i64 {
        let last = "SELECT last FROM knee_queue.horizon()";
        looker.query_one(last, &[]).await.unwrap().get(0)
    };
    assert_eq!(last().await, 0, "none was given");
    let give = "DO $$ BEGIN FOR n IN 1 .. 400000 LOOP
        PERFORM nextval('knee_queue.message_id'); END LOOP; END $$";
    // What was known at one time is never less at another, unless it was too much.
    let look = "DO $$ DECLARE before bigint := 0; now bigint; BEGIN
        WHILE before < 400000 LOOP
            now := (SELECT last FROM knee_queue.horizon());
            IF now < before THEN RAISE '% comes behind %', now, before; END IF;
            before := now;
        END LOOP; END $$";
    let (given, looked) = tokio::join!(giver.batch_execute(give), looker.batch_execute(look));
    given.unwrap();
    looked.unwrap();
    assert_eq!(last().await, 400_000);
}

/// Its server may have crashed, and give numbers once more that were not on its disk.
#[tokio::test]
async fn floors_are_gone_with_a_connection_that_is_lost() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let client = desk.client().await;
    let queue = desk.queue(client).await;
    let low = desk.send(client, client, queue, "first").await;
    let again = format!(
        "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
         VALUES ({low}, {queue}, {client}, {client}, now(), 'again')"
    );
    let database = cluster.connect(name(&options)).await;
    // Until it is no more looked for down there.
    desk.at_last(async || {
        while !desk.remove(client, queue, 1).await.is_empty() {}
        database.batch_execute(&again).await.unwrap();
        desk.remove(client, queue, 1).await.is_empty().then_some(())
    })
    .await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'knee-queue' AND datname = current_database()";
    database.query(cut, &[]).await.unwrap();
    let (receiver, count, content_bytes_max) = (client, 1, u64::MAX);
    let remove = || Request::Remove { receiver, queue, count, content_bytes_max };
    let found = desk.at_last(async || match desk.ask(remove()).await {
        Ok(Answer::Messages(messages)) => messages.into_iter().next(),
        _ => None,
    });
    assert_eq!(found.await.content, "again");
}

#[tokio::test]
async fn who_reads_begins_at_a_floor_in_its_epoch_only() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk(Postgres::open(&options).await.unwrap());
    let me = desk.client().await;
    let queue = desk.queue(me).await;
    for content in ["first", "second"] {
        desk.send(me, me, queue, content).await;
    }
    let client = cluster.connect(name(&options)).await;
    let epoch = "SELECT epoch FROM knee_queue.queue";
    let epoch: i64 = client.query_one(epoch, &[]).await.unwrap().get(0);
    let second = "SELECT max(id) FROM knee_queue.message";
    let second: i64 = client.query_one(second, &[]).await.unwrap().get(0);
    for (epoch, read) in [(epoch, vec!["second"]), (epoch + 1, vec!["first", "second"])] {
        let call = format!(
            "SELECT content FROM knee_queue.read({me}, {queue}, 0, 9, 99, {second}, 0, {epoch})"
        );
        let rows = client.query(&call, &[]).await.unwrap();
        let contents: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(contents, read);
    }
}
