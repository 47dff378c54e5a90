//! When the database must have ended calls of which that is not known from an answer.

use std::time::Instant;

use super::{Event, GOES_ON, Span};

/// Times at which nothing went on any more that had been given up before; in their order.
pub(super) struct Ends(Vec<Span>);

impl Ends {
    pub(super) fn of(events: &[Event]) -> Ends {
        let over =
            |event: &Event| if let Event::Over { span } = event { Some(*span) } else { None };
        let mut over: Vec<_> = events.iter().filter_map(over).collect();
        over.sort_by_key(|over| over.ended);
        Ends(over)
    }

    /// When a call had ended at the latest that may have gone on without its client, or may not.
    pub(super) fn end(&self, call: &Span, goes_on: bool) -> Instant {
        if !goes_on {
            return call.ended;
        }
        let over = self.0.iter().find(|over| call.ended <= over.begun).map(|over| over.ended);
        over.into_iter().fold(call.ended + GOES_ON, Instant::min)
    }
}
