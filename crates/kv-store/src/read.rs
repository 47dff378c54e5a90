//! Reads of a key: its newest version, an old one, and what is known of its past.

use std::sync::atomic::Ordering;

use knee_kv_cache::engine::{Expiry, Second, Version};

use super::record::{Kind, Sequence};
use super::store::Store;
use super::table::{Damage, SlotId, Table, View};
use super::types::Consistency;

/// What a read found, and the last commit that it shows, also where nothing is there. A client sees it only once
/// that commit is safe, see [`Store::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<T> {
    /// The commit; 0 where there never was any.
    pub sequence: Sequence,
    /// The key's state; `None` for a missing key.
    pub found: T,
}

/// Why a version cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// It was dropped by a compaction; versions from this one on are there.
    Compacted(Version),
    /// No such version has been made yet; this is the last one.
    Unknown(Version),
    /// The record cannot be read.
    Damage(Damage),
}

impl From<Damage> for ReadError {
    fn from(damage: Damage) -> ReadError {
        ReadError::Damage(damage)
    }
}

/// A version of a key, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The commit that made it. A client sees it only once that is safe, see [`Store::sync`].
    pub sequence: Sequence,
    /// The version.
    pub version: Version,
    /// The client's number.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Bytes of the value.
    pub value_bytes: usize,
}

impl From<View> for Shown {
    fn from(view: View) -> Shown {
        let View { sequence, version, flags, expiry, value_bytes, .. } = view;
        Shown { sequence, version, flags, expiry, value_bytes }
    }
}

/// A record of a key's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// The version that it made.
    pub version: Version,
    /// Whether the key was gone from then on.
    pub deleted: bool,
    /// Whether the value was that of the version before, grown by these bytes.
    pub appended: bool,
    /// Bytes that were written.
    pub bytes: usize,
}

impl Store {
    /// Shows the newest version of a key, and its value in pieces to `visit`, which says whether
    /// it wants more.
    ///
    /// # Errors
    /// Damage, which nothing is shown of.
    pub fn read(
        &self,
        key: &[u8],
        now: Second,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<Seen<Option<Shown>>, Damage> {
        self.clear_if_due(now);
        let hash = self.0.hash.hash(key);
        let mut table = self.stripe(self.stripe_of(hash));
        let Some(slot) = table.find(hash, key)? else {
            return Ok(Seen { sequence: 0, found: None });
        };
        let sequence = table.newest_sequence(slot);
        let view = table.view(slot, Sequence::MAX)?.filter(|view| !view.expiry.is_over(now));
        if let Some(view) = &view {
            table.pieces(view, visit)?;
            table.note_use(slot, now, true);
        }
        Ok(Seen { sequence, found: view.map(Shown::from) })
    }

    /// What a key was in this version of the store, or of its own where versions are by the key.
    pub fn read_at(
        &self,
        key: &[u8],
        version: Version,
        now: Second,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Seen<Result<Option<Shown>, ReadError>> {
        let hash = self.0.hash.hash(key);
        let table = self.stripe(self.stripe_of(hash));
        let by_key = self.0.options.consistency == Consistency::Sequential;
        let slot = match table.find(hash, key) {
            Ok(slot) => slot,
            Err(damage) => return Seen { sequence: 0, found: Err(damage.into()) },
        };
        let newest = slot.map_or(0, |slot| table.newest_sequence(slot));
        let (last, sequence) = match slot {
            // The version is shown, whatever the key was in it.
            _ if !by_key => (self.0.log.last(), version),
            Some(slot) => (table.newest_version(slot), newest),
            // Only deleted keys are forgotten.
            None => (self.0.floor.load(Ordering::Relaxed), 0),
        };
        if version > last {
            let sequence = if by_key { newest } else { last };
            return Seen { sequence, found: Err(ReadError::Unknown(last)) };
        }
        let found = self.in_version(&table, slot, version, now, visit);
        let shown = match &found {
            // A change that kept the version may have come since.
            Ok(Some(shown)) => shown.sequence,
            Err(ReadError::Compacted(first)) if !by_key => *first.min(&last),
            _ => 0,
        };
        Seen { sequence: sequence.max(shown), found }
    }

    fn in_version(
        &self,
        table: &Table,
        slot: Option<SlotId>,
        version: Version,
        now: Second,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Shown>, ReadError> {
        let by_key = self.0.options.consistency == Consistency::Sequential;
        let compacted = self.0.compacted.load(Ordering::Relaxed);
        let Some(slot) = slot else {
            let floor = self.0.floor.load(Ordering::Relaxed);
            return match by_key {
                true if version > 0 => Err(ReadError::Compacted(floor + 1)),
                false if version < compacted => Err(ReadError::Compacted(compacted)),
                _ => Ok(None),
            };
        };
        let Some(view) = table.view_at_version(slot, version, !by_key)? else {
            let (first, had_more) = table.first_version(slot);
            // The versions of a key are without gaps.
            let some_before = if by_key { version > 0 } else { version < compacted };
            let forgotten = version < first && (had_more || some_before);
            return if forgotten { Err(ReadError::Compacted(first)) } else { Ok(None) };
        };
        if view.expiry.is_over(now) {
            return Ok(None);
        }
        table.pieces(&view, visit)?;
        Ok(Some(view.into()))
    }

    /// What is known of a key's past from a version on, oldest first: so many versions at most.
    ///
    /// # Errors
    /// Damage.
    pub fn history(
        &self,
        key: &[u8],
        from: Version,
        versions_max: usize,
    ) -> Result<Seen<Vec<Past>>, Damage> {
        let hash = self.0.hash.hash(key);
        let table = self.stripe(self.stripe_of(hash));
        let mut seen = Seen { sequence: 0, found: Vec::<Past>::new() };
        let Some(slot) = table.find(hash, key)? else { return Ok(seen) };
        seen.sequence = table.newest_sequence(slot);
        // The commit that made the last version that was found.
        let mut made_by = 0;
        for record in table.past(slot, from) {
            let record = record?;
            let bytes = record.value.len();
            let is_full = seen.found.len() >= versions_max;
            match seen.found.last_mut() {
                // Further pieces of one write.
                Some(last) if record.sequence == made_by => last.bytes += bytes,
                // Written again under the version that it had.
                Some(last) if record.version == last.version => {}
                _ if is_full => break,
                _ => {
                    made_by = record.sequence;
                    seen.found.push(Past {
                        version: record.version,
                        deleted: record.kind == Kind::Delete,
                        appended: record.kind == Kind::Append,
                        bytes,
                    });
                }
            }
        }
        Ok(seen)
    }
}
