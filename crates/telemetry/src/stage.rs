//! The stages of a request's life, and which of them each role can time.

use std::time::Instant;

/// One timed stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// From received to dequeued: waiting for a worker.
    Queueing,
    /// From dequeued to connected: waiting for a connection to the database. Part of the service.
    Connection,
    /// From dequeued to answered: with the servers.
    Service,
    /// From received to replied; at a client, from (intended) send to answer.
    Response,
}

impl Stage {
    /// The name in JSON and in metric names.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Queueing => "queueing",
            Stage::Connection => "connection",
            Stage::Service => "service",
            Stage::Response => "response",
        }
    }

    pub(crate) const fn sum_field(self) -> &'static str {
        match self {
            Stage::Queueing => "queueing_sum_ns",
            Stage::Connection => "connection_sum_ns",
            Stage::Service => "service_sum_ns",
            Stage::Response => "response_sum_ns",
        }
    }
}

pub(crate) const STAGES_MAX: usize = 4;

/// The durations of a request that one role measures.
pub trait Times: Copy {
    /// The stages, in the order of a request's life. The last one is the role's headline: its
    /// histogram is in every window.
    const STAGES: &'static [Stage];

    /// Nanoseconds spent in each of [`Times::STAGES`]; further entries are ignored.
    fn stages_ns(&self) -> [u64; STAGES_MAX];
}

/// The times of a request in a middleware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MiddlewareTimes {
    /// Dequeued − received.
    pub queueing_ns: u64,
    /// Answered − dequeued.
    pub service_ns: u64,
    /// Replied − received.
    pub response_ns: u64,
}

impl Times for MiddlewareTimes {
    const STAGES: &'static [Stage] = &[Stage::Queueing, Stage::Service, Stage::Response];

    #[inline]
    fn stages_ns(&self) -> [u64; STAGES_MAX] {
        [self.queueing_ns, self.service_ns, self.response_ns, 0]
    }
}

/// The times of a request in a middleware with connections to a database. If a request asks the database several times,
/// each stage's times add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerTimes {
    /// Dequeued − received.
    pub queueing_ns: u64,
    /// Connected − dequeued.
    pub connection_ns: u64,
    /// Answered − dequeued.
    pub service_ns: u64,
    /// Replied − received.
    pub response_ns: u64,
}

impl Times for BrokerTimes {
    const STAGES: &'static [Stage] =
        &[Stage::Queueing, Stage::Connection, Stage::Service, Stage::Response];

    #[inline]
    fn stages_ns(&self) -> [u64; STAGES_MAX] {
        [self.queueing_ns, self.connection_ns, self.service_ns, self.response_ns]
    }
}

/// The times of a request in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTimes {
    /// From the complete request to its answer in the output buffer.
    pub service_ns: u64,
}

impl Times for StoreTimes {
    const STAGES: &'static [Stage] = &[Stage::Service];

    #[inline]
    fn stages_ns(&self) -> [u64; STAGES_MAX] {
        [self.service_ns, 0, 0, 0]
    }
}

/// The times of a request at a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTimes {
    /// From the send (in an open loop: from the *intended* send) to the complete answer.
    pub response_ns: u64,
}

impl Times for LoadTimes {
    const STAGES: &'static [Stage] = &[Stage::Response];

    #[inline]
    fn stages_ns(&self) -> [u64; STAGES_MAX] {
        [self.response_ns, 0, 0, 0]
    }
}

/// When a request passed through a middleware, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// Its last byte had been read.
    pub received: Instant,
    /// A worker took it from the queue.
    pub dequeued: Instant,
    /// Its last byte had been written to the last server. No stage uses this; in a trace, it separates sending from
    /// waiting.
    pub sent: Instant,
    /// The last server's answer was complete.
    pub answered: Instant,
    /// The reply had been handed to the client's socket.
    pub replied: Instant,
}

impl Stamps {
    /// The stage times between the stamps.
    #[inline]
    pub fn times(&self) -> MiddlewareTimes {
        MiddlewareTimes {
            queueing_ns: elapsed_ns(self.received, self.dequeued),
            service_ns: elapsed_ns(self.dequeued, self.answered),
            response_ns: elapsed_ns(self.received, self.replied),
        }
    }
}

/// Nanoseconds from `from` to `to`: 0 when `to` is earlier, and the largest `u64` after 584 years.
#[inline]
pub fn elapsed_ns(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
