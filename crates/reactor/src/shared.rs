//! The state that the threads of a group share.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use crate::room::Room;

/// Wakes a thread's loop, which calls its handler's `on_wake`. Several calls before the loop runs count as one.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<mio::Waker>);

impl Waker {
    /// Wakes the loop.
    pub fn wake(&self) {
        // A write to an eventfd fails only when its counter would overflow: then the loop is awake anyway.
        let _ = self.0.wake();
    }
}

/// The state of a group. Only long requests and answers change it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) threads: Vec<Thread>,
    pub(crate) accepted: AtomicUsize,
    pub(crate) shutdown: AtomicBool,
    pub(crate) room: Room,
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
    /// Passes an accepted connection to the thread; returns whether the thread still runs.
    pub(crate) fn hand_over(&self, stream: TcpStream) -> bool {
        let taken = self.inbox.send(stream).is_ok();
        self.waker.wake();
        taken
    }
}
