//! Writes: an atomic commit of one or several keys.

use std::collections::BTreeMap;
use std::iter;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use knee_kv_cache::engine::{Second, Version};

use super::action::{Action, Condition, KEY_BYTES_MAX, PIECE_BYTES_MAX, Write};
use super::planned::Planned;
use super::record::{HEAD_BYTES, Kind, OnDisk, Record, RequestId, Sequence, record_bytes};
use super::store::Store;
use super::table::{Damage, SlotId, Table, View};
use super::types::{Committed, Consistency, StoreOptions, Unwritable, lock};
use super::watch::{Event, What};

/// Why a write failed. A failed write changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// A condition does not hold.
    Condition {
        /// Index of the write with this condition.
        index: usize,
        /// The version of its key; `None` if the key is missing.
        version: Option<Version>,
        /// The last commit that this error reflects, also by the conditions that hold. A client may see the error only
        /// once that commit is synced, see [`Store::sync`].
        sequence: Sequence,
    },
    /// The key of the write with this index is empty or too long.
    Key(usize),
    /// A value would be too large, or does not fit a segment together with its key.
    TooLarge {
        /// Index of the write with this value.
        index: usize,
        /// The largest value for that key, in bytes.
        bytes_max: usize,
    },
    /// Two writes have the same key; the index of the second one.
    Twice(usize),
    /// The log refuses the commit.
    Log(Unwritable),
    /// The key's newest record cannot be read.
    Damage(Damage),
}

impl WriteError {
    /// Whether the log has no space; the keeper may reclaim some.
    pub fn is_full(&self) -> bool {
        matches!(self, WriteError::Log(why) if why.is_full())
    }
}

impl From<Damage> for WriteError {
    fn from(damage: Damage) -> WriteError {
        WriteError::Damage(damage)
    }
}

impl From<Unwritable> for WriteError {
    fn from(unwritable: Unwritable) -> WriteError {
        WriteError::Log(unwritable)
    }
}

impl Store {
    /// Makes all of the writes as one commit, or none of them. A repeated request with an id writes nothing, and
    /// returns the outcome of the first one.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(
        &self,
        writes: &[Write<'_>],
        request: Option<RequestId>,
        now: Second,
    ) -> Result<Committed, WriteError> {
        let Some(id) = request else {
            self.clear_before_write(now)?;
            return self.write_once(writes, None, now);
        };
        // Hold the shard until the write is done: two connections may send the same request at once.
        let mut requests = self.0.requests.shard(id);
        if let Some(committed) = requests.made(id) {
            return Ok(committed);
        }
        self.clear_before_write(now)?;
        let committed = self.write_once(writes, request, now)?;
        requests.remember(id, committed);
        Ok(committed)
    }

