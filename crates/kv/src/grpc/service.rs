//! The calls of both interfaces, over one store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use knee_kv_cache::engine::{Second, Version};
use knee_kv_store::calendar::now;
use knee_kv_store::{Action, Committed, Condition, Past, Patience, Room, Store, Write};
use knee_rpc::kv::{
    self, BackupRequest, BackupResponse, BulkPutRequest, CompactResponse, HistoryRequest,
    HistoryResponse, InitRequest, InitResponse, ReadAtRequest, ReadResponse, ScanRequest,
    ScanResponse, StatsResponse, WatchRequest, WriteResponse, past,
};
use tokio::sync::{Mutex, Semaphore, watch};
use tonic::Status;

use super::beneath::{check_directory_name, check_room_for_copy};
use super::blocking::blocking;
use super::init::Loads;
use super::meter::{Call, Meter};
use super::refusal::{
    check_key, damaged, missing, missing_in_version, uncopied, unreadable, unreclaimed, valueless,
};
use super::safe::Safe;
use super::scan::{Place, Scan, entry};
use super::settings::GrpcSettings;
use super::tally::Tally;
use super::watch::Watch;
use super::write::{Refused, SegmentPermit, Tried, put, written, written_at_once};

const HISTORY_PART: usize = 1024;
/// Memory of a change in a bulk put besides its bytes. The write, its outcome and its place take 512 bytes. The decoded
/// message is in a vector, which may have twice its length.
const CHANGE_BYTES: usize = 512 + 2 * size_of::<kv::Change>();

/// The service's state, which `knee.kv.v1` and honu's interface share.
#[derive(Debug, Clone)]
pub(super) struct Service {
    store: Store,
    safe: Safe,
    tally: Arc<Tally>,
    pub(super) meter: Arc<Meter>,
    settings: Arc<GrpcSettings>,
    scans: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    loads: Loads,
    /// A single call at a time makes segments. Other calls wait here, not on the threads that scans need.
    making: Arc<Mutex<()>>,
    /// A lock, so that a single compaction runs at a time.
    compacting: Arc<Mutex<()>>,
    /// A lock, so that a single copy is made at a time.
    copying: Arc<Mutex<()>>,
    /// Whether the server is shutting down.
    ending: watch::Receiver<bool>,
}

impl Service {
    pub(super) fn new(
        store: Store,
        safe: Safe,
        meter: Arc<Meter>,
        settings: GrpcSettings,
        ending: watch::Receiver<bool>,
    ) -> Service {
        Service {
            store,
            safe,
            meter,
            tally: Arc::default(),
            scans: Arc::new(Semaphore::new(settings.scans_max)),
            watches: Arc::new(Semaphore::new(settings.watches_max)),
            settings: Arc::new(settings),
            loads: Loads::default(),
            making: Arc::default(),
            compacting: Arc::default(),
            copying: Arc::default(),
            ending,
        }
    }

    /// The newest version of a key and its value, once synced; `None` for a missing key.
    pub(super) async fn newest(
        &self,
        key: Bytes,
        call: &mut Call,
    ) -> Result<Option<kv::Entry>, Status> {
        self.tally.call(&self.tally.reads);
        check_key(&key)?;
        let mut value = Ok(Vec::new());
        let shown = self.store.read(&key, now(), |piece| call.copy(piece, &mut value));
        let shown = shown.map_err(|damage| damaged(&damage))?;
        self.safe.wait(shown.sequence).await?;
        let value = value?;
        Ok(shown.found.map(|shown| entry(key, value, &shown)))
    }

