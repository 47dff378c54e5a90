//! Writes appended records to the disk: one thread at a time writes for all waiting threads.
//!
//! A write has two steps. The first hands the records to the system, the second waits until they are on the disk.
//! With [`Durability::Always`], a commit waits for both. Otherwise it waits for the first, and the keeper's thread does
//! the second later.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::Log;
use super::head::{Group, Turns};
use crate::directory::Directory;
use crate::record::Sequence;
use crate::segment::Segment;
use crate::types::{Durability, Unwritable, lock};

/// A thread's turn; it ends when this is dropped, also in a panic.
pub(super) struct Turn<'a> {
    pub(super) log: &'a Log,
    pub(super) number: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // A panic: only a part of the group may be on the disk.
            self.log.broken.get_or_init(|| "the thread that wrote the log panicked".into());
        }
        lock(&self.log.turns).taken = false;
        // Wake the thread of the next turn first: the disk then works while the other threads wake.
        self.log.turn_over[(self.number + 1) % 2].notify_one();
        self.log.turn_over[self.number % 2].notify_all();
    }
}

impl Log {
    /// Makes everything up to this commit as durable as configured, with all records that other threads have appended
    /// by then.
    pub(crate) fn sync(&self, up_to: Sequence) -> Result<(), Unwritable> {
        match &self.directory {
            Some(directory) if self.synced() < up_to => match self.durability {
                Durability::Always if self.grouping.get().is_none() => {
                    self.write_out_in_turn(directory, up_to)
                }
                Durability::Always => {
                    // A turn may have no place for this commit.
                    let up_to = up_to.min(self.last());
                    while self.synced() < up_to {
                        self.write_out_in_turn(directory, up_to)?;
                    }
                    Ok(())
                }
                Durability::Interval(_) | Durability::None => self.hand_over(directory, up_to),
            },
            _ => Ok(()),
        }
    }

    /// Hands everything up to this commit to the system.
    fn hand_over(&self, directory: &Directory, up_to: Sequence) -> Result<(), Unwritable> {
        let _handing = lock(&self.handing);
        // Another thread may have handed this commit over.
        if self.synced() >= up_to {
            return Ok(());
        }
        let (last, full, active) = {
            let head = lock(&self.head);
            (head.last, head.full.clone(), Arc::clone(&head.active))
        };
        self.write_files(directory, full.iter().chain([&active]), usize::MAX)?;
        self.synced.fetch_max(last, Ordering::Release);
        Ok(())
    }

    /// Writes the records of these segments to their files, of the last one those before `end`, without waiting for
    /// the disk.
    fn write_files<'a>(
        &self,
        directory: &Directory,
        segments: impl Iterator<Item = &'a Arc<Segment>>,
        end: usize,
    ) -> Result<(), Unwritable> {
        if let Some(why) = self.broken.get() {
            return Err(Unwritable::Broken(why.clone()));
        }
        // Zeros only help a group that is synced next: see [`Directory::write`].
        let ahead = self.durability == Durability::Always;
        let mut segments = segments.peekable();
        while let Some(segment) = segments.next() {
            let end = if segments.peek().is_some() { usize::MAX } else { end };
            directory.write(segment, end, ahead).map_err(|error| self.broken_by(&error))?;
        }
        Ok(())
    }

    pub(crate) fn write_out(&self) -> Result<(), Unwritable> {
        match &self.directory {
            // Moved records have numbers of earlier commits, so only this number includes all of them.
            Some(directory) => {
                self.write_out_in_turn(directory, Sequence::MAX)?;
                self.write_keys();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Waits for the turn whose group has this commit, or takes that turn. A group with a limit may lack it.
    fn write_out_in_turn(&self, directory: &Directory, up_to: Sequence) -> Result<(), Unwritable> {
        let mut turns = lock(&self.turns);
        let own = if up_to <= turns.up_to { turns.turn } else { turns.turn + 1 };
        if up_to == Sequence::MAX && self.grouping.get().is_some() {
            // The turn `own` may be another thread's. It has not taken its group yet.
            lock(&self.head).takes_all = true;
            self.company.notify_one();
        }
        while turns.taken && turns.turn <= own {
            turns = self.turn_over[own % 2].wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        if turns.turn >= own {
            // The turn has ended, and `synced` was stored before.
            return match self.broken.get() {
                Some(why) if self.synced.load(Ordering::Acquire) < up_to => {
                    Err(Unwritable::Broken(why.clone()))
                }
                _ => Ok(()),
            };
        }
        turns = self.dally(turns, own);
        // Both locks are held while the group is taken. `turns`: each thread that waits for this turn has appended its
        // commit before, so the group has it; later threads see `up_to`. `handing`: no thread hands later records to
        // the system before those of the group.
        let handing = lock(&self.handing);
        let commits_max = self.grouping.get().map(|grouping| grouping.commits_max);
        let group = lock(&self.head).take_group(commits_max.unwrap_or(usize::MAX));
        *turns = Turns { taken: true, turn: own, up_to: group.last };
        drop(turns);
        let _turn = Turn { log: self, number: own };
        self.write_group(directory, &group, handing)
    }

    /// Until when a turn waits for further commits; `None` if it waits for none.
    pub(crate) fn dallies_until(&self) -> Option<Instant> {
        self.grouping.get().and_then(|grouping| lock(&self.head).dallies_until(*grouping))
    }

    /// Takes the turn `own`, and waits for further commits. Threads that come in this time wait for this turn.
    fn dally<'a>(&'a self, mut turns: MutexGuard<'a, Turns>, own: usize) -> MutexGuard<'a, Turns> {
        let Some(grouping) = self.grouping.get() else { return turns };
        let mut head = lock(&self.head);
        if head.dallies_until(*grouping).is_none() {
            return turns;
        }
        *turns = Turns { taken: true, turn: own, up_to: Sequence::MAX };
        drop(turns);
        while let Some(until) = head.dallies_until(*grouping) {
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.company.wait_timeout(head, left);
            (head, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(head);
        lock(&self.turns)
    }

    fn write_group(
        &self,
        directory: &Directory,
        group: &Group,
        handing: MutexGuard<'_, ()>,
    ) -> Result<(), Unwritable> {
        let began = Instant::now();
        let safely = self.durability != Durability::None;
        let mut segments = group.full.iter().chain([&group.active]);
        let end = if group.is_part { group.end.offset() } else { usize::MAX };
        self.write_files(directory, segments.clone(), end)?;
        drop(handing);
        if safely {
            segments
                .try_for_each(|segment| directory.sync_file(segment.id))
                .map_err(|error| self.broken_by(&error))?;
        }
        // A segment whose file cannot be mapped stays in memory until the next turn.
        let unopened = group.full.iter().filter(|segment| self.reopen(segment).is_err()).cloned();
        let unopened: Vec<_> = unopened.collect();
        lock(&self.head).full.splice(..0, unopened);
        if safely {
            self.settled.fetch_max(group.end.to_bits(), Ordering::Relaxed);
        }
        self.synced.fetch_max(group.last, Ordering::Release);
        if safely && group.records > 0 {
            self.made_safe.count(group.records, began);
        }
        Ok(())
    }

    /// Replaces a full segment by a mapping of its file.
    fn reopen(&self, full: &Segment) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let sealed = directory.open_sealed(full)?;
        self.replace(full.id, Some(Arc::new(sealed)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::Recovered;
    use super::*;

    #[test]
    fn panic_ends_a_turn_and_breaks_the_log() {
        let log = Log::new(None, Recovered::nothing(4096), 1 << 20).expect("memory");
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