    fn write_once(
        &self,
        writes: &[Write<'_>],
        request: Option<RequestId>,
        now: Second,
    ) -> Result<Committed, WriteError> {
        // Most commits have one key: this path allocates no lists.
        if let [write] = writes {
            let hash = self.0.hash.hash(write.key);
            let stripe = self.stripe_of(hash);
            let mut locked = [(stripe, self.stripe(stripe))];
            let mut seen = 0;
            return match self.plan(0, write, hash, &locked[0].1, now, &mut seen)? {
                Some(plan) => self.append(&[plan], request, &mut locked, now),
                None => self.come_to_nothing(request, seen),
            };
        }
        let hashes: Vec<u64> = writes.iter().map(|write| self.0.hash.hash(write.key)).collect();
        let mut locked = self.lock_stripes(&hashes);
        let mut planned = Vec::with_capacity(writes.len());
        let mut seen = 0;
        for (index, (write, &hash)) in writes.iter().zip(&hashes).enumerate() {
            let table = table_of(&mut locked, self.stripe_of(hash));
            planned.extend(self.plan(index, write, hash, table, now, &mut seen)?);
        }
        if let Some(index) = twice(writes, &hashes) {
            return Err(WriteError::Twice(index));
        }
        if planned.is_empty() {
            return self.come_to_nothing(request, seen);
        }
        self.append(&planned, request, &mut locked, now)
    }

    /// Returns the outcome of a delete without effect, as of the commit `seen`. A request with an id is logged.
    /// Otherwise its repetition could delete a key that was put in between.
    fn come_to_nothing(
        &self,
        request: Option<RequestId>,
        seen: Sequence,
    ) -> Result<Committed, WriteError> {
        let mut sequence = seen;
        if request.is_some() {
            let bytes = record_bytes(Kind::Request, 0, 0, true);
            let mut commit = self.0.log.begin(iter::once(bytes), true)?;
            sequence = commit.sequence;
            commit.append(&Record { request, ..Record::of_no_key(Kind::Request, sequence) });
        }
        Ok(Committed { sequence, version: 0 })
    }

    /// Plans a write; `None` if it deletes a missing key. `seen` is the last commit that the writes up to this one
    /// reflect.
    fn plan<'a>(
        &self,
        index: usize,
        write: &Write<'a>,
        hash: u64,
        table: &Table,
        now: Second,
        seen: &mut Sequence,
    ) -> Result<Option<Planned<'a>>, WriteError> {
        if write.key.is_empty() || write.key.len() > KEY_BYTES_MAX {
            return Err(WriteError::Key(index));
        }
        // An unconditional write replaces a damaged record.
        let asks =
            write.condition != Condition::Always || matches!(write.action, Action::Append(_));
        let found = table.find(hash, write.key).and_then(|slot| {
            Ok((slot, slot.map_or(Ok(None), |slot| table.view(slot, Sequence::MAX))?))
        });
        let (slot, view) = match found {
            Err(damage) if !asks => {
                let slot = Some(table.damaged(hash).ok_or_else(|| damage.clone())?);
                // The keeper looks at `harmed` only after this table is unlocked.
                lock(&self.0.harmed).insert(damage.segment);
                // No key has more versions than there are commits.
                let version = self.0.log.last() + 1;
                return Ok(Some(Planned {
                    write: *write,
                    hash,
                    slot,
                    view: None,
                    version,
                    keeps: None,
                }));
            }
            found => found?,
        };
        let view = view.filter(|view| !view.expiry.is_over(now));
        *seen = (*seen).max(slot.map_or(0, |slot| table.newest_sequence(slot)));
        if !holds(write.condition, view.as_ref()) {
            let version = view.map(|view| view.version);
            // A failed condition implies that those before it hold, so `seen` covers them.
            return Err(WriteError::Condition { index, version, sequence: *seen });
        }
        self.check_size(index, write, view.as_ref())?;
        // The version of a deleted key continues, so that no version number is used twice.
        if view.is_none() && matches!(write.action, Action::Delete) {
            return Ok(None);
        }
        let version = self.version_after(table, slot);
        Ok(Some(Planned { write: *write, hash, slot, view, version, keeps: None }))
    }

    /// The next version of a key, where versions count its writes. A key that may have been forgotten continues from
    /// the largest version of any forgotten key.
    pub(super) fn version_after(&self, table: &Table, slot: Option<SlotId>) -> Version {
        match (self.0.options.consistency, slot) {
            // No key has more versions than there are commits.
            (Consistency::Sequential, Some(slot)) if table.is_lost(slot) => self.0.log.last() + 1,
            (Consistency::Sequential, Some(slot)) => table.newest_version(slot) + 1,
            (Consistency::Sequential, None) => self.0.floor.load(Ordering::Relaxed) + 1,
            (Consistency::Linearizable, _) => 0,
        }
    }

    pub(super) fn check_size(
        &self,
        index: usize,
        write: &Write<'_>,
        view: Option<&View>,
    ) -> Result<(), WriteError> {
        let bytes = match write.action {
            Action::Put { value, .. } => value.len(),
            Action::Append(tail) => view.map_or(0, |view| view.value_bytes) + tail.len(),
            Action::Delete => 0,
        };
        // A record must fit one segment.
        let piece = match write.action {
            Action::Put { value, .. } | Action::Append(value) => value.len().min(PIECE_BYTES_MAX),
            Action::Delete => 0,
        };
        let StoreOptions { value_bytes_max, segment_bytes, .. } = self.0.options;
        let record = |piece| record_bytes(Kind::Append, write.key.len(), piece, true) + HEAD_BYTES;
        let bytes_max = match record(piece) <= segment_bytes {
            true => value_bytes_max,
            false => value_bytes_max.min(segment_bytes.saturating_sub(record(0))),
        };
        let fits = bytes <= bytes_max && record(piece) <= segment_bytes;
        fits.then_some(()).ok_or(WriteError::TooLarge { index, bytes_max })
    }

    /// Locks the stripes of some keys, each once, in order, so that writers do not deadlock.
    fn lock_stripes(&self, hashes: &[u64]) -> Vec<(usize, MutexGuard<'_, Table>)> {
        let mut stripes: Vec<usize> = hashes.iter().map(|&hash| self.stripe_of(hash)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| (stripe, self.stripe(stripe))).collect()
    }

    pub(super) fn append(
        &self,
        planned: &[Planned<'_>],
        request: Option<RequestId>,
        locked: &mut [(usize, MutexGuard<'_, Table>)],
        now: Second,
    ) -> Result<Committed, WriteError> {
        let sizes = planned.iter().flat_map(|plan| {
            plan.pieces().map(|(kind, piece)| {
                record_bytes(kind, plan.write.key.len(), piece.len(), request.is_some())
            })
        });
        let mut left = sizes.clone().count();
        let frees = planned.iter().all(|plan| plan.write.action == Action::Delete);
        let mut commit = self.0.log.begin(sizes, frees)?;
        let sequence = commit.sequence;
        let mut version = 0;
        let mut places = Vec::with_capacity(left);
        for plan in planned {
            let version_here = plan.keeps.unwrap_or(match self.0.options.consistency {
                Consistency::Linearizable => sequence,
                Consistency::Sequential => plan.version,
            });
            version = version.max(version_here);
            let (flags, expiry, marks) = plan.attributes();
            let mut growing = plan.growing();
            for (part, (kind, value)) in plan.pieces().enumerate() {
                left -= 1;
                places.push(commit.append(&Record {
                    kind,
                    sequence,
                    part: part as u32,
                    version: version_here,
                    flags,
                    expiry,
                    marks,
                    more: left > 0,
                    first: false,
                    moved: false,
                    on_disk: OnDisk::default(),
                    request,
                    growth: growing.grow((sequence, part as u32), kind, value.len()),
                    key: plan.write.key,
                    value,
                }));
            }
            // The log is still locked, so watchers see events in the order of the commits.
            self.0.watches.tell(plan.write.key, || Event {
                sequence,
                version: version_here,
                key: plan.write.key.to_vec(),
                what: match (plan.write.action, &plan.view) {
                    (Action::Put { value, .. }, _) => What::Put(value.to_vec()),
                    (Action::Append(tail), Some(_)) => What::Appended(tail.to_vec()),
                    // An append to a missing key is reported as a put. Watchers may not yet know that the old value
                    // expired or was cleared.
                    (Action::Append(tail), None) => What::Put(tail.to_vec()),
                    (Action::Delete, _) => What::Deleted,
                },
            });
        }
        // Other threads may commit from here on: inserting a new key in the order takes longer than appending the
        // record. A snapshot or a reclaim may see this commit in the log. But both find the keys only after their
        // stripes are unlocked, when all records are in the tables.
        drop(commit);
        // Read the horizon only after the commit: a later snapshot sees the commit, and an earlier one is registered.
        let horizon = self.horizon(sequence);
        if horizon < sequence && !self.0.has_past.load(Ordering::Relaxed) {
            self.0.has_past.store(true, Ordering::Relaxed);
        }
        let mut places = places.into_iter();
        for plan in planned {
            let table = table_of(locked, self.stripe_of(plan.hash));
            let mut slot = plan.slot;
            let grows = matches!(plan.write.action, Action::Append(_));
            let pieces = plan.pieces().count();
            for at in places.by_ref().take(pieces) {
                match slot {
                    // Usually the key's old versions can be dropped at once.
                    Some(slot)
                        if horizon >= sequence
                            && pieces == 1
                            && !grows
                            && table.is_single(slot) =>
                    {
                        table.replace(slot, at, now);
                    }
                    _ => slot = Some(table.push(plan.hash, slot, at, now)),
                }
            }
            if let Some(slot) = slot
                && !grows
            {
                table.prune(slot, horizon);
            }
        }
        Ok(Committed { sequence, version })
    }
}

fn holds(condition: Condition, view: Option<&View>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Absent => view.is_none(),
        Condition::Present => view.is_some(),
        Condition::Version(version) => view.is_some_and(|view| view.version == version),
    }
}

fn table_of<'a>(locked: &'a mut [(usize, MutexGuard<'_, Table>)], stripe: usize) -> &'a mut Table {
    let at = locked.binary_search_by_key(&stripe, |(stripe, _)| *stripe);
    &mut locked[at.expect("all stripes of the write are locked")].1
}

/// The first write whose key an earlier write has as well.
fn twice(writes: &[Write<'_>], hashes: &[u64]) -> Option<usize> {
    let mut seen = BTreeMap::new();
    writes
        .iter()
        .zip(hashes)
        .enumerate()
        .find_map(|(index, (write, &hash))| seen.insert((hash, write.key), index).map(|_| index))
}
