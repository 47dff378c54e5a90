//! What a thread knows of a server: where it is, whether it is up, when to try it again.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use knee_proto::ResponseDecoder;
use knee_reactor::ConnId;

use crate::form::Form;

/// The first wait before a server that failed is tried again…
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// …and the longest.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// One server, as one thread sees it.
#[derive(Debug)]
pub(crate) struct Server {
    /// As on the command line.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// What ended the last connection to it, for error lines.
    pub(crate) trouble: String,
    /// Attempts that failed since it last answered.
    failures: u32,
    /// A timer is set that will try it again.
    pub(crate) retry_set: bool,
    /// Its first connections stand, or could not be had.
    pub(crate) settled: bool,
}

impl Server {
    pub(crate) fn new(name: String, address: SocketAddr) -> Server {
        Server {
            name,
            address,
            trouble: "not connected yet".to_owned(),
            failures: 0,
            retry_set: false,
            settled: false,
        }
    }

    /// How long to wait before the next attempt: doubled with each failure, up to 5 s, and spread
    /// by a quarter in both directions, so that middlewares do not return all at once.
    pub(crate) fn next_backoff(&mut self) -> Duration {
        let doubled = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        // Each RandomState has other keys: a random number without a generator.
        let random = RandomState::new().hash_one(self.failures) % 1024;
        doubled.mul_f64(0.75 + random as f64 / 2048.0)
    }

    /// Whether nothing has failed since it last answered.
    pub(crate) fn is_sound(&self) -> bool {
        self.failures == 0
    }

    /// It has answered a request: the back-off starts anew.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
    }
}

/// Where one connection to a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    /// Connecting, or waiting for the answer to the first question: one that accepts but does not
    /// answer is not up.
    Trying,
    Up,
}

/// A request's answer that is to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) flight: u32,
    /// Which part of the request: of shards their number, else the server's.
    pub(crate) part: u16,
    pub(crate) form: Form,
    /// The opaque that the answer to a meta command repeats.
    pub(crate) number: u32,
}

/// One connection to one server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) conn: Option<ConnId>,
    pub(crate) state: State,
    pub(crate) decoder: ResponseDecoder,
    /// Answers to come, in order.
    pub(crate) expected: VecDeque<Expected>,
    /// Since when the next bytes are waited for.
    pub(crate) since: Instant,
}

impl Upstream {
    fn new(reply_bytes_max: usize, now: Instant) -> Upstream {
        Upstream {
            conn: None,
            state: State::Down,
            decoder: ResponseDecoder::new(reply_bytes_max),
            expected: VecDeque::new(),
            since: now,
        }
    }

    /// Whether something is waited for that should have come by now.
    pub(crate) fn overdue(&self, now: Instant, patience: Duration) -> bool {
        let waiting = match self.state {
            State::Down => false,
            State::Trying => true,
            State::Up => !self.expected.is_empty(),
        };
        waiting && now.saturating_duration_since(self.since) > patience
    }
}

/// A connection to every server: a worker slot's own, or in pipelined mode the thread's.
#[derive(Debug)]
pub(crate) struct Lane {
    /// In the order of the command line.
    pub(crate) upstreams: Vec<Upstream>,
}

impl Lane {
    pub(crate) fn new(servers: usize, reply_bytes_max: usize, now: Instant) -> Lane {
        Lane { upstreams: (0..servers).map(|_| Upstream::new(reply_bytes_max, now)).collect() }
    }

    pub(crate) fn is_up(&self, server: usize) -> bool {
        self.upstreams[server].state == State::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_limit_and_starts_again() {
        let mut server = Server::new("s:1".to_owned(), ([127, 0, 0, 1], 1).into());
        for expected_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let expected = Duration::from_millis(expected_ms);
            let wait = server.next_backoff();
            assert!(wait >= expected.mul_f64(0.75), "{wait:?} for {expected:?}");
            assert!(wait <= expected.mul_f64(1.25), "{wait:?} for {expected:?}");
        }
        server.answered();
        assert!(server.next_backoff() <= Duration::from_millis(125));
    }
}
