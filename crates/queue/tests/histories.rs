//! Random histories, with and without faults. `KNEE_SOAK=n` runs n times as many.

use std::sync::Arc;
use std::time::Duration;

use knee_queue::database::Database;
use knee_queue::operation::{ANYBODY, Answer, Request};
use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};
use knee_random::Random;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::harness::cluster::{Cluster, Stop, name};
use crate::harness::desk::Desk;
use crate::harness::history::{CLIENTS, History, Mix, QUEUES, seeds};
use crate::harness::judge::{Operation, Recorded};
use crate::harness::no_log;

const MIXES: [Mix; 2] = [Mix::Removes, Mix::All];

/// Two servers of one database.
async fn two(options: &Options) -> [Postgres; 2] {
    [Postgres::open(options).await.unwrap(), Postgres::open(options).await.unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_messages_and_their_order() {
    let options = sqlite::Options { file: None, durable: true, log: no_log() };
    for seed in seeds() {
        for mix in MIXES {
            let history = History::new([Sqlite::open(&options).unwrap()], mix).await;
            history.check(seed, 60, false, async || Vec::new()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_keeps_messages_and_their_order() {
    let cluster = Cluster::shared();
    for seed in seeds() {
        // The order of sends that overlap is not promised.
        let mixes = [Mix::Drains, Mix::All];
        for (combine_max, mix) in [1, 8].into_iter().flat_map(|most| mixes.map(|mix| (most, mix))) {
            let options = Options { connections: 3, combine_max, ..cluster.migrated().await };
            let history = History::new(two(&options).await, mix).await;
            history.check(seed, 40, false, async || Vec::new()).await;
        }
    }
}

/// Floors rise, removes are rolled back, sends take long, and an old snapshot stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undone_removes_and_late_sends_lose_nothing() {
    let cluster = Cluster::shared();
    for (seed, mix) in seeds().flat_map(|seed| MIXES.map(|mix| (seed, mix))) {
        let options = cluster.migrated().await;
        let history = History::new(two(&options).await, mix).await;
        let old = cluster.connect(name(&options)).await;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM knee_queue.message";
        old.batch_execute(begin).await.unwrap();
        let [undone, late] =
            [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
        let faulty = Arc::clone(&history);
        let faults = async || {
            let ((), sent) = tokio::join!(
                undo(&faulty, &undone, Random::stream(seed, 98)),
                send_late(&faulty, &late, Random::stream(seed, 99))
            );
            faulty.stop();
            sent
        };
        history.check(seed, u32::MAX, true, faults).await;
    }
}

/// Rolls back removes and sends, and takes numbers without sending a message.
async fn undo<D: Database>(history: &History<D>, undone: &Client, mut random: Random) {
    for _ in 0..40 {
        let client = history.clients[random.below(CLIENTS) as usize];
        let queue = history.queues[random.below(QUEUES as u64) as usize];
        let (call, end) = if random.below(3) == 0 {
            ("SELECT pg_current_xact_id(), nextval('knee_queue.message_id')".to_owned(), "COMMIT")
        } else {
            let calls = format!(
                "SELECT knee_queue.take({client}, {queue}, 3, 99999, NULL, 0, 0, 0);
                 SELECT knee_queue.send({client}, {client}, {queue}, 'never')"
            );
            (calls, "ROLLBACK")
        };
        undone.batch_execute(&format!("BEGIN; {call}")).await.unwrap();
        sleep(Duration::from_millis(random.below(40))).await;
        undone.batch_execute(end).await.unwrap();
    }
}

/// Sends messages that get their numbers long before they are visible; floors rise in between.
async fn send_late<D: Database>(
    history: &History<D>,
    late: &Client,
    mut random: Random,
) -> Vec<Recorded> {
    let mut recorded = Vec::new();
    for _ in 0..2 {
        let began = history.tick();
        late.batch_execute("BEGIN").await.unwrap();
        let mut sent = Vec::new();
        for &queue in &history.queues {
            let receiver = history.clients.get(random.below(CLIENTS + 1) as usize);
            let message = (history.content(), receiver.copied().unwrap_or(ANYBODY));
            late.batch_execute(&send(queue, message)).await.unwrap();
            sent.push((queue, Operation::Send { messages: vec![message], is_known: true }));
        }
        sleep(Duration::from_millis(600 + random.below(200))).await;
        late.batch_execute("COMMIT").await.unwrap();
        for (queue, operation) in sent {
            let ended = history.beside(queue, async { operation }).await;
            recorded.push(Recorded { began, ..ended });
        }
    }
    recorded
}

fn send(queue: u32, (content, receiver): (u64, u32)) -> String {
    format!("SELECT knee_queue.send(0, {receiver}, {queue}, '{content}')")
}

/// A remover reads the heads before the first of two messages is sent, and continues after the second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_between_the_looks_of_a_remover_keep_fifo() {
    let cluster = Cluster::shared();
    for (seed, combine_max) in seeds().flat_map(|seed| [1, 8].map(|most| (seed, most))) {
        let connections = CLIENTS as usize;
        let options = Options { connections, combine_max, ..cluster.migrated().await };
        let history = History::new(two(&options).await, Mix::Drains).await;
        let senders =
            [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
        let faulty = Arc::clone(&history);
        let faults = async || {
            let sent = send_between(&faulty, &senders, Random::stream(seed, 97)).await;
            faulty.stop();
            sent
        };
        history.check(seed, 120, false, faults).await;
    }
}

/// Sends two messages, one after the other, with locks that exclude removers.
async fn send_between<D: Database>(
    history: &History<D>,
    senders: &[Client; 2],
    mut random: Random,
) -> Vec<Recorded> {
    const LOCK: &str = "BEGIN; LOCK TABLE knee_queue.message IN EXCLUSIVE MODE";
    // A remover that has a weaker lock already passes a waiting sender only when PostgreSQL checks for deadlocks.
    for sender in senders {
        sender.batch_execute("SET deadlock_timeout = '5ms'").await.unwrap();
    }
    let mut recorded = Vec::new();
    for _ in 0..30 {
        let queue = history.queues[random.below(QUEUES as u64) as usize];
        let mut whose = [history.clients[random.below(CLIENTS) as usize], ANYBODY];
        whose.rotate_left(random.below(2) as usize);
        let commit = async |sender: &Client, receiver| {
            let message = (history.content(), receiver);
            sender.batch_execute(&send(queue, message)).await.unwrap();
            sender.batch_execute("COMMIT").await.unwrap();
            Operation::Send { messages: vec![message], is_known: true }
        };
        let _alone = history.sending[&queue].lock().await;
        senders[0].batch_execute(LOCK).await.unwrap();
        let (locked, first) = tokio::join!(senders[1].batch_execute(LOCK), async {
            // Time for the second sender to queue behind the first, and for removers to queue behind both.
            sleep(Duration::from_millis(5)).await;
            history.beside(queue, commit(&senders[0], whose[0])).await
        });
        locked.unwrap();
        recorded.push(first);
        recorded.push(history.beside(queue, commit(&senders[1], whose[1])).await);
    }
    recorded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_lose_nothing_acknowledged() {
    let cluster = Cluster::shared();
    for seed in seeds() {
        for (combine_max, mix) in [(1, Mix::Removes), (8, Mix::All)] {
            let options = Options { combine_max, ..cluster.migrated().await };
            cluster.log_calls(name(&options)).await;
            let history = History::new(two(&options).await, mix).await;
            let killer = cluster.connect(name(&options)).await;
            let faulty = Arc::clone(&history);
            let faults = async || {
                for n in 0..8 {
                    // From time to time, wait until floors have risen again.
                    if n % 4 == 0 {
                        cluster.floors_are_up(name(&options), 0).await;
                    }
                    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                               WHERE application_name = 'knee-queue'
                                   AND datname = current_database()
                               ORDER BY random() LIMIT 2";
                    killer.query(cut, &[]).await.unwrap();
                    sleep(Duration::from_millis(30)).await;
                }
                faulty.stop();
                Vec::new()
            };
            history.check(seed, u32::MAX, true, faults).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_postgresql_lose_nothing_acknowledged() {
    let mut cluster = Cluster::start();
    for (seed, combine_max) in seeds().flat_map(|seed| [1, 8].map(|most| (seed, most))) {
        let options = Options { combine_max, ..cluster.migrated().await };
        let database = name(&options).to_owned();
        cluster.log_calls(&database).await;
        let history = History::new(two(&options).await, Mix::All).await;
        let faulty = Arc::clone(&history);
        let faults = async || {
            for how in [Stop::Fast, Stop::Immediate] {
                cluster.floors_are_up(&database, 0).await;
                cluster.stop(how);
                cluster.restart();
            }
            cluster.floors_are_up(&database, 0).await;
            faulty.stop();
            Vec::new()
        };
        history.check(seed, u32::MAX, true, faults).await;
    }
}

/// Restoring a backup brings removed messages back, and loses later messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_database_is_read_in_its_order() {
    let mut cluster = Cluster::start();
    let options = cluster.migrated().await;
    cluster.log_calls(name(&options)).await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    // The next call notices a lost connection, so repeat it.
    let remove = async || {
        let (receiver, count, content_bytes_max) = (client, 1, u64::MAX);
        let request = Request::Remove { receiver, queue, count, content_bytes_max };
        desk.at_last(async || match desk.ask(request.clone()).await {
            Ok(Answer::Messages(mut messages)) => Some(messages.pop()),
            _ => None,
        })
        .await
    };
    let mut sent = Vec::new();
    for n in 0..20 {
        let receiver = [client, ANYBODY][n % 2];
        sent.push(desk.send(client, receiver, queue, &n.to_string()).await);
    }
    cluster.stop(Stop::Fast);
    cluster.keep_copy();
    cluster.restart();
    for &id in &sent {
        assert_eq!(remove().await.unwrap().id, id);
    }
    let removing = async {
        loop {
            assert_eq!(remove().await, None);
        }
    };
    tokio::select! {
        () = removing => {}
        () = cluster.floors_are_up(name(&options), sent[19]) => {}
    }
    cluster.stop(Stop::Immediate);
    cluster.put_copy_back();
    cluster.restart();
    for &id in &sent {
        assert_eq!(remove().await.map(|message| message.id), Some(id));
    }
    assert_eq!(remove().await, None);
}
