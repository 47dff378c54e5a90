//! What the messages of all calls take together: each has a share from its first byte on until the
//! last one of its answer has left, and is refused where there is no room for it.
//!
//! A connection may take as much as is left to all others, and no more: one alone half of everything,
//! two that take what they can a third each. However many hold what they have, something is left
//! (Choudhury and Hahne 1998, "Dynamic queue length thresholds for shared-memory packet switches"),
//! but for the parts of answers that wait for their readers, 32 KiB a call, which are taken whether
//! there is room or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::activity::Activity;

/// What a call takes beside its messages: what they are read into and written from. A small answer
/// is part of it while it is made; what waits for its reader has room beside that.
pub const CALL_BYTES: usize = 16 << 10;

/// A call of which nothing moves may wait for its turn so many times as long while anything else moves
/// on its connection: a reader that hangs is not excused by others for ever.
const OTHERS_EXCUSE_TIMES: u32 = 10;

/// What may be taken.
#[derive(Debug)]
pub struct Budget {
    taken: AtomicUsize,
    bytes_max: usize,
    /// The flag that says how much.
    flag: &'static str,
}

/// What the calls of a connection have taken, and what they do.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    taken: AtomicUsize,
    pub(crate) activity: Activity,
}

/// What a call has taken; it is given back when nothing holds it any more.
#[derive(Debug)]
pub struct Share {
    account: Arc<Account>,
    bytes: AtomicUsize,
    /// When something of it moved last, in nanoseconds since its connection began.
    moved_ns: AtomicU64,
    is_metered: AtomicBool,
}

impl Budget {
    /// So many bytes; `flag` is what a person is told to change that with.
    pub fn new(bytes_max: usize, flag: &'static str) -> Arc<Budget> {
        Arc::new(Budget { taken: AtomicUsize::new(0), bytes_max, flag })
    }

    /// For another connection.
    pub(crate) fn account(self: &Arc<Budget>) -> Arc<Account> {
        let (taken, activity) = (AtomicUsize::new(0), Activity::begin());
        Arc::new(Account { budget: Arc::clone(self), taken, activity })
    }

