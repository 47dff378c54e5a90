//! What a client of a history does, and what is told of it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use knee_queue::database::Failure;
use knee_queue::operation::{
    ANYBODY, Answer, ClientId, Lease, MessageId, QueueId, Request, Stored,
};
use knee_random::Random;
use tokio::time::sleep;

use super::super::desk::{Desk, LONG, PATIENCE, lease_of, outgoing};
use super::super::server::Server;
use super::super::verdict::{Event, Span};
use super::{AGAIN, ATTEMPTS_MAX, CLIENTS, History, LONGER, READ, SHORT, WAIT, nothing_done};

/// What a client does next.
pub(super) struct Turn<'h, D> {
    pub(super) history: &'h History<D>,
    pub(super) desk: &'h Desk<D>,
    pub(super) client: ClientId,
    pub(super) queue: QueueId,
    pub(super) events: &'h mut Vec<Event>,
}

impl<D: Server> Turn<'_, D> {
    pub(super) async fn send(&mut self, random: &mut Random) -> Result<(), Failure> {
        let history = self.history;
        let whose: Vec<_> = (0..1 + random.below(3))
            .map(|_| match random.below(CLIENTS + 2) as usize {
                n if n < history.clients.len() => history.clients[n],
                _ => ANYBODY,
            })
            .collect();
        self.send_to(&whose).await
    }

    pub(super) async fn send_to(&mut self, whose: &[ClientId]) -> Result<(), Failure> {
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
    pub(super) async fn look(&mut self, random: &mut Random) -> Result<(), Failure> {
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
                assert!(messages.is_sorted_by_key(|message| message.id));
                let last = messages.last().filter(|_| messages.len() >= READ as usize);
                let through = last.map_or(u64::MAX, |last| last.id);
                let messages = messages.into_iter().map(|m| (m.id, m.content)).collect();
                Event::Read { client, queue, messages, through, span }
            }
            other => panic!("{other:?}"),
        });
        Ok(())
    }

    /// Answers how many.
    pub(super) async fn remove(&mut self, count: u32, wait: Duration) -> Result<usize, Failure> {
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
    pub(super) fn lose(&mut self, failure: &Failure, count: u32, is_lease: bool, begun: Instant) {
        let (client, queue, span) = (self.client, self.queue, Span::since(begun));
        self.events.push(match failure {
            // It has looked before, at most, when there was nothing.
            Failure::TooLate(_) => Event::Undone { client, queue, count: 0, goes_on: false, span },
            // That it is undone is said before that is done.
            failure if nothing_done(failure) => {
                Event::Undone { client, queue, count, goes_on: true, span }
            }
            _ => Event::Lost { client, queue, count, is_lease, span },
        });
    }

    /// A call has not ended a lease, or nobody knows, but it may have locked its message, wherever that is by now.
    pub(super) fn hide(&mut self, id: MessageId, goes_on: bool, begun: Instant) {
        self.events.push(Event::Locked { id, goes_on, span: Span::since(begun) });
    }

    /// Sends a message that everybody may have.
    pub(super) async fn send_at_last(&mut self) {
        let begun = Instant::now();
        while self.send_to(&[ANYBODY]).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "nothing can be sent");
        }
    }

    /// Leases a message, unless its lease has ended so often that it is elsewhere.
    pub(super) async fn lease_at_last(&mut self) -> Option<Held> {
        let begun = Instant::now();
        loop {
            if let Ok(held) = self.begin_lease(LONGER, PATIENCE).await {
                return held;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing can be leased");
        }
    }

    /// Waits for a message, and is told of it.
    pub(super) async fn hear(mut self) {
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
    pub(super) async fn lease(&mut self, random: &mut Random) -> Result<(), Failure> {
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

    pub(super) async fn begin_lease(
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
        let content = leased.0.content.clone();
        self.events.push(Event::Leased { content, id, queue, attempt, visibility, span });
        Ok(Some(Held { leased, begun, until: begun + visibility, is_extended: false }))
    }

    /// Has a lease for as long as it takes, and answers whether there may still be one.
    pub(super) async fn extend(
        &mut self,
        random: &mut Random,
        held: &mut Held,
    ) -> Result<bool, Failure> {
        let (lease, visibility, begun) = (lease_of(&held.leased), LONG, Instant::now());
        let answer = self.desk.ask(Request::Extend { leases: vec![lease], visibility }).await;
        if !matches!(&answer, Ok(Answer::Ended(ended)) if ended.is_empty()) {
            self.hide(lease.message, answer.is_err(), begun);
        }
        match answer {
            Ok(Answer::Ended(ended)) if ended.is_empty() => {
                held.is_extended = true;
                let (id, attempt, span) = (lease.message, lease.attempt, Span::since(begun));
                self.events.push(Event::Extended { id, attempt, visibility, span });
                if Instant::now() < held.until {
                    held.until = begun + visibility;
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

    pub(super) async fn release(&mut self, held: Held) {
        let (begun, queue) = (Instant::now(), self.queue);
        let lease = lease_of(&held.leased);
        let (is_ended, _) = self.end(&held, Request::Release { leases: vec![lease] }).await;
        let (id, attempt, span) = (lease.message, lease.attempt, Span::since(begun));
        // Who puts back what was leased for too long may have just locked it.
        let is_sure = is_ended && span.ended < held.until;
        self.events.push(Event::Released { id, queue, attempt, is_sure, span });
    }

    pub(super) async fn acknowledge(&mut self, held: Held) {
        let (lease, begun) = (lease_of(&held.leased), Instant::now());
        let (is_ended, is_unsure) =
            self.end(&held, Request::Acknowledge { leases: vec![lease] }).await;
        let Lease { message: id, attempt } = lease;
        let content = held.leased.0.content;
        if is_ended {
            self.events.push(Event::Had { content, id, span: Span::since(held.begun) });
        } else if is_unsure {
            self.events.push(Event::Unsure { content, attempt, span: Span::since(begun) });
        }
    }

    /// Ends a lease; answers whether it does, and whether it may have done so without an answer. As the lease may
    /// be a long one, whatever happens meanwhile is waited for.
    pub(super) async fn end(&mut self, held: &Held, request: Request) -> (bool, bool) {
        let (mut is_unsure, begun) = (false, Instant::now());
        loop {
            let asked = Instant::now();
            let answer = self.desk.ask(request.clone()).await;
            if !matches!(&answer, Ok(Answer::Ended(ended)) if ended.is_empty()) {
                self.hide(held.leased.0.id, answer.is_err(), asked);
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
pub(super) struct Held {
    pub(super) leased: (Stored, u32),
    /// When it was asked for.
    pub(super) begun: Instant,
    /// It is not over before.
    pub(super) until: Instant,
    /// Whether it does not end by itself for as long as a history takes.
    pub(super) is_extended: bool,
}

/// Whether it is its message's last one in the queue that has a limit.
pub(super) fn is_last(held: &Held) -> bool {
    held.leased.1 >= ATTEMPTS_MAX
}

/// How long somebody waits for a message who may not wait at all.
pub(super) fn some_wait(random: &mut Random) -> Duration {
    if random.below(3) == 0 { WAIT } else { Duration::ZERO }
}
