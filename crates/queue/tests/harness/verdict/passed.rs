//! Who should have had or seen a message that was there, and has not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use knee_queue::operation::{ANYBODY, ClientId, MessageId, QueueId};

use super::calls::Calls;
use super::explained::Kind;
use super::{Attempt, Event, GOES_ON, Message, Sighting, Span};

/// A message was ready in a queue, for the whole of this time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    pub(super) queue: QueueId,
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// It was put back there.
    is_back: bool,
}

/// What a call should have had or seen, and has not.
pub(super) struct Passed {
    pub(super) why: String,
    /// What somebody else may have done to it.
    pub(super) kind: Kind,
    /// When that call was.
    pub(super) by: Span,
}

/// When and where the message was there, as far as that is sure.
fn stays(calls: &Calls<'_>, sightings: &[Sighting], message: &Message<'_>) -> Vec<Stay> {
    let mut stays = Vec::new();
    // Until somebody begins to take it whose answer comes later.
    let until = |from: Option<Instant>| {
        let taken = sightings.iter().filter(|sighting| !sighting.is_read).map(|taken| taken.span);
        taken.filter(|span| from.is_none_or(|from| from < span.ended)).map(|span| span.begun).min()
    };
    if message.is_acknowledged
        && let Some(until) = until(None)
    {
        let (queue, from) = (message.queue, message.sent.ended);
        stays.push(Stay { queue, from, until, is_back: false });
    }
    if message.attempts.is_empty() {
        return stays;
    }
    for released in calls.released(message.id) {
        let Event::Released { queue, attempt, is_sure, span, .. } = **released else { continue };
        if is_sure && let Some(until) = until(Some(span.begun)) {
            let queue = message.queue_after(Attempt { number: attempt, queue, span });
            stays.push(Stay { queue, from: span.ended, until, is_back: true });
        }
    }
    stays
}

/// Why somebody should have had or seen the message who has not, for each such call.
pub(super) fn passed_over(
    (events, calls): (&[Event], &Calls<'_>),
    sightings: &[Sighting],
    sent: &HashMap<MessageId, Span>,
    message: &Message<'_>,
) -> Vec<Passed> {
    let mut found = Vec::new();
    for stay in stays(calls, sightings, message) {
        for (event, by) in overtaking((events, calls), sent, message, stay) {
            let why = format!("{message:?} is overtaken in {stay:?} by {event:?}");
            found.push(Passed { why, kind: Kind::Hidden, by });
        }
        for (event, by) in overlooking(calls, message, stay) {
            let why = format!("{message:?} is not seen in {stay:?} by {event:?}");
            found.push(Passed { why, kind: Kind::Unseen, by });
        }
    }
    found
}

/// The calls that should have seen the message, which was there.
fn overlooking<'e>(calls: &Calls<'e>, message: &Message<'_>, stay: Stay) -> Vec<(&'e Event, Span)> {
    let Some(id) = message.id else { return Vec::new() };
    let may_have = |client: &ClientId| [*client, ANYBODY].contains(&message.receiver);
    let was_there = |span: &Span| stay.from < span.begun && span.ended < stay.until;
    let overlooks = |event: &Event| match event {
        Event::Read { client, ids, through, span, .. } => {
            id <= *through && may_have(client) && was_there(span) && !ids.contains(&id)
        }
        Event::Listed { client, queues, span } => {
            may_have(client) && was_there(span) && !queues.contains(&stay.queue)
        }
        _ => false,
    };
    calls.looked(stay).filter(|(event, _)| overlooks(event)).copied().collect()
}

/// The calls that should have had the message, which was there.
fn overtaking<'e>(
    (events, calls): (&[Event], &Calls<'e>),
    sent: &HashMap<MessageId, Span>,
    message: &Message<'_>,
    stay: Stay,
) -> Vec<(&'e Event, Span)> {
    let Some(id) = message.id else { return Vec::new() };
    let overtakes = |event: &Event| {
        let Event::Taken { client, queue, ids, span } = event else { return false };
        let was_there_for = |taken: &MessageId| {
            stay.from < span.begun || sent.get(taken).is_some_and(|sent| stay.from < sent.begun)
        };
        // Somebody else may have it locked who had seen it before it was put back, whatever came of his call.
        let is_followed = || {
            stay.is_back
                && events.iter().any(|other| {
                    let (client, queue, follower, goes_on) = match other {
                        Event::Taken { client, queue, span, .. } => {
                            (client, queue, span, Duration::ZERO)
                        }
                        Event::Lost { client, queue, span, .. }
                        | Event::Undone { client, queue, span, .. } => {
                            (client, queue, span, GOES_ON)
                        }
                        _ => return false,
                    };
                    [stay.queue, message.queue].contains(queue)
                        && [*client, ANYBODY].contains(&message.receiver)
                        && follower.begun < stay.from
                        && span.begun < follower.ended + goes_on
                        && !std::ptr::eq(event, other)
                })
        };
        [*client, ANYBODY].contains(&message.receiver)
            && (ids.iter().any(|taken| *taken > id && was_there_for(taken))
                || ids.is_empty() && stay.from < span.begun)
            && !events.iter().any(|event| {
                matches!(event, Event::Hidden { queue: hidden, span: while_ }
                    if [queue, &message.queue].contains(&hidden) && while_.overlaps(span))
            })
            && !is_followed()
    };
    calls.taken(stay).iter().filter(|(event, _)| overtakes(event)).copied().collect()
}
