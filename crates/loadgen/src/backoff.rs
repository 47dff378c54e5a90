//! The wait between two tries to open a connection, where clients ask over gRPC.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The first wait, and the longest, whatever clients ask over.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(10);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// When a connection may be tried again. A wait begins with the try before, so that one that stood for longer is opened
/// at once: what is due waits for it. Each is twice as long as the one before, until there is an answer.
#[derive(Debug)]
pub(crate) struct Backoff {
    tried: Cell<Instant>,
    wait: Cell<Duration>,
}

impl Backoff {
    /// Of a connection that was tried at `now`.
    pub(crate) fn new(now: Instant) -> Backoff {
        Backoff { tried: Cell::new(now), wait: Cell::new(BACKOFF_MIN) }
    }

    /// When it may be tried next; the wait after that is longer.
    pub(crate) fn next(&self) -> Instant {
        let wait = self.wait.get();
        self.wait.set((wait * 2).min(BACKOFF_MAX));
        self.tried.get() + wait
    }

    /// It was tried, and stands or does not.
    pub(crate) fn tried(&self, now: Instant) {
        self.tried.set(now);
    }

    /// It was of use. Not when it stands: a server may speak, and close at once.
    pub(crate) fn answered(&self) {
        self.wait.set(BACKOFF_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_stood_for_long_is_opened_at_once_and_who_is_turned_away_waits_longer_each_time() {
        let mut now = Instant::now();
        let backoff = Backoff::new(now);
        now += 3600 * 1000 * MS;
        assert!(backoff.next() <= now);
        for wait_ms in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            backoff.tried(now);
            let next = backoff.next();
            assert_eq!(next, now + wait_ms * MS);
            // A try takes a while.
            now = next + 5 * MS;
        }
        backoff.tried(now);
        backoff.answered();
        assert_eq!(backoff.next(), now + 10 * MS);
    }
}
