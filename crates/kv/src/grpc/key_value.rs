//! The service `knee.kv.v1.KeyValue`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use knee_rpc::kv::key_value_server::KeyValue;
use knee_rpc::kv::{
    self, AppendRequest, BulkPutRequest, Change, CompactRequest, CompactResponse, DeleteRequest,
    HistoryRequest, HistoryResponse, InsertRequest, PutRequest, ReadAtRequest, ReadRequest,
    ReadResponse, ScanRequest, ScanResponse, StatsRequest, StatsResponse, UpdateRequest, Value,
    WriteResponse, change, past,
};
use tokio::sync::{Mutex, Semaphore};
use tonic::{Request, Response, Status};

use super::now;
use super::refusal::{
    check_key, damaged, missing, missing_in_version, unreadable, unreclaimed, unwritten,
};
use super::safe::Safe;
use super::scan::{Place, Scan, entry};
use super::tally::Tally;
use crate::engine::{Expiry, Second, Version};
use crate::versioned::{Action, Committed, Condition, Past, RequestId, Store, Write, WriteError};

/// Versions in one part of a history.
const HISTORY_PART: usize = 1024;

/// The service's state; what `knee.kv.v1` and honu's interface share.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) store: Store,
    pub(super) safe: Safe,
    pub(super) tally: Arc<Tally>,
    /// Scans that may still be begun.
    scans: Arc<Semaphore>,
    scans_max: usize,
    snapshot_idle_max: Duration,
    /// One compaction at a time.
    compacting: Arc<Mutex<()>>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(super) fn new(
        store: Store,
        safe: Safe,
        scans_max: usize,
        snapshot_idle_max: Duration,
    ) -> Service {
        let scans = Arc::new(Semaphore::new(scans_max));
        let (tally, compacting) = (Arc::default(), Arc::default());
        Service { store, safe, tally, scans, scans_max, snapshot_idle_max, compacting }
    }

    /// The newest version of a key and its value, or that it is not there, once either is safe.
    pub(super) async fn newest(&self, key: Bytes) -> Result<Option<kv::Entry>, Status> {
        self.tally.call(&self.tally.reads);
        check_key(&key)?;
        let mut value = Vec::new();
        let take = |piece: &[u8]| {
            value.extend_from_slice(piece);
            true
        };
        let shown = self.store.read(&key, now(), take).map_err(|damage| damaged(&damage))?;
        self.safe.wait(shown.sequence).await?;
        Ok(shown.found.map(|shown| entry(key, value, &shown)))
    }

    /// Writes, and waits until that is safe.
    pub(super) async fn write(
        &self,
        writes: &[Write<'_>],
        request: Option<kv::RequestId>,
        now: Second,
    ) -> Result<WriteResponse, Status> {
        self.tally.call(&self.tally.writes);
        self.settled(written(&self.store, writes, request, now)).await
    }

    /// What a write came to, once that is safe.
    async fn settled(&self, outcome: Result<Committed, Refused>) -> Result<WriteResponse, Status> {
        match outcome {
            Ok(committed) => {
                self.safe.wait(committed.sequence).await?;
                Ok(WriteResponse { version: committed.version })
            }
            Err(Refused { status, sequence }) => {
                self.safe.wait(sequence).await?;
                Err(status)
            }
        }
    }

    /// A part of what is known of a key's past, from a version on, once that is safe.
    async fn past(&self, key: &Bytes, from: Version) -> Result<Vec<Past>, Status> {
        let (store, key) = (self.store.clone(), key.clone());
        let past = blocking(move || store.history(&key, from, HISTORY_PART)).await?;
        let past = past.map_err(|damage| damaged(&damage))?;
        self.safe.wait(past.sequence).await?;
        Ok(past.found)
    }

    async fn write_one(
        &self,
        key: &[u8],
        condition: Condition,
        action: Action<'_>,
        request: Option<kv::RequestId>,
        now: Second,
    ) -> Result<Response<WriteResponse>, Status> {
        self.write(&[Write { key, condition, action }], request, now).await.map(Response::new)
    }

    async fn scanned(
        &self,
        request: ScanRequest,
        atomic: Option<Duration>,
    ) -> Result<Response<Streamed<ScanResponse>>, Status> {
        let Ok(permit) = Arc::clone(&self.scans).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "{} scans go on, and no more are served at a time",
                self.scans_max
            )));
        };
        let (store, safe) = (self.store.clone(), self.safe.clone());
        let place = Place { store, safe, tally: Arc::clone(&self.tally), permit };
        let scan = blocking(move || Scan::new(request, atomic, place)).await??;
        Ok(Response::new(Box::pin(scan.batches())))
    }
}

