//! Reads: the newest version of a key, an old one, what is known of its past, and ranges of keys.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::record::{Kind, Sequence};
use super::snapshot::Snapshot;
use super::store::{Consistency, Store};
use super::table::{Damage, View};
use crate::engine::{Expiry, Second, Version};

/// Why a version cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// It was dropped by a compaction; versions from this one on are there.
    Compacted(Version),
    /// No such version has been made yet; this is the last one.
    Unknown(Version),
    /// What is there cannot be read.
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
    /// The commit that made it: not to be told of to anybody before it is safe, see [`Store::sync`].
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
    ) -> Result<Option<Shown>, Damage> {
        let hash = self.0.hash.hash(key);
        let mut table = self.stripe(self.stripe_of(hash));
        let Some(slot) = table.find(hash, key)? else { return Ok(None) };
        let Some(view) = table.view(slot, Sequence::MAX)? else { return Ok(None) };
        if view.expiry.is_over(now) {
            return Ok(None);
        }
        table.pieces(&view, visit)?;
        table.note_use(slot, now, true);
        Ok(Some(view.into()))
    }

    /// What a key was in this version of the store, or of its own where versions are by the key.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_at(
        &self,
        key: &[u8],
        version: Version,
        now: Second,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Shown>, ReadError> {
        let hash = self.0.hash.hash(key);
        let table = self.stripe(self.stripe_of(hash));
        let slot = table.find(hash, key)?;
        let by_key = self.0.options.consistency == Consistency::Sequential;
        let last = match slot {
            _ if !by_key => self.0.log.last(),
            Some(slot) => table.newest_version(slot),
            None => 0,
        };
        if version > last {
            return Err(ReadError::Unknown(last));
        }
        let compacted = self.0.compacted.load(Ordering::Relaxed);
        let Some(slot) = slot else {
            return if version < compacted {
                Err(ReadError::Compacted(compacted))
            } else {
                Ok(None)
            };
        };
        let Some(view) = table.view_at_version(slot, version)? else {
            let (first, had_more) = table.first_version(slot);
            let forgotten = version < first && (had_more || !by_key && version < compacted);
            return if forgotten { Err(ReadError::Compacted(first)) } else { Ok(None) };
        };
        if view.expiry.is_over(now) {
            return Ok(None);
        }
        table.pieces(&view, visit)?;
        Ok(Some(view.into()))
    }

    /// What is known of a key's past, oldest first.
    ///
    /// # Errors
    /// Damage.
    pub fn history(&self, key: &[u8]) -> Result<Vec<Past>, Damage> {
        let hash = self.0.hash.hash(key);
        let table = self.stripe(self.stripe_of(hash));
        let Some(slot) = table.find(hash, key)? else { return Ok(Vec::new()) };
        let mut past: Vec<Past> = Vec::new();
        for record in table.past(slot) {
            let record = record?;
            let bytes = record.value.len();
            match past.last_mut() {
                // Further pieces of one write.
                Some(last) if record.part > 0 && last.version == record.version => {
                    last.bytes += bytes;
                }
                _ => past.push(Past {
                    version: record.version,
                    deleted: record.kind == Kind::Delete,
                    appended: record.kind == Kind::Append,
                    bytes,
                }),
            }
        }
        Ok(past)
    }

    /// Visits the keys of a range that a snapshot sees, or without one those that are there when
    /// their turn comes, stripe by stripe, each stripe's in order.
    ///
    /// # Errors
    /// Damage.
    pub fn scan_stripe(
        &self,
        stripe: usize,
        snapshot: Option<&Snapshot>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        keys_max: usize,
        now: Second,
        mut visit: impl FnMut(&[u8], Shown, &[u8]),
    ) -> Result<Option<Vec<u8>>, Damage> {
        let table = self.stripe(stripe);
        let at = snapshot.map_or(Sequence::MAX, Snapshot::sequence);
        let (first, exclusive) = match range.0 {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => (&[][..], false),
        };
        let mut value = Vec::new();
        for (visited, slot) in table.slots_from(first).enumerate() {
            let key = table.key(slot);
            let over = match range.1 {
                Bound::Included(last) => key > last,
                Bound::Excluded(end) => key >= end,
                Bound::Unbounded => false,
            };
            if over {
                return Ok(None);
            }
            if visited >= keys_max {
                return Ok(Some(key.to_vec()));
            }
            if exclusive && key == first {
                continue;
            }
            let Some(view) = table.view(slot, at)? else { continue };
            if view.expiry.is_over(now) {
                continue;
            }
            value.clear();
            table.pieces(&view, |piece| {
                value.extend_from_slice(piece);
                true
            })?;
            visit(key, view.into(), &value);
        }
        Ok(None)
    }
}
