//! Whether what clients have seen can be: nothing that was acknowledged is lost, nothing is had twice,
//! messages come in the order in which they arrived, and who looks sees what there is.
//!
//! # What is promised of order
//!
//! Of one queue, a message whose send was answered before another's began has the lower number; and whoever
//! takes messages, by removing or by leasing them, has the lowest of those that he may have. Many do so at
//! once, and pass over what somebody else is taking. So a message is *overtaken* where
//!
//! * it was acknowledged before a call began that took one with a higher number instead, or before the send of
//!   that one began: when that could be had, so could this,
//! * whoever made that call could have had it, among his own and nobody's, and
//! * it was there all the time: from the answer to its send, or to a release that put it back, until somebody
//!   began to take it.
//!
//! So it is by a call that takes nothing, though it was there for the whole of it.
//!
//! That may only be where somebody else was taking it meanwhile, in vain: a call of which there is no answer
//! may have been undone, after it had hidden as many messages as it asked for, and it ended some time after
//! it was given up. Such a call has either taken a message along, which is missing then, or hidden it. So each
//! one explains as many of those that are missing or overtaken as it asked for, among those that it could have
//! had: of its queue, its client's or nobody's, sent before it can have ended, and not seen by anybody who asked
//! after that; overtaken while it can have gone on. A lease comes back, so that one of which there is no answer
//! explains nothing that is missing. A call that was refused explains only what is overtaken. One may have hidden a
//! message from many; where no one can have, there were more of them.
//!
//! Who looks for messages follows each that he has seen to where it is by then, and has it locked until his call ends,
//! also where it is not for him any more. So what was leased and put back may be passed over as long as a call lasts
//! that began before it was leased, or that is about its lease and began before it was put back. Where an earlier lease
//! may have been over, whoever puts back what was leased for too long may be among those.
//!
//! # What is promised of leases
//!
//! Each lease of a message is one more attempt. Of a queue that has a limit, a message that was leased so often
//! is had no more, but from the queue of dead letters, where none comes that was leased less often. An attempt
//! that nobody has seen is that of a lease of which there is no answer.
//!
//! A lease hides its message for as long as it was asked for, or extended for by an answered call: from the beginning
//! of that call on at least, and until its client asks for the message to be put back. Whoever is answered before has
//! not got it, by another lease or for good, nor seen it.
//!
//! # What is promised of looking
//!
//! What somebody has seen was sent, and is had or explained like what was acknowledged. It always has the same number.
//!
//! Whoever reads a queue, or lists queues, sees what there is at one moment of his call. What was there as above,
//! whoever was just removing it, he sees; unless it was leased by a call of which there is no answer. What was had
//! before it is not there any more.

mod calls;
mod ends;
mod explained;
mod hidden;
mod passed;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use knee_queue::operation::{ANYBODY, ClientId, MessageId, QueueId};

use self::calls::Calls;
use self::ends::Ends;
use self::explained::{Explained, Gap, Kind};
use self::hidden::Hidden;
use self::passed::{Passed, Scene};
use super::cluster::CALL_MAX;

/// How long the database may go on with a call that was given up.
pub(crate) const GOES_ON: Duration = CALL_MAX;

