//! Leases that end while other transactions hold locks.

use knee_queue::operation::{Answer, QueueId, QueueSettings, Request};
use knee_queue::postgres::Postgres;
use tokio_postgres::Client;

use crate::harness::cluster::Cluster;
use crate::harness::cluster::name;
use crate::harness::desk::{Desk, LONG, contents, lease_of, settings};

/// A client, a queue whose messages have one attempt, and its queue of dead letters.
async fn begin(desk: &Desk<Postgres>) -> (u32, QueueId, QueueId) {
    let (client, dead) = desk.begin().await;
    let once = QueueSettings { dead_letters: Some(dead), attempts_max: 1, ..settings() };
    (client, desk.queue_with(client, once).await, dead)
}

/// Releases messages that were leased once; returns their queues.
async fn release(client: &Client, messages: &[u64]) -> Vec<(u64, QueueId)> {
    let messages: Vec<i64> = messages.iter().map(|message| message.cast_signed()).collect();
    let release =
        "SELECT message, queue FROM knee_queue.release($1, array_fill(1, ARRAY[$2::integer]))";
    let count = i32::try_from(messages.len()).unwrap();
    let rows = client.query(release, &[&messages, &count]).await.unwrap();
    let number = |message: i64| message.cast_unsigned();
    rows.iter().map(|row| (number(row.get(0)), row.get::<_, i32>(1).cast_unsigned())).collect()
}

#[tokio::test]
async fn message_released_twice_moves_once() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, queue, dead) = begin(&desk).await;
    let messages =
        [desk.send(client, client, queue, "x").await, desk.send(client, client, queue, "y").await];
    desk.lease(client, queue, 2, LONG).await;
    let [first, second, look] = [
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
    ];
    first.batch_execute("BEGIN").await.unwrap();
    assert_eq!(release(&first, &messages[..1]).await, [(messages[0], dead)]);
    let (moved, ()) = tokio::join!(release(&second, &messages), async {
        wait(&desk, &look, 1).await;
        first.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(moved, [(messages[1], dead)]);
    assert_eq!(contents(&desk.remove(client, dead, 9).await), ["x", "y"]);
    assert_eq!(desk.counts().await.messages, 0);
}

/// Returns when this many calls with leases wait for a lock. `look` must have no open transaction: it would keep the view
/// of its first query.
async fn wait(desk: &Desk<Postgres>, look: &Client, count: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND datname = current_database() AND query ~ 'knee_queue\\.(acknowledge|extend|release)\\('";
    desk.at_last(async || {
        let row = look.query_one(waiting, &[]).await.unwrap();
        (row.get::<_, i64>(0) == count).then_some(())
    })
    .await;
}

/// Calls that waited in different orders could deadlock.
#[tokio::test]
async fn calls_wait_for_messages_in_the_order_of_numbers() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let [holder, look] =
        [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
    let client = desk.client().await;
    for call in ["acknowledge", "extend", "release"] {
        let mut queues = Vec::new();
        let mut messages = Vec::new();
        for _ in 0..3 {
            let queue = desk.queue(client).await;
            messages.push(desk.send(client, client, queue, call).await.cast_signed());
            queues.push(queue);
        }
        // The last message is leased first: neither the arguments nor the table's rows are in the order of numbers.
        let mut leases = Vec::new();
        for queue in queues.into_iter().rev() {
            leases.push(lease_of(&desk.lease(client, queue, 1, LONG).await[0]));
        }
        let request = match call {
            "acknowledge" => Request::Acknowledge { leases },
            "extend" => Request::Extend { leases, visibility: LONG },
            _ => Request::Release { leases },
        };
        let second =
            format!("BEGIN; SELECT FROM knee_queue.message WHERE id = {} FOR UPDATE", messages[1]);
        holder.batch_execute(&second).await.unwrap();
        let (answer, ()) = tokio::join!(desk.ask(request), async {
            wait(&desk, &look, 1).await;
            let free =
                "SELECT id FROM knee_queue.message WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED";
            let rows = look.query(free, &[&messages]).await.unwrap();
            let free: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            assert_eq!(free, messages[2..], "{call}");
            holder.batch_execute("COMMIT").await.unwrap();
        });
        assert!(matches!(answer, Ok(Answer::Ended(missing)) if missing.is_empty()), "{call}");
    }
}

/// A transaction that waits for one queue has no lock on the other.
#[tokio::test]
async fn crossed_dead_letters_do_not_deadlock() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, upper, lower) = begin(&desk).await;
    let [holder, look, first, second] = [
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
        cluster.connect(name(&options)).await,
    ];
    // Each queue has the dead letters of the other.
    let crossed = format!(
        "UPDATE knee_queue.queue SET dead_letters = {upper}, attempts_max = 1 WHERE id = {lower}"
    );
    holder.batch_execute(&crossed).await.unwrap();
    let mut messages = Vec::new();
    for queue in [upper, lower] {
        for _ in 0..2 {
            messages.push(desk.send(client, client, queue, "x").await);
        }
        desk.lease(client, queue, 2, LONG).await;
    }
    let lock = |queue: QueueId| {
        format!("SELECT FROM knee_queue.queue WHERE id = {queue} FOR UPDATE NOWAIT")
    };
    holder.batch_execute(&format!("BEGIN; {}", lock(lower))).await.unwrap();
    let (there, back) = ([messages[0], messages[2]], [messages[3], messages[1]]);
    let (mut one, mut other, ()) =
        tokio::join!(release(&first, &there), release(&second, &back), async {
            wait(&desk, &look, 2).await;
            look.batch_execute(&lock(upper)).await.expect("it is unlocked");
            holder.batch_execute("COMMIT").await.unwrap();
        });
    one.append(&mut other);
    one.sort_unstable();
    let crossed = [lower, lower, upper, upper];
    assert_eq!(one, messages.into_iter().zip(crossed).collect::<Vec<_>>());
}
