//! Reads and changes one item in one step.
//!
//! Every change is a commit of one key. A change writes the whole value as a new record; only an append writes
//! just its own bytes.

use std::sync::MutexGuard;

use knee_kv_cache::engine::{Change, Figures, Item, Refused, Second, Version};

use super::action::{Action, Condition, KEY_BYTES_MAX, Write};
use super::planned::Planned;
use super::pressure::Patience;
use super::record::{HEAD_BYTES, Kind, Sequence, record_bytes};
use super::room::Room;
use super::store::Store;
use super::table::{Damage, Expired, SlotId, Table, View};
use super::types::Unwritable;
use super::write::WriteError;

/// Number of slots that are searched for expired keys under one lock.
const EXPIRED_STEP: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The commit that the change made; without a change, the commit that it saw.
    pub(crate) sequence: Sequence,
    /// The key's version afterwards; 0 if the key is missing.
    pub(crate) version: Version,
    pub(crate) put: bool,
}

/// The part of an item that the decision sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Item,
    /// The item with an empty value.
    Head,
}

/// A key as it was found under its lock.
struct Seen {
    slot: Option<SlotId>,
    /// The commit of the key's newest record, which may be a delete record.
    sequence: Sequence,
    /// The item; `None` if the key is missing or expired.
    view: Option<View>,
}

impl Seen {
    fn of(table: &Table, hash: u64, key: &[u8], now: Second) -> Result<Seen, Damage> {
        let Some(slot) = table.find(hash, key)? else {
            return Ok(Seen { slot: None, sequence: 0, view: None });
        };
        let view = table.view(slot, Sequence::MAX)?;
        let sequence = table.newest_sequence(slot);
        let view = view.filter(|view| !view.expiry.is_over(now));
        Ok(Seen { slot: Some(slot), sequence, view })
    }

    /// Returns the item, if `shows` includes it. A value in one piece is borrowed; other values are assembled in
    /// `value`.
    fn item<'a>(
        &self,
        table: &'a Table,
        value: &'a mut Vec<u8>,
        shows: Shows,
    ) -> Result<Option<Item<'a>>, Damage> {
        let (Some(slot), Some(view)) = (self.slot, &self.view) else { return Ok(None) };
        let (used_at, read) = table.usage(slot);
        let value = match table.whole(view) {
            _ if shows == Shows::Head => &[][..],
            Some(whole) => whole,
            None => {
                gather(table, view, value)?;
                value
            }
        };
        let View { flags, expiry, version, marks, .. } = *view;
        Ok(Some(Item { flags, expiry, version, marks, read, used_at, value }))
    }

    /// Plans the records for `change`; `value` is a buffer for a value that must be rewritten.
    fn step<'a>(
        &mut self,
        table: &Table,
        change: Change<'a>,
        value: &'a mut Vec<u8>,
    ) -> Result<Step<'a>, Damage> {
        let record = |action| Step::Record { action, keeps: None, read: false };
        if let Change::Put { flags, expiry, marks, value } = change {
            return Ok(record(Action::Put { flags, expiry, marks, value }));
        }
        let (Some(slot), Some(view)) = (self.slot, &mut self.view) else {
            return Ok(Step::Nothing);
        };
        let (_, was_read) = table.usage(slot);
        let View { flags, expiry: old_expiry, version, marks: old_marks, .. } = *view;
        Ok(match change {
            Change::Keep | Change::Put { .. } => Step::Nothing,
            Change::Read => Step::Use,
            Change::Append(tail) => {
                // Marks belong to one value; the new value starts without them.
                view.marks = 0;
                record(Action::Append(tail))
            }
            Change::Prepend(front) => {
                gather(table, view, value)?;
                value.splice(..0, front.iter().copied());
                record(Action::Put { flags, expiry: old_expiry, marks: 0, value })
            }
            Change::Rewrite { expiry, value } => {
                let action = Action::Put { flags, expiry, marks: old_marks, value };
                Step::Record { action, keeps: None, read: was_read }
            }
            Change::Amend { expiry, marks, new_version: false, read: true }
                if (expiry, marks) == (old_expiry, old_marks) =>
            {
                Step::Use
            }
            Change::Amend { expiry, marks, new_version, read } => {
                gather(table, view, value)?;
                let action = Action::Put { flags, expiry, marks, value };
                let keeps = (!new_version).then_some(version);
                Step::Record { action, keeps, read: was_read || read }
            }
            Change::Remove => record(Action::Delete),
        })
    }
}

