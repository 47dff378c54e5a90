//! What goes on on a connection.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The calls of a connection tell it of what they do.
#[derive(Debug)]
pub(crate) struct Activity {
    began: Instant,
    /// Calls that are worked at.
    working: AtomicUsize,
    /// When something happened last, in nanoseconds since it began.
    last_ns: AtomicU64,
}

impl Activity {
    pub(crate) fn begin() -> Activity {
        let (working, last_ns) = Default::default();
        Activity { began: Instant::now(), working, last_ns }
    }

    /// Something happens. Returns when, in nanoseconds since it began.
    pub(crate) fn happens(&self) -> u64 {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        self.last_ns.fetch_max(now_ns, Ordering::Relaxed);
        now_ns
    }

    /// So many nanoseconds after it began.
    pub(crate) fn at(&self, since_began_ns: u64) -> Instant {
        self.began + Duration::from_nanos(since_began_ns)
    }

    /// When something happened last.
    pub(crate) fn last(&self) -> Instant {
        self.at(self.last_ns.load(Ordering::Relaxed))
    }

    /// A call is worked at from now on.
    pub(crate) fn call_begins(&self) {
        self.working.fetch_add(1, Ordering::Relaxed);
    }

    /// It is not any more.
    pub(crate) fn call_ends(&self) {
        self.happens();
        self.working.fetch_sub(1, Ordering::Relaxed);
    }

    /// Since when nothing has happened; `None` where a call is worked at.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let idle = self.working.load(Ordering::Relaxed) == 0;
        idle.then(|| self.last())
    }
}
