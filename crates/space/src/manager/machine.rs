//! A machine, as one thread sees it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use knee_nbd::Dial;
use knee_reactor::ConnId;

/// Pauses between attempts to connect.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Connections of a thread to a machine. Long requests have their own, so that short ones do not wait behind them.
pub(super) const LANES: usize = 2;

/// A machine, as one thread sees it.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) address: SocketAddr,
    pub(super) lanes: [Lane; LANES],
    /// Whether requests may be sent: all connections are open.
    pub(super) is_up: bool,
    /// The next pause.
    pub(super) backoff: Duration,
    pub(super) was_tried: bool,
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) conn: Option<ConnId>,
    /// The handshake, until it is complete, and its start.
    pub(super) dial: Option<(Dial, Instant)>,
}

impl Machine {
    pub(crate) fn new(address: SocketAddr) -> Machine {
        Machine {
            address,
            lanes: Default::default(),
            is_up: false,
            backoff: BACKOFF_MIN,
            was_tried: false,
        }
    }

    /// Notes that all connections are open.
    pub(super) fn rises(&mut self) {
        self.is_up = true;
        self.backoff = BACKOFF_MIN;
    }

    /// The pause before the next attempt, which grows with each.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.backoff;
        self.backoff = (pause * 2).min(BACKOFF_MAX);
        pause
    }
}
