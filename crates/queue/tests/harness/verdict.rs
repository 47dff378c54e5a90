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
//! * it was there all the time: who removed it began when that call had ended, and nobody ever leased it.
//!
//! That may only be where somebody else was taking it meanwhile, in vain: a call of which there is no answer
//! may have been undone, after it had hidden as many messages as it asked for, and it ended some time after
//! it was given up. Such a call has either taken a message along, which is missing then, or hidden it. So each
//! one explains as many of those that are missing or overtaken as it asked for, among those that it could have
//! had: of its queue, its client's or nobody's, and sent before it can have ended.
//!
//! # What is promised of looking
//!
//! Whoever reads a queue, or lists queues, sees what there is at one moment of his call. What was acknowledged
//! before that and had by a call that began later was there, whoever was just removing it; unless it was leased,
//! as by a call of which there is no answer. What was had before it is not there any more.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use knee_queue::operation::{ANYBODY, ClientId, MessageId, QueueId};

/// How long the database may go on with a call that was given up.
const GOES_ON: Duration = Duration::from_secs(5);

/// What somebody has seen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Of a send that failed it is not known whether it happened; it has no number then.
    Sent { content: String, queue: QueueId, receiver: ClientId, id: Option<MessageId>, span: Span },
    /// Removed, or leased, by one call.
    Taken { client: ClientId, queue: QueueId, ids: Vec<MessageId>, span: Span },
    /// Leased; it may come back.
    Leased { id: MessageId },
    /// For good: removed, or acknowledged in time.
    Had { content: String, id: MessageId, span: Span },
    /// There was no answer, which may have had so many messages.
    Lost { client: ClientId, queue: QueueId, count: u32, span: Span },
    /// The first messages that a client may have, all of them up to a number.
    Read { client: ClientId, queue: QueueId, ids: Vec<MessageId>, through: MessageId, span: Span },
    /// All queues that have messages for a client.
    Listed { client: ClientId, queues: Vec<QueueId>, span: Span },
    /// Messages of the queue were hidden, and put back.
    Hidden { queue: QueueId, span: Span },
}

/// When something happened: between these times.
#[derive(Debug, Clone, Copy)]
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
    sent: Span,
    had: Option<Span>,
}

/// Why the events cannot be.
pub(crate) fn verify(events: &[Event]) -> Result<(), String> {
    let messages = messages(events)?;
    numbers_grow(&messages)?;
    let leased: HashSet<MessageId> = events
        .iter()
        .filter_map(|event| if let Event::Leased { id } = event { Some(*id) } else { None })
        .collect();
    let sent: HashMap<MessageId, Span> =
        messages.iter().filter_map(|message| Some((message.id?, message.sent))).collect();
    let mut explained = Explained::by(events);
    for message in &messages {
        if let Some(by) = outlived(events, message) {
            return Err(format!("{message:?} is seen by {by:?}"));
        }
        let why = match message.had {
            None if message.is_acknowledged => Some(format!("{message:?} is missing")),
            Some(had) if !message.id.is_some_and(|id| leased.contains(&id)) => {
                overtaking(events, &sent, message, had)
                    .map(|by| format!("{message:?} is overtaken by {by:?}"))
                    .or_else(|| {
                        let by = overlooking(events, message, had)?;
                        Some(format!("{message:?} is not seen by {by:?}"))
                    })
            }
            _ => None,
        };
        if let Some(why) = why
            && !explained.find(message, &mut HashSet::new())
        {
            return Err(why);
        }
    }
    Ok(())
}

/// What is missing, overtaken or not seen, by the lost calls of which each one may be.
struct Explained<'e> {
    lost: Vec<&'e Event>,
    /// Of each call.
    messages: Vec<Vec<&'e Message<'e>>>,
}

