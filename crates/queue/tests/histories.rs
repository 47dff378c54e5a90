//! Random histories of clients who send, remove and lease at once, while faults happen: nothing that was
//! acknowledged is lost, nothing is had twice, and order holds.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use knee_queue::database::{Database, Failure};
use knee_queue::operation::{ANYBODY, ClientId, MessageId, QueueId, Request};
use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};
use knee_random::Random;
use tokio::time::{sleep, timeout};

use crate::harness::cluster::{Cluster, Stop};
use crate::harness::desk::{Desk, LONG, PATIENCE, lease_of, outgoing};

/// Clients, each of whom sends and takes.
const CLIENTS: u64 = 4;
const QUEUES: usize = 3;
/// A lease that may end while its client still has it.
const SHORT: Duration = Duration::from_millis(100);

/// What a client did, with the times between which it happened.
#[derive(Debug, Clone)]
enum Event {
    /// Of a send that failed it is not known whether it happened; it has no number then.
    Sent { content: String, queue: QueueId, receiver: ClientId, id: Option<MessageId>, span: Span },
    /// Removed, or acknowledged in time.
    Had { content: String, id: MessageId, span: Span },
    /// An answer that may have had messages was lost.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    begun: Instant,
    ended: Instant,
}

/// Whether the database said of a failed request that it did nothing.
fn nothing_done(failure: &Failure) -> bool {
    match failure {
        Failure::Unknown(_) => false,
        Failure::Unavailable(_) | Failure::TooLate(_) | Failure::NotMigrated(_) => true,
        other => panic!("{other:?}"),
    }
}

struct History<D> {
    desk: Desk<D>,
    clients: Vec<ClientId>,
    queues: Vec<QueueId>,
    next: AtomicU64,
    stopped: AtomicBool,
}

impl<D: Database> History<D> {
    async fn new(database: D) -> Arc<History<D>> {
        let desk = Desk(database);
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(desk.client().await);
        }
        let mut queues = Vec::new();
        for _ in 0..QUEUES {
            queues.push(desk.queue(clients[0]).await);
        }
        let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(History { desk, clients, queues, next, stopped })
    }

    /// A client's requests, one after the other, until somebody stops it or so many.
    async fn run(
        self: Arc<Self>,
        mut random: Random,
        client: ClientId,
        requests: u32,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..requests {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let queue = self.queues[random.below(QUEUES as u64) as usize];
            match random.below(10) {
                0..5 => self.send(&mut random, client, queue, &mut events).await,
                5..8 => {
                    let count = 1 + random.below(2) as u32;
                    self.remove(client, queue, count, &mut events).await;
                }
                _ => self.lease(&mut random, client, queue, &mut events).await,
            }
        }
        events
    }

    async fn send(
        &self,
        random: &mut Random,
        client: ClientId,
        queue: QueueId,
        events: &mut Vec<Event>,
    ) {
        let whose: Vec<_> = (0..1 + random.below(3))
            .map(|_| match random.below(CLIENTS + 2) as usize {
                n if n < self.clients.len() => self.clients[n],
                _ => ANYBODY,
            })
            .collect();
        let name = || self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let messages: Vec<_> =
            whose.into_iter().map(|receiver| outgoing(receiver, queue, &name())).collect();
        let begun = Instant::now();
        let sent = self.desk.send_all(client, messages.clone()).await;
        let span = Span { begun, ended: Instant::now() };
        let ids = match sent {
            Ok(ids) => ids.into_iter().map(Some).collect(),
            Err(failure) if nothing_done(&failure) => return,
            Err(_) => vec![None; messages.len()],
        };
        for (message, id) in messages.into_iter().zip(ids) {
            let (content, receiver) = (message.content, message.receiver);
            events.push(Event::Sent { content, queue, receiver, id, span });
        }
    }

    async fn remove(&self, client: ClientId, queue: QueueId, count: u32, events: &mut Vec<Event>) {
        let begun = Instant::now();
        let request =
            Request::Remove { receiver: client, queue, count, content_bytes_max: u64::MAX };
        match self.desk.ask(request).await {
            Ok(knee_queue::operation::Answer::Messages(messages)) => {
                assert!(messages.is_sorted_by_key(|message| message.id));
                let span = Span { begun, ended: Instant::now() };
                let had = |m: knee_queue::operation::Stored| Event::Had {
                    content: m.content,
                    id: m.id,
                    span,
                };
                events.extend(messages.into_iter().map(had));
            }
            Ok(other) => panic!("{other:?}"),
            Err(failure) => events.extend((!nothing_done(&failure)).then_some(Event::Lost)),
        }
    }

    /// Leases a message, and acknowledges it, releases it, or dies and forgets it.
    async fn lease(
        &self,
        random: &mut Random,
        client: ClientId,
        queue: QueueId,
        events: &mut Vec<Event>,
    ) {
        let begun = Instant::now();
        let visibility = if random.below(2) == 0 { SHORT } else { LONG.min(3 * SHORT) };
        let request = Request::Lease {
            receiver: client,
            queue,
            count: 1,
            content_bytes_max: u64::MAX,
            visibility,
        };
        let Ok(knee_queue::operation::Answer::Leased(leased)) = self.desk.ask(request).await else {
            // It ends by itself.
            return;
        };
        let Some(taken) = leased.first() else { return };
        let leases = vec![lease_of(taken)];
        match random.below(4) {
            0 => {}
            1 => drop(self.desk.ask(Request::Release { leases }).await),
            _ => {
                let (content, id) = (taken.0.content.clone(), taken.0.id);
                match self.desk.ask(Request::Acknowledge { leases }).await {
                    Ok(knee_queue::operation::Answer::Ended(ended)) if ended.is_empty() => {
                        let span = Span { begun, ended: Instant::now() };
                        events.push(Event::Had { content, id, span });
                    }
                    Ok(_) => {}
                    Err(failure) => {
                        events.extend((!nothing_done(&failure)).then_some(Event::Lost));
                    }
                }
            }
        }
    }

    /// Runs all clients until they are done, while `faults` happen; then removes what is left, and checks.
    async fn check(self: Arc<Self>, seed: u64, requests: u32, faults: impl AsyncFnOnce()) {
        let mut tasks = Vec::new();
        for (stream, &client) in (0..).zip(&self.clients) {
            let random = Random::stream(seed, stream);
            tasks.push(tokio::spawn(Arc::clone(&self).run(random, client, requests)));
        }
        faults().await;
        let mut events = Vec::new();
        for task in tasks {
            events.extend(timeout(PATIENCE * 3, task).await.expect("all end").unwrap());
        }
        // Every lease ends; then what is there is what was not had.
        let mut quiet = 0;
        let begun = Instant::now();
        while quiet < 3 {
            assert!(begun.elapsed() < PATIENCE, "leases end");
            let before = events.len();
            for &client in &self.clients {
                for &queue in &self.queues {
                    self.remove(client, queue, 1000, &mut events).await;
                }
            }
            let left = self.desk.counts().await.messages;
            quiet = if left == 0 && events.len() == before { quiet + 1 } else { 0 };
            sleep(Duration::from_millis(20)).await;
        }
        verify(&events);
    }
}

