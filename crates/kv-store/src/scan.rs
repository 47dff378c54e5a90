//! Scans the keys of a range, one stripe at a time, in a snapshot or in their current state.

use std::ops::{Bound, ControlFlow};

use knee_kv_cache::engine::Second;

use super::read::Shown;
use super::record::Sequence;
use super::snapshot::Snapshot;
use super::store::Store;
use super::table::{Damage, Table, View};

/// A key that a scan visits.
#[derive(Debug)]
pub struct Visited<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its version.
    pub shown: Shown,
    table: &'a Table,
    view: View,
}

impl Visited<'_> {
    /// Passes the value in pieces to `visit`, until `visit` returns false.
    ///
    /// # Errors
    /// A damaged record.
    pub fn value(&self, visit: impl FnMut(&[u8]) -> bool) -> Result<(), Damage> {
        self.table.pieces(&self.view, visit)
    }
}

/// Where a scan of a stripe stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// The key to resume at; `None` at the end of the range.
    pub next: Option<Vec<u8>>,
    /// The newest commit that the result depends on, deletions included. A client may see the result only once
    /// that commit is synced, see [`Store::sync`].
    pub sequence: Sequence,
}

impl Store {
    /// Visits the keys of a range in one stripe, in order: the keys of `snapshot`, or the present keys. At most
    /// `keys_max` keys are examined, because the stripe is locked. If `visit` breaks at a key, the
    /// scan resumes at that key.
    ///
    /// # Errors
    /// A damaged record, and errors of `visit`.
    pub fn scan_stripe(
        &self,
        stripe: usize,
        snapshot: Option<&Snapshot>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        keys_max: usize,
        now: Second,
        mut visit: impl FnMut(&Visited<'_>) -> Result<ControlFlow<()>, Damage>,
    ) -> Result<Scanned, Damage> {
        self.clear_if_due(now);
        let table = &*self.stripe(stripe);
        let at = snapshot.map_or(Sequence::MAX, Snapshot::sequence);
        let (first, exclusive) = match range.0 {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => (&[][..], false),
        };
        let mut sequence = snapshot.map_or(0, Snapshot::sequence);
        for (visited, slot) in table.slots_from(first)?.enumerate() {
            let (key, view) = table.key_and_view(slot, at)?;
            let over = match range.1 {
                Bound::Included(last) => key > last,
                Bound::Excluded(end) => key >= end,
                Bound::Unbounded => false,
            };
            if over {
                break;
            }
            if visited >= keys_max {
                return Ok(Scanned { next: Some(key.to_vec()), sequence });
            }
            if exclusive && key == first {
                continue;
            }
            if snapshot.is_none() {
                sequence = sequence.max(table.newest_sequence(slot));
            }
            let Some(view) = view else { continue };
            if view.expiry.is_over(now) {
                continue;
            }
            let visited = Visited { key, shown: view.into(), table, view };
            if visit(&visited)?.is_break() {
                return Ok(Scanned { next: Some(key.to_vec()), sequence });
            }
        }
        Ok(Scanned { next: None, sequence })
    }
}