#[tonic::async_trait]
impl KeyValue for Service {
    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let key = request.into_inner().key;
        match self.newest(key.clone()).await? {
            Some(entry) => Ok(Response::new(ReadResponse { entry: Some(entry) })),
            None => Err(missing(&key)),
        }
    }

    async fn read_at(
        &self,
        request: Request<ReadAtRequest>,
    ) -> Result<Response<ReadResponse>, Status> {
        self.tally.call(&self.tally.reads);
        let ReadAtRequest { key, version } = request.into_inner();
        check_key(&key)?;
        let mut value = Vec::new();
        let shown = self.store.read_at(&key, version, now(), |piece| {
            value.extend_from_slice(piece);
            true
        });
        self.safe.wait(shown.sequence).await?;
        match shown.found.map_err(|error| unreadable(&error, version))? {
            Some(shown) => {
                Ok(Response::new(ReadResponse { entry: Some(entry(key, value, &shown)) }))
            }
            None => Err(missing_in_version(&key, version)),
        }
    }

    type HistoryStream = Streamed<HistoryResponse>;

    async fn history(
        &self,
        request: Request<HistoryRequest>,
    ) -> Result<Response<Self::HistoryStream>, Status> {
        self.tally.call(&self.tally.reads);
        let key = request.into_inner().key;
        check_key(&key)?;
        let first = self.past(&key, 0).await?;
        if first.is_empty() {
            return Err(missing(&key));
        }
        let service = self.clone();
        let parts = unfold(Some((Some(first), 0)), move |state| {
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
                let versions = versions.into_iter().map(told).collect();
                Some((Ok(HistoryResponse { versions }), Some((None, next))))
            }
        });
        Ok(Response::new(Box::pin(parts)))
    }

    async fn insert(
        &self,
        request: Request<InsertRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let InsertRequest { key, value, request } = request.into_inner();
        let (value, now) = (value.unwrap_or_default(), now());
        self.write_one(&key, Condition::Absent, put(&value, now), request, now).await
    }

    async fn update(
        &self,
        request: Request<UpdateRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let UpdateRequest { key, value, request } = request.into_inner();
        let (value, now) = (value.unwrap_or_default(), now());
        self.write_one(&key, Condition::Present, put(&value, now), request, now).await
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<WriteResponse>, Status> {
        let PutRequest { key, value, if_version, request } = request.into_inner();
        let (value, now) = (value.unwrap_or_default(), now());
        self.write_one(&key, in_version(if_version), put(&value, now), request, now).await
    }

    async fn append(
        &self,
        request: Request<AppendRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let AppendRequest { key, tail, if_version, request } = request.into_inner();
        self.write_one(&key, in_version(if_version), Action::Append(&tail), request, now()).await
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let DeleteRequest { key, if_version, request } = request.into_inner();
        self.write_one(&key, in_version(if_version), Action::Delete, request, now()).await
    }

    async fn bulk_put(
        &self,
        request: Request<BulkPutRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let BulkPutRequest { changes, request } = request.into_inner();
        self.tally.call(&self.tally.writes);
        let store = self.store.clone();
        let outcome = blocking(move || {
            let now = now();
            let writes = changes
                .iter()
                .enumerate()
                .map(|(index, change)| write_of(change, now).ok_or_else(|| idle(index)))
                .collect::<Result<Vec<_>, Refused>>()?;
            written(&store, &writes, request, now)
        });
        self.settled(outcome.await?).await.map(Response::new)
    }

    type ScanStream = Streamed<ScanResponse>;

    async fn scan(
        &self,
        request: Request<ScanRequest>,
    ) -> Result<Response<Self::ScanStream>, Status> {
        self.scanned(request.into_inner(), None).await
    }

    type AtomicScanStream = Streamed<ScanResponse>;

    async fn atomic_scan(
        &self,
        request: Request<ScanRequest>,
    ) -> Result<Response<Self::AtomicScanStream>, Status> {
        self.scanned(request.into_inner(), Some(self.snapshot_idle_max)).await
    }

    async fn compact(
        &self,
        _: Request<CompactRequest>,
    ) -> Result<Response<CompactResponse>, Status> {
        let store = self.store.clone();
        // Held to its end, whether or not the client waits for that.
        let turn = Arc::clone(&self.compacting).lock_owned().await;
        let compacted = blocking(move || {
            let _turn = turn;
            store.compact()
        })
        .await?;
        compacted.map_err(|error| unreclaimed(&error))?;
        Ok(Response::new(CompactResponse {}))
    }

    async fn stats(&self, _: Request<StatsRequest>) -> Result<Response<StatsResponse>, Status> {
        let store = self.store.clone();
        let (keys, last_commit) =
            blocking(move || (store.keys(), store.snapshot().sequence())).await?;
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
        Ok(Response::new(StatsResponse {
            keys: keys as u64,
            last_commit,
            reads: reads.load(Ordering::Relaxed),
            writes: writes.load(Ordering::Relaxed),
            scans: scans.load(Ordering::Relaxed),
            scans_open: (self.scans_max - self.scans.available_permits()) as u64,
            scan_entries: scan_entries.load(Ordering::Relaxed),
            scan_bytes: scan_bytes.load(Ordering::Relaxed),
            first_call_unix_ns: first_call_unix_ns.load(Ordering::Relaxed),
            last_call_unix_ns: last_call_unix_ns.load(Ordering::Relaxed),
        }))
    }
}

