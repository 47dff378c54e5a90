//! Memory for unfinished requests and unread answers: one budget for the threads of a group.
//!
//! One third is for requests. A request reserves its length before more of it is read; without room, its connection waits
//! unread. Two thirds are for answers: beyond the first, connections with unread answers get no further ones, and beyond
//! the second, none does. If a connection or a handler waits, the loops close connections that hold memory and stand
//! still.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::id::ConnId;

/// Input or output of a connection up to this length is not counted, and waits for no room.
pub(crate) const FREE_BYTES: usize = 4 * 1024;

/// The budget of a group.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) third: usize,
    pub(crate) requests: AtomicUsize,
    pub(crate) answers: AtomicUsize,
    /// Connections that wait for room.
    pub(crate) waiting: AtomicUsize,
    pub(crate) handler_waits: AtomicBool,
}

impl Room {
    /// The budget has room for at least six of the largest requests, so that two of them can be unfinished.
    pub(crate) fn new(bytes_max: usize, request_bytes_max: usize) -> Room {
        Room {
            third: (bytes_max / 3).max(2 * request_bytes_max),
            requests: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            handler_waits: AtomicBool::new(false),
        }
    }

    /// Whether connections read little at a time.
    pub(crate) fn is_tight(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            || self.requests.load(Ordering::Relaxed) > self.third
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.handler_waits.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let raised = |held: usize| Some(held + bytes).filter(|&after| after <= self.third);
        self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised).is_ok()
    }
}

/// Replaces a part of a shared sum.
pub(crate) fn replace(sum: &AtomicUsize, old: usize, new: usize) {
    if new >= old {
        sum.fetch_add(new - old, Ordering::Relaxed);
    } else {
        sum.fetch_sub(old - new, Ordering::Relaxed);
    }
}

/// What a thread holds of the room.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Counted bytes of this thread's connections.
    pub(crate) bytes: usize,
    /// Connections that wait for room, longest waiting first.
    pub(crate) waiting: VecDeque<ConnId>,
    /// The time of the next check.
    pub(crate) due: Option<Instant>,
    /// The earliest time of the next look for connections that stand still.
    pub(crate) look: Option<Instant>,
    /// Bytes of long answers that the batch has written.
    pub(crate) batch_bytes: usize,
}