/// What somebody has seen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A queue was made whose messages are dead letters after so many attempts.
    Limited { queue: QueueId, attempts_max: u32, dead_letters: QueueId },
    /// Of a send that failed it is not known whether it happened; it has no number then.
    Sent { content: String, queue: QueueId, receiver: ClientId, id: Option<MessageId>, span: Span },
    /// One call sent all of these or none.
    Batch { contents: Vec<String> },
    /// Removed, or leased, by one call, which may have found nothing.
    Taken { client: ClientId, queue: QueueId, ids: Vec<MessageId>, span: Span },
    /// Leased, for the time that is its attempt's number; it may come back after its visibility.
    Leased {
        content: String,
        id: MessageId,
        queue: QueueId,
        attempt: u32,
        visibility: Duration,
        span: Span,
    },
    /// That lease ends so long after this. An extension without an answer is none: all of them are longer ones.
    Extended { id: MessageId, attempt: u32, visibility: Duration, span: Span },
    /// Put back, by who had leased it there for that time; it is not always sure that it was he who did it.
    Released { id: MessageId, queue: QueueId, attempt: u32, is_sure: bool, span: Span },
    /// For good: removed, or acknowledged in time.
    Had { content: String, id: MessageId, span: Span },
    /// Of an acknowledgement that failed it is not known whether it happened; it has not if it had not at the end.
    Unsure { content: String, attempt: u32, span: Span },
    /// A call that came to nothing may have locked so many messages meanwhile, until it was answered or longer.
    Undone { client: ClientId, queue: QueueId, count: u32, goes_on: bool, span: Span },
    /// So may one that was about a lease of this message.
    Locked { id: MessageId, goes_on: bool, span: Span },
    /// What goes on at the end of it had not begun at its beginning, but for calls for which their clients wait.
    Over { span: Span },
    /// There was no answer, which may have had so many messages, or leased one.
    Lost { client: ClientId, queue: QueueId, count: u32, is_lease: bool, span: Span },
    /// The first messages that a client may have, all of them up to a number.
    Read {
        client: ClientId,
        queue: QueueId,
        messages: Vec<(MessageId, String)>,
        through: MessageId,
        span: Span,
    },
    /// All queues that have messages for a client.
    Listed { client: ClientId, queues: Vec<QueueId>, span: Span },
    /// Messages of the queue that this client may have were hidden, also where they were dead by then, and put back.
    Hidden { client: ClientId, queue: QueueId, span: Span },
}

/// When something happened: between these times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

impl Span {
    /// From then until now.
    pub(crate) fn since(begun: Instant) -> Span {
        Span { begun, ended: Instant::now() }
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.begun < other.ended && other.begun < self.ended
    }
}

/// A message, as far as it is known.
#[derive(Debug)]
struct Message<'e> {
    content: &'e str,
    queue: QueueId,
    receiver: ClientId,
    id: Option<MessageId>,
    is_acknowledged: bool,
    /// Somebody has seen it, or one that was sent with it: so it was sent, also if that has no answer.
    is_there: bool,
    sent: Span,
    had: Option<Span>,
    /// The limit of its queue.
    limit: Option<Limit>,
    /// In the order of their numbers.
    attempts: Vec<Attempt>,
}

/// Where a message goes after so many attempts.
#[derive(Debug, Clone, Copy)]
struct Limit {
    attempts_max: u32,
    dead_letters: QueueId,
}

/// A lease that somebody has seen.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    number: u32,
    queue: QueueId,
    span: Span,
}

impl Message<'_> {
    /// Where it goes after this attempt.
    fn queue_after(&self, attempt: Attempt) -> QueueId {
        match self.limit {
            Some(limit) if attempt.number >= limit.attempts_max => limit.dead_letters,
            _ => attempt.queue,
        }
    }

    fn dead_letters(&self) -> Option<QueueId> {
        self.limit.map(|limit| limit.dead_letters)
    }
}

