//! Random histories: clients send, remove and lease at once, while faults happen to them.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use knee_queue::database::{Database, Failure};
use knee_queue::operation::{ANYBODY, Answer, ClientId, QueueId, QueueSettings, Request, Stored};
use knee_random::Random;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::desk::{Desk, PATIENCE, lease_of, outgoing, settings};
use super::judge::{Operation, Recorded, broken_lease, contradiction, is_fifo, misplaced};

pub(crate) const CLIENTS: u64 = 4;
pub(crate) const QUEUES: usize = 4;
/// In a history with leases: the queue with a limit of attempts, and its queue of dead letters.
const LIMITED: usize = 2;
const DEAD: usize = 3;
const ATTEMPTS_MAX: u32 = 2;
/// Durations of leases: some leases end before their client acknowledges.
const VISIBILITIES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];
/// The database counts a lease in coarser units, by another clock.
const MARGIN_NS: u64 = 5_000_000;
/// Pause of a client after a refused request.
const AGAIN: Duration = Duration::from_millis(5);
/// Think time of a client in a history with faults, which lasts until they are over.
const THINK: Duration = Duration::from_millis(2);

/// The seeds of the histories: one seed, or `KNEE_SOAK` many, from `KNEE_SEED` on.
pub(crate) fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("KNEE_SEED").unwrap_or(1);
    let count = number("KNEE_SOAK").unwrap_or(1);
    (first..first + count).inspect(|seed| println!("KNEE_SEED={seed}"))
}

/// The requests that clients choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Sends and removes. No message is put back, so floors stay up.
    Removes,
    /// The same with more removes, so that the queues stay short. Sends to a queue do not overlap, so the judge knows
    /// their order.
    Drains,
    /// Leases as well, and dead letters.
    All,
}

/// Clients of a database, and the servers that they ask.
pub(crate) struct History<D> {
    desks: Vec<Desk<D>>,
    pub(crate) clients: Vec<ClientId>,
    pub(crate) queues: Vec<QueueId>,
    /// With `Mix::Drains`, a sender to a queue holds its lock.
    pub(crate) sending: HashMap<QueueId, Mutex<()>>,
    mix: Mix,
    /// The content of the next message.
    next: AtomicU64,
    begun: Instant,
    /// The last recorded time, in nanoseconds since `begun`. No two times are equal.
    clock: AtomicU64,
    stopped: AtomicBool,
}

