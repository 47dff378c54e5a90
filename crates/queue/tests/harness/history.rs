//! Random histories: clients who send, look, remove and lease at once, while something happens to them.

mod turn;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use knee_queue::database::Failure;
use knee_queue::operation::{ClientId, QueueId, QueueSettings};
use knee_random::Random;
use tokio::time::{sleep, timeout};

use self::turn::{Turn, is_last, some_wait};
use super::desk::{Desk, LONG, PATIENCE, settings};
use super::server::Server;
use super::verdict::{Event, verify};

/// Clients, each of whom sends and takes.
pub(crate) const CLIENTS: u64 = 4;
pub(crate) const QUEUES: usize = 4;
/// Where there are leases, the queue that has a limit, and the one for its dead letters.
const LIMITED: usize = 2;
const DEAD: usize = 3;
/// Messages that a client reads at once.
const READ: u32 = 10;
/// A lease that may end while its client still has it.
const SHORT: Duration = Duration::from_millis(100);
const LONGER: Duration = Duration::from_millis(300);
/// Of the queue that has a limit.
const ATTEMPTS_MAX: u32 = 2;
/// How long a client waits for a message, if it does.
const WAIT: Duration = Duration::from_millis(20);
/// How long a client waits that was told that it cannot be done now.
const AGAIN: Duration = Duration::from_millis(5);

/// Whether the database said of a failed request that it did nothing.
fn nothing_done(failure: &Failure) -> bool {
    match failure {
        Failure::Unknown(_) => false,
        Failure::Unavailable(_) | Failure::TooLate(_) | Failure::NotMigrated(_) => true,
        other => panic!("{other:?}"),
    }
}

/// The seeds of histories to be checked: one, or as many as `KNEE_SOAK` says, from `KNEE_SEED` on.
pub(crate) fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("KNEE_SEED").unwrap_or(1);
    let count = number("KNEE_SOAK").unwrap_or(1);
    (first..first + count).inspect(|seed| println!("KNEE_SEED={seed}"))
}

/// What clients may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Sends and removes: nothing is ever put back, which would lower the floors.
    Removes,
    /// The same, but for more removes, which leave little behind.
    Drains,
    /// Leases as well, and dead letters.
    All,
}

/// Clients of a database, and the servers that they ask.
pub(crate) struct History<D> {
    desks: Vec<Desk<D>>,
    pub(crate) clients: Vec<ClientId>,
    pub(crate) queues: Vec<QueueId>,
    mix: Mix,
    next: AtomicU64,
    stopped: AtomicBool,
}

