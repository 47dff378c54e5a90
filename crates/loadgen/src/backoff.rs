//! The wait before a connection is opened again.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The first wait, and the longest, over gRPC and memcached.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(10);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// When a connection may be opened again. The wait begins at the last try. So a connection that was open for longer
/// than the wait is reopened at once. Waits double until a request is answered.
#[derive(Debug)]
pub(crate) struct Backoff {
    tried: Cell<Instant>,
    wait: Cell<Duration>,
}

impl Backoff {
    /// For a connection that was tried at `now`.
    pub(crate) fn new(now: Instant) -> Backoff {
        Backoff { tried: Cell::new(now), wait: Cell::new(BACKOFF_MIN) }
    }

    /// When to try next. Doubles the wait for the time after that.
    pub(crate) fn next(&self) -> Instant {
        let wait = self.wait.get();
        self.wait.set((wait * 2).min(BACKOFF_MAX));
        self.tried.get() + wait
    }

    /// A try ended.
    pub(crate) fn tried(&self, now: Instant) {
        self.tried.set(now);
    }

    /// Resets the wait, as a request was answered. An open connection is not enough: a server may close it at once.
    pub(crate) fn answered(&self) {
        self.wait.set(BACKOFF_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_double_and_count_from_the_last_try() {
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
