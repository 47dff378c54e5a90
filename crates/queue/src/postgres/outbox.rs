//! What other servers are to be told: an outbox, and the relay by which a task empties it. It is in memory alone: where
//! it is lost, whoever waits looks again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::database::Arrival;

/// Arrivals of one notification, of at most 22 bytes each: its text may have 8,000.
const TOLD_MAX: usize = 300;

/// Arrivals that others have yet to be told of, and to which all calls add: each once, however often it comes, so
/// that who sends faster than others can be told leaves no more here than there are pairs of receiver and queue.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pending: Mutex<Pending>,
    /// There is something, or will not be any more.
    more: Notify,
    /// How often some were taken and all of those have been told.
    told: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Pending {
    arrivals: HashSet<Arrival>,
    /// Whether some were taken of which not all have been told.
    are_taken: bool,
    is_over: bool,
}

impl Outbox {
    /// Others are to be told of these.
    pub(super) fn add(&self, arrivals: impl Iterator<Item = Arrival>) {
        let mut arrivals = arrivals.peekable();
        if arrivals.peek().is_some() {
            self.lock().arrivals.extend(arrivals);
            self.more.notify_one();
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.more.notify_one();
    }

    /// Returns when all that is here now has been told, whatever comes meanwhile.
    pub(super) async fn is_told(&self) {
        let last = {
            let pending = self.lock();
            // What is being told, and behind that all of what is left.
            let batches = u64::from(pending.are_taken) + u64::from(!pending.arrivals.is_empty());
            *self.told.borrow() + batches
        };
        // Its sender is here.
        let _ = self.told.subscribe().wait_for(|told| *told >= last).await;
    }

    /// All that there is, once there is something. What was taken before has been told.
    async fn take(&self) -> Option<HashSet<Arrival>> {
        loop {
            {
                let mut pending = self.lock();
                if std::mem::take(&mut pending.are_taken) {
                    self.told.send_modify(|told| *told += 1);
                }
                if !pending.arrivals.is_empty() {
                    pending.are_taken = true;
                    return Some(std::mem::take(&mut pending.arrivals));
                }
                if pending.is_over {
                    return None;
                }
            }
            self.more.notified().await;
        }
    }

    /// Arrivals come and go as a whole: what is behind the lock stays usable.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the one task that tells others takes out of the outbox: all that there is, then text by text.
#[derive(Debug)]
pub(super) struct Relay {
    /// Whose they are.
    name: u64,
    outbox: Arc<Outbox>,
    /// Taken from there, and not told of yet.
    taken: Vec<Arrival>,
}

impl Relay {
    pub(super) fn new(name: u64, outbox: Arc<Outbox>) -> Relay {
        Relay { name, outbox, taken: Vec::new() }
    }

    /// Some of it as one text, "NAME:QUEUE RECEIVER,QUEUE RECEIVER": the same again until it was told. Nothing
    /// where nothing is left and nothing more comes.
    pub(super) async fn next(&mut self) -> Option<String> {
        if self.taken.is_empty() {
            self.taken.extend(self.outbox.take().await?);
        }
        let some = &self.taken[self.rest()..];
        let pairs: Vec<_> =
            some.iter().map(|Arrival { queue, receiver }| format!("{queue} {receiver}")).collect();
        Some(format!("{:x}:{}", self.name, pairs.join(",")))
    }

    /// The last text was told.
    pub(super) fn told(&mut self) {
        self.taken.truncate(self.rest());
    }

    /// How much is left behind the next text.
    fn rest(&self) -> usize {
        self.taken.len().saturating_sub(TOLD_MAX)
    }

    /// Whether something has not been told.
    pub(super) fn has_more(&self) -> bool {
        !self.taken.is_empty() || !self.outbox.lock().arrivals.is_empty()
    }

    /// Whether nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.outbox.lock().is_over
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// Whether somebody was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn arrivals(receivers: std::ops::Range<u32>) -> impl Iterator<Item = Arrival> {
        receivers.map(|receiver| Arrival { queue: 7, receiver })
    }

    /// Whether nothing is left to be told, just now.
    fn is_told(outbox: &Outbox) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(outbox.is_told()).poll(&mut context).is_ready()
    }