fn verify(events: &[Event]) {
    let lost = events.iter().filter(|event| matches!(event, Event::Lost)).count();
    let mut had: HashMap<&str, (MessageId, Span)> = HashMap::new();
    for event in events {
        if let Event::Had { content, id, span } = event {
            assert!(had.insert(content, (*id, *span)).is_none(), "{content} was had twice");
        }
    }
    let mut missing = 0;
    let mut ordered: Vec<(QueueId, ClientId, Span, Span)> = Vec::new();
    for event in events {
        let Event::Sent { content, queue, receiver, id, span } = event else { continue };
        match (had.remove(content.as_str()), id) {
            (Some((had_id, had_span)), Some(id)) => {
                assert_eq!(had_id, *id, "{content}");
                ordered.push((*queue, *receiver, *span, had_span));
            }
            (None, Some(_)) => missing += 1,
            (_, None) => {}
        }
    }
    assert!(had.is_empty(), "nobody sent {had:?}");
    // What a lost answer took along may be gone, at most two for each.
    assert!(missing <= 2 * lost, "{missing} messages are lost, with {lost} answers");
    assert!(!ordered.is_empty(), "something was had");
}

/// Order: with nobody who puts back, whoever removes gets them as they were sent.
async fn check_order<D: Database>(history: &Arc<History<D>>) {
    let sender = history.clients[0];
    let queue = history.queues[0];
    let mut tasks = Vec::new();
    for stream in 0..2 {
        let history = Arc::clone(history);
        tasks.push(tokio::spawn(async move {
            for n in 0..50 {
                history.desk.send(sender, ANYBODY, queue, &format!("{stream} {n}")).await;
            }
        }));
    }
    let mut removers = Vec::new();
    for &client in &history.clients[1..] {
        let history = Arc::clone(history);
        removers.push(tokio::spawn(async move {
            let mut mine: Vec<(String, Span)> = Vec::new();
            while !history.stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                for message in history.desk.remove(client, queue, 1).await {
                    mine.push((message.content, Span { begun, ended: Instant::now() }));
                }
            }
            mine
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    history.desk.at_last(async || (history.desk.counts().await.messages == 0).then_some(())).await;
    history.stopped.store(true, Ordering::Relaxed);
    let mut had: Vec<(u32, u32, Span)> = Vec::new();
    for remover in removers {
        for (content, span) in remover.await.unwrap() {
            let (stream, n) = content.split_once(' ').unwrap();
            had.push((stream.parse().unwrap(), n.parse().unwrap(), span));
        }
    }
    assert_eq!(had.len(), 100);
    for (stream, n, span) in &had {
        for (other_stream, m, other) in &had {
            let earlier = stream == other_stream && n < m;
            assert!(!earlier || other.ended > span.begun, "{stream}: {m} was had before {n} began");
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("KNEE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("KNEE_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_had_twice_in_sqlite() {
    let options = sqlite::Options { file: None, durable: true };
    let history = History::new(Sqlite::open(&options).unwrap()).await;
    history.check(seed(), 400, async || {}).await;
    let history = History::new(Sqlite::open(&options).unwrap()).await;
    check_order(&history).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_had_twice_in_postgresql() {
    let cluster = Cluster::start(false);
    for combine_max in [1, 8] {
        let options = Options { connections: 3, combine_max, ..cluster.migrated().await };
        let history = History::new(Postgres::open(&options).await.unwrap()).await;
        history.check(seed(), 100, async || {}).await;
        let history = History::new(Postgres::open(&options).await.unwrap()).await;
        check_order(&history).await;
    }
}

/// Floors are raised and forgotten meanwhile, removers are undone, and an old snapshot stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_behind_an_old_snapshot_when_removers_are_undone() {
    let cluster = Cluster::start(false);
    let options = cluster.migrated().await;
    let database = options.address.rsplit('/').next().unwrap().to_owned();
    let history = History::new(Postgres::open(&options).await.unwrap()).await;
    let old = cluster.connect(&database).await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM knee_queue.message")
        .await
        .unwrap();
    let undone = cluster.connect(&database).await;
    let (clients, queues) = (history.clients.clone(), history.queues.clone());
    let ended = Arc::clone(&history);
    let faults = async || {
        let mut random = Random::stream(seed(), 99);
        for _ in 0..40 {
            let client = clients[random.below(CLIENTS) as usize];
            let queue = queues[random.below(QUEUES as u64) as usize];
            // Removes, and sends, that come to nothing; and some who send late, below who came later.
            let end = if random.below(3) == 0 { "COMMIT" } else { "ROLLBACK" };
            let call = if end == "COMMIT" {
                "SELECT pg_current_xact_id(), nextval('knee_queue.message_id')".to_owned()
            } else {
                format!(
                    "SELECT knee_queue.take({client}, {queue}, 3, 99999, NULL, 0, 0, 0);
                     SELECT knee_queue.send({client}, {client}, {queue}, 'never')"
                )
            };
            undone.batch_execute(&format!("BEGIN; {call}")).await.unwrap();
            sleep(Duration::from_millis(random.below(40))).await;
            undone.batch_execute(end).await.unwrap();
        }
        ended.stopped.store(true, Ordering::Relaxed);
    };
    history.check(seed(), u32::MAX, faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_connections_are_cut() {
    let cluster = Cluster::start(false);
    for combine_max in [1, 8] {
        let options = Options { combine_max, ..cluster.migrated().await };
        let database = options.address.rsplit('/').next().unwrap().to_owned();
        let history = History::new(Postgres::open(&options).await.unwrap()).await;
        let killer = cluster.connect(&database).await;
        let ended = Arc::clone(&history);
        let faults = async || {
            for _ in 0..30 {
                sleep(Duration::from_millis(30)).await;
                let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                           WHERE application_name = 'knee-queue' AND datname = current_database()
                           ORDER BY random() LIMIT 2";
                killer.query(cut, &[]).await.unwrap();
            }
            ended.stopped.store(true, Ordering::Relaxed);
        };
        history.check(seed(), u32::MAX, faults).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_restarts() {
    let mut cluster = Cluster::start(true);
    let options = cluster.migrated().await;
    let history = History::new(Postgres::open(&options).await.unwrap()).await;
    let ended = Arc::clone(&history);
    let faults = async || {
        for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
            sleep(Duration::from_millis(400)).await;
            cluster.stop(how);
            cluster.restart();
        }
        sleep(Duration::from_millis(400)).await;
        ended.stopped.store(true, Ordering::Relaxed);
    };
    history.check(seed(), u32::MAX, faults).await;
}
