//! What the messages of all calls take together: each has a share from its first byte on until the
//! last one of its answer has left, and is refused where there is no room for it.
//!
//! A connection may take as much as is left to all others, and no more: one alone half of everything,
//! two that take what they can a third each. However many hold what they have, something is left
//! (Choudhury and Hahne 1998, "Dynamic queue length thresholds for shared-memory packet switches").

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::Status;

/// What a call takes beside its messages: what they are read into and written from. A small answer
/// is part of it.
pub(super) const CALL_BYTES: usize = 16 << 10;

/// What may be taken.
#[derive(Debug)]
pub(super) struct Budget {
    taken: AtomicUsize,
    bytes_max: usize,
}

/// What the calls of a connection have taken.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    /// Locked while somebody looks for room: who finds none has taken nothing meanwhile, for which
    /// others would be refused.
    taken: Mutex<usize>,
    /// Parts of large answers that its reader had room for.
    parts: AtomicUsize,
}

/// What a call has taken; it is given back when nothing holds it any more.
#[derive(Debug)]
pub(super) struct Share {
    account: Arc<Account>,
    bytes: AtomicUsize,
    is_metered: AtomicBool,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { taken: AtomicUsize::new(0), bytes_max })
    }

    /// For another connection.
    pub(super) fn account(self: &Arc<Budget>) -> Arc<Account> {
        let (taken, parts) = (Mutex::new(0), AtomicUsize::new(0));
        Arc::new(Account { budget: Arc::clone(self), taken, parts })
    }
}

impl Account {
    /// For another call, which has taken nothing yet.
    pub(super) fn share(self: &Arc<Account>) -> Share {
        let account = Arc::clone(self);
        Share { account, bytes: AtomicUsize::new(0), is_metered: AtomicBool::new(false) }
    }

    fn take(&self, bytes: usize) -> Result<(), Status> {
        let Budget { taken, bytes_max } = &*self.budget;
        let mut own_taken = self.taken();
        let own = own_taken.saturating_add(bytes);
        let sum = |taken: usize| {
            let sum = taken.checked_add(bytes)?;
            bytes_max.checked_sub(sum).is_some_and(|left| own <= left).then_some(sum)
        };
        let room = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        room.map_err(|_| {
            Status::resource_exhausted(format!(
                "the messages of all calls take {bytes_max} bytes, those of a connection no more than \
                 they leave to others, and there is no room for {bytes} more: come again later, or \
                 see --grpc-memory-mb"
            ))
        })?;
        *own_taken = own;
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        *self.taken() -= bytes;
        self.budget.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn taken(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Takes more.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Status> {
        self.account.take(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back all but so much.
    pub(super) fn keep(&self, bytes: usize) {
        let had = self.bytes.fetch_min(bytes, Ordering::Relaxed);
        self.account.give_back(had.saturating_sub(bytes));
    }

    /// Its connection's reader had room for a part of an answer.
    pub(super) fn count_part(&self) {
        self.account.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many its connection's reader had room for, of all answers.
    pub(super) fn parts(&self) -> usize {
        self.account.parts.load(Ordering::Relaxed)
    }

    /// Its call is told of by whoever answers it.
    pub(super) fn metered(&self) {
        self.is_metered.store(true, Ordering::Relaxed);
    }

    /// Whether its call is told of, or will be.
    pub(super) fn is_metered(&self) -> bool {
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
        let budget = Budget::new(1 << 20);
        let shares: Vec<_> = (1..=15)
            .map(|connections| {
                let share = budget.account().share();
                while share.take(16).is_ok() {}
                let left = (1 << 20) - budget.taken.load(Ordering::Relaxed);
                assert!(left >= (1 << 20 >> connections) - 16, "{connections} leave {left} bytes");
                share
            })
            .collect();
        assert!(budget.account().share().take(16).is_ok());
        drop(shares);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_calls_of_a_connection_have_no_more_than_they_leave() {
        let budget = Budget::new(1000);
        let account = budget.account();
        let calls = [(); 2].map(|()| account.share());
        calls[0].take(300).unwrap();
        calls[1].take(200).unwrap();
        assert_eq!(calls[1].take(1).unwrap_err().code(), tonic::Code::ResourceExhausted);
        // Another connection may have half of what is left.
        let other = budget.account().share();
        other.take(250).unwrap();
        other.take(1).unwrap_err();
        calls[0].keep(50);
        other.take(125).unwrap();
        drop(calls);
        drop(other);
        budget.account().share().take(500).unwrap();
    }

    #[test]
    fn a_call_is_not_refused_for_another_that_is() {
        let account = Budget::new(1000).account();
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
    fn what_is_more_than_can_be_counted_is_refused() {
        let share = Budget::new(usize::MAX).account().share();
        share.take(1).unwrap();
        share.take(usize::MAX).unwrap_err();
        share.take(1).unwrap();
    }
}