    /// For a call that came by no connection of a server, as a test of its handler makes it.
    #[must_use]
    pub fn share(self: &Arc<Budget>) -> Share {
        self.account().share()
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Account {
    /// For another call, which has taken nothing yet.
    pub(crate) fn share(self: &Arc<Account>) -> Share {
        let (bytes, moved_ns, is_metered) = Default::default();
        let share = Share { account: Arc::clone(self), bytes, moved_ns, is_metered };
        share.moves();
        share
    }

    fn take(&self, bytes: usize) -> Result<(), Status> {
        let Budget { taken, bytes_max, flag } = &*self.budget;
        let sum = |own: usize, taken: usize| {
            let sum = taken.checked_add(bytes)?;
            bytes_max.checked_sub(sum).is_some_and(|left| own <= left).then_some(sum)
        };
        // Who finds no room takes nothing meanwhile, for which others would be refused.
        let own = |own: usize| {
            let own = own.checked_add(bytes)?;
            sum(own, taken.load(Ordering::Relaxed)).map(|_| own)
        };
        let own = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, own);
        let room = own.and_then(|_| {
            let sum = |taken| sum(self.taken.load(Ordering::Relaxed), taken);
            let room = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
            // Others of its connection came before it.
            room.inspect_err(|_| {
                self.taken.fetch_sub(bytes, Ordering::Relaxed);
            })
        });
        room.map(drop).map_err(|_| {
            Status::resource_exhausted(format!(
                "the messages of all calls take {bytes_max} bytes, those of a connection no more than \
                 they leave to others, and there is no room for {bytes} more: come again later, or \
                 see {flag}"
            ))
        })
    }

    /// Takes more whether there is room or not.
    pub(crate) fn overdraw(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        self.budget.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Share {
    /// Takes more.
    ///
    /// # Errors
    /// Where there is no room for it.
    pub fn take(&self, bytes: usize) -> Result<(), Status> {
        self.account.take(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes more whether there is room or not: for the answer to what was done already. Further calls
    /// are refused meanwhile.
    pub fn overdraw(&self, bytes: usize) {
        self.account.overdraw(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back all but so much.
    pub(crate) fn keep(&self, bytes: usize) {
        let had = self.bytes.fetch_min(bytes, Ordering::Relaxed);
        self.account.give_back(had.saturating_sub(bytes));
    }

    /// That of its connection.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Something of it moves: a part of its request came, or one of its answer leaves.
    pub(crate) fn moves(&self) {
        let now_ns = self.account.activity.happens();
        self.moved_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// Until when something of it is to move where nothing may stand still for `idle_max`.
    pub(crate) fn until(&self, idle_max: Duration) -> Instant {
        let activity = &self.account.activity;
        let moved = activity.at(self.moved_ns.load(Ordering::Relaxed));
        (activity.last() + idle_max).min(moved + idle_max * OTHERS_EXCUSE_TIMES)
    }

    /// Its call is told of by whoever answers it.
    pub fn metered(&self) {
        self.is_metered.store(true, Ordering::Relaxed);
    }

    /// Whether its call is told of, or will be.
    pub(crate) fn is_metered(&self) -> bool {
        self.is_metered.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.give_back(*self.bytes.get_mut());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn however_many_take_what_they_can_something_is_left() {
        let budget = Budget::new(1 << 20, "--memory-mb");
        let shares: Vec<_> = (1..=15)
            .map(|connections| {
                let share = budget.share();
                while share.take(16).is_ok() {}
                let left = (1 << 20) - budget.taken();
                assert!(left >= (1 << 20 >> connections) - 16, "{connections} leave {left} bytes");
                share
            })
            .collect();
        assert!(budget.share().take(16).is_ok());
        drop(shares);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn the_calls_of_a_connection_have_no_more_than_they_leave() {
        let budget = Budget::new(1000, "--memory-mb");
        let account = budget.account();
        let calls = [(); 2].map(|()| account.share());
        calls[0].take(300).unwrap();
        calls[1].take(200).unwrap();
        assert_eq!(calls[1].take(1).unwrap_err().code(), tonic::Code::ResourceExhausted);
        // Another connection may have half of what is left.
        let other = budget.share();
        other.take(250).unwrap();
        other.take(1).unwrap_err();
        calls[0].keep(50);
        other.take(125).unwrap();
        drop(calls);
        drop(other);
        budget.share().take(500).unwrap();
    }

    #[test]
    fn a_call_is_not_refused_for_another_that_is() {
        let account = Budget::new(1000, "--memory-mb").account();
        let (is_over, both) = (AtomicBool::new(false), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                while !is_over.load(Ordering::Relaxed) {
                    account.share().take(1000).unwrap_err();
                }
            });
            both.wait();
            let refused = (0..1_000_000).find(|_| account.share().take(1).is_err());
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(refused, None);
        });
    }

    #[test]
    fn what_was_done_is_answered_beyond_what_there_is() {
        let budget = Budget::new(100 << 10, "--memory-mb");
        let call = budget.share();
        call.take(CALL_BYTES).unwrap();
        call.overdraw(100 << 10);
        budget.share().take(1).unwrap_err();
        call.keep(CALL_BYTES);
        assert_eq!(budget.taken(), CALL_BYTES);
        budget.share().take(1).unwrap();
        drop(call);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn what_is_more_than_can_be_counted_is_refused() {
        let share = Budget::new(usize::MAX, "--memory-mb").share();
        share.take(1).unwrap();
        share.take(usize::MAX).unwrap_err();
        share.take(1).unwrap();
    }

    #[test]
    fn who_stands_still_is_excused_by_others_of_its_connection_and_not_for_ever() {
        const HOUR: Duration = Duration::from_secs(3600);
        const MOMENT: Duration = Duration::from_nanos(1);
        let account = Budget::new(1000, "--memory-mb").account();
        let [hangs, moves] = [(); 2].map(|()| account.share());
        let moved = account.activity.at(hangs.moved_ns.load(Ordering::Relaxed));
        let at_once = hangs.until(HOUR);
        while moves.until(HOUR) < at_once + MOMENT * 1000 {
            moves.moves();
        }
        assert!(hangs.until(HOUR) > at_once);
        assert_eq!(hangs.until(MOMENT), moved + MOMENT * OTHERS_EXCUSE_TIMES);
        assert!(moves.until(MOMENT) > moved + MOMENT * OTHERS_EXCUSE_TIMES);
        hangs.moves();
        assert!(hangs.until(MOMENT) > moved + MOMENT * OTHERS_EXCUSE_TIMES);
    }
}
