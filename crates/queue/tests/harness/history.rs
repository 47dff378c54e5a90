//! Random histories: clients who send, look, remove and lease at once, while something happens to them.

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

/// Clients of a database.
pub(crate) struct History<D> {
    pub(crate) desk: Desk<D>,
    pub(crate) clients: Vec<ClientId>,
    pub(crate) queues: Vec<QueueId>,
    mix: Mix,
    next: AtomicU64,
    stopped: AtomicBool,
}

impl<D: Database> History<D> {
    pub(crate) async fn new(database: D, mix: Mix) -> Arc<History<D>> {
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
        Arc::new(History { desk, clients, queues, mix, next, stopped })
    }

    /// Clients end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// A client's requests, one after the other, until somebody stops it or so many.
    async fn run(
        self: Arc<Self>,
        mut random: Random,
        client: ClientId,
        requests: u32,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let sends = if self.mix == Mix::Drains { 2 } else { 5 };
        for _ in 0..requests {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let queue = self.queues[random.below(QUEUES as u64) as usize];
            let done = match random.below(10) {
                n if n < sends => self.send(&mut random, client, queue, &mut events).await,
                8.. if self.mix == Mix::All => {
                    self.lease(&mut random, client, queue, &mut events).await
                }
                _ => {
                    let count = 1 + random.below(2) as u32;
                    match self.look(&mut random, client, queue, &mut events).await {
                        Ok(()) => self.remove(client, queue, count, &mut events).await,
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

    async fn send(
        &self,
        random: &mut Random,
        client: ClientId,
        queue: QueueId,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
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
            events.push(Event::Sent { content, queue, receiver, id, span });
        }
        outcome
    }

    /// Looks at what there is, or does not.
    async fn look(
        &self,
        random: &mut Random,
        client: ClientId,
        queue: QueueId,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
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
        events.push(match answer {
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

    pub(crate) async fn remove(
        &self,
        client: ClientId,
        queue: QueueId,
        count: u32,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let request =
            Request::Remove { receiver: client, queue, count, content_bytes_max: u64::MAX };
        let messages = match self.desk.ask(request).await {
            Ok(Answer::Messages(messages)) => messages,
            Ok(other) => panic!("{other:?}"),
            Err(failure) => {
                let lost = Event::Lost { client, queue, count, span: Span::since(begun) };
                events.extend((!nothing_done(&failure)).then_some(lost));
                return Err(failure);
            }
        };
        let span = Span::since(begun);
        let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
        assert!(ids.is_sorted());
        events.push(Event::Taken { client, queue, ids, span });
        let had = messages.into_iter().map(|m| Event::Had { content: m.content, id: m.id, span });
        events.extend(had);
        Ok(())
    }

    /// Leases a message, and acknowledges it, releases it, or dies and forgets it.
    async fn lease(
        &self,
        random: &mut Random,
        client: ClientId,
        queue: QueueId,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
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
                events.extend((!nothing_done(&failure)).then(lost));
                return Err(failure);
            }
        };
        let Some(taken) = leased.first() else { return Ok(()) };
        let (content, id) = (taken.0.content.clone(), taken.0.id);
        events.push(Event::Leased { id });
        events.push(Event::Taken { client, queue, ids: vec![id], span: Span::since(begun) });
        let leases = vec![lease_of(taken)];
        match random.below(4) {
            0 => Ok(()),
            1 => self.desk.ask(Request::Release { leases }).await.map(drop),
            _ => match self.desk.ask(Request::Acknowledge { leases }).await {
                Ok(Answer::Ended(ended)) => {
                    let had = Event::Had { content, id, span: Span::since(begun) };
                    events.extend(ended.is_empty().then_some(had));
                    Ok(())
                }
                Ok(other) => panic!("{other:?}"),
                Err(failure) => {
                    events.extend((!nothing_done(&failure)).then(lost));
                    Err(failure)
                }
            },
        }
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
        for (stream, &client) in (0..).zip(&self.clients) {
            let random = Random::stream(seed, stream);
            tasks.push(tokio::spawn(Arc::clone(&self).run(random, client, requests)));
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

    /// Every lease ends; then what is there is what was not had.
    async fn drain(&self, events: &mut Vec<Event>) {
        let (mut quiet, begun) = (0, Instant::now());
        // A connection may turn out to be lost only now, with what one call has: who asks for much has the one that
        // has been found to be good.
        while self.remove(self.clients[0], self.queues[0], 1, events).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "nothing can be removed");
        }
        while quiet < 3 {
            let before = had(events);
            for &client in &self.clients {
                for &queue in &self.queues {
                    self.remove(client, queue, 1000, events).await.unwrap();
                }
            }
            let left = self.desk.counts().await.messages;
            assert!(begun.elapsed() < PATIENCE, "{left} messages are there and nobody gets them");
            quiet = if left == 0 && had(events) == before { quiet + 1 } else { 0 };
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// How often something was had.
fn had(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Had { .. })).count()
}
