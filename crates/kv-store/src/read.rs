//! Reads of a key: its newest version, an old version, and its history.

use std::sync::atomic::Ordering;

use knee_kv_cache::engine::{Expiry, Second, Version};

use super::record::{Kind, Sequence};
use super::store::Store;
use super::table::{Damage, SlotId, Table, View};
use super::types::Consistency;

/// The result of a read, and the last commit that it reflects, also for a missing key. A client may see the result only
/// once that commit is synced, see [`Store::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<T> {
    /// The commit; 0 if the store has none.
    pub sequence: Sequence,
    /// The key's state; `None` for a missing key.
    pub found: T,
}

/// Why a version cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// A compaction dropped it; versions from this one on are readable.
    Compacted(Version),
    /// The version is in the future; this is the last one.
    Unknown(Version),
    /// The record cannot be read.
    Damage(Damage),
}

impl From<Damage> for ReadError {
    fn from(damage: Damage) -> ReadError {
        ReadError::Damage(damage)
    }
}

/// A readable version of a key, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The commit that made it. A client may see the version only once the commit is synced, see [`Store::sync`].
    pub sequence: Sequence,
    /// The version.
    pub version: Version,
    /// The client's number.
    pub flags: u32,
    /// When the version expires.
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

/// One write in a key's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// The version that the write made.
    pub version: Version,
    /// Whether the write deleted the key.
    pub deleted: bool,
    /// Whether the write appended its bytes to the previous value.
    pub appended: bool,
    /// Bytes of value that the write brought.
    pub bytes: usize,
}

impl Store {
    /// Returns the newest version of a key, and passes its value in pieces to `visit`, until `visit` returns false.
    ///
    /// # Errors
    /// A damaged record; then `visit` gets nothing.
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

    /// Reads a key as of this version of the store, or of the key if versions count the writes of each key.
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
            // With versions of the store, the answer reflects the version even if the key was missing.
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
            // A later change may have kept the version.
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
        let unsure = self.0.unsure.load(Ordering::Relaxed);
        let compacted = self.0.compacted.load(Ordering::Relaxed).max(unsure);
        let Some(slot) = slot else {
            let floor = self.0.floor.load(Ordering::Relaxed);
            return match by_key {
                true if version > 0 => Err(ReadError::Compacted(floor + 1)),
                false if version < compacted => Err(ReadError::Compacted(compacted)),
                _ => Ok(None),
            };
        };
        let Some(view) = table.view_at_version(slot, version, !by_key)? else {
            if let Some(next) = table.unknown_until(slot, version) {
                return Err(ReadError::Compacted(next));
            }
            let (first, had_more) = table.first_version(slot);
            // The versions of a key have no gaps.
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

    /// Returns the known history of a key from a version on, oldest first: at most `versions_max` versions.
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
        // The commit of the last version in `past`.
        let mut made_by = 0;
        for record in table.past(slot, from) {
            let record = record?;
            let bytes = record.value.len();
            let is_full = seen.found.len() >= versions_max;
            match seen.found.last_mut() {
                // A further piece of the same write.
                Some(last) if record.sequence == made_by => last.bytes += bytes,
                _ if record.kind == Kind::Lost => {}
                // A rewrite that kept its version.
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
