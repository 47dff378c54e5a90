//! Calls that wait for a message. An arrival wakes the longest-waiting call that may receive the message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::database::Arrival;
use crate::operation::{ANYBODY, ClientId, QueueId};

/// Poll interval per waiting call: all calls together poll at most 500 times a second.
const POLL_INTERVAL_EACH: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Waiters {
    places: Mutex<Places>,
    waiters_max: usize,
    /// A waiting call polls at this interval, because a notification may be lost.
    poll_interval: Duration,
}

#[derive(Debug, Default)]
struct Places {
    /// Entries without a waiting call are removed.
    by_key: HashMap<(QueueId, ClientId), (Arc<Notify>, usize)>,
    count: usize,
}

/// The error when `waiters_max` calls already wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) waiters_max: usize,
}

impl Waiters {
    pub(crate) fn new(waiters_max: usize, poll_interval: Duration) -> Arc<Waiters> {
        Arc::new(Waiters { places: Mutex::default(), waiters_max, poll_interval })
    }

    /// Registers a call that waits in a queue for messages to a receiver or to any client.
    pub(crate) fn enter(
        self: &Arc<Waiters>,
        queue: QueueId,
        receiver: ClientId,
    ) -> Result<Place, TooMany> {
        let mut places = self.lock();
        if places.count >= self.waiters_max {
            return Err(TooMany { waiters_max: self.waiters_max });
        }
        places.count += 1;
        let own = places.enter((queue, receiver));
        let anybody = places.enter((queue, ANYBODY));
        Ok(Place { waiters: Arc::clone(self), queue, receiver, own, anybody })
    }

    /// Wakes a call that may receive the message.
    pub(crate) fn arrived(&self, Arrival { queue, receiver }: Arrival) {
        if let Some((notify, _)) = self.lock().by_key.get(&(queue, receiver)) {
            notify.notify_one();
        }
    }

    /// Arrivals were missed: wakes one call for each queue and receiver. A call that finds a message wakes the next
    /// one.
    pub(crate) fn missed_arrivals(&self) {
        self.lock().by_key.values().for_each(|(notify, _)| notify.notify_one());
    }

    pub(crate) fn poll_interval(&self) -> Duration {
        let count = u32::try_from(self.lock().count).unwrap_or(u32::MAX);
        self.poll_interval.max(POLL_INTERVAL_EACH.saturating_mul(count))
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn enter(&mut self, key: (QueueId, ClientId)) -> Arc<Notify> {
        let (notify, waiting) = self.by_key.entry(key).or_default();
        *waiting += 1;
        Arc::clone(notify)
    }

    fn leave(&mut self, key: (QueueId, ClientId)) {
        let Some((_, waiting)) = self.by_key.get_mut(&key) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            self.by_key.remove(&key);
        }
    }
}

/// The place of a waiting call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    queue: QueueId,
    receiver: ClientId,
    /// Notified of messages to the receiver.
    pub(crate) own: Arc<Notify>,
    /// Notified of messages to any client, and when the queue is deleted.
    pub(crate) anybody: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.waiters.lock();
        places.count -= 1;
        places.leave((self.queue, self.receiver));
        places.leave((self.queue, ANYBODY));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::task::{Context, Waker};

    use super::*;

    const POLL_INTERVAL: Duration = Duration::from_secs(1);

    #[test]
    fn places_are_limited_and_forgotten() {
        let waiters = Waiters::new(2, POLL_INTERVAL);
        let places = [1, 2].map(|receiver| waiters.enter(7, receiver).unwrap());
        assert_eq!(waiters.enter(7, 1).unwrap_err(), TooMany { waiters_max: 2 });
        assert_eq!(waiters.lock().by_key.len(), 3);
        drop(places);
        assert!(waiters.lock().by_key.is_empty());
        // An arrival in a queue without waiting calls is not kept.
        waiters.arrived(Arrival { queue: 7, receiver: 1 });
        assert!(waiters.lock().by_key.is_empty());
    }

    #[test]
    fn arrival_wakes_the_first_call_that_may_have_the_message() {
        let waiters = Waiters::new(9, POLL_INTERVAL);
        let places = [1, 2, 2].map(|receiver| waiters.enter(7, receiver).unwrap());
        let mut context = Context::from_waker(Waker::noop());
        let mut calls: Vec<_> = places
            .iter()
            .map(|place| (Box::pin(place.own.notified()), Box::pin(place.anybody.notified())))
            .collect();
        for (own, anybody) in &mut calls {
            own.as_mut().enable();
            anybody.as_mut().enable();
        }
        waiters.arrived(Arrival { queue: 7, receiver: 2 });
        waiters.arrived(Arrival { queue: 7, receiver: ANYBODY });
        let mut woken = |call: usize| {
            let (own, anybody) = &mut calls[call];
            let own = own.as_mut().poll(&mut context).is_ready();
            (own, anybody.as_mut().poll(&mut context).is_ready())
        };
        assert_eq!([woken(0), woken(1), woken(2)], [(false, true), (true, false), (false, false)]);
    }

    #[test]
    fn many_waiters_poll_less_often() {
        let waiters = Waiters::new(10_000, POLL_INTERVAL);
        let few: Vec<_> = (1..=500).map(|receiver| waiters.enter(7, receiver).unwrap()).collect();
        assert_eq!(waiters.poll_interval(), POLL_INTERVAL);
        let _more: Vec<_> = (0..9500).map(|_| waiters.enter(8, 1).unwrap()).collect();
        assert_eq!(waiters.poll_interval(), Duration::from_secs(20));
        drop(few);
    }
}