impl<D: Server> History<D> {
    /// Of those who serve one database. A client has two of them: that of its number, and another one half as many
    /// further on. Who wants connections of its own for each client names them for all clients, twice.
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
        let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(History { desks, clients, queues, mix, next, stopped })
    }

    /// The server of a client.
    fn desk(&self, number: usize) -> &Desk<D> {
        &self.desks[number % self.desks.len()]
    }

    /// That one, and now and then another: as by who has lost his connection, or shares his number.
    fn some_desk(&self, random: &mut Random, number: usize) -> &Desk<D> {
        let further = if random.below(4) == 0 { self.desks.len() / 2 } else { 0 };
        self.desk(number + further)
    }

    /// Clients end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// A client's requests, one after the other, until somebody stops it or so many.
    async fn run(self: Arc<Self>, mut random: Random, number: usize, requests: u32) -> Vec<Event> {
        let mut events = Vec::new();
        let sends = if self.mix == Mix::Drains { 2 } else { 5 };
        for _ in 0..requests {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let queue = self.queues[random.below(QUEUES as u64) as usize];
            let desk = self.some_desk(&mut random, number);
            let mut turn = self.turn(desk, number, queue, &mut events);
            let done = match random.below(10) {
                n if n < sends => turn.send(&mut random).await,
                8.. if self.mix == Mix::All => {
                    if random.below(2) == 0 {
                        turn.queue = self.queues[LIMITED];
                    }
                    turn.lease(&mut random).await
                }
                _ => {
                    // So that it is empty now and then, and floors are above what comes there.
                    if self.mix == Mix::All && random.below(2) == 0 {
                        turn.queue = self.queues[DEAD];
                    }
                    let count = 1 + random.below(2) as u32;
                    match turn.look(&mut random).await {
                        Ok(()) => turn.remove(count, some_wait(&mut random)).await.map(drop),
                        failed => failed,
                    }
                }
            };
            if done.is_err() {
                sleep(AGAIN).await;
            }
        }
        events
    }

    fn turn<'h>(
        &'h self,
        desk: &'h Desk<D>,
        number: usize,
        queue: QueueId,
        events: &'h mut Vec<Event>,
    ) -> Turn<'h, D> {
        Turn { history: self, desk, client: self.clients[number], queue, events }
    }

    /// Runs all clients until they are done, while `faults` happen, which may tell of something; then
    /// removes what is left, lets some wait, and checks.
    pub(crate) async fn check(
        self: Arc<Self>,
        seed: u64,
        requests: u32,
        faults: impl AsyncFnOnce() -> Vec<Event>,
    ) {
        let mut events = Arc::clone(&self).events(seed, requests, faults).await;
        for number in 0..self.desks.len().min(2) {
            self.tell(number, &mut events).await;
        }
        self.drain(&mut events).await;
        assert!(had(&events) > 0, "something was had");
        if let Err(why) = verify(&events) {
            panic!("{why}");
        }
    }

    /// The same, but for checking.
    pub(crate) async fn events(
        self: Arc<Self>,
        seed: u64,
        requests: u32,
        faults: impl AsyncFnOnce() -> Vec<Event>,
    ) -> Vec<Event> {
        let mut tasks = Vec::new();
        for number in 0..self.clients.len() {
            let random = Random::stream(seed, number as u64);
            tasks.push(tokio::spawn(Arc::clone(&self).run(random, number, requests)));
        }
        let mut events = faults().await;
        let (queue, dead_letters) = (self.queues[LIMITED], self.queues[DEAD]);
        let limited = Event::Limited { queue, attempts_max: ATTEMPTS_MAX, dead_letters };
        events.extend((self.mix == Mix::All).then_some(limited));
        for task in tasks {
            events.extend(timeout(PATIENCE * 3, task).await.expect("all end").unwrap());
        }
        self.meet(&mut events).await;
        self.drain(&mut events).await;
        events
    }

    /// All servers come to see all that is there.
    async fn meet(&self, events: &mut Vec<Event>) {
        let begun = Instant::now();
        for number in 0..self.desks.len() {
            // A connection may turn out to be lost only now, with what one call has: who asks for much has the one
            // that has been found to be good.
            let (desk, client) = (self.desk(number), number % self.clients.len());
            let mut turn = self.turn(desk, client, self.queues[0], events);
            while turn.remove(1, Duration::ZERO).await.is_err() {
                assert!(begun.elapsed() < PATIENCE, "nothing can be removed");
            }
        }
        // What one of them believes not to be there would be had from another.
        while let Some(why) = self.disagreement().await {
            assert!(begun.elapsed() < PATIENCE, "{why}");
            sleep(AGAIN).await;
        }
    }

    /// What is there is what was not had.
    async fn drain(&self, events: &mut Vec<Event>) {
        let (mut quiet, begun) = (0, Instant::now());
        while quiet < 3 {
            let before = had(events);
            for number in 0..self.clients.len() {
                for &queue in &self.queues {
                    let mut turn = self.turn(self.desk(number), number, queue, events);
                    turn.remove(1000, Duration::ZERO).await.unwrap();
                }
            }
            let left = self.desks[0].counts().await.messages;
            assert!(begun.elapsed() < PATIENCE, "{left} messages are there and nobody gets them");
            quiet = if left == 0 && had(events) == before { quiet + 1 } else { 0 };
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Who waits at one server is told of what arrives by another: as it is sent, released, or a dead letter.
    async fn tell(&self, number: usize, events: &mut Vec<Event>) {
        let (other, mut done) = ((number + 1) % self.clients.len(), Vec::new());
        let ways = if self.mix == Mix::All { &[0, 1, ATTEMPTS_MAX][..] } else { &[0] };
        for &attempts in ways {
            let from = if attempts == 0 { 0 } else { LIMITED };
            let mut turn = self.turn(self.desk(other), other, self.queues[from], &mut done);
            let mut held = None;
            for _ in 0..attempts {
                match held.take() {
                    // There was an attempt before it that has no answer.
                    Some(last) if is_last(&last) => {
                        held = Some(last);
                        break;
                    }
                    Some(held) => turn.release(held).await,
                    None => turn.send_at_last().await,
                }
                held = turn.lease_at_last().await;
            }
            // Without a lease, all attempts are over, or a message is sent.
            let is_dead = held.as_ref().map_or(attempts == ATTEMPTS_MAX, is_last);
            let to = if is_dead { DEAD } else { from };
            let waits = self.turn(self.desk(number), number, self.queues[to], events).hear();
            tokio::join!(waits, async {
                sleep(WAIT).await;
                match held {
                    Some(held) => turn.release(held).await,
                    None => turn.send_at_last().await,
                }
            });
        }
        events.extend(done);
    }

    /// Sends to the queue that has a limit and has dead letters of it, until that is enough.
    pub(crate) async fn give_up(&self, is_enough: impl Fn() -> bool) -> Vec<Event> {
        let (mut events, begun) = (Vec::new(), Instant::now());
        while !is_enough() {
            assert!(begun.elapsed() < PATIENCE, "no dead letters come");
            let mut turn = self.turn(self.desk(0), 0, self.queues[LIMITED], &mut events);
            turn.send_at_last().await;
            if let Ok(Some(held)) = turn.begin_lease(LONG, Duration::ZERO).await {
                turn.release(held).await;
            }
            turn.queue = self.queues[DEAD];
            let _ = turn.remove(1, Duration::ZERO).await;
        }
        events
    }

    /// Leases, and removes what there is while it has that, until it gets the same.
    pub(crate) async fn have_what_is_leased(&self) -> Vec<Event> {
        let (mut events, begun) = (Vec::new(), Instant::now());
        loop {
            assert!(begun.elapsed() < PATIENCE, "what is leased is hidden");
            let mut turn = self.turn(self.desk(0), 0, self.queues[0], &mut events);
            turn.send_at_last().await;
            let Ok(Some(held)) = turn.begin_lease(LONG, Duration::ZERO).await else { continue };
            let leased = held.leased.0.id;
            let _ = turn.remove(1, Duration::ZERO).await;
            turn.release(held).await;
            if events.iter().any(|event| matches!(event, Event::Had { id, .. } if *id == leased)) {
                return events;
            }
        }
    }

    /// What a server does not see of what is there, unless that is too much to be looked at.
    async fn disagreement(&self) -> Option<String> {
        const MANY: u32 = 1000;
        for (number, desk) in self.desks.iter().enumerate() {
            let there = desk.counts().await.messages;
            let (mut seen, mut is_much) = (HashSet::new(), false);
            for &client in &self.clients {
                for &queue in &self.queues {
                    let messages = desk.read(client, queue, 0, MANY).await;
                    is_much |= messages.len() >= MANY as usize;
                    seen.extend(messages.into_iter().map(|message| message.id));
                }
            }
            let seen = seen.len() as u64;
            if seen != there && !is_much {
                return Some(format!(
                    "{there} messages are there, and server {number} sees {seen}"
                ));
            }
        }
        None
    }
}

/// How often something was had.
fn had(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Had { .. })).count()
}
