//! Floors: numbers below which no message of a queue and receiver is ready. A remove begins at its floor, so that it
//! does not walk over the index entries of removed messages.
//!
//! Index entries of removed rows stay until vacuum deletes them, which it cannot do while an old snapshot is open. A
//! floor is correct for three reasons:
//!
//! * It is at most the lowest number seen ready, even if another call was removing that message. So a remove that is
//!   rolled back restores no message below the floor.
//! * It is at most one above the highest *decided* number. All sends with numbers up to that one have ended, so no
//!   message appears below the floor. The write-ahead log of these numbers is on the disk, so a crash does not reissue
//!   them.
//! * A message that returns to its queue raises the queue's epoch in the same transaction. A floor is valid in one
//!   epoch only.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::operation::{ClientId, QueueId};

/// Largest number of floors. Above this number all floors are dropped, and each pair of queue and receiver walks its
/// index once.
const FLOORS_MAX: usize = 200_000;

/// A number, and its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Floor {
    pub(super) epoch: i64,
    pub(super) id: i64,
}

/// The answer of the function `horizon`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Horizon {
    /// All transactions with lower numbers have ended.
    pub(super) settled: i64,
    /// The write-ahead log is on the disk up to this position.
    pub(super) flushed: i64,
    /// The highest number that a message was given. A send takes its transaction's number first, so all messages up to
    /// `last` belong to transactions before `next`.
    pub(super) last: i64,
    /// A transaction's number, taken after `last` was read.
    pub(super) next: i64,
    /// The end of the write-ahead log after `last` was read. The log up to there records that numbers up to `last` are
    /// used.
    pub(super) logged: i64,
}

#[derive(Debug, Default)]
pub(super) struct Floors {
    known: Mutex<Known>,
    /// Counts answers that could raise a floor. Without a new answer, no horizon is read.
    answers: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    floors: HashMap<(QueueId, ClientId), Floor>,
    decided: i64,
    /// Horizons whose numbers are not yet decided, oldest first.
    horizons: VecDeque<Horizon>,
    /// Number of times that all floors were dropped.
    losses: u64,
}

/// The floors of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) own: Floor,
    pub(super) anybodys: Floor,
    decided: i64,
    losses: u64,
}

impl Begun {
    /// The epoch of both floors: they are valid together or not at all.
    pub(super) fn epoch(&self) -> i64 {
        self.own.epoch
    }
}

impl Floors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The floors at which a call begins: for the receiver's messages, and for messages to any client.
    pub(super) fn begin(&self, queue: QueueId, receiver: ClientId) -> Begun {
        let known = self.known();
        let of = |receiver| known.floors.get(&(queue, receiver)).copied().unwrap_or_default();
        let (mut own, mut anybodys) = (of(receiver), of(0));
        if own.epoch < anybodys.epoch {
            own = Floor { epoch: anybodys.epoch, id: 0 };
        } else if anybodys.epoch < own.epoch {
            anybodys = Floor { epoch: own.epoch, id: 0 };
        }
        Begun { own, anybodys, decided: known.decided, losses: known.losses }
    }

    /// Raises floors from an answer: the lowest numbers seen ready, and their epoch.
    pub(super) fn raise(
        &self,
        queue: QueueId,
        receiver: ClientId,
        begun: &Begun,
        epoch: i64,
        first: Option<i64>,
        first_anybodys: Option<i64>,
    ) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let mut known = self.known();
        if known.losses != begun.losses {
            return;
        }
        if known.floors.len() >= FLOORS_MAX {
            known.floors.clear();
        }
        for (receiver, first) in [(receiver, first), (0, first_anybodys)] {
            let id = first.unwrap_or(i64::MAX).min(begun.decided + 1);
            let floor = known.floors.entry((queue, receiver)).or_default();
            if epoch > floor.epoch {
                *floor = Floor { epoch, id };
            } else if epoch == floor.epoch {
                floor.id = floor.id.max(id);
            }
        }
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Number of times that all floors were dropped so far.
    pub(super) fn losses(&self) -> u64 {
        self.known().losses
    }

    /// Updates the decided number from a horizon. `losses` shows whether the horizon was read after the last loss.
    pub(super) fn learn(&self, horizon: Horizon, losses: u64) {
        /// Largest number of horizons: one every 250 ms, for some minutes of an open transaction.
        const HORIZONS_MAX: usize = 1000;
        let mut known = self.known();
        if known.losses != losses {
            return;
        }
        while let Some(oldest) = known.horizons.front()
            && oldest.next <= horizon.settled
            && oldest.logged <= horizon.flushed
        {
            known.decided = known.decided.max(oldest.last);
            known.horizons.pop_front();
        }
        if known.horizons.len() == HORIZONS_MAX {
            // Replace the newest horizon: the new one decides more numbers, but later.
            known.horizons.pop_back();
        }
        known.horizons.push_back(horizon);
    }

    /// Drops all floors after a lost connection. The server may have crashed, and lost data that was not on the disk.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        *known = Known { losses: known.losses + 1, ..Known::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(settled: i64, flushed: i64, last: i64, next: i64, logged: i64) -> Horizon {
        Horizon { settled, flushed, last, next, logged }
    }

    #[test]
    fn floor_waits_for_open_sends_and_for_the_disk() {
        let floors = Floors::default();
        let floor = || {
            let begun = floors.begin(1, 2);
            floors.raise(1, 2, &begun, 0, Some(50), None);
            (floors.begin(1, 2).own.id, floors.begin(1, 2).anybodys.id)
        };
        floors.learn(horizon(10, 0, 40, 12, 100), 0);
        assert_eq!(floor(), (1, 1), "nothing is decided");
        floors.learn(horizon(12, 99, 60, 15, 200), 0);
        assert_eq!(floor(), (1, 1), "the log is not on the disk");
        floors.learn(horizon(12, 100, 70, 17, 300), 0);
        assert_eq!(floor(), (41, 41), "what is decided bounds it");
        floors.learn(horizon(15, 200, 70, 18, 300), 0);
        assert_eq!(floor(), (50, 61), "what is ready bounds it");
    }

    #[test]
    fn floor_holds_in_its_epoch_until_a_connection_is_lost() {
        let floors = Floors::default();
        floors.learn(horizon(0, 0, 100, 1, 1), 0);
        floors.learn(horizon(1, 1, 100, 2, 1), 0);
        let old = floors.begin(1, 2);
        floors.raise(1, 2, &old, 0, Some(90), None);
        floors.raise(1, 2, &old, 3, Some(7), None);
        assert_eq!(floors.begin(1, 2).own, Floor { epoch: 3, id: 7 });
        floors.raise(1, 2, &old, 0, Some(95), None);
        assert_eq!(floors.begin(1, 2).own, Floor { epoch: 3, id: 7 }, "a late answer");
        // Only the messages for any client were seen in the same epoch, not those of the other receiver.
        assert_eq!(floors.begin(1, 9).anybodys, Floor { epoch: 3, id: 101 });
        assert_eq!(floors.begin(1, 9).own, Floor { epoch: 3, id: 0 });
        floors.forget();
        assert_eq!(floors.begin(1, 2).own, Floor::default());
        floors.raise(1, 2, &old, 3, Some(7), None);
        floors.learn(horizon(9, 9, 100, 10, 9), 0);
        assert_eq!(floors.begin(1, 2).own, Floor::default(), "answers from before the loss");
    }
}