/// Runs what takes long beside the runtime's own threads.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(run)
        .await
        .map_err(|_| Status::internal("the call failed in the server"))
}

fn put(Value { value, flags, ttl_s }: &Value, now: Second) -> Action<'_> {
    let expiry = match ttl_s {
        0 => Expiry::NEVER,
        seconds => Expiry::at(now.saturating_add(*seconds)),
    };
    Action::Put { flags: *flags, expiry, marks: 0, value }
}

fn in_version(version: Option<u64>) -> Condition {
    version.map_or(Condition::Always, Condition::Version)
}

/// What a part of a bulk put asks for; nothing if it does not say.
fn write_of(Change { key, action, condition }: &Change, now: Second) -> Option<Write<'_>> {
    let action = match action.as_ref()? {
        change::Action::Put(value) => put(value, now),
        change::Action::Append(tail) => Action::Append(tail),
        change::Action::Delete(_) => Action::Delete,
    };
    let condition = match condition {
        None => Condition::Always,
        Some(change::Condition::IfAbsent(_)) => Condition::Absent,
        Some(change::Condition::IfPresent(_)) => Condition::Present,
        Some(change::Condition::IfVersion(version)) => Condition::Version(*version),
    };
    Some(Write { key, condition, action })
}

fn idle(index: usize) -> Refused {
    let message = format!("change {index} does not say what is to happen");
    Refused { status: Status::invalid_argument(message), sequence: 0 }
}

/// Why nothing was written.
struct Refused {
    status: Status,
    /// The commit that it tells of, if it tells of one.
    sequence: u64,
}

fn written(
    store: &Store,
    writes: &[Write<'_>],
    request: Option<kv::RequestId>,
    now: Second,
) -> Result<Committed, Refused> {
    let request = request.map(|kv::RequestId { client, number }| RequestId { client, number });
    store.write(writes, request, now).map_err(|error| Refused {
        status: unwritten(&error, writes),
        sequence: match error {
            WriteError::Condition { sequence, .. } => sequence,
            // It says how much is there, and that the conditions hold.
            WriteError::TooLarge(_) => store.last(),
            _ => 0,
        },
    })
}

fn told(Past { version, deleted, appended, bytes }: Past) -> kv::Past {
    let kind = match (deleted, appended) {
        (true, _) => past::Kind::Delete,
        (false, true) => past::Kind::Append,
        (false, false) => past::Kind::Put,
    };
    kv::Past { version, kind: kind.into(), bytes: bytes as u64 }
}
