//! The order of messages that are sent, removed and put back at the same time, and the floors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::operation::{ANYBODY, Answer, Request};
use knee_queue::postgres::Postgres;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::harness::cluster::Cluster;
use crate::harness::cluster::name;
use crate::harness::desk::{Desk, LONG, PATIENCE, contents, lease_of, outgoing};

/// Returns when a call of the function waits for a lock. A keeper may wait for it, too. `look` must have no open
/// transaction: it would keep the view of its first query.
async fn call_is_held_up(desk: &Desk<Postgres>, look: &Client, function: &str) {
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND datname = current_database() AND query ~ 'knee_queue\\.{function}\\('"
    );
    desk.at_last(async || {
        let row = look.query_one(&waits, &[]).await.unwrap();
        (row.get::<_, i64>(0) == 1).then_some(())
    })
    .await;
}

/// A client's own messages and messages for any client come in order of arrival. Messages may arrive or disappear
/// during the remove.
#[tokio::test]
async fn messages_sent_during_a_remove_do_not_overtake() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk::open(&options).await);
    let client = desk.client().await;
    let [other, look] =
        [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
    // In the second case, the message that the remove saw disappears.
    for (count, change, first, rest) in
        [(10, "", "1", vec!["2", "3"]), (1, "DELETE FROM knee_queue.message;", "2", vec!["3"])]
    {
        let queue = desk.queue(client).await;
        desk.send(client, ANYBODY, queue, "1").await;
        // The remover can read messages, but not lock them.
        other.batch_execute("BEGIN; LOCK knee_queue.message IN EXCLUSIVE MODE").await.unwrap();
        let remover = Arc::clone(&desk);
        let removing = tokio::spawn(async move { remover.remove(client, queue, count).await });
        call_is_held_up(&desk, &look, "take").await;
        let send = format!(
            "{change} SELECT knee_queue.send({client}, {client}, {queue}, '2');
             SELECT knee_queue.send({client}, {ANYBODY}, {queue}, '3'); COMMIT"
        );
        other.batch_execute(&send).await.unwrap();
        assert_eq!(contents(&removing.await.unwrap()), [first], "{count} of them");
        assert_eq!(contents(&desk.remove(client, queue, 10).await), rest);
    }
}

/// Another client takes a message while a send waits for a lock. So the send's messages stand behind those sent with
/// the message that was taken.
#[tokio::test]
async fn send_that_waits_for_a_lock_does_not_overtake() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk::open(&options).await);
    let client = desk.client().await;
    let [other, look] =
        [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
    for (function, late) in [("send", vec!["3"]), ("send_all", vec!["3", "4"])] {
        let queue = desk.queue(client).await;
        other.batch_execute("BEGIN; LOCK knee_queue.message IN EXCLUSIVE MODE").await.unwrap();
        let messages = late.iter().map(|content| outgoing(ANYBODY, queue, content)).collect();
        let sender = Arc::clone(&desk);
        let sending = tokio::spawn(async move { sender.send_all(client, messages).await });
        call_is_held_up(&desk, &look, function).await;
        let calls = format!(
            "SELECT knee_queue.send({client}, {ANYBODY}, {queue}, '1');
             SELECT knee_queue.send({client}, {client}, {queue}, '2');
             SELECT knee_queue.take(0, {queue}, 1, 99999, NULL, 0, 0, 0); COMMIT"
        );
        other.batch_execute(&calls).await.unwrap();
        sending.await.unwrap().unwrap();
        let expected = [vec!["2"], late].concat();
        assert_eq!(contents(&desk.remove(client, queue, 10).await), expected, "{function}");
    }
}

/// During a remove, the message that it saw disappears, and a message below its floor comes back. At any time, a
/// message is ready.
#[tokio::test]
async fn message_put_back_during_a_remove_is_found() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let client = desk.client().await;
    let [other, remover, look] = [
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
    ];
    for (receiver, count) in [(client, 1), (client, 10), (ANYBODY, 1), (ANYBODY, 10)] {
        let queue = desk.queue(client).await;
        let low = desk.send(client, receiver, queue, "low").await;
        let high = desk.send(client, receiver, queue, "high").await;
        assert_eq!(desk.lease(client, queue, 1, LONG).await.len(), 1);
        // The remover can read messages, but not lock them.
        other.batch_execute("BEGIN; LOCK knee_queue.message IN EXCLUSIVE MODE").await.unwrap();
        let take = format!(
            "SELECT epoch, first, first_nobodys, content
             FROM knee_queue.take({client}, {queue}, {count}, 99, NULL, {high}, {high}, 0)"
        );
        let (taken, ()) = tokio::join!(remover.query(&take, &[]), async {
            call_is_held_up(&desk, &look, "take").await;
            let change = format!(
                "SELECT knee_queue.release('{{{low}}}', '{{1}}');
                 DELETE FROM knee_queue.message WHERE id = {high}; COMMIT"
            );
            other.batch_execute(&change).await.unwrap();
        });
        let taken = taken.unwrap();
        assert_eq!(taken[0].get::<_, Option<&str>>(3), Some("low"), "{receiver} {count}");
        // The remove read the heads before the message came back.
        let heads: [Option<i64>; 2] = [taken[0].get(1), taken[0].get(2)];
        assert!(heads.contains(&Some(high.cast_signed())), "{heads:?}");
        assert_eq!(taken[0].get::<_, i64>(0), 0);
    }
}

