//! A server as one thread sees it: its address, whether it is up, and when to try it again.

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

/// A server, as one thread sees it.
#[derive(Debug)]
pub(crate) struct Server {
    /// The name on the command line.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// Why the last connection ended, for error lines.
    pub(crate) trouble: String,
    /// Failed attempts since its last answer.
    failures: u32,
    /// When the next attempt begins, if a timer is set for it.
    pub(crate) retry_at: Option<Instant>,
    /// Whether its first connections are open or have failed.
    pub(crate) settled: bool,
    /// Whether all connections of this thread are open.
    pub(crate) complete: bool,
    /// The term of the connections, see [`Health`](crate::health::Health).
    pub(crate) term: u64,
    /// Number of deletions sent whose answers are missing.
    pub(crate) deleting: usize,
    /// Whether the server has executed the deletions so far.
    pub(crate) deletes: bool,
    /// Whether it refused a deletion since its last executed ones.
    pub(crate) refuses: bool,
    /// A connection that only asks whether the server answers.
    pub(crate) probe: Option<(ConnId, Instant)>,
}

impl Server {
    pub(crate) fn new(name: String, address: SocketAddr) -> Server {
        Server {
            name,
            address,
            trouble: "not connected yet".to_owned(),
            failures: 0,
            retry_at: None,
            settled: false,
            complete: false,
            term: 0,
            deleting: 0,
            deletes: true,
            refuses: false,
            probe: None,
        }
    }

    /// The wait before the next attempt. It doubles with each failure, up to 5 s. It varies randomly by a quarter in
    /// both directions, so that middlewares do not return all at once.
    pub(crate) fn next_backoff(&mut self) -> Duration {
        let doubled = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        // Each RandomState has different keys, so this is a random number without a generator.
        let random = RandomState::new().hash_one(self.failures) % 1024;
        doubled.mul_f64(0.75 + random as f64 / 2048.0)
    }

    /// Whether no attempt has failed since the server's last answer.
    pub(crate) fn is_sound(&self) -> bool {
        self.failures == 0
    }

    /// Restarts the back-off after an answer to a request.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    /// Connecting, or waiting for the answer to the test request: a server that accepts without answering is not up.
    Trying,
    Up,
    /// An answer is overdue: the connection gets no more reads until its next answer.
    Slow,
}

/// Flight numbers of answers that reach no client: to the test request of a new connection,
pub(crate) const TRIAL: u32 = u32::MAX;
/// to a deletion of what the server has missed,
pub(crate) const DELETION: u32 = u32::MAX - 1;
/// to a read that another server was asked instead.
pub(crate) const ABANDONED: u32 = u32::MAX - 2;

/// An answer that the connection waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) flight: u32,
    /// The part of the request: the number of the shard, otherwise of the server.
    pub(crate) part: u16,
    pub(crate) form: Form,
    /// The opaque that the answer to a meta command repeats.
    pub(crate) number: u32,
}

impl Expected {
    /// The flight that waits for the answer, if any.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<u32> {
        (self.flight < ABANDONED).then_some(self.flight)
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) conn: Option<ConnId>,
    pub(crate) state: State,
    pub(crate) decoder: ResponseDecoder,
    /// The missing answers, in order.
    pub(crate) expected: VecDeque<Expected>,
    /// When the wait for the next bytes began.
    pub(crate) since: Instant,
    /// Requests since the last write, if their number is limited.
    pub(crate) unsent: u32,
}

impl Upstream {
    fn new(reply_bytes_max: usize, now: Instant) -> Upstream {
        Upstream {
            conn: None,
            state: State::Down,
            decoder: ResponseDecoder::new(reply_bytes_max),
            expected: VecDeque::new(),
            since: now,
            unsent: 0,
        }
    }

    pub(crate) fn overdue(&self, now: Instant, patience: Duration) -> bool {
        let waiting = match self.state {
            State::Down => false,
            State::Trying => true,
            State::Up | State::Slow => !self.expected.is_empty(),
        };
        waiting && self.is_silent(now, patience)
    }

    /// Whether no bytes came for longer than this time.
    pub(crate) fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        now.saturating_duration_since(self.since) > patience
    }
}

/// A connection to every server, for one worker slot or, in pipelined mode, for the thread.
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
        matches!(self.upstreams[server].state, State::Up | State::Slow)
    }

    /// Bit set of the servers with an open connection.
    pub(crate) fn up(&self) -> u64 {
        (0..self.upstreams.len()).filter(|&s| self.is_up(s)).fold(0, |set, s| set | 1 << s)
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
