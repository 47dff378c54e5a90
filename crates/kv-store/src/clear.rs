//! Deletes all keys: at once for readers, and key by key in the log.
//!
//! One clear record deletes all keys in one commit: a reader sees all keys or none. The keeper later appends a
//! delete record for each key. Watchers see those, and the clear record itself can then be dropped.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};

use knee_kv_cache::engine::{Refused, Second};

use super::clearing::{Clearing, NEVER, Walked};
use super::place::{ALIGN, Location};
use super::record::{HEAD_BYTES, Kind, Record, Sequence, record_bytes};
use super::store::Store;
use super::types::lock;
use super::write::WriteError;

impl Store {
    /// Deletes every key at a second, or now if that second is not in the future. Replaces a scheduled clear.
    /// Returns the commit, or 0 for a scheduled clear. The keeper appends a delete record for each key.
    ///
    /// # Errors
    /// When the log refuses the record: then no key is deleted.
    pub(crate) fn clear(&self, at: Second, now: Second) -> Result<Sequence, Refused> {
        if at > now {
            self.0.clearing.is_late.store(false, Ordering::Relaxed);
            self.0.clearing.due.store(at, Ordering::Release);
            return Ok(0);
        }
        Ok(self.take_all_away(|_| true)?)
    }

    /// Runs a scheduled clear once its time has come. If the log refuses the record, reads go on, and writers and the
    /// keeper try again.
    #[inline]
    pub(super) fn clear_if_due(&self, now: Second) {
        let Clearing { due, is_late, .. } = &self.0.clearing;
        if due.load(Ordering::Acquire) <= now && !is_late.load(Ordering::Relaxed) {
            let _ = self.clear_due(now);
        }
    }

    /// The same before a write: a clear must not delete a write that comes after its time.
    ///
    /// # Errors
    /// When the log refuses the record.
    #[inline]
    pub(super) fn clear_before_write(&self, now: Second) -> Result<(), WriteError> {
        let is_due = self.0.clearing.due.load(Ordering::Acquire) <= now;
        if is_due { self.clear_due(now) } else { Ok(()) }
    }

    #[cold]
    fn clear_due(&self, now: Second) -> Result<(), WriteError> {
        let cleared = self.take_all_away(|due| due <= now);
        self.0.clearing.is_late.store(cleared.is_err(), Ordering::Relaxed);
        cleared.map(drop)
    }

    /// Deletes every key, if the clear still `is_due`. Returns the commit of the last clear.
    fn take_all_away(&self, is_due: impl FnOnce(Second) -> bool) -> Result<Sequence, WriteError> {
        // With all stripes locked, every write either has ended or will see no key.
        let mut tables: Vec<_> = (0..self.stripes()).map(|stripe| self.stripe(stripe)).collect();
        let Clearing { due, unfinished, unfinished_at, .. } = &self.0.clearing;
        let asked = due.load(Ordering::Relaxed);
        if !is_due(asked) {
            return Ok(unfinished.load(Ordering::Relaxed));
        }
        let bytes = record_bytes(Kind::Clear, 0, 0, false);
        let mut commit = self.0.log.begin(iter::once(bytes), true)?;
        let sequence = commit.sequence;
        let at = commit.append(&Record::of_no_key(Kind::Clear, sequence));
        unfinished.store(sequence, Ordering::Relaxed);
        unfinished_at.store(at.to_bits(), Ordering::Release);
        drop(commit);
        tables.iter_mut().for_each(|table| table.clear(sequence));
        // A client may have scheduled another clear since; that one stays.
        let _ = due.compare_exchange(asked, NEVER, Ordering::Release, Ordering::Relaxed);
        self.0.pressure.note_freed();
        Ok(sequence)
    }

    /// The commit of the last clear, while some of its keys have no delete record; 0 if all have.
    pub(super) fn clearing(&self) -> Sequence {
        self.0.clearing.unfinished.load(Ordering::Acquire)
    }

