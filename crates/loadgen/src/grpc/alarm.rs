//! Timers on the runtime of a thread, as exact as those of the event loop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::task::{Poll, Waker};
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wakes tasks of one thread at given instants. The runtime's own timers count in whole milliseconds.
#[derive(Debug)]
pub(crate) struct Alarms {
    alarm: AsyncFd<knee_reactor::Alarm>,
    /// Waiting tasks, by their time and the number of the wait.
    waiting: RefCell<BTreeMap<(Instant, u64), Waker>>,
    waits: Cell<u64>,
}

/// A wait. Its drop removes it from the waiting tasks.
struct Wait<'a> {
    alarms: &'a Alarms,
    key: (Instant, u64),
}

impl Alarms {
    /// Must be called within the runtime.
    pub(crate) fn new() -> io::Result<Alarms> {
        let alarm = knee_reactor::Alarm::new()?;
        // SAFETY: an alarm owns its one descriptor, which is open as long as it lives.
        let alarm = unsafe { AsyncFd::register_with_interest(alarm, Interest::READABLE)? };
        Ok(Alarms { alarm, waiting: RefCell::default(), waits: Cell::default() })
    }

    pub(crate) async fn until(&self, at: Instant) {
        let mut wait = None;
        std::future::poll_fn(|context| {
            if at <= Instant::now() {
                return Poll::Ready(());
            }
            // Registering once is enough: a task keeps its waker.
            wait.get_or_insert_with(|| self.wait(at, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn wait(&self, at: Instant, waker: Waker) -> Wait<'_> {
        let key = (at, self.waits.get());
        self.waits.set(key.1 + 1);
        let mut waiting = self.waiting.borrow_mut();
        waiting.insert(key, waker);
        if waiting.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.set(at);
        }
        Wait { alarms: self, key }
    }

    /// Wakes tasks at their times; runs until it is dropped.
    pub(crate) async fn ring(&self) -> io::Result<()> {
        loop {
            // The alarm need not be read: setting it again resets it.
            self.alarm.readable().await?.clear_ready();
            let now = Instant::now();
            let mut waiting = self.waiting.borrow_mut();
            while let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) {
                first.remove().wake();
            }
            if let Some(((next, _), _)) = waiting.first_key_value() {
                self.set(*next);
            }
        }
    }

    fn set(&self, at: Instant) {
        // The kernel accepts this descriptor and every time.
        self.alarm.get_ref().set(at).expect("a timerfd can be set");
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.alarms.waiting.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::rc::Rc;
    use std::time::Duration;

    fn run(test: impl AsyncFnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(test());
    }

    #[test]
    fn tasks_wake_in_order_and_not_early() {
        run(async || {
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

    #[test]
    fn finished_and_dropped_waits_are_removed() {
        run(async || {
            let alarms = Rc::new(Alarms::new().unwrap());
            let ringing = Rc::clone(&alarms);
            tokio::task::spawn_local(async move { ringing.ring().await });
            let soon = Instant::now() + Duration::from_millis(5);
            for _ in 0..3 {
                tokio::select! {
                    biased;
                    () = alarms.until(soon + Duration::from_secs(3600)) => unreachable!(),
                    () = tokio::task::yield_now() => {}
                }
            }
            alarms.until(soon).await;
            assert_eq!(alarms.waiting.borrow().len(), 0);
        });
    }
}
