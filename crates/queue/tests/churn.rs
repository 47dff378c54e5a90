//! A queue with a backlog through which messages go for long: nothing is lost, and removing takes no longer
//! than from a few messages, at any time. `KNEE_MESSAGES` are the backlog, `KNEE_SECONDS` the time; what it was
//! like is printed now and then. With `KNEE_SNAPSHOT` somebody who reads keeps a snapshot open that is older
//! than all that is removed. `KNEE_SETTINGS` are for the table of messages, as in `ALTER TABLE ... SET (...)`,
//! to see what they do.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::postgres::Postgres;
use tokio_postgres::Client;

use crate::harness::cluster::Cluster;
use crate::harness::desk::Desk;

const CLIENTS: u32 = 4;
/// How often it is told what it is like with the backlog.
const TOLD: u32 = 10;
/// Messages that are no backlog, but so many that whoever sends or removes meanwhile is far from the head.
const FEW: u32 = 1000;
/// By how much the median remove of any part may take longer than from a few messages, and the slowest of a
/// hundred, which differ more: what others do shows in them first.
const P50_SLOWER_MAX: u32 = 2;
const P99_SLOWER_MAX: u32 = 5;
const CONTENT: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

fn asked<T: FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_through_a_backlog_and_none_is_lost() {
    let backlog: u32 = asked("KNEE_MESSAGES", 20_000);
    let time = Duration::from_secs(asked("KNEE_SECONDS", 2));
    // What a fifth of a second shows is who else wanted a processor.
    let is_timed = std::env::var_os("KNEE_SECONDS").is_some();
    let cluster = Cluster::start(false);
    let options = cluster.migrated().await;
    let database = options.address.rsplit('/').next().unwrap();
    let direct = cluster.connect(database).await;
    if let Ok(settings) = std::env::var("KNEE_SETTINGS") {
        let alter = format!("ALTER TABLE knee_queue.message SET ({settings})");
        direct.batch_execute(&alter).await.unwrap();
    }
    let desk = Arc::new(Desk::open(&options).await);
    let (client, queue) = desk.begin().await;
    fill(&direct, client, queue, FEW).await;
    let reader = cluster.connect(database).await;
    if std::env::var_os("KNEE_SNAPSHOT").is_some() {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM knee_queue.queue";
        reader.batch_execute(begin).await.unwrap();
    }

    let mut sent = u64::from(FEW + backlog);
    let mut last = 0;
    let mut parts = Vec::new();
    for part in 0..=TOLD {
        if part == 1 {
            fill(&direct, client, queue, backlog).await;
        }
        let begun = Instant::now();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(churn(Arc::clone(&desk), client, queue, time / TOLD)))
            .collect();
        let mut removed = Vec::new();
        let mut took = Vec::new();
        for client in clients {
            let (ids, times) = client.await.unwrap();
            removed.extend(ids);
            took.extend(times);
        }
        removed.sort_unstable();
        // What is sent has the highest numbers, and what is removed the lowest: none is passed over.
        assert_eq!(
            (removed[0], removed.len() as u64),
            (last + 1, removed[removed.len() - 1] - last)
        );
        last = removed[removed.len() - 1];
        sent += removed.len() as u64;
        took.sort_unstable();
        parts.push(Times::of(&took));
        tell(&direct, part, begun.elapsed(), &took).await;
    }
    drop(reader);
    assert_eq!(desk.counts().await.messages, u64::from(FEW + backlog));
    assert_eq!(last, sent - u64::from(FEW + backlog));
    if is_timed && let Err(why) = judge(&parts) {
        panic!("{why}");
    }
}

/// How long removes took.
#[derive(Debug, Clone, Copy)]
struct Times {
    p50: Duration,
    p99: Duration,
}

impl Times {
    /// Of removes that took so long each, in order.
    fn of(took: &[Duration]) -> Times {
        let of = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        Times { p50: of(0.5), p99: of(0.99) }
    }
}

/// Which part took too long, the first of which was without the backlog.
fn judge(parts: &[Times]) -> Result<(), String> {
    let (few, parts) = parts.split_first().expect("there is one more than is told of");
    for (place, part) in (1..).zip(parts) {
        for (name, took, few, slower_max) in
            [("p50", part.p50, few.p50, P50_SLOWER_MAX), ("p99", part.p99, few.p99, P99_SLOWER_MAX)]
        {
            if took > slower_max * few {
                return Err(format!(
                    "{name} of part {place} is {took:?}, {few:?} of {FEW} messages"
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn a_part_that_took_too_long_is_found_wherever_it_is() {
    let times =
        |p50, p99| Times { p50: Duration::from_micros(p50), p99: Duration::from_micros(p99) };
    let usual = times(200, 2000);
    assert_eq!(judge(&[usual, times(400, 10_000), usual]), Ok(()));
    for slow in [times(401, 2000), times(200, 10_001)] {
        for place in 1..4 {
            let mut parts = [usual; 4];
            parts[place] = slow;
            let told = judge(&parts).unwrap_err();
            assert!(told.contains(&format!("of part {place} is")), "{told}");
        }
    }
    let took: Vec<_> = (1..=101).map(Duration::from_micros).collect();
    let of = Times::of(&took);
    assert_eq!((of.p50, of.p99), (took[50], took[99]));
}

/// So many messages more.
async fn fill(direct: &Client, client: u32, queue: u32, backlog: u32) {
    let insert = format!(
        "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
         SELECT nextval('knee_queue.message_id'), {queue}, {client}, {client}, now(), '{CONTENT}'
         FROM generate_series(1, {backlog})"
    );
    direct.batch_execute(&insert).await.unwrap();
    direct.batch_execute("VACUUM ANALYZE knee_queue.message").await.unwrap();
}

/// Sends and removes in turns; the numbers of what was removed, and how long each remove took.
async fn churn(
    desk: Arc<Desk<Postgres>>,
    client: u32,
    queue: u32,
    time: Duration,
) -> (Vec<u64>, Vec<Duration>) {
    let (mut removed, mut took) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < time {
        desk.send(client, client, queue, CONTENT).await;
        let asked = Instant::now();
        let messages = desk.remove(client, queue, 1).await;
        took.push(asked.elapsed());
        removed.push(messages[0].id);
    }
    assert!(removed.is_sorted(), "in the order of their numbers");
    (removed, took)
}

/// What removes were like that took so long each, in order, and what the table is like.
async fn tell(direct: &Client, part: u32, elapsed: Duration, took: &[Duration]) {
    let Times { p50, p99 } = Times::of(took);
    let row = direct
        .query_one(
            "SELECT n_dead_tup, autovacuum_count, pg_relation_size(relid), pg_indexes_size(relid)
             FROM pg_stat_user_tables WHERE relid = 'knee_queue.message'::regclass",
            &[],
        )
        .await
        .unwrap();
    let number = |column| row.get::<_, i64>(column);
    println!(
        "{part:>2}: {:>6.0} pairs/s, remove p50 {:.3} ms, p99 {:.3} ms; {} dead rows, {} autovacuums, table {} \
         MiB, indexes {} MiB",
        took.len() as f64 / elapsed.as_secs_f64(),
        p50.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3,
        number(0),
        number(1),
        number(2) >> 20,
        number(3) >> 20,
    );
}