    /// The last commit, at most `horizon`, up to which every cleared key has a delete record. Readers of commits from
    /// `horizon` on must see these records.
    pub(super) fn said_by_keys(&self, horizon: Sequence) -> Sequence {
        let Clearing { finished, finished_by, .. } = &self.0.clearing;
        let is_done = self.clearing() == 0;
        let finished = finished.load(Ordering::Acquire);
        match finished_by.load(Ordering::Relaxed) {
            by if by > horizon => 0,
            _ if is_done => horizon,
            _ => finished.min(horizon),
        }
    }

    /// The commit from which on the log is complete without the clear record of the commit `cleared`. `None` while
    /// that record is needed: an unfinished later clear does not cover the commits between the two.
    pub(super) fn said_without(&self, cleared: Sequence) -> Option<Sequence> {
        let Clearing { finished, finished_by, .. } = &self.0.clearing;
        let newest = self.clearing();
        let is_done = newest == 0 || cleared <= finished.load(Ordering::Acquire);
        is_done.then(|| newest.max(finished_by.load(Ordering::Relaxed)))
    }

    /// Notes a clear record that a recovery found.
    pub(super) fn restore_clear(&self, sequence: Sequence) {
        for stripe in 0..self.stripes() {
            self.stripe(stripe).clear(sequence);
        }
        self.0.clearing.unfinished.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Appends a delete record for each cleared key without a later write, until `over` is set.
    ///
    /// # Errors
    /// When the log refuses a record.
    pub(super) fn finish_clearing(&self, now: Second, over: &AtomicBool) -> Result<(), Refused> {
        // While `reclaiming` is locked, no record moves to a place that the walk has passed.
        let _reclaiming = lock(&self.0.reclaiming);
        let Clearing { unfinished, unfinished_at, finished_at, finished, finished_by, .. } =
            &self.0.clearing;
        // This may be the place of an earlier clear: then the walk visits a part of the log twice.
        let commit_at = unfinished_at.load(Ordering::Acquire);
        let commit = self.clearing();
        if commit == 0 {
            return Ok(());
        }
        let mut walked = lock(&self.0.clearing.walked);
        if walked.commit != commit {
            let to = Location::from_bits(finished_at.load(Ordering::Relaxed));
            *walked = Walked { commit, to };
        }
        // The walk follows the log: once all keys of a segment are deleted, that segment can be reclaimed.
        for segment in self.0.log.segments() {
            let (mut at, end) = match walked.to {
                Some(to) if segment.id < to.segment => continue,
                Some(to) if segment.id == to.segment => (to.offset(), segment.filled()),
                _ => (0, segment.filled()),
            };
            while at + HEAD_BYTES <= end {
                let from = Location::new(segment.id, at);
                walked.to = Some(from);
                // A damaged record needs no delete record: no client can read it.
                let Ok(record) = segment.checked(at) else {
                    at += ALIGN;
                    continue;
                };
                at += record.bytes();
                if record.kind.is_of_a_key() && record.sequence < commit {
                    self.remove_at(record.key, from, now)?;
                }
            }
            if over.load(Ordering::Acquire) {
                return Ok(());
            }
        }
        // Stored before `finished`, whose readers need it.
        finished_by.store(self.0.log.last(), Ordering::Relaxed);
        finished.store(commit, Ordering::Release);
        // Another clear may have come; its work stays.
        let _ = unfinished.compare_exchange(commit, 0, Ordering::Release, Ordering::Relaxed);
        finished_at.store(commit_at, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes a key if its newest record is at `at`.
    fn remove_at(&self, key: &[u8], at: Location, now: Second) -> Result<(), Refused> {
        let hash = self.0.hash.hash(key);
        let stripe = self.stripe_of(hash);
        let mut locked = [(stripe, self.stripe(stripe))];
        let table = &*locked[0].1;
        match table.find(hash, key) {
            Ok(Some(slot)) if table.is_there_at(slot, at) => {
                self.remove(&[(key.to_vec(), slot)], &mut locked, now).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use knee_kv_cache::engine::Expiry;

    use super::*;
    use crate::segment::FILE_HEAD_BYTES;
    use crate::{
        Action, Condition, Consistency, DirectoryOptions, Durability, ReadError, StoreOptions,
        Write, WriteError,
    };

    fn options(stripes: usize, value_bytes_max: usize) -> StoreOptions {
        StoreOptions {
            consistency: Consistency::Linearizable,
            stripes,
            value_bytes_max,
            segment_bytes: 4096,
        }
    }

    /// A store in a directory; all versions that may be dropped are compacted.
    fn open(path: &Path, value_bytes_max: usize) -> Store {
        let directory =
            DirectoryOptions { path: path.into(), durability: Durability::Always, repair: false };
        let store = Store::open(options(1, value_bytes_max), &directory, 1 << 20).unwrap().0;
        store.retain(0);
        store
    }

    fn put(store: &Store, key: &[u8], value: &[u8]) {
        try_put(store, key, value).unwrap();
    }

    fn try_put(store: &Store, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
        let write = Write { key, condition: Condition::Always, action };
        store.write(&[write], None, 1).map(|_| ())
    }

    /// Between a clear and the delete records of its keys, only the clear record hides them.
    #[test]
    fn cleared_version_stays_hidden_without_its_clear_record() {
        let path = std::env::temp_dir().join(format!("knee-cleared-{}", std::process::id()));
        let mut store = open(&path, 1000);
        (0..20_u8).for_each(|key| put(&store, &[key], b"old"));
        // Each process leaves a segment worth reclaiming.
        drop(store);
        store = open(&path, 1000);
        let cleared = store.clear(1, 1).unwrap();
        let shown = |store: &Store| store.read_at(&[19], cleared, 1, |_| true).found;
        assert_eq!(shown(&store), Ok(None));
        for _ in 0..2 {
            drop(store);
            store = open(&path, 1000);
            store.finish_clearing(1, &AtomicBool::new(false)).unwrap();
            while store.reclaim().unwrap() {}
        }
        drop(store);
        let found = shown(&open(&path, 1000));
        assert!(matches!(found, Err(ReadError::Compacted(_)) | Ok(None)), "{found:?}");
        std::fs::remove_dir_all(path).unwrap();
    }

    /// The segment of the clear record is dropped before all keys have delete records.
    #[test]
    fn cleared_keys_stay_gone_with_a_damaged_clear_record() {
        let path = std::env::temp_dir().join(format!("knee-cleared-harm-{}", std::process::id()));
        let mut store = open(&path, 1000);
        (0..20_u8).for_each(|key| put(&store, &[key], b"old"));
        let cleared = store.clear(1, 1).unwrap();
        let bits = store.0.clearing.unfinished_at.load(Ordering::Relaxed);
        let at = Location::from_bits(bits).unwrap();
        drop(store);
        store = open(&path, 1000);
        let damaged = path.join(format!("{:08}.log", at.segment));
        let file = File::options().write(true).open(&damaged).unwrap();
        file.write_all_at(&[0xff; 8], FILE_HEAD_BYTES + at.offset() as u64).unwrap();
        while store.reclaim().unwrap() {}
        assert!(!damaged.exists());
        for _ in 0..2 {
            assert_eq!(store.read(&[19], 1, |_| true).unwrap().found, None);
            let shown = store.read_at(&[19], cleared, 1, |_| true).found;
            assert!(matches!(shown, Err(ReadError::Compacted(_)) | Ok(None)), "{shown:?}");
            drop(store);
            store = open(&path, 1000);
        }
        store.finish_clearing(1, &AtomicBool::new(false)).unwrap();
        assert_eq!(store.keys(), 0);
        drop(store);
        std::fs::remove_dir_all(path).unwrap();
    }

    /// A full log has space for a few deletes at first, and for more once their space is reclaimed.
    #[test]
    fn clearing_a_full_log_resumes_where_it_stopped() {
        let store = Store::in_memory(options(1, 1000), 64 << 10).unwrap();
        let mut key = 0_u32;
        while try_put(&store, &key.to_le_bytes(), b"").is_ok() {
            key += 1;
        }
        store.clear(1, 1).unwrap();
        assert_eq!(store.keys(), key as usize, "flush_all does not wait for that");
        let mut walks = Vec::new();
        while store.finish_clearing(1, &AtomicBool::new(false)).is_err() {
            walks.push(lock(&store.0.clearing.walked).to.unwrap());
            while store.reclaim().unwrap() {}
            assert!(walks.len() < 1000, "there is no space for more: {:?}", store.figures());
        }
        assert_eq!(store.keys(), 0);
        assert!(walks.len() > 2, "{walks:?}");
        assert!(walks.is_sorted_by_key(|at| at.to_bits()), "{walks:?}");
    }

    /// A compaction reads its horizon before the keys have delete records, and visits the keys afterwards.
    #[test]
    fn clear_is_kept_until_its_keys_are_pruned() {
        let store = Store::in_memory(options(2, 1000), 1 << 20).unwrap();
        store.retain(0);
        let in_second = |key: &[u8]| store.stripe_of(store.0.hash.hash(key)) == 1;
        let key = (0..100_u8).map(|key| [key]).find(|key| in_second(key)).unwrap();
        put(&store, &key, b"old");
        let first = store.take_all_away(|_| true).unwrap();
        let second = store.take_all_away(|_| true).unwrap();
        let shown = || store.read_at(&key, first, 1, |_| true).found;
        assert_eq!(shown(), Ok(None));
        let held = store.stripe(0);
        std::thread::scope(|scope| {
            let compacts = scope.spawn(|| store.compact());
            while store.0.compacted.load(Ordering::Relaxed) < second {
                std::thread::yield_now();
            }
            store.finish_clearing(1, &AtomicBool::new(false)).unwrap();
            drop(held);
            compacts.join().unwrap().unwrap();
        });
        let found = shown();
        assert!(matches!(found, Err(ReadError::Compacted(_)) | Ok(None)), "{found:?}");
    }

    #[test]
    fn clear_before_another_is_kept_until_both_are_done() {
        let path = std::env::temp_dir().join(format!("knee-cleared-twice-{}", std::process::id()));
        let mut store = open(&path, 4000);
        put(&store, b"key", &[7; 3500]);
        // The segment stays, because its records are live.
        put(&store, b"other", &[7; 3500]);
        let fill = |store: &Store, times: usize| {
            (0..times).for_each(|_| put(store, b"filler", &[8; 1500]));
        };
        fill(&store, 1);
        let first = store.take_all_away(|_| true).unwrap();
        let shown = |store: &Store| store.read_at(b"key", first, 1, |_| true).found;
        store.retain(Sequence::MAX);
        fill(&store, 8);
        store.take_all_away(|_| true).unwrap();
        fill(&store, 8);
        store.sync(store.last()).unwrap();
        while store.reclaim().unwrap() {}
        assert_eq!(shown(&store), Ok(None));
        drop(store);
        store = open(&path, 4000);
        for _ in 0..2 {
            let found = shown(&store);
            assert!(matches!(found, Err(ReadError::Compacted(_)) | Ok(None)), "{found:?}");
            store.finish_clearing(1, &AtomicBool::new(false)).unwrap();
        }
        drop(store);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn finished_clears_are_forgotten_before_others() {
        let store = Store::in_memory(options(1, 1000), 1 << 20).unwrap();
        store.retain(Sequence::MAX);
        for _ in 0..20 {
            put(&store, b"key", b"old");
            store.clear(1, 1).unwrap();
            store.finish_clearing(1, &AtomicBool::new(false)).unwrap();
            put(&store, b"key", b"new");
            store.clear(1, 1).unwrap();
            store.sweep();
        }
        assert!(store.stripe(0).clears() <= 4, "{} are remembered", store.stripe(0).clears());
    }
}