#[tokio::test]
async fn remove_skips_locked_messages() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    for receiver in [client, ANYBODY, client] {
        desk.send(client, receiver, queue, "x").await;
    }
    let taker = cluster.connect(name(&options)).await;
    let take = "BEGIN; SELECT FROM knee_queue.message FOR UPDATE";
    taker.batch_execute(take).await.unwrap();
    for count in [1, 10] {
        let removing = timeout(PATIENCE, desk.remove(client, queue, count)).await;
        assert_eq!(removing.expect("it is answered"), []);
    }
    taker.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(desk.remove(client, queue, 10).await.len(), 3);
}

/// A step looks at some of the receivers only.
#[tokio::test]
async fn round_removes_expired_and_deleted_messages_in_steps() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    // Without a server, whose background jobs would interfere.
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
    assert_eq!(begin().await, (true, vec![]), "a transaction may not see the deletion yet");
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
        // A step for each pair that stays or was skipped, one for each full batch, and one for the end.
        assert_eq!(steps, if passes_over { 28 } else { 19 });
        taker.batch_execute("ROLLBACK").await.unwrap();
    }
    let left =
        "SELECT count(*) FILTER (WHERE queue = 1), count(*) FILTER (WHERE queue = 2), count(*)
        FROM knee_queue.message";
    let left = database.query_one(left, &[]).await.unwrap();
    assert_eq!([0, 1, 2].map(|column| left.get::<_, i64>(column)), [16, 18, 34]);
    // Wait until all transactions that may not see the deletion have ended, also in other databases.
    let gone = async {
        while begin().await.1 != [3] {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("all transactions see the deletion");
    database.batch_execute("SELECT knee_queue.end_round('{3}')").await.unwrap();
    assert_eq!(begin().await, (true, vec![]));
}

/// A message that is put back may be below the floors.
#[tokio::test]
async fn floors_do_not_hide_returning_messages() {
    // The test has its own cluster: a long write in any database stops the floors.
    let cluster = Cluster::start();
    let options = cluster.migrated().await;
    cluster.log_calls(name(&options)).await;
    let one = Desk::open(&options).await;
    let two = Desk::open(&options).await;
    let (client, queue) = one.begin().await;
    for n in 0..20 {
        one.send(client, [client, ANYBODY][n % 2], queue, &n.to_string()).await;
    }
    let leased = one.lease(client, queue, 2, LONG).await;
    for n in 2..20 {
        assert_eq!(two.remove(client, queue, 1).await[0].content, n.to_string());
    }
    // The other server's floors rise over the leased messages.
    let removing = async {
        loop {
            assert_eq!(two.remove(client, queue, 1).await, []);
        }
    };
    tokio::select! {
        () = removing => {}
        () = cluster.floors_are_up(name(&options), leased[1].0.id) => {}
    }
    assert_eq!(one.release(&[lease_of(&leased[1])]).await, []);
    assert_eq!(two.remove(client, queue, 2).await[0].content, "1");
    let lease =
        one.ask(Request::Extend { leases: vec![lease_of(&leased[0])], visibility: Duration::ZERO });
    assert_eq!(lease.await, Ok(Answer::Ended(Vec::new())));
    let back = two.at_last(async || two.remove(client, queue, 1).await.pop()).await;
    assert_eq!(back.content, "0");
}

/// The message of a slow send has a lower number than later, faster sends, and is still found.
#[tokio::test]
async fn floors_do_not_hide_late_sends() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let late = cluster.connect(name(&options)).await;
    // Without other sends; with other sends; and with other sends that begin after the horizon was read.
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

/// The horizon's last number bounds the floors. A number that is too high would hide a later message.
#[tokio::test]
async fn horizon_never_exceeds_the_given_numbers() {
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
    // A number that decreases was too high before.
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

/// The database may have crashed, and may reissue numbers that were not on its disk.
#[tokio::test]
async fn lost_connection_drops_the_floors() {
    // The test has its own cluster: long transactions of other tests would keep the floors down.
    let cluster = Cluster::start();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let low = desk.send(client, client, queue, "first").await;
    let again = format!(
        "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
         VALUES ({low}, {queue}, {client}, {client}, now(), 'again')"
    );
    let database = cluster.connect(name(&options)).await;
    // Repeat until removes begin above the first number.
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
async fn read_begins_at_a_floor_of_its_epoch() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (me, queue) = desk.begin().await;
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