    /// The receivers that are named in a text.
    fn named(text: &str) -> Vec<u32> {
        let (_, pairs) = text.split_once(':').unwrap();
        let mut receivers: Vec<u32> = pairs
            .split(',')
            .map(|pair| pair.strip_prefix("7 ").unwrap().parse().unwrap())
            .collect();
        receivers.sort_unstable();
        receivers
    }

    #[tokio::test]
    async fn what_arrives_again_and_again_is_kept_and_told_once() {
        let outbox = Arc::<Outbox>::default();
        let mut relay = Relay::new(0xabc, Arc::clone(&outbox));
        // As while a database is slow to be told, or cannot be.
        for _ in 0..10_000 {
            outbox.add(arrivals(1..4));
        }
        assert_eq!(outbox.lock().arrivals.len(), 3);
        let text = relay.next().await.unwrap();
        assert!(text.starts_with("abc:"), "{text}");
        assert_eq!(named(&text), [1, 2, 3]);
        // What arrives while that is told may be behind it for who hears it; what could not be told stays.
        outbox.add(arrivals(2..3));
        assert_eq!(relay.next().await.unwrap(), text);
        relay.told();
        outbox.end();
        assert!(relay.is_over());
        assert_eq!(named(&relay.next().await.unwrap()), [2]);
        relay.told();
        assert_eq!(relay.next().await, None);
    }

    #[tokio::test]
    async fn all_is_told_when_nothing_is_left_nor_being_told() {
        let outbox = Arc::<Outbox>::default();
        let mut relay = Relay::new(1, Arc::clone(&outbox));
        assert!(is_told(&outbox));
        outbox.add(arrivals(1..2));
        assert!(!is_told(&outbox));
        relay.next().await.unwrap();
        assert!(!is_told(&outbox), "it is being told");
        outbox.add(arrivals(1..2));
        relay.told();
        relay.next().await.unwrap();
        assert!(!is_told(&outbox), "it arrived again");
        relay.told();
        // Whoever waits already is woken.
        outbox.add(arrivals(1..2));
        relay.next().await.unwrap();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut waits = pin!(outbox.is_told());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        relay.told();
        outbox.end();
        assert_eq!(relay.next().await, None);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(waits.poll(&mut context).is_ready());
    }

    #[tokio::test]
    async fn who_waits_for_others_to_be_told_does_not_wait_for_what_comes_later() {
        let outbox = Arc::<Outbox>::default();
        let mut relay = Relay::new(1, Arc::clone(&outbox));
        outbox.add(arrivals(1..2));
        relay.next().await.unwrap();
        outbox.add(arrivals(2..3));
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = pin!(outbox.is_told());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        relay.told();
        assert_eq!(named(&relay.next().await.unwrap()), [2]);
        // As leases that end leave something to be told again and again.
        outbox.add(arrivals(3..4));
        assert!(waits.as_mut().poll(&mut context).is_pending(), "it is being told");
        relay.told();
        assert_eq!(named(&relay.next().await.unwrap()), [3]);
        assert!(waits.poll(&mut context).is_ready());
        assert!(!is_told(&outbox));
    }

    #[tokio::test]
    async fn a_text_is_no_longer_than_a_notification_may_be_and_none_is_left_out() {
        let outbox = Arc::<Outbox>::default();
        let mut relay = Relay::new(u64::MAX, Arc::clone(&outbox));
        let last = u32::MAX - 1000..u32::MAX;
        outbox.add(last.clone().map(|number| Arrival { queue: number, receiver: number }));
        outbox.end();
        let mut told = 0;
        while let Some(text) = relay.next().await {
            assert!(text.len() < 8000, "{}", text.len());
            told += text.split(',').count();
            relay.told();
        }
        assert_eq!(told, last.len());
    }
}