    /// Writes, and waits until the writes are synced.
    pub(super) async fn write(
        &self,
        writes: &[Write<'_>],
        request: Option<kv::RequestId>,
        now: Second,
    ) -> Result<WriteResponse, Status> {
        self.tally.call(&self.tally.writes);
        let (room, mut patience) = (Room::of(writes), Patience::default());
        loop {
            let permit = self.make_ready(room).await?;
            let outcome = written(&self.store, writes, request, now);
            drop(permit);
            let is_full = outcome.as_ref().is_err_and(|refused| refused.is_full);
            if !is_full || !self.store.room(room, &mut patience).await {
                return self.settled(outcome).await;
            }
        }
    }

    /// Makes the segments that a write needs, on a blocking thread, because this takes the disk some milliseconds.
    /// Returns the permit if segments were missing: the write keeps it until it has written.
    async fn make_ready(&self, room: Room) -> Result<Option<SegmentPermit>, Status> {
        if self.store.is_ready_for(room) {
            return Ok(None);
        }
        let permit = Arc::clone(&self.making).lock_owned().await;
        // The previous call may have made enough segments.
        if self.store.is_ready_for(room) {
            return Ok(Some(permit));
        }
        let store = self.store.clone();
        let made = blocking(move || {
            // The write reports a failure, unless it needs no segment.
            let _ = store.make_ready_for(room);
            permit
        });
        made.await.map(Some)
    }

    async fn settled(&self, outcome: Result<Committed, Refused>) -> Result<WriteResponse, Status> {
        match outcome {
            Ok(committed) => {
                self.safe.wait(committed.sequence).await?;
                Ok(WriteResponse { version: committed.version })
            }
            Err(Refused { status, sequence, .. }) => {
                self.safe.wait(sequence).await?;
                Err(status)
            }
        }
    }

    pub(super) async fn write_one(
        &self,
        key: &[u8],
        condition: Condition,
        action: Action<'_>,
        request: Option<kv::RequestId>,
        now: Second,
    ) -> Result<WriteResponse, Status> {
        self.write(&[Write { key, condition, action }], request, now).await
    }

    /// Writes a key, unless the request has no value. An empty value has a message without fields.
    pub(super) async fn put_one(
        &self,
        key: &[u8],
        condition: Condition,
        value: Option<kv::Value>,
        request: Option<kv::RequestId>,
    ) -> Result<WriteResponse, Status> {
        let value = value.ok_or_else(|| valueless(key))?;
        let now = now();
        self.write_one(key, condition, put(&value, now), request, now).await
    }

    pub(super) async fn read_in_version(
        &self,
        ReadAtRequest { key, version }: ReadAtRequest,
        call: &mut Call,
    ) -> Result<ReadResponse, Status> {
        self.tally.call(&self.tally.reads);
        check_key(&key)?;
        if version == 0 {
            return Err(Status::out_of_range("there is no version 0: versions begin with 1"));
        }
        let mut value = Ok(Vec::new());
        let shown = self.store.read_at(&key, version, now(), |piece| call.copy(piece, &mut value));
        self.safe.wait(shown.sequence).await?;
        let value = value?;
        match shown.found.map_err(|error| unreadable(&error, version))? {
            Some(shown) => Ok(ReadResponse { entry: Some(entry(key, value, &shown)) }),
            None => Err(missing_in_version(&key, version)),
        }
    }

    /// A part of a key's history, from a version on, once synced.
    async fn past(&self, key: &Bytes, from: Version) -> Result<Vec<Past>, Status> {
        let (store, key) = (self.store.clone(), key.clone());
        let past = blocking(move || store.history(&key, from, HISTORY_PART)).await?;
        let past = past.map_err(|damage| damaged(&damage))?;
        self.safe.wait(past.sequence).await?;
        Ok(past.found)
    }

    pub(super) async fn history_of(
        &self,
        HistoryRequest { key }: HistoryRequest,
    ) -> Result<impl Stream<Item = Result<HistoryResponse, Status>> + Send + use<>, Status> {
        self.tally.call(&self.tally.reads);
        check_key(&key)?;
        let first = self.past(&key, 0).await?;
        if first.is_empty() {
            return Err(missing(&key));
        }
        // Copy the key: the request's own key would keep the whole request in memory after the first message.
        let (service, key) = (self.clone(), Bytes::copy_from_slice(&key));
        Ok(unfold(Some((Some(first), 0)), move |state| {
            let (service, key) = (service.clone(), key.clone());
            async move {
                let (ready, from) = state?;
                let versions = match ready {
                    Some(versions) => versions,
                    None => match service.past(&key, from).await {
                        Ok(versions) => versions,
                        Err(status) => return Some((Err(status), None)),
                    },
                };
                let next = versions.last()?.version + 1;
                let versions = versions.into_iter().map(past).collect();
                Some((Ok(HistoryResponse { versions }), Some((None, next))))
            }
        }))
    }

    pub(super) async fn write_all(
        &self,
        mut bulk: BulkPutRequest,
        call: &Call,
    ) -> Result<WriteResponse, Status> {
        if bulk.changes.is_empty() {
            return Err(Status::invalid_argument("the bulk put has no changes: give at least one"));
        }
        call.take(bulk.changes.len() * CHANGE_BYTES)?;
        self.tally.call(&self.tally.writes);
        let (mut permit, mut patience) = (None, Patience::default());
        let outcome = loop {
            let (store, share, permit_taken) = (self.store.clone(), call.share(), permit.take());
            let made = blocking(move || {
                let _share = share;
                written_at_once(&store, bulk, permit_taken)
            });
            match made.await? {
                Tried::Done(outcome) => break outcome,
                Tried::Unready(unready) => {
                    bulk = unready;
                    permit = Some(Arc::clone(&self.making).lock_owned().await);
                }
                Tried::Full(refused, room, why) => {
                    if !self.store.room(room, &mut patience).await {
                        break Err(why);
                    }
                    bulk = refused;
                }
            }
        };
        self.settled(outcome).await
    }

    pub(super) async fn scan_of(
        &self,
        request: ScanRequest,
        atomic: bool,
    ) -> Result<impl Stream<Item = Result<ScanResponse, Status>> + Send + use<>, Status> {
        let Ok(permit) = Arc::clone(&self.scans).try_acquire_owned() else {
            return Err(too_many("scans", self.settings.scans_max));
        };
        let atomic = atomic.then_some(self.settings.snapshot_age_max);
        let (store, tally) = (self.store.clone(), Arc::clone(&self.tally));
        let place = Place { store, tally, permit };
        let scan = blocking(move || Scan::new(request, atomic, place)).await??;
        Ok(scan.batches(self.safe.clone()))
    }

    pub(super) fn watch_of(&self, request: WatchRequest) -> Result<Watch, Status> {
        let Ok(permit) = Arc::clone(&self.watches).try_acquire_owned() else {
            return Err(too_many("watches", self.settings.watches_max));
        };
        let (store, safe, ending) = (self.store.clone(), self.safe.clone(), self.ending.clone());
        Watch::new(request, store, safe, ending, permit)
    }

    pub(super) async fn load_of(
        &self,
        InitRequest { file }: InitRequest,
    ) -> Result<impl Stream<Item = Result<InitResponse, Status>> + Send + use<>, Status> {
        let directory = self.settings.init_dir.as_deref().ok_or_else(|| {
            Status::failed_precondition(
                "the server has no directory to load from: start it with --init-dir",
            )
        })?;
        self.loads.begin(self.store.clone(), directory, file, self.ending.clone()).await
    }

    pub(super) async fn copied(
        &self,
        BackupRequest { directory }: BackupRequest,
    ) -> Result<BackupResponse, Status> {
        let parent = self.settings.backup_dir.as_deref().ok_or_else(|| {
            Status::failed_precondition(
                "the server has no directory for copies: start it with --backup-dir",
            )
        })?;
        check_directory_name(&directory)?;
        let Ok(guard) = Arc::clone(&self.copying).try_lock_owned() else {
            return Err(Status::resource_exhausted(
                "another copy is being made, and one is made at a time: try again later",
            ));
        };
        let (store, parent, copies_max) =
            (self.store.clone(), parent.to_owned(), self.settings.copies_max);
        blocking(move || {
            let _guard = guard;
            check_room_for_copy(&parent, copies_max)?;
            let copied = store.backup(&parent.join(&directory));
            let commit = copied.map_err(|error| uncopied(&error, &directory))?;
            Ok(BackupResponse { commit })
        })
        .await?
    }

    pub(super) async fn counted(&self) -> Result<StatsResponse, Status> {
        let store = self.store.clone();
        let (figures, last_commit) = blocking(move || (store.figures(), store.last())).await?;
        self.safe.wait_for_all().await?;
        let Tally {
            reads,
            writes,
            scans,
            scan_entries,
            scan_bytes,
            first_call_unix_ns,
            last_call_unix_ns,
        } = &*self.tally;
        Ok(StatsResponse {
            keys: figures.keys,
            last_commit,
            reads: reads.load(Ordering::Relaxed),
            writes: writes.load(Ordering::Relaxed),
            scans: scans.load(Ordering::Relaxed),
            scans_open: (self.settings.scans_max - self.scans.available_permits()) as u64,
            scan_entries: scan_entries.load(Ordering::Relaxed),
            scan_bytes: scan_bytes.load(Ordering::Relaxed),
            first_call_unix_ns: first_call_unix_ns.load(Ordering::Relaxed),
            last_call_unix_ns: last_call_unix_ns.load(Ordering::Relaxed),
            versions: figures.versions,
            snapshots_open: figures.snapshots_open,
            snapshot_age_ns: figures.snapshot_age.map_or(0, |age| age.as_nanos() as u64),
            file_bytes: figures.file_bytes,
            live_bytes: figures.live_bytes,
            reclaims: figures.reclaims,
        })
    }

    pub(super) async fn compacted(&self) -> Result<CompactResponse, Status> {
        let store = self.store.clone();
        // Hold the lock to the end of the compaction, even if the client leaves.
        let guard = Arc::clone(&self.compacting).lock_owned().await;
        let compacted = blocking(move || {
            let _guard = guard;
            store.compact()
        })
        .await?;
        compacted.map_err(|error| unreclaimed(&error))?;
        Ok(CompactResponse {})
    }
}

fn too_many(what: &str, most: usize) -> Status {
    Status::resource_exhausted(format!(
        "{most} {what} are running, the most at a time: try again later"
    ))
}

fn past(Past { version, deleted, appended, bytes }: Past) -> kv::Past {
    let kind = match (deleted, appended) {
        (true, _) => past::Kind::Delete,
        (false, true) => past::Kind::Append,
        (false, false) => past::Kind::Put,
    };
    kv::Past { version, kind: kind.into(), bytes: bytes as u64 }
}

#[cfg(test)]
mod tests {
    use knee_kv_store::{Consistency, StoreOptions};

