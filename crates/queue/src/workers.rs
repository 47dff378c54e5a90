//! Worker slots: whoever asks the database has one meanwhile. First come, first served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::turns::{Turn, Turns};

/// The slots of a middleware.
#[derive(Debug)]
pub(crate) struct Workers {
    slots: Arc<Turns>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// A slot, until it is dropped.
pub(crate) type Worker = Turn;

/// Too many wait for a slot already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded {
    /// So many.
    pub(crate) waiting_max: usize,
}

impl Workers {
    /// So many slots, for which at most `waiting_max` may wait.
    pub(crate) fn new(workers: usize, waiting_max: usize) -> Workers {
        Workers { slots: Turns::new(workers), waiting: AtomicUsize::new(0), waiting_max }
    }

    /// A slot that is free now, if nobody waits for it.
    pub(crate) fn free(&self) -> Option<Worker> {
        self.slots.free()
    }

    /// A slot, when it is one's turn.
    pub(crate) async fn turn(&self) -> Result<Worker, Overloaded> {
        let Workers { slots, waiting, waiting_max } = self;
        let more = |waiting: usize| (waiting < *waiting_max).then_some(waiting + 1);
        if waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(Overloaded { waiting_max: *waiting_max });
        }
        let _counted = Counted(waiting);
        Ok(slots.turn().await)
    }
}

/// One of those that wait.
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
    fn who_comes_first_is_served_first_and_no_more_than_some_wait() {
        let workers = Workers::new(1, 2);
        let mut context = Context::from_waker(Waker::noop());
        let held = workers.free().expect("it is free");
        let (mut first, mut second) = (Box::pin(workers.turn()), pin!(workers.turn()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        let mut third = pin!(workers.turn());
        let Poll::Ready(Err(refused)) = third.as_mut().poll(&mut context) else {
            panic!("the third one is refused");
        };
        assert_eq!(refused, Overloaded { waiting_max: 2 });
        drop(held);
        assert!(workers.free().is_none(), "nobody is overtaken");
        assert!(second.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Ok(held)) = first.as_mut().poll(&mut context) else {
            panic!("it is the first one's turn");
        };
        drop(first);
        // One has left its place.
        let mut fourth = pin!(workers.turn());
        assert!(fourth.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert!(matches!(second.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    }

    #[test]
    fn who_gives_up_makes_room_for_another_one() {
        let workers = Workers::new(1, 1);
        let mut context = Context::from_waker(Waker::noop());
        let _held = workers.free();
        let mut gone = Box::pin(workers.turn());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        drop(gone);
        let mut next = pin!(workers.turn());
        assert!(next.as_mut().poll(&mut context).is_pending());
    }
}
