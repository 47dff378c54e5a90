//! A client's connection: the state of its input, and its requests in the order of their replies.

use std::collections::VecDeque;

use knee_proto::{Limits, RequestDecoder};

/// Largest number of requests of one client in flight, in pipelined mode, if its answers are small…
const IN_FLIGHT_MAX: usize = 64;
/// …and largest number of bytes of their answers: with large answers, fewer requests are in flight.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Whether a client's connection is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Open,
    /// No further request is taken. The connection closes once all taken requests are answered.
    Answering,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) decoder: RequestDecoder,
    /// Flights without a sent reply, in order.
    pub(crate) order: VecDeque<u32>,
    /// Whether a request is in flight that later ones must not overtake.
    pub(crate) barrier: bool,
    /// Whether reading is paused until there is room for the client's requests.
    pub(crate) paused: bool,
    pub(crate) ending: Ending,
    /// The size of the largest recent reply, as an estimate for the next ones. It decays with each smaller reply.
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
            // Before the first reply, take one request.
            reply_bytes: ANSWER_BYTES_MAX,
        }
    }

    /// Largest number of requests of this client in flight, in pipelined mode.
    pub(crate) fn in_flight_max(&self) -> usize {
        (ANSWER_BYTES_MAX / self.reply_bytes.max(1)).clamp(1, IN_FLIGHT_MAX)
    }

    /// Notes that the reply at the front has left, with this many bytes. The last reply lifts the barrier.
    pub(crate) fn replied(&mut self, bytes: usize) {
        self.order.pop_front();
        self.barrier &= !self.order.is_empty();
        self.reply_bytes = bytes.max(self.reply_bytes - self.reply_bytes / 8);
    }

    /// Whether another request may be taken, if `in_flight_max` are allowed.
    pub(crate) fn may_take(&self, in_flight_max: usize) -> bool {
        self.order.len() < in_flight_max && !self.barrier && self.ending == Ending::Open
    }
}
