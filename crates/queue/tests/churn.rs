//! Messages pass for a long time through a queue with a backlog. No message is lost, and a remove takes no longer than
//! from a short queue at the same time. `KNEE_MESSAGES` is the length of the backlog, `KNEE_SECONDS` the time; the test
//! prints its state from time to time. With `KNEE_SNAPSHOT`, a reader keeps a snapshot open that is older than all
//! removes. `KNEE_SETTINGS` changes settings of the table of messages, as in `ALTER TABLE ... SET (...)`.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::postgres::Postgres;
use tokio_postgres::Client;

use crate::harness::cluster::{Cluster, name};
use crate::harness::desk::Desk;

const CLIENTS: u32 = 4;
/// How often the state is printed.
const PARTS: u32 = 10;
/// The two databases alternate this often in each part, so that other load on the machine slows both.
const TURNS: u32 = 10;
/// The share of time for the database with few messages.
const FEW_SHARE: f64 = 0.1;
/// Too few messages for a backlog, but enough to keep sends away from the head of the queue.
const FEW: u32 = 1000;
/// Limits of the median and the 99th percentile of a part, divided by the same figure with few messages. The 99th
/// percentile varies more, because other load shows there first.
const P50_SLOWER_MAX: u32 = 2;
const P99_SLOWER_MAX: u32 = 5;
const CONTENT: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

fn asked<T: FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_through_a_backlog_and_none_is_lost() {
    let backlog: u32 = asked("KNEE_MESSAGES", 5000);
    let time = Duration::from_secs(asked("KNEE_SECONDS", 1));
    // In a tenth of a second, other load on the processors would decide.
    let is_timed = std::env::var_os("KNEE_SECONDS").is_some();
    let cluster = Cluster::shared();
    let mut few = Queue::with(cluster, FEW).await;
    let mut much = Queue::with(cluster, FEW + backlog).await;
    let reader = cluster.connect(&much.database).await;
    if std::env::var_os("KNEE_SNAPSHOT").is_some() {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM knee_queue.queue";
        reader.batch_execute(begin).await.unwrap();
    }

    let turn = time / (PARTS * TURNS);
    let mut slow = Vec::new();
    for part in 1..=PARTS {
        let (mut from_few, mut from_much) = (Vec::new(), Vec::new());
        let mut elapsed = Duration::ZERO;
        for _ in 0..TURNS {
            from_few.extend(few.churn(turn.mul_f64(FEW_SHARE)).await);
            let begun = Instant::now();
            from_much.extend(much.churn(turn.mul_f64(1.0 - FEW_SHARE)).await);
            elapsed += begun.elapsed();
        }
        let rate = from_much.len() as f64 / elapsed.as_secs_f64();
        let (few_times, times) = (Times::of(from_few), Times::of(from_much));
        much.print(part, rate, times, few_times).await;
        slow.extend(judge(few_times, times).err().map(|why| format!("part {part}: {why}")));
    }
    drop(reader);
    few.end().await;
    much.end().await;
    assert!(!is_timed || slow.is_empty(), "{}", slow.join("; "));
}

/// Messages for one client in one queue, in a separate database.
struct Queue {
    desk: Arc<Desk<Postgres>>,
    database: String,
    direct: Client,
    client: u32,
    queue: u32,
    stored: u32,
    /// The number of the last removed message. All messages before it were removed.
    removed_last: u64,
}

impl Queue {
    async fn with(cluster: &Cluster, stored: u32) -> Queue {
        let options = cluster.migrated().await;
        let database = name(&options).to_owned();
        let direct = cluster.connect(&database).await;
        if let Ok(settings) = std::env::var("KNEE_SETTINGS") {
            let alter = format!("ALTER TABLE knee_queue.message SET ({settings})");
            direct.batch_execute(&alter).await.unwrap();
        }
        let desk = Arc::new(Desk::open(&options).await);
        let (client, queue) = desk.begin().await;
        let insert = format!(
            "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
             SELECT nextval('knee_queue.message_id'), {queue}, {client}, {client}, now(), '{CONTENT}'
             FROM generate_series(1, {stored})"
        );
        direct.batch_execute(&insert).await.unwrap();
        direct.batch_execute("VACUUM ANALYZE knee_queue.message").await.unwrap();
        Queue { desk, database, direct, client, queue, stored, removed_last: 0 }
    }

