//! Who writes to the disk, for everybody: one after the other.

use std::thread;

use super::{Log, lock};
use crate::versioned::record::Sequence;

/// Who writes to the disk, for everybody: one after the other has a turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether it is somebody's turn; otherwise the one with this number is over.
    pub(super) taken: bool,
    /// Counted from 1.
    pub(super) turn: usize,
    /// The last commit that it makes safe.
    pub(super) up_to: Sequence,
}

/// Somebody's turn, which ends with this: whatever becomes of who has it.
pub(super) struct Turn<'a> {
    pub(super) log: &'a Log,
    pub(super) number: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // Nobody knows what of it is on the disk.
            self.log.broken.get_or_init(|| "what was to write it failed".into());
        }
        lock(&self.log.turns).taken = false;
        // One that has the next turn comes first: the disk is busy while the others wake.
        self.log.turn_over[(self.number + 1) % 2].notify_one();
        self.log.turn_over[self.number % 2].notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::{Recovered, Unwritable};
    use super::*;

    #[test]
    fn a_turn_ends_with_whoever_had_it_and_nothing_is_written_behind_what_may_be_lost() {
        let log = Log::new(None, Recovered::nothing(), 4096, 1 << 20).expect("memory");
        *lock(&log.turns) = Turns { taken: true, turn: 1, up_to: 7 };
        let failed = catch_unwind(AssertUnwindSafe(|| {
            let _turn = Turn { log: &log, number: 1 };
            panic!("within a write");
        }));
        assert!(failed.is_err());
        assert!(!lock(&log.turns).taken);
        assert!(matches!(log.begin(std::iter::once(48), false), Err(Unwritable::Broken(_))));
    }
}
