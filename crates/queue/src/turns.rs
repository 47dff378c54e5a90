//! Turns, so many at a time: first come, first served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns that are given in the order in which they were asked for.
#[derive(Debug)]
pub(crate) struct Turns {
    semaphore: Arc<Semaphore>,
    /// Since when there has been each turn that nobody has noticed to have: as many as the semaphore has permits, or
    /// has handed to whoever waits.
    free: Mutex<VecDeque<Instant>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn new(turns: usize) -> Arc<Turns> {
        let free = Mutex::new(vec![Instant::now(); turns].into());
        Arc::new(Turns { semaphore: Arc::new(Semaphore::new(turns)), free })
    }

    /// One that is free now, if nobody waits for it.
    pub(crate) fn free(self: &Arc<Turns>) -> Option<Turn> {
        let permit = Arc::clone(&self.semaphore).try_acquire_owned().ok()?;
        // What was given back before it may be whose who has yet to notice.
        let freed = self.lock().pop_back();
        Some(self.taken(Instant::now(), freed, permit))
    }

    /// One, when it comes.
    pub(crate) async fn turn(self: &Arc<Turns>) -> Turn {
        if let Some(turn) = self.free() {
            return turn;
        }
        let asked = Instant::now();
        let permit = Arc::clone(&self.semaphore).acquire_owned().await;
        // Which of several that have waited takes whose makes no difference to all of them together.
        let freed = self.lock().pop_front();
        self.taken(asked, freed, permit.expect("it is never closed"))
    }

    fn taken(
        self: &Arc<Turns>,
        asked: Instant,
        freed: Option<Instant>,
        permit: OwnedSemaphorePermit,
    ) -> Turn {
        let since = freed.expect("as many as permits").max(asked);
        Turn { turns: Arc::clone(self), since, _permit: permit }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Since when nobody else can have had it: whoever waited has it before he notices, from the moment in which it
    /// was given back.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before its permit is.
        self.turns.lock().push_back(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn whoever_waits_has_a_turn_from_when_it_is_given_back() {
        let turns = Turns::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let held = turns.free().expect("it is free");
        let mut next = pin!(turns.turn());
        assert!(next.as_mut().poll(&mut context).is_pending());
        let before = Instant::now();
        drop(held);
        let after = Instant::now();
        assert!(turns.free().is_none(), "it is somebody's already");
        let Poll::Ready(held) = next.poll(&mut context) else {
            panic!("it is his turn");
        };
        assert!((before..=after).contains(&held.since()));
    }

    #[test]
    fn nobody_has_a_turn_before_he_asks_for_it() {
        let turns = Turns::new(2);
        let asked = Instant::now();
        let (first, second) = (turns.free(), turns.free());
        for turn in [first, second] {
            assert!(turn.expect("it is free").since() >= asked);
        }
        let mut context = Context::from_waker(Waker::noop());
        let asked = Instant::now();
        let Poll::Ready(turn) = pin!(turns.turn()).poll(&mut context) else {
            panic!("it is free");
        };
        assert!(turn.since() >= asked);
    }

    #[test]
    fn who_need_not_wait_takes_nothing_of_who_has_yet_to_notice() {
        let turns = Turns::new(2);
        let mut context = Context::from_waker(Waker::noop());
        let (first, second) = (turns.free(), turns.free());
        let mut next = pin!(turns.turn());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(first);
        let handed = Instant::now();
        drop(second);
        let other = turns.free().expect("it is free");
        let Poll::Ready(turn) = next.poll(&mut context) else {
            panic!("it is his turn");
        };
        assert!(turn.since() <= handed && other.since() >= handed);
    }

    #[test]
    fn who_gives_up_what_he_has_not_noticed_leaves_it_to_the_next() {
        let turns = Turns::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let held = turns.free().expect("it is free");
        let mut gone = Box::pin(turns.turn());
        let mut next = pin!(turns.turn());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(held);
        let after = Instant::now();
        drop(gone);
        let Poll::Ready(held) = next.poll(&mut context) else {
            panic!("it is his turn");
        };
        assert!(held.since() <= after);
        drop(held);
        assert!(turns.free().is_some());
    }
}
