//! What was done where: a verdict on one message looks at the calls that may have had to do with it.

use std::collections::HashMap;

use knee_queue::operation::{MessageId, QueueId};

use super::passed::Stay;
use super::{Event, Span};

/// An event, and when it happened.
type Call<'e> = (&'e Event, Span);

/// Calls in the order of their ends.
#[derive(Default)]
pub(super) struct Calls<'e> {
    taken: HashMap<QueueId, Vec<Call<'e>>>,
    read: HashMap<QueueId, Vec<Call<'e>>>,
    listed: Vec<Call<'e>>,
    released: HashMap<MessageId, Vec<&'e Event>>,
}

impl<'e> Calls<'e> {
    pub(super) fn of(events: &'e [Event]) -> Calls<'e> {
        let mut calls = Calls::default();
        for event in events {
            let (of_its_kind, span) = match event {
                Event::Taken { queue, span, .. } => (calls.taken.entry(*queue).or_default(), span),
                Event::Read { queue, span, .. } => (calls.read.entry(*queue).or_default(), span),
                Event::Listed { span, .. } => (&mut calls.listed, span),
                Event::Released { id, .. } => {
                    calls.released.entry(*id).or_default().push(event);
                    continue;
                }
                _ => continue,
            };
            of_its_kind.push((event, *span));
        }
        let of_queues = calls.taken.values_mut().chain(calls.read.values_mut());
        for calls in of_queues.chain([&mut calls.listed]) {
            calls.sort_by_key(|(_, span)| span.ended);
        }
        calls
    }

    /// Those that took messages, or found none, where the message was, and ended meanwhile.
    pub(super) fn taken(&self, stay: Stay) -> &[Call<'e>] {
        within(self.taken.get(&stay.queue).map_or(&[], Vec::as_slice), stay)
    }

    /// Those that looked there, or where there is something, and ended meanwhile.
    pub(super) fn looked(&self, stay: Stay) -> impl Iterator<Item = &Call<'e>> {
        let read = self.read.get(&stay.queue).map_or(&[][..], Vec::as_slice);
        within(read, stay).iter().chain(within(&self.listed, stay))
    }

    /// Those that have put a message back.
    pub(super) fn released(&self, message: Option<MessageId>) -> &[&'e Event] {
        message.and_then(|id| self.released.get(&id)).map_or(&[], Vec::as_slice)
    }
}

fn within<'c, 'e>(calls: &'c [Call<'e>], stay: Stay) -> &'c [Call<'e>] {
    let from = calls.partition_point(|(_, span)| span.ended <= stay.from);
    let until = calls.partition_point(|(_, span)| span.ended < stay.until);
    calls.get(from..until).unwrap_or_default()
}