/// Why the events cannot be.
pub(crate) fn verify(events: &[Event]) -> Result<(), String> {
    let messages = messages(events)?;
    numbers_grow(&messages)?;
    let sent: HashMap<MessageId, Span> =
        messages.iter().filter_map(|message| Some((message.id?, message.sent))).collect();
    let unsure = unsure(events);
    let (seen, hidden, calls) = (sightings(events), Hidden::by(events), Calls::of(events));
    let ends = Ends::of(events);
    let scene = Scene { events, calls: &calls, sent: &sent, ends: &ends };
    let mut explained = Explained::by(events, &ends);
    for message in &messages {
        let sightings = message.id.and_then(|id| seen.get(&id)).map_or(&[][..], Vec::as_slice);
        if let Some(by) = outlived(sightings, message) {
            return Err(format!("{message:?} is seen by {by:?}"));
        }
        if let Some(why) = misplaced(sightings, message) {
            return Err(why);
        }
        if let Some(why) = hidden.broken(sightings, message) {
            return Err(why);
        }
        let attempts = unseen_attempts(sightings, message).into_iter().map(|number| {
            let (after, before) = around(sightings, message, number);
            Gap { message, kind: Kind::Attempt, after, before }
        });
        let attempts: Vec<_> = attempts.collect();
        if !explained.find_each(&attempts) {
            return Err(format!("{message:?} has attempts that nobody has seen"));
        }
        if message.had.is_none() {
            let acknowledged = unsure.get(message.content).map_or(&[][..], Vec::as_slice);
            let may_be_had =
                acknowledged.iter().any(|last| is_last_seen(*last, sightings, message));
            let is_missing = (message.is_acknowledged || message.is_there) && !may_be_had;
            let after = sightings.iter().map(|sighting| sighting.span.begun).max();
            let gap = Gap { message, kind: Kind::Missing, after, before: None };
            if is_missing && !explained.find_each(&[gap]) {
                return Err(format!("{message:?} is missing"));
            }
        } else {
            let passed = scene.passed_over(sightings, message).into_iter();
            let passed = passed.map(|Passed { why, kind, by }| {
                let (after, before) = (Some(by.begun), Some(by.ended));
                (Gap { message, kind, after, before }, why)
            });
            explained.find_also(&attempts, passed.collect())?;
        }
    }
    Ok(())
}

/// All messages, each of which was had once at most.
fn messages(events: &[Event]) -> Result<Vec<Message<'_>>, String> {
    let mut messages: HashMap<&str, Message<'_>> = HashMap::new();
    let mut limits = HashMap::new();
    for event in events {
        if let Event::Limited { queue, attempts_max, dead_letters } = *event {
            limits.insert(queue, Limit { attempts_max, dead_letters });
        }
    }
    for event in events {
        if let Event::Sent { content, queue, receiver, id, span } = event {
            let (queue, receiver, id, sent) = (*queue, *receiver, *id, *span);
            let (is_acknowledged, had) = (id.is_some(), None);
            let (limit, attempts) = (limits.get(&queue).copied(), Vec::new());
            let message = Message {
                content,
                queue,
                receiver,
                id,
                is_acknowledged,
                is_there: false,
                sent,
                had,
                limit,
                attempts,
            };
            messages.insert(content, message);
        }
    }
    for event in events {
        let Event::Had { content, span, .. } = event else { continue };
        let message = messages.get_mut(content.as_str()).ok_or(format!("nobody sent {content}"))?;
        if message.had.replace(*span).is_some() {
            return Err(format!("{content} was had twice"));
        }
    }
    for (id, content) in events.iter().flat_map(named) {
        let message = messages.get_mut(content).ok_or(format!("nobody sent {content}"))?;
        message.is_there = true;
        if *message.id.get_or_insert(id) != id {
            return Err(format!("{message:?} is seen as {id}"));
        }
    }
    let mut numbers = HashMap::new();
    for message in messages.values() {
        let other = message.id.and_then(|id| numbers.insert(id, message.content));
        if let Some(other) = other {
            return Err(format!("{message:?} has the number of {other}"));
        }
    }
    for event in events {
        let Event::Batch { contents } = event else { continue };
        let is_there =
            |content: &String| messages.get(content.as_str()).is_some_and(|m| m.is_there);
        if contents.iter().any(is_there) {
            for content in contents {
                let message = messages.get_mut(content.as_str());
                message.ok_or(format!("nobody sent {content}"))?.is_there = true;
            }
        }
    }
    let mut attempts: HashMap<MessageId, BTreeMap<u32, Attempt>> = HashMap::new();
    for event in events {
        let Event::Leased { id, queue, attempt, span, .. } = *event else { continue };
        let seen = Attempt { number: attempt, queue, span };
        if attempts.entry(id).or_default().insert(attempt, seen).is_some() {
            return Err(format!("two have leased {id} in its attempt {attempt}"));
        }
    }
    let mut messages: Vec<_> = messages.into_values().collect();
    for message in &mut messages {
        let attempts = message.id.and_then(|id| attempts.remove(&id)).unwrap_or_default();
        message.attempts = attempts.into_values().collect();
    }
    Ok(messages)
}

