//! Reclaims the space of dead records, a segment at a time.
//!
//! Live records move to the end of the log; then the whole segment is removed. A segment is reclaimed when half of its
//! bytes are dead. So the log takes at most twice its live bytes, and each moved byte frees another one. While writers
//! wait for space, an eighth of dead bytes suffices.

use std::iter::once_with;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::log::Forgotten;
use super::place::{ALIGN, Location, SegmentId};
use super::record::{HEAD_BYTES, Kind, Record, Sequence};
use super::segment::Segment;
use super::store::Store;
use super::table::Damage;
use super::types::{Consistency, Unwritable, lock};

/// How long a request is recognised after a restart, as long as there is space.
const REQUESTS_KEPT: Duration = Duration::from_secs(60);

/// While writers wait, a segment is reclaimed when one byte in this many is dead. So at most seven bytes move for each
/// freed byte.
const DEAD_LEAST: u64 = 8;
/// The same for a log whose deletes have taken a segment beyond the limit, or out of the reserve. Further deletes need
/// at least some space.
const DEAD_LEAST_BEYOND: u64 = 1024;

/// Why a segment was not reclaimed. The segment is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReclaimError {
    /// The log has no space for the live records.
    Log(Unwritable),
    /// A record in the segment cannot be read.
    Damage(Damage),
}

impl From<Damage> for ReclaimError {
    fn from(damage: Damage) -> ReclaimError {
        ReclaimError::Damage(damage)
    }
}

impl From<Unwritable> for ReclaimError {
    fn from(unwritable: Unwritable) -> ReclaimError {
        ReclaimError::Log(unwritable)
    }
}

