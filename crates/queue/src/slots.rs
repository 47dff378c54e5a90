//! Slots, granted in the order of the requests: workers of the middleware, connections of a pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A fixed number of slots.
#[derive(Debug)]
pub(crate) struct Slots {
    semaphore: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
    released: Mutex<Instant>,
}

/// A slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

/// The error when `waiting_max` requests already wait for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded {
    pub(crate) waiting_max: usize,
}

impl Slots {
    /// `count` slots, for which at most `waiting_max` requests may wait.
    pub(crate) fn new(count: usize, waiting_max: usize) -> Arc<Slots> {
        Arc::new(Slots {
            semaphore: Arc::new(Semaphore::new(count)),
            waiting: AtomicUsize::new(0),
            waiting_max,
            released: Mutex::new(Instant::now()),
        })
    }

    /// A free slot, unless another request waits for one.
    pub(crate) fn try_take(self: &Arc<Slots>) -> Option<Slot> {
        let permit = Arc::clone(&self.semaphore).try_acquire_owned().ok()?;
        Some(Slot { slots: Arc::clone(self), since: Instant::now(), _permit: permit })
    }

    /// A slot, as soon as one is free.
    pub(crate) async fn take(self: &Arc<Slots>) -> Result<Slot, Overloaded> {
        if let Some(slot) = self.try_take() {
            return Ok(slot);
        }
        let Slots { semaphore, waiting, waiting_max, released } = &**self;
        let more = |waiting: usize| (waiting < *waiting_max).then_some(waiting + 1);
        if waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(Overloaded { waiting_max: *waiting_max });
        }
        let _counted = Counted(waiting);
        let asked = Instant::now();
        let permit = Arc::clone(semaphore).acquire_owned().await.expect("it is never closed");
        let released = *released.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Slot { slots: Arc::clone(self), since: asked.max(released), _permit: permit })
    }
}

impl Slot {
    /// When the slot became busy. A waiter's slot is busy from the previous holder's release, not from the wake-up.
    /// Otherwise a saturated pool of one slot would not be 100 % busy. With several slots, a later release may count.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The permit is released after this.
        *self.slots.released.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// A waiting request.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn slots_are_granted_in_order_and_waiting_is_limited() {
        let slots = Slots::new(1, 2);
        let mut context = Context::from_waker(Waker::noop());
        let held = slots.try_take().expect("it is free");
        let (mut first, mut second) = (Box::pin(slots.take()), pin!(slots.take()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Err(refused)) = pin!(slots.take()).poll(&mut context) else {
            panic!("a third waiter is accepted");
        };
        assert_eq!(refused, Overloaded { waiting_max: 2 });
        let before = Instant::now();
        drop(held);
        let after = Instant::now();
        assert!(slots.try_take().is_none(), "a waiter is overtaken");
        assert!(second.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Ok(held)) = first.as_mut().poll(&mut context) else {
            panic!("the first waiter has no slot");
        };
        assert!((before..=after).contains(&held.since()), "busy from the release on");
        drop(first);
        // The first waiter has given up its place.
        assert!(pin!(slots.take()).poll(&mut context).is_pending());
        drop(held);
        assert!(matches!(second.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    }

    #[test]
    fn cancelled_waiter_leaves_its_place_and_its_slot() {
        let slots = Slots::new(1, 1);
        let mut context = Context::from_waker(Waker::noop());
        let held = slots.try_take();
        let mut gone = Box::pin(slots.take());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        drop(held);
        // By now, the waiter has the slot.
        drop(gone);
        let asked = Instant::now();
        let Poll::Ready(Ok(slot)) = pin!(slots.take()).poll(&mut context) else {
            panic!("the slot is lost");
        };
        assert!(slot.since() >= asked, "busy before its request");
    }
}
