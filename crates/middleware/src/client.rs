//! A client's connection: its input's state, and its requests in the order of their replies.

use std::collections::VecDeque;

use knee_proto::{Limits, RequestDecoder};

/// How a client's connection is going to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Not for now.
    Open,
    /// Nothing more is taken; it closes when everything taken is answered.
    Answering,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) decoder: RequestDecoder,
    /// Flights whose replies are due, in order.
    pub(crate) order: VecDeque<u32>,
    /// A request is under way that later ones must not overtake.
    pub(crate) barrier: bool,
    /// Not read from until there is room for its requests.
    pub(crate) paused: bool,
    pub(crate) ending: Ending,
}

impl Client {
    pub(crate) fn new(limits: Limits) -> Client {
        Client {
            decoder: RequestDecoder::new(limits),
            order: VecDeque::new(),
            barrier: false,
            paused: false,
            ending: Ending::Open,
        }
    }

    /// A reply has left: when it was the last, what was held back behind it may go on.
    pub(crate) fn lift_barrier(&mut self) {
        self.barrier &= !self.order.is_empty();
    }

    /// Whether another of its requests may be taken when `in_flight_max` are allowed.
    pub(crate) fn may_take(&self, in_flight_max: usize) -> bool {
        self.order.len() < in_flight_max && !self.barrier && self.ending == Ending::Open
    }
}
