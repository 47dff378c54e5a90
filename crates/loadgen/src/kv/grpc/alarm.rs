//! Timers on the runtime of a thread, as exact as those of the event loop.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::task::{Poll, Waker};
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wakes tasks of one thread at instants. The runtime's own timers count in whole milliseconds.
#[derive(Debug)]
pub(crate) struct Alarms {
    alarm: AsyncFd<knee_reactor::Alarm>,
    waiting: RefCell<BinaryHeap<Reverse<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    at: Instant,
    waker: Waker,
}

impl Alarms {
    /// None yet; made within the runtime.
    pub(crate) fn new() -> io::Result<Alarms> {
        let alarm = knee_reactor::Alarm::new()?;
        // SAFETY: an alarm owns its one descriptor, which is open as long as it lives.
        let alarm = unsafe { AsyncFd::register_with_interest(alarm, Interest::READABLE)? };
        Ok(Alarms { alarm, waiting: RefCell::default() })
    }

    /// Waits until `at`.
    pub(crate) async fn until(&self, at: Instant) {
        let mut waits = false;
        std::future::poll_fn(|context| {
            if at <= Instant::now() {
                return Poll::Ready(());
            }
            // Once is enough: a task keeps its waker.
            if !std::mem::replace(&mut waits, true) {
                let mut waiting = self.waiting.borrow_mut();
                let first = waiting.peek().is_none_or(|Reverse(first)| at < first.at);
                waiting.push(Reverse(Waiting { at, waker: context.waker().clone() }));
                if first {
                    self.set(at);
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Wakes whoever's time has come, for ever.
    pub(crate) async fn ring(&self) -> io::Result<()> {
        loop {
            // The alarm is not read: setting it again resets it.
            self.alarm.readable().await?.clear_ready();
            let now = Instant::now();
            let mut waiting = self.waiting.borrow_mut();
            while let Some(due) = waiting.peek_mut().filter(|first| first.0.at <= now) {
                PeekMut::pop(due).0.waker.wake();
            }
            if let Some(Reverse(next)) = waiting.peek() {
                self.set(next.at);
            }
        }
    }

    fn set(&self, at: Instant) {
        // The kernel refuses neither this descriptor nor any time.
        self.alarm.get_ref().set(at).expect("a timerfd can be set");
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.at == other.at
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.at.cmp(&other.at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn tasks_wake_in_the_order_of_their_times_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(async {
            let alarms = Rc::new(Alarms::new().unwrap());
            let ringing = Rc::clone(&alarms);
            tokio::task::spawn_local(async move { ringing.ring().await });
            let (woken, start) = (Rc::new(RefCell::new(Vec::new())), Instant::now());
            let tasks = [20, 5, 3000, 10, 0].map(|ms| {
                let (alarms, woken) = (Rc::clone(&alarms), Rc::clone(&woken));
                tokio::task::spawn_local(async move {
                    let at = start + Duration::from_millis(ms);
                    alarms.until(at).await;
                    assert!(Instant::now() >= at);
                    woken.borrow_mut().push(ms);
                })
            });
            alarms.until(start + Duration::from_millis(40)).await;
            assert_eq!(*woken.borrow(), [0, 5, 10, 20]);
            assert!(!tasks[2].is_finished());
        });
    }
}
