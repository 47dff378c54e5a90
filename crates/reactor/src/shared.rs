//! What the threads of a group know of each other.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

/// Wakes one thread's loop from another: its handler's `on_wake` is called. Calls before it gets
/// to run are one.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<mio::Waker>);

impl Waker {
    /// Wakes the loop.
    pub fn wake(&self) {
        // An eventfd write fails only when the counter would overflow: then it is awake anyway.
        let _ = self.0.wake();
    }
}

/// What the threads of a group share; nothing of it is touched per request.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) threads: Vec<Thread>,
    pub(crate) accepted: AtomicUsize,
    pub(crate) shutdown: AtomicBool,
}

impl Shared {
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn shutting_down(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) inbox: Sender<TcpStream>,
    pub(crate) waker: Waker,
}

impl Thread {
    /// Gives the thread a connection that another one has accepted.
    pub(crate) fn hand_over(&self, stream: TcpStream) -> bool {
        let taken = self.inbox.send(stream).is_ok();
        self.waker.wake();
        taken
    }
}
