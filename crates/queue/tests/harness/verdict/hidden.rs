//! For how long a leased message is nobody else's.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use knee_queue::operation::MessageId;

use super::{Event, Message, Sighting, Span};

/// How much further the database's clock, which may be set, comes than those of clients, while a message is hidden.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);

/// What says until when a lease hides its message: the lease itself, and whatever its client had done to it.
#[derive(Debug, Clone, Copy)]
struct Hold {
    span: Span,
    /// Not for less long; as the database counts from its turn on, which comes after the call began.
    until: Instant,
}

/// Those of each lease, in the order in which they began.
pub(super) struct Hidden(HashMap<(MessageId, u32), Vec<Hold>>);

impl Hidden {
    pub(super) fn by(events: &[Event]) -> Hidden {
        let mut holds: HashMap<_, Vec<Hold>> = HashMap::new();
        for event in events {
            let (lease, span, visibility) = match *event {
                Event::Leased { id, attempt, visibility, span, .. }
                | Event::Extended { id, attempt, visibility, span } => {
                    ((id, attempt), span, visibility)
                }
                // Whatever was answered, it may be back as soon as that was asked for.
                Event::Released { id, attempt, span, .. } => ((id, attempt), span, Duration::ZERO),
                _ => continue,
            };
            let until = span.begun + visibility;
            holds.entry(lease).or_default().push(Hold { span, until });
        }
        for holds in holds.values_mut() {
            holds.sort_by_key(|hold| hold.span.begun);
        }
        Hidden(holds)
    }

    /// Why somebody cannot have had or seen the message, which was leased.
    pub(super) fn broken(&self, sightings: &[Sighting], message: &Message<'_>) -> Option<String> {
        let id = message.id?;
        for lease in &message.attempts {
            let Some(holds) = self.0.get(&(id, lease.number)) else { continue };
            let again = |span| message.attempts.iter().find(|attempt| attempt.span == span);
            let is_later = |sighting: &&Sighting| match again(sighting.span) {
                _ if sighting.is_read => lease.span.ended < sighting.span.begun,
                Some(again) => lease.number < again.number,
                // Nobody leases what was removed.
                None => true,
            };
            let is_early = |sighting: &&Sighting| {
                let until = until(holds, sighting.span);
                until.is_some_and(|until| sighting.span.ended + CLOCKS_DIFFER < until)
            };
            if let Some(by) = sightings.iter().filter(is_later).find(is_early) {
                return Some(format!("{message:?} is hidden by {lease:?}, and {by:?} has it"));
            }
        }
        None
    }
}

/// Until when a message is hidden to a call: as long as the last of what was done before that says, and of what may
/// have been done by then.
fn until(holds: &[Hold], call: Span) -> Option<Instant> {
    holds.iter().filter(|hold| hold.span.begun < call.ended).fold(None, |until, hold| {
        let may_come_later = call.begun <= hold.span.ended;
        Some(until.filter(|_| may_come_later).map_or(hold.until, |so_far| hold.until.min(so_far)))
    })
}
