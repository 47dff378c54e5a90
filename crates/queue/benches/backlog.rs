//! The cost of removing the first message of a backlog: `cargo bench -p knee-queue --bench backlog [-- BACKLOG...]`.
//! For each backlog, a client sends and removes messages in turn. The second measurement adds an open transaction, with
//! a snapshot from before 100,000 removes. Both measurements are made with and without the middleware's floors.
//! PostgreSQL does not wait for the disk, because the wait would hide the differences.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::time::{Duration, Instant};

use knee_queue::postgres::Postgres;
use tokio_postgres::{Client, Statement};

use crate::harness::cluster::Cluster;
use crate::harness::desk::Desk;

const BACKLOGS: [i64; 3] = [10, 300_000, 1_000_000];
/// Timed removes.
const TIMED: usize = 1000;
/// Messages that are removed after the old snapshot.
const REMOVED: u32 = 100_000;
const CONTENT: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let asked: Vec<i64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let backlogs = if asked.is_empty() { &BACKLOGS[..] } else { &asked };
    let cluster = Cluster::start();
    println!("remove, ms:            backlog   snapshot   floors       p50       p99       max");
    for &backlog in backlogs {
        let options = cluster.migrated().await;
        let database = options.address.rsplit('/').next().unwrap().to_owned();
        let bench =
            Bench::new(Desk::open(&options).await, cluster.connect(&database).await, backlog).await;
        for floors in [true, false] {
            bench.time(backlog, "none", floors).await;
        }
        let holder = cluster.connect(&database).await;
        holder
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM knee_queue.message")
            .await
            .unwrap();
        let mut left = REMOVED;
        while left > 0 {
            let messages = bench.desk.remove(bench.client, bench.queue, 1000.min(left)).await;
            let again = messages
                .iter()
                .map(|message| harness::desk::outgoing(bench.client, bench.queue, &message.content))
                .collect();
            bench.desk.send_all(bench.client, again).await.unwrap();
            left -= messages.len() as u32;
        }
        // The floors rise over the removed messages a moment later.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for floors in [true, false] {
            bench.time(backlog, "old", floors).await;
        }
    }
}

struct Bench {
    desk: Desk<Postgres>,
    direct: Client,
    take: Statement,
    client: u32,
    queue: u32,
}

impl Bench {
    async fn new(desk: Desk<Postgres>, direct: Client, backlog: i64) -> Bench {
        let (client, queue) = desk.begin().await;
        let insert = format!(
            "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
             SELECT nextval('knee_queue.message_id'), {queue}, {client}, {client}, now(), '{CONTENT}'
             FROM generate_series(1, {backlog})"
        );
        direct.batch_execute(&insert).await.unwrap();
        direct.batch_execute("SET enable_seqscan = off; CHECKPOINT").await.unwrap();
        let take = direct
            .prepare("SELECT id FROM knee_queue.take($1, $2, 1, 1, NULL, 0, 0, 0)")
            .await
            .unwrap();
        Bench { desk, direct, take, client, queue }
    }

    async fn time(&self, backlog: i64, snapshot: &str, floors: bool) {
        let mut took = Vec::with_capacity(TIMED);
        // The first remove is not counted: it has no floor yet, and must find one.
        for _ in 0..=TIMED {
            self.desk.send(self.client, self.client, self.queue, CONTENT).await;
            let begun = Instant::now();
            if floors {
                assert_eq!(self.desk.remove(self.client, self.queue, 1).await.len(), 1);
            } else {
                let (client, queue) = (self.client.cast_signed(), self.queue.cast_signed());
                self.direct.query_one(&self.take, &[&client, &queue]).await.unwrap();
            }
            took.push(begun.elapsed().as_secs_f64() * 1e3);
            if took.iter().sum::<f64>() > 20_000.0 {
                break;
            }
        }
        took.remove(0);
        took.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        let floors = if floors { "with" } else { "without" };
        println!(
            "{backlog:>30} {snapshot:>10} {floors:>8} {:>9.3} {:>9.3} {:>9.3}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}
