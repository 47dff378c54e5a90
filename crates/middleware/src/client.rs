//! A client's connection: its input's state, and its requests in the order of their replies.

use std::collections::VecDeque;

use knee_proto::{Limits, RequestDecoder};

/// Requests of one client under way at a time, in pipelined mode, while its answers are small…
const IN_FLIGHT_MAX: usize = 64;
/// …and as many bytes of answers as that is allowed to amount to: with large answers, fewer requests.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

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
    /// Size of its recent replies, from which that of the next ones is guessed: the largest, slowly
    /// forgotten.
    reply_bytes: usize,
}

impl Client {
    pub(crate) fn new(limits: Limits) -> Client {
        Client {
            decoder: RequestDecoder::new(limits),
            order: VecDeque::new(),
            barrier: false,
            paused: false,
            ending: Ending::Open,
            // Until it is known better: few requests.
            reply_bytes: ANSWER_BYTES_MAX / 4,
        }
    }

    /// How many of its requests may be under way at a time in pipelined mode.
    pub(crate) fn in_flight_max(&self) -> usize {
        (ANSWER_BYTES_MAX / self.reply_bytes.max(1)).clamp(1, IN_FLIGHT_MAX)
    }

    /// The reply at the front has left, with so many bytes. When it was the last, what was held back
    /// behind it may go on.
    pub(crate) fn replied(&mut self, bytes: usize) {
        self.order.pop_front();
        self.barrier &= !self.order.is_empty();
        self.reply_bytes = bytes.max(self.reply_bytes - self.reply_bytes / 8);
    }

    /// Whether another of its requests may be taken when `in_flight_max` are allowed.
    pub(crate) fn may_take(&self, in_flight_max: usize) -> bool {
        self.order.len() < in_flight_max && !self.barrier && self.ending == Ending::Open
    }
}