impl<'e> Explained<'e> {
    fn by(events: &'e [Event]) -> Explained<'e> {
        let lost: Vec<_> =
            events.iter().filter(|event| matches!(event, Event::Lost { .. })).collect();
        let messages = vec![Vec::new(); lost.len()];
        Explained { lost, messages }
    }

    /// Finds a call for a message, be it that those it has go to others: an augmenting path of a matching (Kuhn
    /// 1955). Calls that were `tried` are of no use.
    fn find(&mut self, message: &'e Message<'e>, tried: &mut HashSet<usize>) -> bool {
        for call in 0..self.lost.len() {
            let Event::Lost { client, queue, count, span } = self.lost[call] else { continue };
            let could_have_it = *queue == message.queue
                && [*client, ANYBODY].contains(&message.receiver)
                && message.sent.begun < span.ended + GOES_ON;
            if !could_have_it || !tried.insert(call) {
                continue;
            }
            if self.messages[call].len() < *count as usize {
                self.messages[call].push(message);
                return true;
            }
            for place in 0..self.messages[call].len() {
                if self.find(self.messages[call][place], tried) {
                    self.messages[call][place] = message;
                    return true;
                }
            }
        }
        false
    }
}

/// All messages, each of which was had once at most.
fn messages(events: &[Event]) -> Result<Vec<Message<'_>>, String> {
    let mut messages: HashMap<&str, Message<'_>> = HashMap::new();
    for event in events {
        if let Event::Sent { content, queue, receiver, id, span } = event {
            let (queue, receiver, id, sent) = (*queue, *receiver, *id, *span);
            let (is_acknowledged, had) = (id.is_some(), None);
            messages.insert(
                content,
                Message { content, queue, receiver, id, is_acknowledged, sent, had },
            );
        }
    }
    for event in events {
        let Event::Had { content, id, span } = event else { continue };
        let message = messages.get_mut(content.as_str()).ok_or(format!("nobody sent {content}"))?;
        if message.had.replace(*span).is_some() {
            return Err(format!("{content} was had twice"));
        }
        if *message.id.get_or_insert(*id) != *id {
            return Err(format!("{message:?} was had as {id}"));
        }
    }
    Ok(messages.into_values().collect())
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

/// The call that saw the message when it had been had.
fn outlived<'e>(events: &'e [Event], message: &Message<'_>) -> Option<&'e Event> {
    let (id, had) = (message.id?, message.had?);
    events.iter().find(|event| {
        matches!(event, Event::Read { ids, span, .. }
            if had.ended < span.begun && ids.contains(&id))
    })
}

/// The call that should have seen the message, which was there.
fn overlooking<'e>(events: &'e [Event], message: &Message<'_>, had: Span) -> Option<&'e Event> {
    let id = message.id.filter(|_| message.is_acknowledged)?;
    let may_have = |client: &ClientId| [*client, ANYBODY].contains(&message.receiver);
    let was_there = |span: &Span| message.sent.ended < span.begun && span.ended < had.begun;
    events.iter().find(|event| match event {
        Event::Read { client, queue, ids, through, span } => {
            *queue == message.queue
                && id <= *through
                && may_have(client)
                && was_there(span)
                && !ids.contains(&id)
        }
        Event::Listed { client, queues, span } => {
            may_have(client) && was_there(span) && !queues.contains(&message.queue)
        }
        _ => false,
    })
}

/// The call that should have had the message, which was there.
fn overtaking<'e>(
    events: &'e [Event],
    sent: &HashMap<MessageId, Span>,
    message: &Message<'_>,
    had: Span,
) -> Option<&'e Event> {
    let id = message.id?;
    events.iter().find(|event| {
        let Event::Taken { client, queue, ids, span } = event else { return false };
        let was_there_for = |taken: &MessageId| {
            message.sent.ended < span.begun
                || sent.get(taken).is_some_and(|sent| message.sent.ended < sent.begun)
        };
        *queue == message.queue
            && [*client, ANYBODY].contains(&message.receiver)
            && message.is_acknowledged
            && span.ended < had.begun
            && ids.iter().any(|taken| *taken > id && was_there_for(taken))
            && !events.iter().any(|event| {
                matches!(event, Event::Hidden { queue: hidden, span: while_ }
                    if hidden == queue && while_.overlaps(span))
            })
    })
}