impl Store {
    /// Reclaims the segment with the fewest live bytes, if at least half of it is dead. Reclaims the oldest segment if
    /// delete records take too much space. Returns whether it reclaimed one.
    ///
    /// # Errors
    /// See [`ReclaimError`]. An unreadable segment is reported once, and not tried again.
    pub fn reclaim(&self) -> Result<bool, ReclaimError> {
        let mut damaged = lock(&self.0.reclaiming);
        if self.0.unswept.swap(false, Ordering::Relaxed) {
            self.sweep();
        }
        let is_tight = self.is_tight();
        let is_old = |segment: &Arc<Segment>| {
            segment.requests_age().is_none_or(|age| age >= REQUESTS_KEPT) || is_tight
        };
        // A segment with a damaged live record stays.
        let is_kept = |segment: &Segment| damaged.contains_key(&segment.id) && !segment.is_dead();
        let may_go = |segment: &Arc<Segment>| is_old(segment) && !is_kept(segment);
        // A segment counts with its reserved bytes: each process leaves a segment that is not full.
        let is_felt = self.0.pressure.is_felt();
        let (bytes, bytes_max) = self.0.log.bytes();
        let is_beyond = bytes > bytes_max || self.0.log.is_in_reserve(0);
        // The bytes that a segment of delete records frees may be spread over all segments.
        let segments = bytes / self.0.options.segment_bytes as u64;
        let part = if is_beyond { DEAD_LEAST_BEYOND.max(2 * segments) } else { DEAD_LEAST };
        // Up to two records of a segment may belong to no key; they are not dead.
        let dead_least = |reserved: u64| (reserved / part).max(2 * HEAD_BYTES as u64);
        let worth = |segment: &Arc<Segment>| {
            let (live, reserved) = (segment.live() + HEAD_BYTES as u64, segment.reserved as u64);
            // Unwritten space is no gain: the target segment may lose as much.
            let dead = (segment.filled() as u64).saturating_sub(live);
            // Each start makes a segment, even beyond the limit; live records may fit there.
            let fits = is_beyond && live <= self.0.log.room() as u64;
            may_go(segment)
                && (2 * live <= reserved || is_felt && (fits || dead >= dead_least(reserved)))
        };
        // A segment that is not yet on the disk might reappear after a crash.
        let written = |segment: &Arc<Segment>| segment.is_file() || !self.0.log.is_durable();
        let full = self.0.log.full_segments().into_iter().filter(written);
        let full: Vec<_> = full.collect();
        let harmed = lock(&self.0.harmed).clone();
        let harmed = full.iter().filter(|segment| harmed.contains(&segment.id) && is_old(segment));
        let least = || {
            let mut worth: Vec<_> = full.iter().filter(|segment| worth(segment)).collect();
            // The sort caches its keys: writers change `live`, and `sort_by_key` may panic on an inconsistent order.
            worth.sort_by_cached_key(|segment| segment.live());
            worth
        };
        let burden = || {
            let oldest = full.first().filter(|oldest| may_go(oldest));
            oldest.filter(|_| self.is_burdened())
        };
        // Lazy: a group is searched only if the previous group has no segment.
        let mut found = harmed.chain(once_with(least).flatten()).chain(once_with(burden).flatten());
        let segment = found.next().map(Arc::clone);
        drop(found);
        // A held segment maps its file, and so keeps the file's blocks.
        drop(full);
        let Some(segment) = segment else {
            let dead_least = dead_least(self.0.options.segment_bytes as u64);
            // While a clear is unfinished, its record would have to move.
            let may_turn = is_felt && self.clearing() == 0;
            return Ok(may_turn && self.0.log.turn_over(dead_least)?);
        };
        let began = Instant::now();
        lock(&self.0.harmed).remove(&segment.id);
        let reclaimed = match segment.said_without() {
            Some(known) => self.drop_segment(&segment, known),
            None => self.reclaim_segment(&segment, &self.0.dropped),
        };
        match &reclaimed {
            Err(ReclaimError::Damage(damage)) => damaged.insert(segment.id, damage.clone()),
            _ => damaged.remove(&segment.id),
        };
        reclaimed?;
        self.let_go(segment);
        self.0.pressure.note_freed();
        self.0.reclaims.fetch_add(1, Ordering::Relaxed);
        self.0.reclaim_sum_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Whether delete records are a quarter of the live bytes. Delete records can be dropped once all older records
    /// have moved. From the oldest segment on, dropping them moves at most three times the bytes of those delete
    /// records.
    fn is_burdened(&self) -> bool {
        let gone: usize = (0..self.stripes()).map(|stripe| self.stripe(stripe).gone_bytes()).sum();
        let live: u64 = self.0.log.segments().iter().map(|segment| segment.live()).sum();
        gone >= self.0.options.segment_bytes && 4 * gone as u64 > live
    }

    /// Moves the readable live records out of a damaged segment, and removes the segment. The repair has marked what is
    /// lost, so no other version becomes unknown.
    pub(super) fn rescue(&self, id: SegmentId) -> Result<(), ReclaimError> {
        match self.0.log.segment(id) {
            Some(segment) => {
                self.reclaim_segment(&segment, &AtomicU64::new(0))?;
                self.let_go(segment);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Refills the reserve from a removed segment, once no table maps its file.
    fn let_go(&self, removed: Arc<Segment>) {
        drop(removed);
        // A table lets go of the segment when it is next locked.
        (0..self.stripes()).for_each(|stripe| drop(self.stripe(stripe)));
        self.0.log.refill_from_removed();
    }

    /// Whether space is short. If so, old versions and request ids are dropped.
    pub(super) fn is_tight(&self) -> bool {
        let (bytes, bytes_max) = self.0.log.bytes();
        let is_nearly_full = bytes >= bytes_max - bytes_max / 10;
        is_nearly_full || self.0.log.is_short() || self.0.pressure.is_felt()
    }

    /// Drops all versions that no snapshot needs, even within the history, and reclaims their space.
    ///
    /// # Errors
    /// See [`ReclaimError`].
    pub fn compact(&self) -> Result<(), ReclaimError> {
        let last = self.0.log.last();
        let horizon = self.horizon_of_snapshots(last);
        self.0.compacted.fetch_max(horizon, Ordering::Relaxed);
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            for slot in table.slots() {
                table.prune(slot, horizon);
            }
            self.forget_clears(&mut table, horizon);
        }
        self.0.pressure.note_freed();
        self.0.log.note(self.forgotten())?;
        loop {
            match self.reclaim() {
                Ok(true) | Err(ReclaimError::Damage(_)) => {}
                Ok(false) => break,
                Err(error) => return Err(error),
            }
        }
        let damaged = lock(&self.0.reclaiming);
        let is_asked_for = |id| self.0.log.segment(id).is_some_and(|segment| !segment.is_dead());
        match damaged.iter().find(|(id, _)| is_asked_for(**id)) {
            Some((_, damage)) => Err(damage.clone().into()),
            None => Ok(()),
        }
    }

    /// Removes a dead segment without reading it: reading small records costs as much as writing them. Later records
    /// have the state of its keys from the commit `known` on.
    fn drop_segment(&self, segment: &Segment, known: Sequence) -> Result<(), ReclaimError> {
        debug_assert!(
            (0..self.stripes()).all(|stripe| !self.stripe(stripe).asks_for(segment.id)),
            "segment {} has live records",
            segment.id
        );
        self.0.dropped.fetch_max(known.min(self.0.log.last()), Ordering::Relaxed);
        self.0.log.remove(segment.id, self.forgotten())?;
        Ok(())
    }

    /// Moves the live records of a segment, and removes it, unless a live record cannot be read. `dropped` gets the
    /// commit before which versions become unknown.
    fn reclaim_segment(&self, segment: &Segment, dropped: &AtomicU64) -> Result<(), ReclaimError> {
        let horizon = self.horizon(self.0.log.last());
        let oldest = self.0.log.oldest_but(segment.id);
        let (mut at, mut damage) = (0, None);
        while at + HEAD_BYTES <= segment.filled() {
            self.0.log.refill();
            let from = Location::new(segment.id, at);
            let record = match segment.checked(at) {
                Ok(record) => record,
                Err(_) => {
                    damage.get_or_insert(Damage { segment: segment.id, offset: at });
                    at += ALIGN;
                    continue;
                }
            };
            at += record.bytes();
            if record.kind == Kind::Seal {
                break;
            }
            if !record.kind.is_of_a_key() {
                if record.kind == Kind::Clear {
                    if let Some(known) = self.said_without(record.sequence) {
                        self.0.dropped.fetch_max(known, Ordering::Relaxed);
                    } else {
                        self.0.log.begin_move(&record)?.append_moved(&record);
                    }
                }
                continue;
            }
            let hash = self.0.hash.hash(record.key);
            let mut table = self.stripe(self.stripe_of(hash));
            let slot = match table.find(hash, record.key) {
                Ok(Some(slot)) => slot,
                Ok(None) => continue,
                // The key's newest record cannot be read; it may be in another segment, which stays.
                Err(_) => match table.slot_at(hash, from) {
                    Some(slot) => slot,
                    None => {
                        // The commit that replaced this version is unknown.
                        dropped.fetch_max(self.0.log.last(), Ordering::Relaxed);
                        continue;
                    }
                },
            };
            table.prune(slot, horizon);
            let Some(entry) = table.entry_at(slot, from) else {
                // This drops the version from this record to the key's next known commit.
                let known = table.sequence_behind(slot, (record.sequence, record.part));
                dropped.fetch_max(known, Ordering::Relaxed);
                continue;
            };
            if table.may_forget(slot, oldest) {
                match self.0.options.consistency {
                    Consistency::Linearizable => &self.0.compacted,
                    // The key must not reuse a version number.
                    Consistency::Sequential => &self.0.floor,
                }
                .fetch_max(record.version, Ordering::Relaxed);
                table.forget(slot);
                continue;
            }
            let mut moving = self.0.log.begin_move(&record)?;
            let to = moving.append_moved(&record);
            drop(moving);
            table.relocate(slot, entry, to);
            segment.bury(record.bytes(), 0);
        }
        if let Some(damage) = damage {
            if (0..self.stripes()).any(|stripe| self.stripe(stripe).asks_for(segment.id)) {
                return Err(damage.into());
            }
            // The clear record may be in the damaged part, and some keys may have no delete record yet.
            let cleared = self.clearing();
            if segment.has_clear() && cleared != 0 {
                let record = Record::of_no_key(Kind::Clear, cleared);
                self.0.log.begin_move(&record)?.append_moved(&record);
            }
            // The damaged versions are unknown.
            dropped.fetch_max(self.0.log.last(), Ordering::Relaxed);
        }
        self.0.log.remove(segment.id, self.forgotten())?;
        Ok(())
    }

    pub(super) fn forgotten(&self) -> Forgotten {
        let compacted = self.0.compacted.load(Ordering::Relaxed);
        let dropped = self.0.dropped.load(Ordering::Relaxed);
        let floor = self.0.floor.load(Ordering::Relaxed);
        let unsure = self.0.unsure.load(Ordering::Relaxed);
        Forgotten { compacted: compacted.max(dropped), floor, unsure }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use knee_kv_cache::engine::Expiry;

    use super::super::pressure::Waiting;
    use super::*;
    use crate::{Action, Condition, DirectoryOptions, Durability, StoreOptions, Write, WriteError};

    const KEYS: u32 = 200;

    fn open(path: &Path) -> Store {
        let options = StoreOptions {
            consistency: Consistency::Linearizable,
            stripes: 4,
            value_bytes_max: 1000,
            segment_bytes: 4096,
        };
        let at = DirectoryOptions {
            path: path.to_owned(),
            durability: Durability::Always,
            repair: false,
        };
        Store::open(options, &at, 12 * 4096).unwrap().0
    }

    fn put(store: &Store, key: u32, value: &[u8]) -> Result<(), WriteError> {
        let key = key.to_le_bytes();
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
        let write = Write { key: &key, condition: Condition::Always, action };
        store.write(&[write], None, 1).map(drop)
    }

    /// All keys' values, with their versions.
    fn there(store: &Store) -> Vec<Option<(u64, Vec<u8>)>> {
        let read = |key: u32| {
            let mut value = Vec::new();
            let shown = store.read(&key.to_le_bytes(), 1, |piece| {
                value.extend_from_slice(piece);
                true
            });
            shown.unwrap().found.map(|shown| (shown.version, value))
        };
        (0..KEYS).map(read).collect()
    }

    #[test]
    fn crash_while_a_full_log_reclaims_loses_nothing() {
        let name = format!("knee-kv-felt-{}", std::process::id());
        let (path, copy) =
            (std::env::temp_dir().join(&name), std::env::temp_dir().join(name + "-copy"));
        let _ = fs::remove_dir_all(&path);
        let store = open(&path);
        let (mut key, mut turned_over) = (1, 0);
        while store.0.log.bytes().0 < 12 * 4096 {
            put(&store, key, &[1; 300]).unwrap();
            key += 1;
        }
        assert!(key < KEYS);
        for round in 0..10_u32 {
            // Overwrite one key until there is no space; then a writer waits for space.
            while put(&store, 0, &[round as u8; 300]).is_ok() {}
            store.0.log.write_out().unwrap();
            let _waiting = Waiting::begin(&store.0.pressure);
            let expected = there(&store);
            loop {
                let active = store.0.log.active();
                let goes_on = store.reclaim().unwrap();
                turned_over += u32::from(active != store.0.log.active());
                let _ = fs::remove_dir_all(&copy);
                fs::create_dir(&copy).unwrap();
                for file in fs::read_dir(&path).unwrap() {
                    let file = file.unwrap();
                    fs::copy(file.path(), copy.join(file.file_name())).unwrap();
                }
                let again = open(&copy);
                assert!(there(&again) == expected, "round {round}");
                if !goes_on {
                    break;
                }
                store.0.log.write_out().unwrap();
            }
            put(&store, 0, &[0; 300]).expect("there is space again");
        }
        assert!(turned_over > 1, "{turned_over}");
        drop(store);
        fs::remove_dir_all(&path).unwrap();
        fs::remove_dir_all(&copy).unwrap();
    }
}