    /// Lets clients send and remove in turn for this time; returns the time of each remove.
    async fn churn(&mut self, time: Duration) -> Vec<Duration> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(churn(Arc::clone(&self.desk), self.client, self.queue, time)))
            .collect();
        let (mut removed, mut took) = (Vec::new(), Vec::new());
        for client in clients {
            let (ids, times) = client.await.unwrap();
            removed.extend(ids);
            took.extend(times);
        }
        removed.sort_unstable();
        let (first, last) = (removed[0], removed[removed.len() - 1]);
        // Sends take the highest numbers, removes the lowest ones: no message is skipped.
        assert_eq!(
            (first, removed.len() as u64),
            (self.removed_last + 1, last - self.removed_last)
        );
        self.removed_last = last;
        took
    }

    /// Checks that as many messages as at the start are stored, all after the removed ones.
    async fn end(self) {
        assert_eq!(self.desk.counts().await.messages, u64::from(self.stored));
        let lowest = "SELECT min(id) FROM knee_queue.message";
        let lowest: i64 = self.direct.query_one(lowest, &[]).await.unwrap().get(0);
        assert_eq!(lowest as u64, self.removed_last + 1);
    }

    /// Prints the times of removes, here and with few messages, and the state of the table.
    async fn print(&self, part: u32, rate: f64, times: Times, few: Times) {
        let row = self
            .direct
            .query_one(
                "SELECT n_dead_tup, autovacuum_count, pg_relation_size(relid), pg_indexes_size(relid)
                 FROM pg_stat_user_tables WHERE relid = 'knee_queue.message'::regclass",
                &[],
            )
            .await
            .unwrap();
        let number = |column| row.get::<_, i64>(column);
        println!(
            "{part:>2}: {rate:>6.0} pairs/s, remove p50 {}, p99 {} (from {FEW}: {}, {}); {} dead rows, {} \
             autovacuums, table {} MiB, indexes {} MiB",
            ms(times.p50),
            ms(times.p99),
            ms(few.p50),
            ms(few.p99),
            number(0),
            number(1),
            number(2) >> 20,
            number(3) >> 20,
        );
    }
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// Times of removes.
#[derive(Debug, Clone, Copy)]
struct Times {
    p50: Duration,
    p99: Duration,
}

impl Times {
    fn of(mut took: Vec<Duration>) -> Times {
        took.sort_unstable();
        let of = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        Times { p50: of(0.5), p99: of(0.99) }
    }
}

/// Fails if removes took too long in comparison with few messages.
fn judge(few: Times, times: Times) -> Result<(), String> {
    for (name, took, few, slower_max) in
        [("p50", times.p50, few.p50, P50_SLOWER_MAX), ("p99", times.p99, few.p99, P99_SLOWER_MAX)]
    {
        if took > slower_max * few {
            return Err(format!("{name} is {took:?}, {few:?} from {FEW} messages"));
        }
    }
    Ok(())
}

#[test]
fn slow_removes_are_found() {
    let times =
        |p50, p99| Times { p50: Duration::from_micros(p50), p99: Duration::from_micros(p99) };
    let few = times(200, 2000);
    assert_eq!(judge(few, times(400, 10_000)), Ok(()));
    for (slow, name) in [(times(401, 2000), "p50"), (times(200, 10_001), "p99")] {
        let why = judge(few, slow).unwrap_err();
        assert!(why.starts_with(&format!("{name} is")), "{why}");
    }
    let took: Vec<_> = (1..=101).rev().map(Duration::from_micros).collect();
    let of = Times::of(took);
    assert_eq!((of.p50, of.p99), (Duration::from_micros(51), Duration::from_micros(100)));
}

/// Sends and removes in turn; returns the numbers of the removed messages, and the time of each remove.
async fn churn(
    desk: Arc<Desk<Postgres>>,
    client: u32,
    queue: u32,
    time: Duration,
) -> (Vec<u64>, Vec<Duration>) {
    let (mut removed, mut took) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    // At least one pair, however slow.
    loop {
        desk.send(client, client, queue, CONTENT).await;
        let asked = Instant::now();
        let messages = desk.remove(client, queue, 1).await;
        took.push(asked.elapsed());
        removed.push(messages[0].id);
        if begun.elapsed() >= time {
            break;
        }
    }
    assert!(removed.is_sorted(), "in the order of their numbers");
    (removed, took)
}