impl From<WriteError> for Refused {
    fn from(error: WriteError) -> Refused {
        match error {
            WriteError::TooLarge { .. } | WriteError::Key(_) => Refused::TooLarge,
            WriteError::Log(Unwritable::Full(_)) => Refused::Full,
            WriteError::Log(Unwritable::NoSpace(_)) => Refused::NoSpace,
            WriteError::Log(Unwritable::Failed(_)) => Refused::Failed,
            WriteError::Log(Unwritable::Broken(_)) => Refused::Broken,
            WriteError::Damage(_) => Refused::Damaged,
            WriteError::Condition { .. } | WriteError::Twice(_) => {
                unreachable!("one write without a condition")
            }
        }
    }
}

/// The records that a change makes.
enum Step<'a> {
    /// Nothing; the key does not even count as used.
    Nothing,
    /// The key counts as read.
    Use,
    Record {
        action: Action<'a>,
        /// The version that the key keeps, instead of a new one.
        keeps: Option<Version>,
        /// Whether the key counts as read afterwards.
        read: bool,
    },
}

fn gather(table: &Table, view: &View, value: &mut Vec<u8>) -> Result<(), Damage> {
    value.clear();
    value.reserve(view.value_bytes);
    table.pieces(view, |piece| {
        value.extend_from_slice(piece);
        true
    })
}

