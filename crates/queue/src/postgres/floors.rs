//! Below which number no message is ready any more, so that removing one does not walk over all that
//! were removed before it.
//!
//! Entries of removed rows stay in the index until vacuum takes them away, and as long as somebody has an
//! old snapshot open it may not. A floor of a queue's messages for a receiver holds because
//!
//! * it is at most the lowest number that was seen ready, also if somebody was just removing it: a remover
//!   that is undone gives back nothing below;
//! * it is at most above the highest number that is *decided*: those who sent up to there have ended, so
//!   that none appears below. The log that says that these numbers were given is on the disk: after a crash
//!   they are not given again;
//! * messages that are put back raise their queue's epoch in the same transaction, and a floor holds in
//!   one epoch only.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::operation::{ClientId, QueueId};

/// Floors that are kept; beyond that all are forgotten, which costs each one walk.
const FLOORS_MAX: usize = 200_000;

/// A number, and the epoch in which it is a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Floor {
    pub(super) epoch: i64,
    pub(super) id: i64,
}

/// What [`horizon`](super::statements::Statements::horizon) answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Horizon {
    /// Transactions before this one have ended.
    pub(super) settled: i64,
    /// The log is on the disk up to here.
    pub(super) flushed: i64,
    /// Numbers up to this one were given to transactions before `next`, as the log says before `logged`.
    pub(super) last: i64,
    pub(super) next: i64,
    pub(super) logged: i64,
}

/// All floors.
#[derive(Debug, Default)]
pub(super) struct Floors {
    known: Mutex<Known>,
    /// Counts answers that could raise a floor: without any, nobody needs to look at the horizon.
    answers: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    floors: HashMap<(QueueId, ClientId), Floor>,
    decided: i64,
    /// Looks at the horizon whose numbers are not decided yet, oldest first.
    horizons: VecDeque<Horizon>,
    /// How often everything was forgotten.
    losses: u64,
}

/// What held when a call was begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) own: Floor,
    pub(super) nobodys: Floor,
    decided: i64,
    losses: u64,
}

impl Begun {
    /// The epoch of the floors: they hold together or not at all.
    pub(super) fn epoch(&self) -> i64 {
        self.own.epoch
    }
}

impl Floors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to begin, for a receiver and for nobody's messages in the same queue.
    pub(super) fn begin(&self, queue: QueueId, receiver: ClientId) -> Begun {
        let known = self.known();
        let of = |receiver| known.floors.get(&(queue, receiver)).copied().unwrap_or_default();
        let (mut own, mut nobodys) = (of(receiver), of(0));
        if own.epoch < nobodys.epoch {
            own = Floor { epoch: nobodys.epoch, id: 0 };
        } else if nobodys.epoch < own.epoch {
            nobodys = Floor { epoch: own.epoch, id: 0 };
        }
        Begun { own, nobodys, decided: known.decided, losses: known.losses }
    }

    /// Learns from an answer: the lowest numbers that were seen ready, in an epoch.
    pub(super) fn raise(
        &self,
        queue: QueueId,
        receiver: ClientId,
        begun: &Begun,
        epoch: i64,
        first: Option<i64>,
        first_nobodys: Option<i64>,
    ) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let mut known = self.known();
        if known.losses != begun.losses {
            return;
        }
        if known.floors.len() >= FLOORS_MAX {
            known.floors.clear();
        }
        for (receiver, first) in [(receiver, first), (0, first_nobodys)] {
            let id = first.unwrap_or(i64::MAX).min(begun.decided + 1);
            let floor = known.floors.entry((queue, receiver)).or_default();
            if epoch > floor.epoch {
                *floor = Floor { epoch, id };
            } else if epoch == floor.epoch {
                floor.id = floor.id.max(id);
            }
        }
    }

    /// How many answers there were; who has seen none since needs no horizon.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// How often everything was forgotten, as of now.
    pub(super) fn losses(&self) -> u64 {
        self.known().losses
    }

    /// Learns what is decided. What was asked for before everything was forgotten is of no use.
    pub(super) fn learn(&self, horizon: Horizon, losses: u64) {
        /// Looks that are kept: one every 250 ms, for some minutes in which a transaction stays open.
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
            // The later one decides more, later; those before it still decide something meanwhile.
            known.horizons.pop_back();
        }
        known.horizons.push_back(horizon);
    }

    /// A connection was lost, perhaps with its server and what was not on its disk.
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
    fn a_floor_waits_for_those_who_send_below_it_and_for_the_disk() {
        let floors = Floors::default();
        let floor = || {
            let begun = floors.begin(1, 2);
            floors.raise(1, 2, &begun, 0, Some(50), None);
            (floors.begin(1, 2).own.id, floors.begin(1, 2).nobodys.id)
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
    fn a_floor_holds_in_its_epoch_and_until_a_connection_is_lost() {
        let floors = Floors::default();
        floors.learn(horizon(0, 0, 100, 1, 1), 0);
        floors.learn(horizon(1, 1, 100, 2, 1), 0);
        let old = floors.begin(1, 2);
        floors.raise(1, 2, &old, 0, Some(90), None);
        floors.raise(1, 2, &old, 3, Some(7), None);
        assert_eq!(floors.begin(1, 2).own, Floor { epoch: 3, id: 7 });
        floors.raise(1, 2, &old, 0, Some(95), None);
        assert_eq!(floors.begin(1, 2).own, Floor { epoch: 3, id: 7 }, "a late answer");
        // Nobody's messages in that queue were seen in the same epoch; another queue's were not.
        assert_eq!(floors.begin(1, 9).nobodys, Floor { epoch: 3, id: 101 });
        assert_eq!(floors.begin(1, 9).own, Floor { epoch: 3, id: 0 });
        floors.forget();
        assert_eq!(floors.begin(1, 2).own, Floor::default());
        floors.raise(1, 2, &old, 3, Some(7), None);
        floors.learn(horizon(9, 9, 100, 10, 9), 0);
        assert_eq!(floors.begin(1, 2).own, Floor::default(), "answers from before the loss");
    }
}
