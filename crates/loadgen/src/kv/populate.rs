//! The phase that fills the stores: it puts the first keys, in order, on every server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use knee_rpc::kv::BulkPutRequest;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::calls::{KvCalls, Stub};
use super::message::put;
use super::workload::Workload;
use crate::error::Error;
use crate::grpc::{Failure, phase};
use crate::populate::{ANSWER_TIMEOUT, PROGRESS, share_of, summary, tell_progress};
use crate::values::VALUE_BYTES_MAX;

/// The most keys of a batch, and the bytes from which a batch is full. With its last value, a batch has at most half of
/// the 4 MiB that every server accepts.
const BATCH_KEYS: u64 = 1000;
const BATCH_BYTES: u64 = VALUE_BYTES_MAX as u64;

const BATCHES_IN_FLIGHT: usize = 4;

/// Puts the first `share` of the keys on each of `servers`, and returns a summary as a line of JSON.
///
/// # Errors
/// When anything is not stored, with the server's answer; when interrupted.
pub(crate) fn populate(
    servers: &[SocketAddr],
    workload: Workload,
    share: f64,
    parent: Option<u32>,
) -> Result<String, Error> {
    let total = workload.items.keys.count();
    let keys = share_of(total, share);
    if keys > 0 {
        let workload = Arc::new(workload);
        phase(parent, fill_all(servers, &workload, keys))?;
    }
    Ok(summary(servers, total, share, keys))
}

/// The progress of one server.
#[derive(Debug, Default)]
struct Filled {
    /// The first key of the next batch.
    next: AtomicU64,
    stored: AtomicU64,
}

async fn fill_all(
    servers: &[SocketAddr],
    workload: &Arc<Workload>,
    keys: u64,
) -> Result<(), Error> {
    let filled: Arc<[Filled]> = servers.iter().map(|_| Filled::default()).collect();
    let mut filling = JoinSet::new();
    for (index, server) in servers.iter().enumerate() {
        let stub = KvCalls::connect(*server).await?;
        for _ in 0..BATCHES_IN_FLIGHT {
            let (stub, filled) = (stub.clone(), Arc::clone(&filled));
            let (server, workload) = (*server, Arc::clone(workload));
            filling.spawn(async move {
                let outcome = fill(stub, &workload, keys, &filled[index]).await;
                outcome.map_err(|why| Error::Populate { server, why })
            });
        }
    }
    let wanted = keys * servers.len() as u64;
    let stored = || filled.iter().map(|server| server.stored.load(Ordering::Relaxed)).sum();
    let mut ticks = interval(PROGRESS);
    ticks.tick().await;
    loop {
        tokio::select! {
            ended = filling.join_next() => match ended {
                Some(Ok(outcome)) => outcome?,
                Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
                None => break,
            },
            _ = ticks.tick() => tell_progress(stored(), wanted),
        }
    }
    tell_progress(stored(), wanted);
    Ok(())
}

/// Puts batches of keys on one server until all keys are stored.
async fn fill(
    mut stub: Stub,
    workload: &Workload,
    keys: u64,
    filled: &Filled,
) -> Result<(), String> {
    loop {
        let mut next = filled.next.load(Ordering::Relaxed);
        let mut changes = Vec::new();
        let mut bytes = 0;
        while next < keys && (changes.len() as u64) < BATCH_KEYS && bytes < BATCH_BYTES {
            let key = next as u32;
            bytes += u64::from(workload.items.value(key).bytes);
            changes.push(put(workload, key));
            next += 1;
        }
        filled.next.store(next, Ordering::Relaxed);
        let count = changes.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let call = stub.bulk_put(BulkPutRequest { changes, request: None });
        match timeout(ANSWER_TIMEOUT, call).await {
            Ok(Ok(_)) => filled.stored.fetch_add(count, Ordering::Relaxed),
            Ok(Err(status)) => {
                return Err(format!("it {}", Failure::from(status).of("bulk put")));
            }
            Err(_) => return Err(format!("no answer for {} s", ANSWER_TIMEOUT.as_secs())),
        };
    }
}
