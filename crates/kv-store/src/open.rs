//! Opens a store in a directory.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;

use super::directory::{Directory, DirectoryError, Opened, Repair};
use super::log::Log;
use super::place::SegmentId;
use super::reclaim::ReclaimError;
use super::record::{Kind, Record, Sequence};
use super::recovery::{Findings, Opening, Report, read_segments, records};
use super::store::Store;
use super::table::Damage;
use super::types::{Committed, DirectoryOptions, Durability, StoreOptions};

impl Store {
    /// Opens the store in a directory, and reports the damage. Only `repair` opens a store with damaged records.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open(
        options: StoreOptions,
        directory: &DirectoryOptions,
        bytes_max: u64,
    ) -> Result<(Store, Report), DirectoryError> {
        Store::open_and_tell(options, directory, bytes_max, &mut |_| {})
    }

    /// [`Store::open`] with a report of progress at each segment: a large store takes long to open.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open_and_tell(
        options: StoreOptions,
        directory: &DirectoryOptions,
        bytes_max: u64,
        tell: &mut dyn FnMut(Opening),
    ) -> Result<(Store, Report), DirectoryError> {
        let repair = if directory.repair { Repair::Yes } else { Repair::No };
        Store::open_to(options, directory, bytes_max, repair, tell)
    }

    /// Reports what a repair would do. Changes no file.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn examine(
        options: StoreOptions,
        directory: &DirectoryOptions,
        tell: &mut dyn FnMut(Opening),
    ) -> Result<Report, DirectoryError> {
        Store::open_to(options, directory, u64::MAX, Repair::Dry, tell).map(|(_, report)| report)
    }

    fn open_to(
        options: StoreOptions,
        directory: &DirectoryOptions,
        bytes_max: u64,
        repair: Repair,
        tell: &mut dyn FnMut(Opening),
    ) -> Result<(Store, Report), DirectoryError> {
        let path = &directory.path;
        let mut opened = Directory::open(path, options.consistency, repair)?;
        let (manifests, is_rebuilt) = (std::mem::take(&mut opened.faults), opened.is_rebuilt);
        let mut report = Report { manifests, is_rebuilt, ..Report::default() };
        let lost_here = (repair != Repair::No).then_some(&mut report.lost);
        let promises = directory.durability != Durability::None;
        let (recovered, mut findings) =
            read_segments(&mut opened, options.segment_bytes, promises, lost_here, tell)?;
        let Opened { directory: kept, manifest, .. } = opened;
        let StoreOptions { segment_bytes, value_bytes_max, .. } = options;
        let options = StoreOptions { segment_bytes: recovered.segment_bytes, ..options };
        // The log must hold two of the largest values.
        let least = 2 * (options.segment_bytes + value_bytes_max) as u64;
        if options.segment_bytes > segment_bytes && bytes_max < least {
            let what = format!(
                "made with segments of {} bytes; a limit of {bytes_max} bytes is too little, they need {least} bytes",
                options.segment_bytes
            );
            return Err(DirectoryError::Other(path.clone(), what));
        }
        let log = Log::new(
            Some((kept, directory.durability)),
            recovered,
            // A repair needs space before it frees some.
            if findings.losses.are_any { u64::MAX } else { bytes_max },
        )
        .map_err(|error| DirectoryError::Io(path.clone(), error))?;
        let store = Store::new(log, options);
        store.0.compacted.store(manifest.reached.compacted, Ordering::Relaxed);
        store.0.dropped.store(manifest.reached.compacted, Ordering::Relaxed);
        store.0.floor.store(manifest.reached.floor, Ordering::Relaxed);
        store.0.unsure.store(manifest.reached.unsure, Ordering::Relaxed);
        // Keep all old versions until the keeper sets the history.
        store.retain(manifest.reached.compacted);
        let damaged = |damage: Damage| DirectoryError::Damaged(path.clone(), damage.to_string());
        let incomplete = store.restore(&mut findings, tell).map_err(damaged)?;
        if findings.losses.are_any {
            store.hide_lost(path, findings.losses, repair == Repair::Dry, &mut report)?;
        }
        store.prune_all();
        if repair == Repair::Dry {
            return Ok((store, report));
        }
        // Remove the segments that show the damage last: until then they distinguish damaged commits from complete
        // ones.
        for id in incomplete.difference(&findings.damaged).chain(&findings.damaged) {
            store.rescue(*id).map_err(|error| match error {
                ReclaimError::Log(error) => {
                    DirectoryError::Io(path.clone(), io::Error::other(error.to_string()))
                }
                ReclaimError::Damage(damage) => damaged(damage),
            })?;
        }
        for id in findings.unreadable {
            store.0.log.set_aside(id).map_err(|error| DirectoryError::Io(path.clone(), error))?;
        }
        store.0.log.set_bytes_max(bytes_max);
        store.retain(Sequence::MAX);
        store.0.unswept.store(true, Ordering::Relaxed);
        Ok((store, report))
    }

    /// Puts the records of all segments in the tables. Appends to a lost record stay in the log, and every recovery
    /// leaves them out.
    fn restore(
        &self,
        findings: &mut Findings,
        tell: &mut dyn FnMut(Opening),
    ) -> Result<BTreeSet<SegmentId>, Damage> {
        let mut losses = std::mem::take(&mut findings.losses);
        let incomplete =
            records(&self.0.log.segments(), findings, tell, |segment, found, counts| {
                let record = segment.record(found.at.offset());
                losses.find(&record);
                if !counts {
                    losses.named.push((record.key.to_vec(), record.sequence));
                    return Ok(());
                }
                let Record { kind, key, sequence, version, .. } = record;
                if let Some(request) = record.request {
                    let mut requests = self.0.requests.shard(request);
                    let others = requests.made(request).map_or(0, |made| made.version);
                    let committed = Committed { sequence, version: version.max(others) };
                    if record.moved {
                        // A moved request record stands after younger ones, so it counts as the oldest.
                        requests.remember_before_all(request, committed);
                    } else {
                        segment.note_request();
                        requests.remember(request, committed);
                    }
                }
                match kind {
                    Kind::Put | Kind::Append | Kind::Delete | Kind::Lost => {
                        let hash = self.0.hash.hash(key);
                        self.stripe(self.stripe_of(hash)).restore(hash, key, &found)?;
                    }
                    Kind::Clear => {
                        segment.note_clear();
                        self.restore_clear(sequence);
                    }
                    Kind::Request | Kind::Seal => {}
                }
                Ok(())
            })?;
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            table.put_in_order();
            for slot in table.slots() {
                table.drop_incomplete(slot, &mut losses.named);
            }
        }
        findings.losses = losses;
        Ok(incomplete)
    }

    fn prune_all(&self) {
        let horizon = self.horizon(self.0.log.last());
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            for slot in table.slots() {
                table.prune(slot, horizon);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use knee_kv_cache::engine::Expiry;

    use super::super::action::{Action, Condition, Write};
    use super::super::record::RequestId;
    use super::super::types::Consistency;
    use super::*;

    /// More requests than the store remembers are moved to places after the latest one.
    #[test]
    fn moved_records_push_no_request_out_at_a_restart() {
        let path = std::env::temp_dir().join(format!("knee-kv-pushed-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let options = StoreOptions {
            consistency: Consistency::Linearizable,
            stripes: 1,
            value_bytes_max: 1000,
            segment_bytes: 1 << 20,
        };
        let directory =
            DirectoryOptions { path: path.clone(), durability: Durability::Always, repair: false };
        let open = || Store::open(options, &directory, 1 << 26).unwrap().0;
        let put = |store: &Store, key: u64, number: u64| {
            let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: b"" };
            let key = key.to_le_bytes();
            let write = Write { key: &key, condition: Condition::Always, action };
            let request = Some(RequestId { client: 7, number });
            store.write(&[write], request, 1).unwrap()
        };
        let store = open();
        // More requests than all shards remember together.
        let keys = 20_000;
        for key in 0..keys {
            put(&store, key, key);
        }
        let latest = put(&store, keys, keys);
        store.write_out().unwrap();
        let full = store.0.log.full_segments();
        assert!(!full.is_empty());
        for segment in full {
            store.rescue(segment.id).unwrap();
        }
        assert_eq!(put(&store, 0, keys), latest, "remembered before the restart");
        drop(store);
        let store = open();
        assert_eq!(store.last(), latest.sequence);
        assert_eq!(put(&store, 0, keys), latest, "written twice");
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
