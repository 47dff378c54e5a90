//! The store behind the model's operations, whole or with one fault.

use std::ops::{Bound, ControlFlow};
use std::sync::Mutex;
use std::thread;

use knee_kv_cache::engine::{Expiry, Version};
use knee_kv_store::{Action, Snapshot, Store, Visited, WriteError};

use crate::linearizability::history::Operations;
use crate::linearizability::model::{
    Change, Condition, KEYS, Outcome, Seen, Value, Write, bytes_of, value_of,
};

/// The fault. Other threads run between its two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A write reads its key, decides, and then puts the outcome, without a lock.
    DroppedLock,
    /// A write of several keys is two commits.
    TornBulk,
    /// A scan reads each stripe at another moment.
    NoSnapshot,
    /// A scan shows the state of the previous scan.
    StaleSnapshot,
    /// A repeated request is done again.
    MadeAgain,
}

/// Some keys of a store, which only this history writes.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    store: &'a Store,
    /// The prefix of its keys.
    prefix: u64,
    /// The commits before the history, if versions count commits.
    base: Version,
    fault: Option<Fault>,
    stale: Mutex<Snapshot>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        store: &'a Store,
        prefix: u64,
        counts_commits: bool,
        fault: Option<Fault>,
    ) -> Self {
        let stale = store.snapshot();
        let base = if counts_commits { stale.sequence() } else { 0 };
        Subject { store, prefix, base, fault, stale: Mutex::new(stale) }
    }

    fn key(&self, key: usize) -> [u8; 9] {
        let mut bytes = [key as u8; 9];
        bytes[..8].copy_from_slice(&self.prefix.to_be_bytes());
        bytes
    }

    fn shown(&self, version: Version, bytes: &[u8]) -> (Version, Value) {
        (version - self.base, value_of(bytes))
    }

    pub(crate) fn read(&self, key: usize) -> Seen {
        let mut bytes = Vec::new();
        let shown = self.store.read(&self.key(key), 1, |piece| {
            bytes.extend_from_slice(piece);
            true
        });
        let shown = shown.expect("nothing is damaged");
        self.store.sync(shown.sequence).expect("the disk takes it");
        shown.found.map(|shown| self.shown(shown.version, &bytes))
    }

    pub(crate) fn scan(&self) -> Vec<(usize, Seen)> {
        let fresh = self.store.snapshot();
        self.store.sync(fresh.sequence()).expect("the disk takes it");
        let mut stale = self.stale.lock().expect("not poisoned");
        if self.fault == Some(Fault::StaleSnapshot) {
            let late = std::mem::replace(&mut *stale, fresh);
            drop(stale);
            return self.scan_at(Some(&late));
        }
        drop(stale);
        self.scan_at((self.fault != Some(Fault::NoSnapshot)).then_some(&fresh))
    }

    fn scan_at(&self, snapshot: Option<&Snapshot>) -> Vec<(usize, Seen)> {
        let mut all: Vec<_> = (0..KEYS).map(|key| (key, None)).collect();
        let last = self.key(KEYS);
        for stripe in 0..self.store.stripes() {
            let mut from = Some(self.key(0).to_vec());
            while let Some(first) = from {
                let range = (Bound::Included(&first[..]), Bound::Excluded(&last[..]));
                let visit = |visited: &Visited<'_>| {
                    let mut value = Vec::new();
                    visited.value(|piece| {
                        value.extend_from_slice(piece);
                        true
                    })?;
                    let shown = self.shown(visited.shown.version, &value);
                    all[usize::from(visited.key[8])].1 = Some(shown);
                    Ok(ControlFlow::Continue(()))
                };
                let scanned = self.store.scan_stripe(stripe, snapshot, range, 1, 1, visit);
                from = scanned.expect("nothing is damaged").next;
                thread::yield_now();
            }
        }
        all
    }

    pub(crate) fn write(&self, writes: &[Write]) -> Outcome {
        match (self.fault, writes) {
            (Some(Fault::DroppedLock), [write]) => self.write_unlocked(write),
            (Some(Fault::TornBulk), [_, _, ..]) => {
                let (first, rest) = writes.split_at(1);
                let begun = self.commit(first);
                if matches!(begun, Outcome::Refused(..)) {
                    return begun;
                }
                thread::yield_now();
                match (begun, self.commit(rest)) {
                    (Outcome::Committed(one), Outcome::Committed(other)) => {
                        Outcome::Committed(one.max(other))
                    }
                    (_, Outcome::Refused(index, there)) => Outcome::Refused(index + 1, there),
                    (begun, _) => begun,
                }
            }
            _ => self.commit(writes),
        }
    }

    fn write_unlocked(&self, write: &Write) -> Outcome {
        let there = self.read(write.key);
        let version = there.as_ref().map(|(version, _)| *version);
        if !write.condition.holds(version) {
            return Outcome::Refused(0, version);
        }
        thread::yield_now();
        let value = write.change.of(there.map(|(_, value)| value));
        let bytes = value.as_deref().map(bytes_of);
        let (key, action) = (self.key(write.key), bytes.as_deref().map_or(Action::Delete, put));
        self.outcome(&[knee_kv_store::Write {
            key: &key,
            condition: knee_kv_store::Condition::Always,
            action,
        }])
    }

    fn commit(&self, writes: &[Write]) -> Outcome {
        let parts: Vec<_> = writes
            .iter()
            .map(|write| match write.change {
                Change::Put(number) | Change::Append(number) => {
                    (self.key(write.key), bytes_of(&[number]))
                }
                Change::Delete | Change::Increment(_) => (self.key(write.key), Vec::new()),
            })
            .collect();
        let asked: Vec<_> = writes
            .iter()
            .zip(&parts)
            .map(|(write, (key, bytes))| knee_kv_store::Write {
                key,
                condition: match write.condition {
                    Condition::Always => knee_kv_store::Condition::Always,
                    Condition::Absent => knee_kv_store::Condition::Absent,
                    Condition::Present => knee_kv_store::Condition::Present,
                    Condition::Version(version) => {
                        knee_kv_store::Condition::Version(version + self.base)
                    }
                },
                action: match write.change {
                    Change::Put(_) => put(bytes),
                    Change::Append(_) => Action::Append(bytes),
                    Change::Delete => Action::Delete,
                    Change::Increment(_) => unreachable!("the store itself has none"),
                },
            })
            .collect();
        self.outcome(&asked)
    }

    /// Makes a commit; returns its outcome once it is safe.
    fn outcome(&self, writes: &[knee_kv_store::Write<'_>]) -> Outcome {
        match self.store.write(writes, None, 1) {
            Ok(committed) => {
                self.store.sync(committed.sequence).expect("the disk takes it");
                Outcome::Committed(committed.version.saturating_sub(self.base))
            }
            Err(WriteError::Condition { index, version, sequence }) => {
                self.store.sync(sequence).expect("the disk takes it");
                Outcome::Refused(index, version.map(|version| version - self.base))
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

impl Operations for Subject<'_> {
    fn read(&self, key: usize) -> Seen {
        self.read(key)
    }

    fn scan(&self) -> Vec<(usize, Seen)> {
        self.scan()
    }

    fn write(&self, writes: &[Write]) -> Outcome {
        self.write(writes)
    }
}

fn put(value: &[u8]) -> Action<'_> {
    Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value }
}