/// The messages that somebody has seen, by their numbers.
fn named(event: &Event) -> Vec<(MessageId, &str)> {
    match event {
        Event::Had { content, id, .. } | Event::Leased { content, id, .. } => vec![(*id, content)],
        Event::Read { messages, .. } => {
            messages.iter().map(|(id, content)| (*id, content.as_str())).collect()
        }
        _ => Vec::new(),
    }
}

/// In each queue, numbers grow from those whose send was answered to those whose send began later.
fn numbers_grow(messages: &[Message<'_>]) -> Result<(), String> {
    let mut queues: HashMap<QueueId, Vec<(&Message<'_>, MessageId)>> = HashMap::new();
    for message in messages {
        if let Some(id) = message.id {
            queues.entry(message.queue).or_default().push((message, id));
        }
    }
    for mut begun in queues.into_values() {
        let mut answered: Vec<_> =
            begun.iter().filter(|(message, _)| message.is_acknowledged).copied().collect();
        begun.sort_by_key(|(message, _)| message.sent.begun);
        answered.sort_by_key(|(message, _)| message.sent.ended);
        let mut answered = answered.into_iter().peekable();
        let mut highest: Option<(&Message<'_>, MessageId)> = None;
        for (message, id) in begun {
            while let Some(earlier) =
                answered.next_if(|(earlier, _)| earlier.sent.ended < message.sent.begun)
            {
                highest =
                    Some(highest.map_or(earlier, |so_far| {
                        if so_far.1 > earlier.1 { so_far } else { earlier }
                    }));
            }
            if let Some((earlier, _)) = highest.filter(|(_, highest)| *highest > id) {
                return Err(format!("{message:?} comes before {earlier:?}"));
            }
        }
    }
    Ok(())
}

/// A call that took the message, or read it.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    client: ClientId,
    queue: QueueId,
    is_read: bool,
    span: Span,
}

/// Those of each message.
fn sightings(events: &[Event]) -> HashMap<MessageId, Vec<Sighting>> {
    let mut seen: HashMap<MessageId, Vec<Sighting>> = HashMap::new();
    let mut see = |id, sighting| seen.entry(id).or_default().push(sighting);
    for event in events {
        match *event {
            Event::Taken { client, queue, ref ids, span } => {
                ids.iter()
                    .for_each(|id| see(*id, Sighting { client, queue, is_read: false, span }));
            }
            Event::Read { client, queue, ref messages, span, .. } => {
                let sighting = Sighting { client, queue, is_read: true, span };
                messages.iter().for_each(|(id, _)| see(*id, sighting));
            }
            _ => {}
        }
    }
    seen
}

/// The call that saw the message, or took it, when it had been had.
fn outlived<'s>(sightings: &'s [Sighting], message: &Message<'_>) -> Option<&'s Sighting> {
    let had = message.had?;
    sightings.iter().find(|sighting| had.ended < sighting.span.begun)
}

/// Why the message cannot be where it was taken or read, or not for who did.
fn misplaced(sightings: &[Sighting], message: &Message<'_>) -> Option<String> {
    let is_for = |client| [client, ANYBODY].contains(&message.receiver);
    if let Some(another) = sightings.iter().find(|sighting| !is_for(sighting.client)) {
        return Some(format!("{message:?} is not for whom it came to: {another:?}"));
    }
    let limit = message.limit;
    let is_over =
        |attempt: &&Attempt| limit.is_some_and(|limit| attempt.number > limit.attempts_max);
    let is_last =
        |attempt: &&Attempt| limit.is_some_and(|limit| attempt.number >= limit.attempts_max);
    for attempt in &message.attempts {
        let place = message.dead_letters().filter(|_| is_over(&attempt)).unwrap_or(message.queue);
        if attempt.queue != place {
            return Some(format!("{message:?} is leased elsewhere: {attempt:?}"));
        }
    }
    let is_dead = |sighting: &Sighting| Some(sighting.queue) == message.dead_letters();
    // Nobody sees it in its queue once it had its last lease there, nor among the dead letters while it had not.
    let dead = sightings.iter().filter(|sighting| is_dead(sighting)).map(|seen| seen.span.ended);
    let last =
        message.attempts.iter().filter(|attempt| is_last(attempt)).map(|last| last.span.ended);
    let dead_from = dead.chain(last).min();
    let alive_until =
        message.attempts.iter().filter(|attempt| !is_over(attempt)).map(|a| a.span.begun).max();
    let may_be = |sighting: &&Sighting| {
        if sighting.queue == message.queue {
            dead_from.is_none_or(|dead_from| sighting.span.begun <= dead_from)
        } else {
            is_dead(sighting) && alive_until.is_none_or(|alive| alive <= sighting.span.ended)
        }
    };
    let elsewhere = sightings.iter().find(|sighting| !may_be(sighting))?;
    Some(format!("{message:?} is elsewhere: {elsewhere:?}"))
}

/// The attempts of each message that may have been acknowledged, and when that was asked for.
fn unsure(events: &[Event]) -> HashMap<&str, Vec<(u32, Span)>> {
    let mut unsure: HashMap<&str, Vec<_>> = HashMap::new();
    for event in events {
        if let Event::Unsure { content, attempt, span } = event {
            unsure.entry(content).or_default().push((*attempt, *span));
        }
    }
    unsure
}

/// Whether nobody has seen the message again after this attempt.
fn is_last_seen(
    (attempt, asked): (u32, Span),
    sightings: &[Sighting],
    message: &Message<'_>,
) -> bool {
    let is_alive = message.limit.is_some_and(|limit| attempt <= limit.attempts_max);
    let is_back = |sighting: &Sighting| {
        asked.ended < sighting.span.begun
            || is_alive && Some(sighting.queue) == message.dead_letters()
    };
    !sightings.iter().any(is_back) && message.attempts.iter().all(|later| later.number <= attempt)
}

/// The attempts in which somebody must have leased the message, but for those that were seen.
fn unseen_attempts(sightings: &[Sighting], message: &Message<'_>) -> Vec<u32> {
    let highest = message.attempts.last().map_or(0, |attempt| attempt.number);
    let is_dead = |sighting: &Sighting| Some(sighting.queue) == message.dead_letters();
    let needed = match message.limit {
        Some(limit) if sightings.iter().any(is_dead) => limit.attempts_max.max(highest),
        _ => highest,
    };
    let seen: HashSet<u32> = message.attempts.iter().map(|attempt| attempt.number).collect();
    (1..=needed).filter(|number| !seen.contains(number)).collect()
}

/// After and before when an attempt was that nobody has seen: between those that were, and before it was dead.
fn around(
    sightings: &[Sighting],
    message: &Message<'_>,
    number: u32,
) -> (Option<Instant>, Option<Instant>) {
    let (earlier, later): (Vec<&Attempt>, Vec<_>) =
        message.attempts.iter().partition(|attempt| attempt.number < number);
    let is_alive = message.limit.is_some_and(|limit| number <= limit.attempts_max);
    let dead = sightings
        .iter()
        .filter(|sighting| is_alive && Some(sighting.queue) == message.dead_letters())
        .map(|sighting| sighting.span.ended);
    let before = later.first().map(|attempt| attempt.span.ended).into_iter().chain(dead).min();
    (earlier.last().map(|attempt| attempt.span.begun), before)
}
