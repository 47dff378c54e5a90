//! Random histories: clients who send, look, remove and lease at once, while something happens to them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use knee_queue::database::Failure;
use knee_queue::operation::{
    ANYBODY, Answer, ClientId, Lease, QueueId, QueueSettings, Request, Stored,
};
use knee_random::Random;
use tokio::time::{sleep, timeout};

use super::desk::{Desk, LONG, PATIENCE, lease_of, outgoing, settings};
use super::server::Server;
use super::verdict::{Event, Span, verify};

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

impl<D: Server> Turn<'_, D> {
    async fn send(&mut self, random: &mut Random) -> Result<(), Failure> {
        let history = self.history;
        let whose: Vec<_> = (0..1 + random.below(3))
            .map(|_| match random.below(CLIENTS + 2) as usize {
                n if n < history.clients.len() => history.clients[n],
                _ => ANYBODY,
            })
            .collect();
        self.send_to(&whose).await
    }

    async fn send_to(&mut self, whose: &[ClientId]) -> Result<(), Failure> {
        let Turn { history, client, queue, .. } = *self;
        let name = || history.next.fetch_add(1, Ordering::Relaxed).to_string();
        let messages: Vec<_> =
            whose.iter().map(|&receiver| outgoing(receiver, queue, &name())).collect();
        let begun = Instant::now();
        let sent = self.desk.send_all(client, messages.clone()).await;
        let span = Span::since(begun);
        let (ids, outcome) = match sent {
            Ok(ids) => {
                assert!(ids.is_sorted());
                (ids.into_iter().map(Some).collect(), Ok(()))
            }
            Err(failure) if nothing_done(&failure) => return Err(failure),
            Err(failure) => {
                let contents = messages.iter().map(|message| message.content.clone()).collect();
                self.events.push(Event::Batch { contents });
                (vec![None; messages.len()], Err(failure))
            }
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

    /// Answers how many.
    async fn remove(&mut self, count: u32, wait: Duration) -> Result<usize, Failure> {
        let Turn { client, queue, .. } = *self;
        let begun = Instant::now();
        let request =
            Request::Remove { receiver: client, queue, count, content_bytes_max: u64::MAX };
        let messages = match self.desk.0.wait(request, wait).await {
            Ok(Answer::Messages(messages)) => messages,
            Ok(other) => panic!("{other:?}"),
            Err(failure) => {
                self.lose(&failure, count, false, begun);
                return Err(failure);
            }
        };
        let span = Span::since(begun);
        let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
        assert!(ids.is_sorted());
        self.events.push(Event::Taken { client, queue, ids, span });
        let count = messages.len();
        let had = messages.into_iter().map(|m| Event::Had { content: m.content, id: m.id, span });
        self.events.extend(had);
        Ok(count)
    }

    /// A call has failed that was to take so many messages.
    fn lose(&mut self, failure: &Failure, count: u32, is_lease: bool, begun: Instant) {
        let (client, queue, span) = (self.client, self.queue, Span::since(begun));
        self.events.push(if nothing_done(failure) {
            Event::Undone { client, queue, count, span }
        } else {
            Event::Lost { client, queue, count, is_lease, span }
        });
    }

    /// A call has not ended a lease, but may have locked its message, wherever that is by now.
    fn hide(&mut self, begun: Instant) {
        let (client, queue, count, span) = (self.client, self.queue, 1, Span::since(begun));
        self.events.push(Event::Undone { client, queue, count, span });
    }

    /// Sends a message that everybody may have.
    async fn send_at_last(&mut self) {
        let begun = Instant::now();
        while self.send_to(&[ANYBODY]).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "nothing can be sent");
        }
    }

    /// Leases a message, unless its lease has ended so often that it is elsewhere.
    async fn lease_at_last(&mut self) -> Option<Held> {
        let begun = Instant::now();
        loop {
            if let Ok(held) = self.begin_lease(LONGER, PATIENCE).await {
                return held;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing can be leased");
        }
    }

    /// Waits for a message, and is told of it.
    async fn hear(mut self) {
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let removed = self.remove(1, PATIENCE).await;
            // Who was not told looks when the time is over.
            assert!(asked.elapsed() < PATIENCE, "nobody tells of what arrives");
            match removed {
                Ok(0) => panic!("there is nothing, before the time is over"),
                Ok(_) => return,
                Err(_) => assert!(begun.elapsed() < PATIENCE, "nothing can be removed"),
            }
        }
    }

    /// Leases a message, and acknowledges it, releases it, or dies and forgets it.
    async fn lease(&mut self, random: &mut Random) -> Result<(), Failure> {
        let visibility = if random.below(2) == 0 { SHORT } else { LONGER };
        let held = self.begin_lease(visibility, some_wait(random)).await?;
        let Some(mut held) = held else { return Ok(()) };
        let goes_on = match random.below(6) {
            0 => {
                self.desk.0.hang_up().await;
                false
            }
            1 | 2 => self.extend(random, &mut held).await?,
            _ => true,
        };
        if !goes_on {
            return Ok(());
        }
        if random.below(2) == 0 {
            self.release(held).await;
        } else {
            self.acknowledge(held).await;
        }
        Ok(())
    }

    async fn begin_lease(
        &mut self,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Option<Held>, Failure> {
        let Turn { client, queue, .. } = *self;
        let begun = Instant::now();
        let (receiver, count, content_bytes_max) = (client, 1, u64::MAX);
        let request = Request::Lease { receiver, queue, count, content_bytes_max, visibility };
        let mut leased = match self.desk.0.wait(request, wait).await {
            Ok(Answer::Leased(leased)) => leased,
            Ok(other) => panic!("{other:?}"),
            Err(failure) => {
                // It ends by itself.
                self.lose(&failure, count, true, begun);
                return Err(failure);
            }
        };
        let span = Span::since(begun);
        let ids = leased.iter().map(|(message, _)| message.id).collect();
        self.events.push(Event::Taken { client, queue, ids, span });
        let Some(leased) = leased.pop() else { return Ok(None) };
        let Lease { message: id, attempt } = lease_of(&leased);
        self.events.push(Event::Leased { id, queue, attempt, span });
        Ok(Some(Held { leased, begun, until: begun + visibility, is_extended: false }))
    }

    /// Has a lease for as long as it takes, and answers whether there may still be one.
    async fn extend(&mut self, random: &mut Random, held: &mut Held) -> Result<bool, Failure> {
        let (leases, begun) = (vec![lease_of(&held.leased)], Instant::now());
        let answer = self.desk.ask(Request::Extend { leases, visibility: LONG }).await;
        if !matches!(&answer, Ok(Answer::Ended(ended)) if ended.is_empty()) {
            self.hide(begun);
        }
        match answer {
            Ok(Answer::Ended(ended)) if ended.is_empty() => {
                held.is_extended = true;
                if Instant::now() < held.until {
                    held.until = begun + LONG;
                }
            }
            Ok(Answer::Ended(_)) => return Ok(false),
            Ok(other) => panic!("{other:?}"),
            Err(failure) if nothing_done(&failure) => return Err(failure),
            Err(_) => return Ok(true),
        }
        // Now and then past the end that it had.
        sleep(SHORT * random.below(9).saturating_sub(6) as u32).await;
        Ok(true)
    }

    async fn release(&mut self, held: Held) {
        let (begun, queue) = (Instant::now(), self.queue);
        let lease = lease_of(&held.leased);
        let (is_ended, _) = self.end(&held, Request::Release { leases: vec![lease] }).await;
        let (id, attempt, span) = (lease.message, lease.attempt, Span::since(begun));
        // Who puts back what was leased for too long may have just locked it.
        let is_sure = is_ended && span.ended < held.until;
        self.events.extend(is_sure.then_some(Event::Released { id, queue, attempt, span }));
    }

    async fn acknowledge(&mut self, held: Held) {
        let lease = lease_of(&held.leased);
        let (is_ended, is_unsure) =
            self.end(&held, Request::Acknowledge { leases: vec![lease] }).await;
        let (content, id, span) = (held.leased.0.content, lease.message, Span::since(held.begun));
        if is_ended {
            self.events.push(Event::Had { content, id, span });
        } else if is_unsure {
            self.events.push(Event::Unsure { content });
        }
    }

    /// Ends a lease; answers whether it does, and whether it may have done so without an answer. As the lease may
    /// be a long one, whatever happens meanwhile is waited for.
    async fn end(&mut self, held: &Held, request: Request) -> (bool, bool) {
        let (mut is_unsure, begun) = (false, Instant::now());
        loop {
            let asked = Instant::now();
            let answer = self.desk.ask(request.clone()).await;
            if !matches!(&answer, Ok(Answer::Ended(ended)) if ended.is_empty()) {
                self.hide(asked);
            }
            match answer {
                Ok(Answer::Ended(ended)) => {
                    let is_ended = ended.is_empty();
                    let may_be_over = is_unsure || !held.is_extended;
                    assert!(is_ended || may_be_over, "{:?} was extended, and is over", held.leased);
                    return (is_ended, is_unsure);
                }
                Ok(other) => panic!("{other:?}"),
                Err(failure) => is_unsure |= !nothing_done(&failure),
            }
            assert!(begun.elapsed() < PATIENCE * 2, "no lease can be ended");
            sleep(AGAIN).await;
        }
    }
}

/// A lease that somebody has.
struct Held {
    leased: (Stored, u32),
    /// When it was asked for.
    begun: Instant,
    /// It is not over before.
    until: Instant,
    /// Whether it does not end by itself for as long as a history takes.
    is_extended: bool,
}

/// Whether it is its message's last one in the queue that has a limit.
fn is_last(held: &Held) -> bool {
    held.leased.1 >= ATTEMPTS_MAX
}

/// How long somebody waits for a message who may not wait at all.
fn some_wait(random: &mut Random) -> Duration {
    if random.below(3) == 0 { WAIT } else { Duration::ZERO }
}

/// How often something was had.
fn had(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Had { .. })).count()
}
