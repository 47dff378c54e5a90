//! Space that nobody asks for any more is had back, a segment at a time.
//!
//! What is still asked for moves to the end of the log; then the segment goes, as a whole. A
//! segment is worth it when half of it is dead, so that the log takes at most twice what is alive,
//! and each byte moved frees another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::log::Unwritable;
use super::record::{ALIGN, HEAD_BYTES, Kind};
use super::segment::{Location, Segment, SegmentId};
use super::store::{Consistency, Store, lock};
use super::table::Damage;
use crate::engine::{Refused, Second};

/// For so long requests are recognised also after a restart, as long as there is space.
const REQUESTS_KEPT: Duration = Duration::from_secs(60);

/// Why a segment was not reclaimed. It is still there, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReclaimError {
    /// There is no room for what has to move.
    Log(Unwritable),
    /// Something in it cannot be read.
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
    /// Takes the segment with the least that is alive apart, if at least half of it is dead.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// See [`ReclaimError`]. One that cannot be read is told of once, and left alone from then on.
    pub fn reclaim(&self) -> Result<bool, ReclaimError> {
        let mut damaged = lock(&self.0.reclaiming);
        if self.0.unswept.swap(false, Ordering::Relaxed) {
            self.sweep();
        }
        let is_tight = self.is_tight();
        // What it takes, not what is in it: each life of a store leaves a segment that is not full.
        let takes = self.0.options.segment_bytes as u64;
        let worth = |segment: &Arc<Segment>| {
            if damaged.contains_key(&segment.id) {
                return false;
            }
            let told = segment.requests_age().is_none_or(|age| age >= REQUESTS_KEPT) || is_tight;
            // Behind less than that, nothing of it is too large for the rest of a segment: so it ends.
            told && 2 * (segment.live() + HEAD_BYTES as u64) <= takes
        };
        // What has been forgotten of one that is not yet on the disk might come back.
        let written = |segment: &Arc<Segment>| segment.is_file() || !self.0.log.is_durable();
        let full = self.0.log.full_segments().into_iter().filter(written);
        let least = full.filter(worth).min_by_key(|segment| segment.live());
        let Some(segment) = least else { return Ok(false) };
        let began = Instant::now();
        let reclaimed = self.reclaim_segment(&segment, false);
        if let Err(ReclaimError::Damage(damage)) = &reclaimed {
            damaged.insert(segment.id, damage.clone());
        }
        reclaimed?;
        self.note_shrunk();
        self.0.reclaims.fetch_add(1, Ordering::Relaxed);
        self.0.reclaim_sum_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Moves what can be read out of a damaged segment, and does away with it.
    pub(super) fn rescue(&self, id: SegmentId) -> Result<(), ReclaimError> {
        match self.0.log.segment(id) {
            Some(segment) => self.reclaim_segment(&segment, true),
            None => Ok(()),
        }
    }

    /// Whether space is short: then nothing is kept that need not be.
    pub(super) fn is_tight(&self) -> bool {
        let (bytes, bytes_max) = self.0.log.bytes();
        bytes >= bytes_max - bytes_max / 10 || self.0.log.is_short()
    }

    /// Forgets what was replaced and is not asked for any more, of every key.
    pub(super) fn sweep(&self) {
        let horizon = self.horizon(self.0.log.last());
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            for slot in table.slots_with_past() {
                table.prune(slot, horizon);
            }
        }
    }

    /// Deletes the keys whose time is over. Nobody sees them any more, but they take space.
    pub(super) fn delete_expired(&self, now: Second, over: &AtomicBool) -> Result<(), Refused> {
        for stripe in 0..self.stripes() {
            let mut from = Some(Vec::new());
            while let Some(first) = from {
                if over.load(Ordering::Acquire) {
                    return Ok(());
                }
                from = self.delete_expired_from(stripe, &first, now)?;
            }
        }
        Ok(())
    }

    /// Forgets everything that no snapshot asks for, whatever was to be retained, and has back what
    /// that frees.
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
        }
        self.0.log.note_compacted(self.0.compacted.load(Ordering::Relaxed))?;
        loop {
            match self.reclaim() {
                Ok(true) | Err(ReclaimError::Damage(_)) => {}
                Ok(false) => break,
                Err(error) => return Err(error),
            }
        }
        match lock(&self.0.reclaiming).values().next() {
            Some(damage) => Err(damage.clone().into()),
            None => Ok(()),
        }
    }

    fn reclaim_segment(&self, segment: &Segment, skips_damage: bool) -> Result<(), ReclaimError> {
        let horizon = self.horizon(self.0.log.last());
        let oldest = self.0.log.oldest_but(segment.id);
        let mut at = 0;
        while at + HEAD_BYTES <= segment.filled() {
            let from = Location::new(segment.id, at);
            let record = match segment.checked(at) {
                Ok(record) => record,
                Err(_) if skips_damage => {
                    at += ALIGN;
                    continue;
                }
                Err(_) => return Err(Damage { segment: segment.id, offset: at }.into()),
            };
            at += record.bytes();
            if record.kind == Kind::Seal {
                break;
            }
            let hash = self.0.hash.hash(record.key);
            let mut table = self.stripe(self.stripe_of(hash));
            let Some(slot) = table.find(hash, record.key)? else { continue };
            table.prune(slot, horizon);
            let Some(entry) = table.entry_at(slot, from) else {
                // What the key was from then on until the first commit that is known of it.
                self.0.dropped.fetch_max(table.first_sequence(slot), Ordering::Relaxed);
                continue;
            };
            // Where versions count the writes of a key, its last one is not to be forgotten.
            let counts = self.0.options.consistency == Consistency::Sequential;
            if !counts && table.may_forget(slot, oldest) {
                self.0.compacted.fetch_max(record.sequence, Ordering::Relaxed);
                table.forget(slot);
                continue;
            }
            let mut moving = self.0.log.begin_move(&record)?;
            let to = moving.append_moved(&record);
            drop(moving);
            table.relocate(slot, entry, to);
            segment.bury(record.bytes());
        }
        let compacted = self.0.compacted.load(Ordering::Relaxed);
        self.0.log.remove(segment.id, compacted.max(self.0.dropped.load(Ordering::Relaxed)))?;
        Ok(())
    }
}