impl<D: Database> History<D> {
    /// A history over the servers of one database. Client number n uses server n modulo their number. For a quarter of
    /// its requests, it uses the server half the list further on.
    pub(crate) async fn new(servers: impl IntoIterator<Item = D>, mix: Mix) -> Arc<History<D>> {
        let desks: Vec<_> = servers.into_iter().map(Desk).collect();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(desks[0].client().await);
        }
        let mut queues = Vec::new();
        for _ in 0..QUEUES {
            queues.push(desks[0].queue(clients[0]).await);
        }
        if mix == Mix::All {
            let dead_letters = Some(queues[DEAD]);
            let limited = QueueSettings { dead_letters, attempts_max: ATTEMPTS_MAX, ..settings() };
            queues[LIMITED] = desks[0].queue_with(clients[0], limited).await;
        }
        let sending = queues.iter().map(|&queue| (queue, Mutex::default())).collect();
        let (next, clock, stopped) = Default::default();
        Arc::new(History {
            desks,
            clients,
            queues,
            sending,
            mix,
            next,
            begun: Instant::now(),
            clock,
            stopped,
        })
    }

    /// Stops the clients.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Content that no other message has.
    pub(crate) fn content(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn tick(&self) -> u64 {
        let now = self.begun.elapsed().as_nanos() as u64;
        let next = |last: u64| Some(now.max(last + 1));
        let last = self.clock.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        last.map_or(now, |last| now.max(last + 1))
    }

    /// Records an operation of a process beside the clients, from its beginning to its end.
    pub(crate) async fn beside(
        &self,
        queue: QueueId,
        doing: impl Future<Output = Operation>,
    ) -> Recorded {
        let began = self.tick();
        let operation = doing.await;
        Recorded { process: self.clients.len(), queue, began, over: self.tick(), operation }
    }

    /// Runs all clients until they finish or are stopped, while `faults` runs and may record more operations. Then
    /// removes the remaining messages, and checks the history. Without faults and leases, the history must also be
    /// first in, first out.
    pub(crate) async fn check(
        self: Arc<Self>,
        seed: u64,
        requests: u32,
        has_faults: bool,
        faults: impl AsyncFnOnce() -> Vec<Recorded>,
    ) {
        let tasks: Vec<_> = (0..self.clients.len())
            .map(|number| {
                let random = Random::stream(seed, number as u64);
                tokio::spawn(Arc::clone(&self).run(random, number, requests))
            })
            .collect();
        let mut recorded = faults().await;
        for task in tasks {
            recorded.extend(timeout(PATIENCE * 3, task).await.expect("all end").unwrap());
        }
        self.see_all().await;
        self.drain(&mut recorded).await;
        assert!(recorded.iter().any(|one| had(&one.operation) > 0), "no message was taken");
        let why = contradiction(&recorded).or_else(|| broken_lease(&recorded));
        if let Some(why) = why.or_else(|| misplaced(&recorded)) {
            panic!("{why}");
        }
        if !has_faults && self.mix != Mix::All {
            assert!(
                is_fifo(&recorded),
                "no order of a first-in-first-out queue explains it: {recorded:?}"
            );
        }
    }

    async fn run(
        self: Arc<Self>,
        mut random: Random,
        number: usize,
        requests: u32,
    ) -> Vec<Recorded> {
        let mut recorded = Vec::new();
        let sends = if self.mix == Mix::Drains { 2 } else { 5 };
        for _ in 0..requests {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let further = if random.below(4) == 0 { self.desks.len() / 2 } else { 0 };
            let desk = &self.desks[(number + further) % self.desks.len()];
            let queue = self.queues[random.below(QUEUES as u64) as usize];
            let mut step =
                ClientStep { history: &self, desk, number, queue, recorded: &mut recorded };
            let done = match random.below(10) {
                n if n < sends => step.send(&mut random).await,
                8.. if self.mix == Mix::All => step.lease(&mut random).await,
                _ => step.remove(1 + random.below(2) as u32).await,
            };
            if done.is_err() {
                sleep(AGAIN).await;
            } else if requests == u32::MAX {
                sleep(THINK * random.below(3) as u32).await;
            }
        }
        recorded
    }

    /// Waits until each server sees all messages: no floor of a server hides one.
    async fn see_all(&self) {
        const MANY: u32 = 1000;
        let begun = Instant::now();
        for (number, desk) in self.desks.iter().enumerate() {
            loop {
                // This call may be the first to notice a lost connection.
                let counts = self.ask(desk, Request::Counts).await;
                let mut seen = HashSet::new();
                for &receiver in &self.clients {
                    for &queue in &self.queues {
                        let (after, content_bytes_max) = (0, u64::MAX);
                        let read = Request::Read {
                            receiver,
                            queue,
                            after,
                            count: MANY,
                            content_bytes_max,
                        };
                        let Answer::Messages(messages) = self.ask(desk, read).await else {
                            panic!("no messages")
                        };
                        seen.extend(messages.into_iter().map(|message| message.id));
                    }
                }
                match counts {
                    Answer::Counts(counts) if counts.messages == seen.len() as u64 => break,
                    Answer::Counts(_) if seen.len() >= MANY as usize => break,
                    counts => {
                        let seen = seen.len();
                        assert!(
                            begun.elapsed() < PATIENCE,
                            "server {number} sees {seen} of {counts:?}"
                        );
                    }
                }
                sleep(AGAIN).await;
            }
        }
    }

    /// Asks until there is an answer.
    async fn ask(&self, desk: &Desk<D>, request: Request) -> Answer {
        desk.at_last(async || desk.ask(request.clone()).await.ok()).await
    }

    /// Removes the remaining messages, while the last leases end.
    async fn drain(&self, recorded: &mut Vec<Recorded>) {
        let begun = Instant::now();
        loop {
            for number in 0..self.clients.len() {
                for &queue in &self.queues {
                    let desk = &self.desks[number % self.desks.len()];
                    let mut step = ClientStep { history: self, desk, number, queue, recorded };
                    // Faults are over. A remove without an answer would excuse any loss.
                    if let Err(failure @ Failure::Unknown(_)) = step.remove(1000).await {
                        panic!("{failure:?}");
                    }
                }
            }
            let Answer::Counts(left) = self.ask(&self.desks[0], Request::Counts).await else {
                panic!("no counts")
            };
            if left.messages == 0 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{} messages cannot be had", left.messages);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The number of messages that an operation took for good.
fn had(operation: &Operation) -> usize {
    match operation {
        Operation::Remove { had: Some(had), .. } => had.len(),
        Operation::Acknowledge { is_known, .. } => (*is_known).into(),
        _ => 0,
    }
}

/// One step of a client.
struct ClientStep<'h, D> {
    history: &'h History<D>,
    desk: &'h Desk<D>,
    number: usize,
    queue: QueueId,
    recorded: &'h mut Vec<Recorded>,
}

impl<D: Database> ClientStep<'_, D> {
    async fn send(&mut self, random: &mut Random) -> Result<(), Failure> {
        let history = self.history;
        let messages: Vec<_> = (0..1 + random.below(3))
            .map(|_| {
                let receiver = history.clients.get(random.below(CLIENTS + 2) as usize);
                (history.content(), receiver.copied().unwrap_or(ANYBODY))
            })
            .collect();
        let outgoing: Vec<_> = messages
            .iter()
            .map(|(content, receiver)| outgoing(*receiver, self.queue, &content.to_string()))
            .collect();
        let _alone = match history.mix {
            Mix::Drains => Some(history.sending[&self.queue].lock().await),
            _ => None,
        };
        let began = history.tick();
        let sent = self.desk.send_all(history.clients[self.number], outgoing).await;
        let is_known = match &sent {
            Ok(ids) => {
                assert!(ids.is_sorted());
                true
            }
            Err(failure) if nothing_done(failure) => return sent.map(drop),
            Err(_) => false,
        };
        self.record(began, Operation::Send { messages, is_known });
        sent.map(drop)
    }

    async fn remove(&mut self, count: u32) -> Result<(), Failure> {
        let history = self.history;
        let (receiver, queue) = (history.clients[self.number], self.queue);
        let request = Request::Remove { receiver, queue, count, content_bytes_max: u64::MAX };
        let began = history.tick();
        let removed = match self.desk.ask(request).await {
            Ok(Answer::Messages(messages)) => {
                assert!(messages.is_sorted_by_key(|message| message.id));
                Ok(messages.iter().map(content).collect())
            }
            Ok(other) => panic!("{other:?}"),
            Err(failure) if nothing_done(&failure) => return Err(failure),
            Err(failure) => Err(failure),
        };
        let (had, outcome) = match removed {
            Ok(had) => (Some(had), Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        self.record(began, Operation::Remove { receiver, count: count as usize, had });
        outcome
    }

    /// Leases a message, and acknowledges it, releases it, or forgets it.
    async fn lease(&mut self, random: &mut Random) -> Result<(), Failure> {
        let (receiver, queue) = (self.history.clients[self.number], self.queue);
        let visibility = VISIBILITIES[random.below(2) as usize];
        let (count, content_bytes_max) = (1, u64::MAX);
        let request = Request::Lease { receiver, queue, count, content_bytes_max, visibility };
        let began = self.history.tick();
        let leased = match self.desk.ask(request).await {
            Ok(Answer::Leased(mut leased)) => leased.pop(),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => {
                nothing_done(&failure);
                return Err(failure);
            }
        };
        let Some(leased) = leased else { return Ok(()) };
        let content = content(&leased.0);
        let until = began + visibility.as_nanos() as u64 - MARGIN_NS;
        self.record(began, Operation::Lease { content, attempt: Some(leased.1), until });
        let place = self.recorded.len() - 1;
        let leases = vec![lease_of(&leased)];
        match random.below(6) {
            0 => {}
            1 | 2 => {
                self.lease_ends(place);
                let _ = self.desk.ask(Request::Release { leases }).await;
            }
            3 => {
                // Sometimes the lease ends during this sleep.
                sleep(VISIBILITIES[0] * random.below(2) as u32).await;
                let began = self.history.tick();
                let extend = Request::Extend { leases: leases.clone(), visibility };
                let extended = self.desk.ask(extend).await;
                if matches!(extended, Ok(Answer::Ended(ended)) if ended.is_empty()) {
                    let until = began + visibility.as_nanos() as u64 - MARGIN_NS;
                    self.record(began, Operation::Lease { content, attempt: None, until });
                }
                self.lease_ends(place);
                self.acknowledge(leases, content).await?;
            }
            _ => {
                self.lease_ends(place);
                self.acknowledge(leases, content).await?;
            }
        }
        Ok(())
    }

    /// The leases recorded from `place` on may end from now on.
    fn lease_ends(&mut self, place: usize) {
        let now = self.history.tick();
        for Recorded { operation, .. } in &mut self.recorded[place..] {
            if let Operation::Lease { until, .. } = operation {
                *until = now.min(*until);
            }
        }
    }

    async fn acknowledge(
        &mut self,
        leases: Vec<knee_queue::operation::Lease>,
        content: u64,
    ) -> Result<(), Failure> {
        let began = self.history.tick();
        let (is_known, outcome) = match self.desk.ask(Request::Acknowledge { leases }).await {
            Ok(Answer::Ended(ended)) if ended.is_empty() => (true, Ok(())),
            Ok(_) => return Ok(()),
            Err(failure) if nothing_done(&failure) => return Err(failure),
            Err(failure) => (false, Err(failure)),
        };
        self.record(began, Operation::Acknowledge { content, is_known });
        outcome
    }

    fn record(&mut self, began: u64, operation: Operation) {
        let (process, queue, over) = (self.number, self.queue, self.history.tick());
        self.recorded.push(Recorded { process, queue, began, over, operation });
    }
}

fn content(message: &Stored) -> u64 {
    message.content.parse().expect("a message of this history")
}

/// Whether a failed request did nothing.
fn nothing_done(failure: &Failure) -> bool {
    match failure {
        Failure::Unknown(_) => false,
        Failure::Unavailable(_) | Failure::TooLate(_) | Failure::NotMigrated(_) => true,
        other => panic!("{other:?}"),
    }
}
