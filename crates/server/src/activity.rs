//! The activity on a connection, and the time since the last.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

/// The activity on a connection: its calls write it, and the connection's timeout reads it.
#[derive(Debug)]
pub(crate) struct Activity {
    began: Instant,
    /// Number of calls whose request or answer is unfinished.
    open: AtomicUsize,
    /// Number of calls that wait for the server, not for the client.
    working: AtomicUsize,
    /// The time of the last activity, in nanoseconds since the connection began.
    moved_ns: AtomicU64,
    /// Whether another connection needs the place of this one.
    must_leave: AtomicBool,
    waker: AtomicWaker,
}

impl Activity {
    pub(crate) fn begin() -> Activity {
        let (open, working, moved_ns, must_leave, waker) = Default::default();
        Activity { began: Instant::now(), open, working, moved_ns, must_leave, waker }
    }

    /// Notes that a part of a request came, or a part of an answer left.
    pub(crate) fn moves(&self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        self.moved_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    pub(crate) fn call_begins(&self) {
        self.moves();
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn call_ends(&self) {
        self.moves();
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn work_begins(&self) {
        self.working.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn work_ends(&self) {
        self.moves();
        self.working.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// The time of the last activity of a connection without calls.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.quiet_since().filter(|_| !self.has_calls())
    }

    /// Asks the connection to leave.
    pub(crate) fn ask_to_leave(&self) {
        self.must_leave.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the connection must leave. If not, `ask_to_leave` wakes the task of `context`.
    pub(crate) fn must_leave(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        // A call may have begun after the question.
        self.must_leave.swap(false, Ordering::Acquire) && !self.has_calls()
    }

    /// The time of the last activity; `None` while the server works on a call.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        let quiet = self.working.load(Ordering::Relaxed) == 0;
        quiet.then(|| self.began + Duration::from_nanos(self.moved_ns.load(Ordering::Relaxed)))
    }
}
