//! Random histories of clients who send, look, remove and lease at once, while faults happen: nothing that was
//! acknowledged is lost or hidden, nothing is had twice, and order holds. See `harness/verdict.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod broken;
#[path = "../harness/mod.rs"]
mod harness;
mod judged;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::operation::{ANYBODY, Answer, Request};
use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};
use knee_random::Random;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::harness::cluster::{Cluster, Stop};
use crate::harness::desk::{Desk, PATIENCE};
use crate::harness::history::{CLIENTS, History, Mix, QUEUES, seeds};
use crate::harness::server::Server;
use crate::harness::verdict::{Event, Span};

const MIXES: [Mix; 2] = [Mix::Removes, Mix::All];

/// Two servers of one database.
async fn two(options: &Options) -> [Postgres; 2] {
    [Postgres::open(options).await.unwrap(), Postgres::open(options).await.unwrap()]
}

async fn nothing_happens() -> Vec<Event> {
    Vec::new()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_had_twice_in_sqlite() {
    let options = sqlite::Options { file: None, durable: true, tell: |_| {} };
    for seed in seeds() {
        for mix in MIXES {
            let history = History::new([Sqlite::open(&options).unwrap()], mix).await;
            history.check(seed, 400, nothing_happens).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_had_twice_in_postgresql() {
    let cluster = Cluster::start(false);
    for seed in seeds() {
        for (combine_max, mix) in [1, 8].into_iter().flat_map(|most| MIXES.map(|mix| (most, mix))) {
            let options = Options { connections: 3, combine_max, ..cluster.migrated().await };
            let history = History::new(two(&options).await, mix).await;
            history.check(seed, 100, nothing_happens).await;
        }
    }
}

/// Floors rise meanwhile, removers are undone, senders take their time, and an old snapshot stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_behind_an_old_snapshot_when_removers_are_undone_and_senders_late() {
    let cluster = Cluster::start(false);
    for (seed, mix) in seeds().flat_map(|seed| MIXES.map(|mix| (seed, mix))) {
        let options = cluster.migrated().await;
        let database = options.address.rsplit('/').next().unwrap();
        let history = History::new(two(&options).await, mix).await;
        let old = cluster.connect(database).await;
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM knee_queue.message")
            .await
            .unwrap();
        let (undone, late) = (cluster.connect(database).await, cluster.connect(database).await);
        let faulty = Arc::clone(&history);
        let faults = async || {
            let (hidden, sent) = tokio::join!(
                undo(&faulty, &undone, Random::stream(seed, 98)),
                send_late(&faulty, &late, Random::stream(seed, 99))
            );
            faulty.stop();
            [hidden, sent].concat()
        };
        history.check(seed, u32::MAX, faults).await;
    }
}

/// Removes, and sends, that come to nothing; and numbers that nobody has.
async fn undo<D: Server>(history: &History<D>, undone: &Client, mut random: Random) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..60 {
        let client = history.clients[random.below(CLIENTS) as usize];
        let queue = history.queues[random.below(QUEUES as u64) as usize];
        let end = if random.below(3) == 0 { "COMMIT" } else { "ROLLBACK" };
        let call = if end == "COMMIT" {
            "SELECT pg_current_xact_id(), nextval('knee_queue.message_id')".to_owned()
        } else {
            format!(
                "SELECT knee_queue.take({client}, {queue}, 3, 99999, NULL, 0, 0, 0);
                 SELECT knee_queue.send({client}, {client}, {queue}, 'never')"
            )
        };
        let begun = Instant::now();
        undone.batch_execute(&format!("BEGIN; {call}")).await.unwrap();
        sleep(Duration::from_millis(random.below(40))).await;
        undone.batch_execute(end).await.unwrap();
        if end == "ROLLBACK" {
            events.push(Event::Hidden { client, queue, span: Span::since(begun) });
        }
    }
    events
}

/// Messages that have their numbers long before anybody sees them: it has been looked meanwhile, more than
/// once, what is decided.
async fn send_late<D: Server>(
    history: &History<D>,
    late: &Client,
    mut random: Random,
) -> Vec<Event> {
    let mut events = Vec::new();
    for round in 0..3 {
        let begun = Instant::now();
        late.batch_execute("BEGIN").await.unwrap();
        let mut messages = Vec::new();
        for (n, &queue) in history.queues.iter().enumerate() {
            let receiver = match random.below(CLIENTS + 1) as usize {
                n if n < history.clients.len() => history.clients[n],
                _ => ANYBODY,
            };
            let content = format!("late {round} {n}");
            let send =
                format!("SELECT id FROM knee_queue.send(0, {receiver}, {queue}, '{content}')");
            let id: i64 = late.query_one(&send, &[]).await.unwrap().get(0);
            messages.push((content, queue, receiver, Some(id.unsigned_abs())));
        }
        sleep(Duration::from_millis(600 + random.below(200))).await;
        late.batch_execute("COMMIT").await.unwrap();
        let span = Span::since(begun);
        let sent =
            |(content, queue, receiver, id)| Event::Sent { content, queue, receiver, id, span };
        events.extend(messages.into_iter().map(sent));
    }
    events
}

/// Its own and nobody's messages come in their order also to who has looked what there is, and takes it when
/// more has been sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_holds_where_messages_are_sent_while_others_are_taken() {
    let cluster = Cluster::start(false);
    for (seed, combine_max) in seeds().flat_map(|seed| [1, 8].map(|most| (seed, most))) {
        let connections = CLIENTS as usize;
        let options = Options { connections, combine_max, ..cluster.migrated().await };
        let database = options.address.rsplit('/').next().unwrap();
        let history = History::new(two(&options).await, Mix::Drains).await;
        let senders = [cluster.connect(database).await, cluster.connect(database).await];
        let faulty = Arc::clone(&history);
        let faults = async || {
            let sent = send_between(&faulty, &senders, Random::stream(seed, 97)).await;
            faulty.stop();
            sent
        };
        history.check(seed, u32::MAX, faults).await;
    }
}

/// Two messages, one after the other, by senders who keep out whoever takes messages: he has looked when the
/// first is sent, and goes on behind the second.
async fn send_between<D: Server>(
    history: &History<D>,
    senders: &[Client; 2],
    mut random: Random,
) -> Vec<Event> {
    const LOCK: &str = "BEGIN; LOCK TABLE knee_queue.message IN EXCLUSIVE MODE";
    // Those who have a weaker lock already and want another come before who waits for this one, but only where
    // somebody looks for deadlocks.
    for sender in senders {
        sender.batch_execute("SET deadlock_timeout = '5ms'").await.unwrap();
    }
    let mut events = Vec::new();
    for round in 0..60 {
        let queue = history.queues[random.below(QUEUES as u64) as usize];
        let mut whose = [history.clients[random.below(CLIENTS) as usize], ANYBODY];
        whose.rotate_left(random.below(2) as usize);
        senders[0].batch_execute(LOCK).await.unwrap();
        let (locked, first) = tokio::join!(senders[1].batch_execute(LOCK), async {
            // The second one waits behind the first by then, and others behind both.
            sleep(Duration::from_millis(5)).await;
            commit(&senders[0], format!("first {round}"), queue, whose[0]).await
        });
        locked.unwrap();
        events.push(first);
        events.push(commit(&senders[1], format!("second {round}"), queue, whose[1]).await);
    }
    events
}

/// Sends a message, and commits with it.
async fn commit(sender: &Client, content: String, queue: u32, receiver: u32) -> Event {
    let begun = Instant::now();
    let send = format!("SELECT id FROM knee_queue.send(0, {receiver}, {queue}, '{content}')");
    let id: i64 = sender.query_one(&send, &[]).await.unwrap().get(0);
    sender.batch_execute("COMMIT").await.unwrap();
    let id = Some(id.unsigned_abs());
    Event::Sent { content, queue, receiver, id, span: Span::since(begun) }
}

/// Waits until all that goes on now has ended.
async fn all_end(client: &Client) -> Event {
    let begun = Instant::now();
    let transactions = async || -> HashSet<String> {
        let of = "SELECT pid || ' ' || xact_start FROM pg_stat_activity
                  WHERE application_name = 'knee-queue' AND datname = current_database()
                      AND xact_start IS NOT NULL";
        client.query(of, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let before = transactions().await;
    while !before.is_disjoint(&transactions().await) {
        assert!(begun.elapsed() < PATIENCE, "a transaction does not end");
    }
    Event::Over { span: Span::since(begun) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_connections_are_cut() {
    let cluster = Cluster::start(false);
    for seed in seeds() {
        for (combine_max, mix) in
            [(1, Mix::Removes), (8, Mix::All), (1, Mix::All), (8, Mix::Drains)]
        {
            let options = Options { combine_max, ..cluster.migrated().await };
            let database = options.address.rsplit('/').next().unwrap();
            cluster.log_calls(database).await;
            let history = History::new(two(&options).await, mix).await;
            let killer = cluster.connect(database).await;
            let faulty = Arc::clone(&history);
            let faults = async || {
                let mut events = Vec::new();
                for n in 0..12 {
                    // Once in a while, when floors are up again.
                    if n % 4 == 0 {
                        cluster.floors_are_up(0).await;
                    }
                    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                               WHERE application_name = 'knee-queue'
                                   AND datname = current_database()
                               ORDER BY random() LIMIT 2";
                    killer.query(cut, &[]).await.unwrap();
                    sleep(Duration::from_millis(30)).await;
                    events.push(all_end(&killer).await);
                }
                faulty.stop();
                events
            };
            history.check(seed, u32::MAX, faults).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_restarts() {
    let mut cluster = Cluster::start(true);
    for (seed, combine_max) in seeds().flat_map(|seed| [1, 8].map(|most| (seed, most))) {
        let options = Options { combine_max, ..cluster.migrated().await };
        cluster.log_calls(options.address.rsplit('/').next().unwrap()).await;
        let history = History::new(two(&options).await, Mix::All).await;
        let faulty = Arc::clone(&history);
        let faults = async || {
            let mut events = Vec::new();
            for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
                cluster.floors_are_up(0).await;
                cluster.stop(how);
                events.push(Event::Over { span: Span::since(Instant::now()) });
                cluster.restart();
            }
            cluster.floors_are_up(0).await;
            faulty.stop();
            events
        };
        history.check(seed, u32::MAX, faults).await;
    }
}

/// As by whoever has a backup, or a standby that lags behind: what was removed meanwhile is there again, and
/// what was sent is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_copy_of_the_database_has_is_found_in_its_order() {
    let mut cluster = Cluster::start(false);
    let options = cluster.migrated().await;
    cluster.log_calls(options.address.rsplit('/').next().unwrap()).await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    // Connections that were lost meanwhile are found out by who uses them.
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
        () = cluster.floors_are_up(sent[19]) => {}
    }
    cluster.stop(Stop::Immediate);
    cluster.put_copy_back();
    cluster.restart();
    for &id in &sent {
        assert_eq!(remove().await.map(|message| message.id), Some(id));
    }
    assert_eq!(remove().await, None);
}