    use super::super::meter::Telemetry;
    use super::super::write::put;
    use super::*;

    /// A key that is not copied would keep the whole request in memory.
    #[tokio::test]
    async fn stream_holds_nothing_of_its_request() {
        let options = StoreOptions {
            consistency: Consistency::Linearizable,
            stripes: 1,
            value_bytes_max: 1000,
            segment_bytes: 4096,
        };
        let store = Store::in_memory(options, 1 << 20).expect("a store");
        let meter = Arc::new(Meter::new(1, Telemetry::default()));
        let (safe, _) = Safe::new(store.clone(), Arc::clone(&meter.shards)).expect("a thread");
        let settings = GrpcSettings::for_values(1000);
        let service = Service::new(store, safe, meter, settings, watch::channel(false).1);
        let key = Bytes::from(b"key".to_vec());
        let value = kv::Value::default();
        let action = put(&value, 1);
        service.write_one(&key, Condition::Always, action, None, 1).await.expect("a put");
        let request = HistoryRequest { key: key.clone() };
        let history = service.history_of(request).await.expect("a history");
        let request = ScanRequest { end: key.clone(), ..ScanRequest::default() };
        let scan = service.scan_of(request, false).await.expect("a permit");
        assert!(key.is_unique());
        drop((history, scan));
    }
}