impl Store {
    /// Shows the item of a key, and counts this as a use. Also returns the last commit that the read saw; for a
    /// deleted key, the commit that deleted it.
    pub(crate) fn show<R>(
        &self,
        key: &[u8],
        now: Second,
        value: &mut Vec<u8>,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> Result<(R, Sequence), Damage> {
        self.clear_if_due(now);
        let hash = self.0.hash.hash(key);
        let mut table = self.stripe(self.stripe_of(hash));
        let seen = Seen::of(&table, hash, key, now)?;
        let item = seen.item(&table, value, Shows::Item)?;
        let is_there = item.is_some();
        let outcome = visit(item);
        if let (Some(slot), true) = (seen.slot, is_there) {
            table.note_use(slot, now, true);
        }
        Ok((outcome, seen.sequence))
    }

    /// Shows the item of a key and the length of its value to `decide`, and makes the change that `decide` returns, in
    /// one atomic step. If the item is unreadable, `decide` gets no item, and nothing changes. The vector is a buffer for
    /// a value in several pieces. After [`Refused::Changed`] the caller tries again with the same patience.
    pub(crate) fn change<'c, R>(
        &self,
        key: &[u8],
        now: Second,
        (value, patience): (&mut Vec<u8>, &mut Patience),
        shows: Shows,
        decide: impl FnOnce(Option<Item<'_>>, usize) -> (Change<'c>, R),
    ) -> (Result<Changed, Refused>, R) {
        while let Err(error) = self.clear_before_write(now) {
            if !error.is_full() || !self.wait_for_room(Room::CLEAR, patience) {
                return (Err(error.into()), decide(None, 0).1);
            }
        }
        let hash = self.0.hash.hash(key);
        let mut locked = [(self.stripe_of(hash), self.stripe(self.stripe_of(hash)))];
        let table = &mut *locked[0].1;
        let Ok(mut seen) = Seen::of(table, hash, key, now) else {
            return (Err(Refused::Damaged), decide(None, 0).1);
        };
        let Ok(item) = seen.item(table, value, shows) else {
            return (Err(Refused::Damaged), decide(None, 0).1);
        };
        let value_bytes = seen.view.as_ref().map_or(0, |view| view.value_bytes);
        let (change, outcome) = decide(item, value_bytes);
        let Ok(step) = seen.step(table, change, value) else {
            return (Err(Refused::Damaged), outcome);
        };
        let version = seen.view.map_or(0, |view| view.version);
        let unchanged = Changed { sequence: seen.sequence, version, put: false };
        let (action, keeps, read) = match step {
            Step::Nothing => return (Ok(unchanged), outcome),
            Step::Use => {
                if let Some(slot) = seen.slot {
                    table.note_use(slot, now, true);
                }
                return (Ok(unchanged), outcome);
            }
            Step::Record { action, keeps, read } => (action, keeps, read),
        };
        let write = Write { key, condition: Condition::Always, action };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return (Err(Refused::TooLarge), outcome);
        }
        if let Err(error) = self.check_size(0, &write, seen.view.as_ref()) {
            return (Err(error.into()), outcome);
        }
        let marks = seen.view.as_ref().map(|view| view.marks);
        let committed = loop {
            let version = self.version_after(&locked[0].1, seen.slot);
            let (slot, view) = (seen.slot, seen.view.take());
            let planned = Planned { write, hash, slot, view, version, keeps };
            let error = match self.append(&[planned], None, &mut locked, now) {
                Ok(committed) => break committed,
                Err(error) => error,
            };
            let [(stripe, table)] = locked;
            drop(table);
            if !error.is_full() || !self.wait_for_room(Room::of(&[write]), patience) {
                return (Err(error.into()), outcome);
            }
            locked = [(stripe, self.stripe(stripe))];
            match Seen::of(&locked[0].1, hash, key, now) {
                Err(_) => return (Err(Refused::Damaged), outcome),
                Ok(again) if again.sequence != seen.sequence => {
                    return (Err(Refused::Changed), outcome);
                }
                Ok(again) => seen = again,
            }
            if let (Some(view), Some(marks)) = (&mut seen.view, marks) {
                view.marks = marks;
            }
        };
        if let (Some(slot), true) = (seen.slot, read) {
            locked[0].1.note_use(slot, now, true);
        }
        let (sequence, gone) = (committed.sequence, action == Action::Delete);
        let version = if gone { 0 } else { committed.version };
        (Ok(Changed { sequence, version, put: !gone && keeps.is_none() }), outcome)
    }

    /// Deletes the expired keys among some slots of a stripe. Returns the slot to resume at. The stripe stays locked,
    /// so that no client can prolong an item at the same time.
    pub(super) fn delete_expired_from(
        &self,
        stripe: usize,
        first: usize,
        now: Second,
    ) -> Result<Option<usize>, Refused> {
        let mut locked = [(stripe, self.stripe(stripe))];
        let Expired { keys, next } = locked[0].1.expired_from(first, EXPIRED_STEP, now);
        self.remove_all(&keys, &mut locked, now)?;
        Ok(next)
    }

    /// Deletes keys of a locked stripe, in as few commits as fit.
    pub(super) fn remove_all(
        &self,
        keys: &[(Vec<u8>, SlotId)],
        locked: &mut [(usize, MutexGuard<'_, Table>)],
        now: Second,
    ) -> Result<(), Refused> {
        // A delete takes at most one segment of the reserve.
        let room = self.0.options.segment_bytes - HEAD_BYTES;
        let (mut rest, mut most) = (keys, room);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|(key, _)| {
                bytes += record_bytes(Kind::Delete, key.len(), 0, false);
                bytes <= most
            });
            let (now_gone, later) = rest.split_at(fit.count().max(1));
            match self.remove(now_gone, locked, now) {
                Ok(_) => rest = later,
                // Fewer deletes may still fit the active segment.
                Err(refused)
                    if refused.is_full() && self.0.log.room() < most && now_gone.len() > 1 =>
                {
                    most = self.0.log.room();
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    }

    /// Deletes keys of a locked stripe in one commit, if there are any.
    pub(super) fn remove(
        &self,
        keys: &[(Vec<u8>, SlotId)],
        locked: &mut [(usize, MutexGuard<'_, Table>)],
        now: Second,
    ) -> Result<Sequence, Refused> {
        if keys.is_empty() {
            return Ok(0);
        }
        let table = &*locked[0].1;
        let planned: Vec<_> = keys
            .iter()
            .map(|(key, slot)| Planned {
                write: Write { key, condition: Condition::Always, action: Action::Delete },
                hash: self.0.hash.hash(key),
                slot: Some(*slot),
                view: None,
                version: self.version_after(table, Some(*slot)),
                keeps: None,
            })
            .collect();
        let committed = self.append(&planned, None, locked, now)?;
        Ok(committed.sequence)
    }

    /// Changes the limit of the log. Returns false, without a change, if the log is already larger:
    /// the store evicts nothing.
    pub(crate) fn set_limit(&self, bytes: u64) -> bool {
        let (taken, _) = self.0.log.bytes();
        let fits = taken <= bytes;
        if fits {
            self.0.log.set_bytes_max(bytes);
            self.0.pressure.note_freed();
        }
        fits
    }

    /// How full the store is. The limit covers the log; the memory of the tables is additional.
    pub(crate) fn item_figures(&self) -> Figures {
        let (log_bytes, memory_bytes_max) = self.0.log.bytes();
        let item_bytes = self.0.log.segments().iter().map(|segment| segment.live()).sum();
        let mut figures =
            Figures { item_bytes, memory_bytes: log_bytes, memory_bytes_max, ..Figures::default() };
        for stripe in 0..self.stripes() {
            let table = self.stripe(stripe);
            figures.items += table.keys() as u64;
            figures.memory_bytes += table.bytes() as u64;
        }
        figures
    }
}
