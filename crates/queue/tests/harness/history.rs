//! Random histories: clients who send, look, remove and lease at once, while something happens to them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use knee_queue::database::{Database, Failure};
use knee_queue::operation::{ANYBODY, Answer, ClientId, QueueId, Request};
use knee_random::Random;
use tokio::time::{sleep, timeout};

use super::desk::{Desk, PATIENCE, lease_of, outgoing};
use super::verdict::{Event, Span, verify};

/// Clients, each of whom sends and takes.
pub(crate) const CLIENTS: u64 = 4;
pub(crate) const QUEUES: usize = 3;
/// Messages that a client reads at once.
const READ: u32 = 10;
/// A lease that may end while its client still has it.
const SHORT: Duration = Duration::from_millis(100);
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
    /// Leases as well.
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

impl<D: Database> History<D> {
    /// Of those who serve one database.
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
                8.. if self.mix == Mix::All => turn.lease(&mut random).await,
                _ => {
                    let count = 1 + random.below(2) as u32;
                    match turn.look(&mut random).await {
                        Ok(()) => turn.remove(count).await,
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
    /// removes what is left, and checks.
    pub(crate) async fn check(
        self: Arc<Self>,
        seed: u64,
        requests: u32,
        faults: impl AsyncFnOnce() -> Vec<Event>,
    ) {
        let mut tasks = Vec::new();
        for number in 0..self.clients.len() {
            let random = Random::stream(seed, number as u64);
            tasks.push(tokio::spawn(Arc::clone(&self).run(random, number, requests)));
        }
        let mut events = faults().await;
        for task in tasks {
            events.extend(timeout(PATIENCE * 3, task).await.expect("all end").unwrap());
        }
        self.drain(&mut events).await;
        let had = events.iter().filter(|event| matches!(event, Event::Had { .. })).count();
        assert!(had > 0, "something was had");
        if let Err(why) = verify(&events) {
            panic!("{why}");
        }
    }

    /// All servers come to see all that is there; and what is there is what was not had.
    async fn drain(&self, events: &mut Vec<Event>) {
        let (mut quiet, begun) = (0, Instant::now());
        for number in 0..self.desks.len() {
            // A connection may turn out to be lost only now, with what one call has: who asks for much has the one
            // that has been found to be good.
            let (desk, queue) = (self.desk(number), self.queues[0]);
            let client = number % self.clients.len();
            while self.turn(desk, client, queue, events).remove(1).await.is_err() {
                assert!(begun.elapsed() < PATIENCE, "nothing can be removed");
            }
        }
        // What one of them believes not to be there would be had from another.
        while let Some(why) = self.disagreement().await {
            assert!(begun.elapsed() < PATIENCE, "{why}");
            sleep(AGAIN).await;
        }
        while quiet < 3 {
            let before = had(events);
            for number in 0..self.clients.len() {
                for &queue in &self.queues {
                    self.turn(self.desk(number), number, queue, events).remove(1000).await.unwrap();
                }
            }
            let left = self.desks[0].counts().await.messages;
            assert!(begun.elapsed() < PATIENCE, "{left} messages are there and nobody gets them");
            quiet = if left == 0 && had(events) == before { quiet + 1 } else { 0 };
            sleep(Duration::from_millis(20)).await;
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

/// What a client does next.
struct Turn<'h, D> {
    history: &'h History<D>,
    desk: &'h Desk<D>,
    client: ClientId,
    queue: QueueId,
    events: &'h mut Vec<Event>,
}

impl<D: Database> Turn<'_, D> {
    async fn send(&mut self, random: &mut Random) -> Result<(), Failure> {
        let Turn { history, client, queue, .. } = *self;
        let whose: Vec<_> = (0..1 + random.below(3))
            .map(|_| match random.below(CLIENTS + 2) as usize {
                n if n < history.clients.len() => history.clients[n],
                _ => ANYBODY,
            })
            .collect();
        let name = || history.next.fetch_add(1, Ordering::Relaxed).to_string();
        let messages: Vec<_> =
            whose.into_iter().map(|receiver| outgoing(receiver, queue, &name())).collect();
        let begun = Instant::now();
        let sent = self.desk.send_all(client, messages.clone()).await;
        let span = Span::since(begun);
        let (ids, outcome) = match sent {
            Ok(ids) => {
                assert!(ids.is_sorted());
                (ids.into_iter().map(Some).collect(), Ok(()))
            }
            Err(failure) if nothing_done(&failure) => return Err(failure),
            Err(failure) => (vec![None; messages.len()], Err(failure)),
        };
        for (message, id) in messages.into_iter().zip(ids) {
            let (content, receiver) = (message.content, message.receiver);
            self.events.push(Event::Sent { content, queue, receiver, id, span });
        }
        outcome
    }

    /// Looks at what there is, or does not.
    async fn look(&mut self, random: &mut Random) -> Result<(), Failure> {
        let Turn { client, queue, .. } = *self;
        let (receiver, after, count, content_bytes_max) = (client, 0, READ, u64::MAX);
        let request = match random.below(4) {
            0 => return Ok(()),
            1 => Request::ListQueues { receiver },
            _ => Request::Read { receiver, queue, after, count, content_bytes_max },
        };
        let begun = Instant::now();
        let answer = self.desk.ask(request).await.inspect_err(|failure| {
            nothing_done(failure);
        })?;
        let span = Span::since(begun);
        self.events.push(match answer {
            Answer::Queues(queues) => Event::Listed { client, queues, span },
            Answer::Messages(messages) => {
                let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
                assert!(ids.is_sorted());
                let is_full = ids.len() >= READ as usize;
                let through = ids.last().copied().filter(|_| is_full).unwrap_or(u64::MAX);
                Event::Read { client, queue, ids, through, span }
            }
            other => panic!("{other:?}"),
        });
        Ok(())
    }

    async fn remove(&mut self, count: u32) -> Result<(), Failure> {
        let Turn { client, queue, .. } = *self;
        let begun = Instant::now();
        let request =
            Request::Remove { receiver: client, queue, count, content_bytes_max: u64::MAX };
        let messages = match self.desk.ask(request).await {
            Ok(Answer::Messages(messages)) => messages,
            Ok(other) => panic!("{other:?}"),
            Err(failure) => {
                let lost = Event::Lost { client, queue, count, span: Span::since(begun) };
                self.events.extend((!nothing_done(&failure)).then_some(lost));
                return Err(failure);
            }
        };
        let span = Span::since(begun);
        let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
        assert!(ids.is_sorted());
        self.events.push(Event::Taken { client, queue, ids, span });
        let had = messages.into_iter().map(|m| Event::Had { content: m.content, id: m.id, span });
        self.events.extend(had);
        Ok(())
    }

    /// Leases a message, and acknowledges it, releases it, or dies and forgets it.
    async fn lease(&mut self, random: &mut Random) -> Result<(), Failure> {
        let Turn { client, queue, .. } = *self;
        let begun = Instant::now();
        let visibility = if random.below(2) == 0 { SHORT } else { 3 * SHORT };
        let (receiver, count, content_bytes_max) = (client, 1, u64::MAX);
        let request = Request::Lease { receiver, queue, count, content_bytes_max, visibility };
        let lost = || Event::Lost { client, queue, count, span: Span::since(begun) };
        let leased = match self.desk.ask(request).await {
            Ok(Answer::Leased(leased)) => leased,
            Ok(other) => panic!("{other:?}"),
            Err(failure) => {
                // It ends by itself.
                self.events.extend((!nothing_done(&failure)).then(lost));
                return Err(failure);
            }
        };
        let Some(taken) = leased.first() else { return Ok(()) };
        let (content, id) = (taken.0.content.clone(), taken.0.id);
        self.events.push(Event::Leased { id });
        self.events.push(Event::Taken { client, queue, ids: vec![id], span: Span::since(begun) });
        let leases = vec![lease_of(taken)];
        match random.below(4) {
            0 => Ok(()),
            1 => self.desk.ask(Request::Release { leases }).await.map(drop),
            _ => match self.desk.ask(Request::Acknowledge { leases }).await {
                Ok(Answer::Ended(ended)) => {
                    let had = Event::Had { content, id, span: Span::since(begun) };
                    self.events.extend(ended.is_empty().then_some(had));
                    Ok(())
                }
                Ok(other) => panic!("{other:?}"),
                Err(failure) => {
                    self.events.extend((!nothing_done(&failure)).then(lost));
                    Err(failure)
                }
            },
        }
    }
}

/// How often something was had.
fn had(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Had { .. })).count()
}
