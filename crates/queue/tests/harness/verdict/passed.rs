//! Who should have had or seen a message that was there, and has not.

use std::collections::HashMap;
use std::time::Instant;

use knee_queue::operation::{ANYBODY, ClientId, MessageId, QueueId};

use super::calls::Calls;
use super::ends::Ends;
use super::explained::Kind;
use super::{Attempt, Event, Message, Sighting, Span};

/// A message was ready in a queue, for the whole of this time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    pub(super) queue: QueueId,
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// The lease after which it was put back there.
    leased: Option<Attempt>,
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
        stays.push(Stay { queue, from, until, leased: None });
    }
    if message.attempts.is_empty() {
        return stays;
    }
    for released in calls.released(message.id) {
        let Event::Released { attempt, is_sure: true, span, .. } = **released else { continue };
        let leased = message.attempts.iter().find(|leased| leased.number == attempt).copied();
        if let (Some(leased), Some(until)) = (leased, until(Some(span.begun))) {
            let (queue, from) = (message.queue_after(leased), span.ended);
            stays.push(Stay { queue, from, until, leased: Some(leased) });
        }
    }
    stays
}

/// What was done, as far as it has to do with who passes a message over.
pub(super) struct Scene<'s, 'e> {
    pub(super) events: &'e [Event],
    pub(super) calls: &'s Calls<'e>,
    pub(super) sent: &'s HashMap<MessageId, Span>,
    pub(super) ends: &'s Ends,
}

impl<'e> Scene<'_, 'e> {
    /// Who should have had or seen the message, and has not.
    pub(super) fn passed_over(&self, sightings: &[Sighting], message: &Message<'_>) -> Vec<Passed> {
        let mut found = Vec::new();
        for stay in stays(self.calls, sightings, message) {
            for (event, by) in self.overtaking(message, stay) {
                let why = format!("{message:?} is overtaken in {stay:?} by {event:?}");
                found.push(Passed { why, kind: Kind::Hidden, by });
            }
            for (event, by) in overlooking(self.calls, message, stay) {
                let why = format!("{message:?} is not seen in {stay:?} by {event:?}");
                found.push(Passed { why, kind: Kind::Unseen, by });
            }
        }
        found
    }

    /// The calls that should have had the message, which was there.
    fn overtaking(&self, message: &Message<'_>, stay: Stay) -> Vec<(&'e Event, Span)> {
        let Some(id) = message.id else { return Vec::new() };
        let overtakes = |event: &Event| {
            let Event::Taken { client, queue, ids, span } = event else { return false };
            let was_there_for = |taken: &MessageId| {
                stay.from < span.begun
                    || self.sent.get(taken).is_some_and(|sent| stay.from < sent.begun)
            };
            [*client, ANYBODY].contains(&message.receiver)
                && (ids.iter().any(|taken| *taken > id && was_there_for(taken))
                    || ids.is_empty() && stay.from < span.begun)
                && !self.is_hidden(message, (queue, span))
                && !self.is_followed(message, stay, (event, span))
        };
        self.calls.taken(stay).iter().filter(|(event, _)| overtakes(event)).copied().collect()
    }

    /// Whether the message was hidden during a call, which was in this queue, to be put back.
    fn is_hidden(&self, message: &Message<'_>, (queue, span): (&QueueId, &Span)) -> bool {
        let hides = |event: &Event| {
            let Event::Hidden { client, queue: hidden, span: while_ } = event else { return false };
            [queue, &message.queue].contains(&hidden)
                && [*client, ANYBODY].contains(&message.receiver)
                && while_.overlaps(span)
        };
        self.events.iter().any(hides)
    }

    /// Whether a lease was ended by its client, before it was over.
    fn is_put_back(&self, message: &Message<'_>, number: u32) -> bool {
        self.calls.released(message.id).iter().any(|released| {
            matches!(**released, Event::Released { attempt, is_sure: true, .. } if attempt == number)
        })
    }

    /// Whether somebody else may have had it locked during the call, who had seen it before it was put back, whatever
    /// came of his.
    fn is_followed(&self, message: &Message<'_>, stay: Stay, (by, span): (&Event, &Span)) -> bool {
        let Some(leased) = stay.leased else { return false };
        let may_be_over = |number| !self.is_put_back(message, number);
        // The keeper, who has found such a lease to be over before this one began.
        if (1..leased.number).any(may_be_over) && span.begun < self.ends.end(&leased.span, true) {
            return true;
        }
        let follows = |other: &Event| {
            let (client, queue, follower, goes_on) = match other {
                Event::Taken { client, queue, span, .. } => (client, queue, span, false),
                Event::Lost { client, queue, span, .. } => (client, queue, span, true),
                Event::Undone { client, queue, goes_on, span, .. } => {
                    (client, queue, span, *goes_on)
                }
                Event::Locked { id, goes_on, span: follower } => {
                    return Some(*id) == message.id
                        && follower.begun < stay.from
                        && span.begun < self.ends.end(follower, *goes_on);
                }
                _ => return false,
            };
            // It was ready when he saw it, which it was not from its lease on.
            [stay.queue, message.queue].contains(queue)
                && [*client, ANYBODY].contains(&message.receiver)
                && follower.begun < leased.span.ended
                && span.begun < self.ends.end(follower, goes_on)
                && !std::ptr::eq(by, other)
        };
        self.events.iter().any(follows)
    }
}

/// The calls that should have seen the message, which was there.
fn overlooking<'e>(calls: &Calls<'e>, message: &Message<'_>, stay: Stay) -> Vec<(&'e Event, Span)> {
    let Some(id) = message.id else { return Vec::new() };
    let may_have = |client: &ClientId| [*client, ANYBODY].contains(&message.receiver);
    let was_there = |span: &Span| stay.from < span.begun && span.ended < stay.until;
    let overlooks = |event: &Event| match event {
        Event::Read { client, messages, through, span, .. } => {
            let is_seen = messages.iter().any(|(seen, _)| *seen == id);
            id <= *through && may_have(client) && was_there(span) && !is_seen
        }
        Event::Listed { client, queues, span } => {
            may_have(client) && was_there(span) && !queues.contains(&stay.queue)
        }
        _ => false,
    };
    calls.looked(stay).filter(|(event, _)| overlooks(event)).copied().collect()
}
