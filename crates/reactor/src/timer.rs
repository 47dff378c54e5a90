//! Timers of one loop: a heap of deadlines behind one `timerfd`.
//!
//! `epoll_wait` rounds its time-out to whole milliseconds, too coarse for a load generator that
//! paces tens of thousands of sends a second; a `timerfd` is exact to a few microseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
    fd: OwnedFd,
    armed: Option<Instant>,
}

impl Timers {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Timers> {
        // SAFETY: timerfd_create has no memory preconditions; its result is checked before use.
        let raw = unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: raw is a descriptor that was just created and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        registry.register(&mut SourceFd(&raw), token, Interest::READABLE)?;
        Ok(Timers { heap: BinaryHeap::new(), fd, armed: None })
    }

    pub(crate) fn add(&mut self, at: Instant, key: u64) {
        self.heap.push(Reverse((at, key)));
    }

    /// The key of the earliest timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u64> {
        let Reverse((at, key)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some(key)
    }

    /// Makes the descriptor fire at the earliest deadline. Costs a system call only when that
    /// deadline is earlier than the one it is armed for, or when that one has passed.
    ///
    /// The descriptor is never read: it is edge-triggered, and arming it resets it.
    pub(crate) fn arm(&mut self, now: Instant) -> io::Result<()> {
        let Some(Reverse((next, _))) = self.heap.peek() else { return Ok(()) };
        if self.armed.is_some_and(|armed| armed > now && armed <= *next) {
            return Ok(());
        }
        // Counted from the clock: `now` is when the batch began, and handling it has taken time.
        // A zero duration would disarm.
        let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            },
        };
        // SAFETY: spec outlives the call, the old value is not asked for.
        let status = unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        self.armed = Some(*next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn due_timers_come_in_order_of_their_deadlines() {
        let poll = mio::Poll::new().unwrap();
        let mut timers = Timers::new(poll.registry(), Token(0)).unwrap();
        let now = Instant::now();
        for (ms, key) in [(30, 3), (10, 1), (20, 2), (5000, 9)] {
            timers.add(now + Duration::from_millis(ms), key);
        }
        assert_eq!(timers.pop_due(now), None);
        let later = now + Duration::from_millis(100);
        let due: Vec<u64> = std::iter::from_fn(|| timers.pop_due(later)).collect();
        assert_eq!(due, [1, 2, 3]);
    }

    #[test]
    fn the_descriptor_wakes_the_poll_for_a_timer_added_after_a_later_one() {
        let mut poll = mio::Poll::new().unwrap();
        let mut timers = Timers::new(poll.registry(), Token(7)).unwrap();
        let mut events = mio::Events::with_capacity(4);
        let start = Instant::now();
        timers.add(start + Duration::from_secs(3600), 1);
        timers.arm(start).unwrap();
        timers.add(start + Duration::from_micros(300), 2);
        timers.arm(start).unwrap();
        poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
        assert_eq!(events.iter().next().map(|event| event.token()), Some(Token(7)));
        assert_eq!(timers.pop_due(Instant::now()), Some(2));
    }
}
