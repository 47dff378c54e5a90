//! Timers of one loop: a heap of deadlines behind one alarm.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::alarm::Alarm;

pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
    alarm: Alarm,
    armed: Option<Instant>,
}

impl Timers {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Timers> {
        let alarm = Alarm::new()?;
        registry.register(&mut SourceFd(&alarm.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Timers { heap: BinaryHeap::new(), alarm, armed: None })
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

    /// Notes that the alarm has fired, so that `arm` sets it again. A gathering batch may have begun before the timer's
    /// deadline: then the next batch handles the timer.
    pub(crate) fn fired(&mut self) {
        self.armed = None;
    }

    /// Makes the alarm fire at this time, whatever the deadlines are. The next `arm` sets it for them again.
    pub(crate) fn arm_for(&mut self, at: Instant) -> io::Result<()> {
        self.armed = None;
        self.alarm.set(at)
    }

    /// Makes the alarm fire at the earliest deadline. This costs a system call only if the alarm's time has passed, or
    /// is later than this deadline.
    pub(crate) fn arm(&mut self, now: Instant) -> io::Result<()> {
        let Some(Reverse((next, _))) = self.heap.peek() else { return Ok(()) };
        if self.armed.is_some_and(|armed| armed > now && armed <= *next) {
            return Ok(());
        }
        self.alarm.set(*next)?;
        self.armed = Some(*next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

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
    fn earlier_timer_wakes_the_poll_before_a_later_one() {
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

    #[test]
    fn timer_that_fired_in_an_earlier_batch_fires_again() {
        let mut poll = mio::Poll::new().unwrap();
        let mut timers = Timers::new(poll.registry(), Token(7)).unwrap();
        let mut events = mio::Events::with_capacity(4);
        let batch = Instant::now();
        timers.add(batch + Duration::from_millis(1), 1);
        for _ in 0..2 {
            timers.arm(batch).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert!(!events.is_empty());
            timers.fired();
            assert_eq!(timers.pop_due(batch), None);
        }
        assert_eq!(timers.pop_due(Instant::now()), Some(1));
    }
}
