//! Scans the keys of all stripes in one order, as fast as the client reads.
//!
//! Each stripe returns its keys in order, a few at a time, into a buffer; the scan merges the buffers, and
//! makes a batch when the connection has space for one. Between batches nothing runs and no lock is held. A scan takes
//! [`BUFFER_BYTES`], one batch and one value, however slow its client is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use knee_kv_cache::engine::Second;
use knee_kv_store::calendar::now;
use knee_kv_store::{Damage, Shown, Snapshot, Store, Visited};
use knee_rpc::kv::{Entry, ScanRequest, ScanResponse};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::blocking::blocking;
use super::predicate::{Item, Predicate};
use super::refusal::{check_range, damaged};
use super::safe::Safe;
use super::tally::Tally;

/// Bytes in the buffers of all stripes together; one key per stripe may exceed them.
const BUFFER_BYTES: usize = 1 << 20;
/// A batch is sent when it has this number of bytes, or one larger entry.
const BATCH_BYTES: usize = 64 << 10;
/// Bytes in one step on a blocking thread. Between steps the scan notices a client that has left.
const STEP_BYTES: usize = 4 << 20;
/// Bytes after which the scan yields the processor: otherwise a new put would wait for some milliseconds.
const TURN_BYTES: usize = 16 << 10;
/// The cost of a key beside its value, in bytes.
const KEY_COST_BYTES: usize = 64;
/// Number of keys that are read from a stripe at once, under its lock.
const KEYS_MIN: usize = 8;
const KEYS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Scan {
    store: Store,
    tally: Arc<Tally>,
    /// The snapshot of an atomic scan.
    kept: Option<Kept>,
    /// A copy of the end of the range. The request's own key would keep the whole request in memory after the first
    /// batch.
    end: Vec<u8>,
    predicate: Option<Predicate>,
    /// The last commit that the scan has seen so far.
    seen: u64,
    /// Number of entries left to send.
    left: u64,
    stripes: Vec<Stripe>,
    /// Stripes to read from before the next key is known.
    unknown: Vec<usize>,
    /// The next key of each other stripe that has one, taken out of the stripe's first entry.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    _permit: OwnedSemaphorePermit,
}

/// Keys of a stripe that wait for their turn.
#[derive(Debug)]
struct Stripe {
    found: VecDeque<Found>,
    /// The key to resume at; `None` after the last key.
    from: Option<Vec<u8>>,
    keys_max: usize,
}

#[derive(Debug)]
struct Found {
    key: Vec<u8>,
    shown: Shown,
    /// `None` if it is too large for the buffer.
    value: Option<Vec<u8>>,
}

/// The snapshot of an atomic scan; it keeps the versions replaced since.
#[derive(Debug)]
struct Kept {
    snapshot: Snapshot,
    /// The second of the call: keys that expire later stay in the scan.
    now: Second,
    /// When the snapshot is dropped, however fast the client reads.
    until: Instant,
}

struct Step {
    /// Empty at the end, or if the step ended before an entry was found.
    entries: Vec<Entry>,
    /// The last commit that the scan has seen so far.
    seen: u64,
    /// The commit of the snapshot, for an atomic scan.
    snapshot: u64,
    is_over: bool,
}

/// A scan with the state of its stream.
struct Reading {
    scan: Scan,
    safe: Safe,
    is_over: bool,
}

/// The parts of the server that a scan needs.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) store: Store,
    pub(super) tally: Arc<Tally>,
    pub(super) permit: OwnedSemaphorePermit,
}

impl Scan {
    /// Begins a scan; an atomic one reads a snapshot, for at most `atomic`.
    pub(super) fn new(
        request: ScanRequest,
        atomic: Option<Duration>,
        place: Place,
    ) -> Result<Scan, Status> {
        let ScanRequest { start, end, predicate, limit } = request;
        let Place { store, tally, permit } = place;
        check_range(&start, &end)?;
        let predicate = Predicate::compile(&predicate)?;
        let stripes = store.stripes();
        tally.call(&tally.scans);
        Ok(Scan {
            kept: atomic.map(|age_max| Kept {
                snapshot: store.revocable_snapshot(),
                now: now(),
                until: Instant::now() + age_max,
            }),
            stripes: (0..stripes)
                .map(|_| Stripe {
                    found: VecDeque::new(),
                    from: Some(start.to_vec()),
                    keys_max: KEYS_MIN,
                })
                .collect(),
            unknown: (0..stripes).collect(),
            heads: BinaryHeap::with_capacity(stripes),
            seen: 0,
            left: if limit == 0 { u64::MAX } else { limit },
            store,
            tally,
            end: end.to_vec(),
            predicate,
            _permit: permit,
        })
    }

    /// The stream of batches. Each batch is made when the connection polls, and sent once its commits are synced.
    pub(super) fn batches(
        self,
        safe: Safe,
    ) -> impl Stream<Item = Result<ScanResponse, Status>> + Send {
        let reading = Reading { scan: self, safe, is_over: false };
        unfold(Some(reading), |reading| async {
            match reading?.next().await {
                Ok(Some((response, reading))) => Some((Ok(response), Some(reading))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    /// The next entries.
    fn step(&mut self) -> Result<Step, Status> {
        let kept = self.kept.take();
        let stepped = match &kept {
            None => self.step_at(None, now()),
            Some(kept) if Instant::now() >= kept.until => Err(Status::aborted(
                "the scan goes on for too long, and its snapshot was let go: begin anew",
            )),
            Some(kept) => self.step_at(Some(&kept.snapshot), kept.now),
        };
        // Reads after the snapshot was dropped may have seen any state.
        if kept.as_ref().is_some_and(|kept| !kept.snapshot.is_kept()) {
            return Err(Status::aborted(
                "the store had no space left, and dropped the scan's snapshot: start again",
            ));
        }
        let snapshot = kept.as_ref().map_or(0, |kept| kept.snapshot.sequence());
        self.kept = kept;
        Ok(Step { entries: stepped?, seen: self.seen, snapshot, is_over: self.left == 0 })
    }

    fn step_at(&mut self, snapshot: Option<&Snapshot>, now: Second) -> Result<Vec<Entry>, Status> {
        let mut entries = Vec::new();
        let (mut batch_bytes, mut seen_bytes, mut turn_bytes) = (0, 0, TURN_BYTES);
        while self.left > 0 && batch_bytes < BATCH_BYTES && seen_bytes < STEP_BYTES {
            if seen_bytes >= turn_bytes {
                turn_bytes = seen_bytes + TURN_BYTES;
                thread::yield_now();
            }
            if let Some(stripe) = self.unknown.pop() {
                seen_bytes += self.fill(stripe, snapshot, now)?;
                continue;
            }
            let Some(Reverse((key, stripe))) = self.heads.pop() else {
                self.left = 0;
                break;
            };
            let Some(found) = self.stripes[stripe].found.pop_front() else { continue };
            let mut found = Found { key, ..found };
            self.advance(stripe);
            let Some((shown, value)) = self.value(&mut found, stripe, snapshot, now)? else {
                continue;
            };
            seen_bytes += KEY_COST_BYTES + value.len();
            let item = Item { key: &found.key, value: &value, version: shown.version };
            if let Some(predicate) = &self.predicate
                && !predicate.holds(item)?
            {
                continue;
            }
            let bytes = found.key.len() + value.len();
            batch_bytes += KEY_COST_BYTES + bytes;
            self.left -= 1;
            self.tally.scan_entries.fetch_add(1, Ordering::Relaxed);
            self.tally.scan_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            entries.push(entry(found.key, value, &shown));
        }
        Ok(entries)
    }

    /// Moves the next key of a stripe to its head, or notes that the stripe must be read first.
    fn advance(&mut self, stripe: usize) {
        let Stripe { found, from, .. } = &mut self.stripes[stripe];
        match found.front_mut() {
            Some(first) => self.heads.push(Reverse((mem::take(&mut first.key), stripe))),
            None if from.is_some() => self.unknown.push(stripe),
            None => {}
        }
    }

    /// Reads further keys of a stripe. Returns their cost.
    fn fill(
        &mut self,
        index: usize,
        snapshot: Option<&Snapshot>,
        now: Second,
    ) -> Result<usize, Status> {
        let room = BUFFER_BYTES / self.stripes.len();
        let Stripe { found, from, keys_max } = &mut self.stripes[index];
        let Some(first) = from.take() else { return Ok(0) };
        let end = match &self.end[..] {
            [] => Bound::Unbounded,
            end => Bound::Excluded(end),
        };
        let keys_asked = match self.predicate {
            None => (*keys_max).min(usize::try_from(self.left).unwrap_or(usize::MAX)),
            Some(_) => *keys_max,
        };
        let (mut bytes, mut seen_bytes) = (0, keys_asked * KEY_COST_BYTES);
        // Whether a key did not fit the buffer.
        let mut is_over = false;
        let visit = |visited: &Visited<'_>| {
            let &Visited { key, shown, .. } = visited;
            let needs = key.len() + shown.value_bytes + size_of::<Found>();
            if bytes + needs <= room {
                let value = whole_value(visited)?;
                bytes += needs;
                seen_bytes += value.len();
                found.push_back(Found { key: key.to_vec(), shown, value: Some(value) });
            } else if found.is_empty() {
                bytes = room;
                found.push_back(Found { key: key.to_vec(), shown, value: None });
            } else {
                is_over = true;
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        };
        let range = (Bound::Included(&first[..]), end);
        let scanned = self
            .store
            .scan_stripe(index, snapshot, range, keys_asked, now, visit)
            .map_err(|damage| damaged(&damage))?;
        *keys_max = if is_over { *keys_max / 2 } else { *keys_max * 2 };
        *keys_max = (*keys_max).clamp(KEYS_MIN, KEYS_MAX);
        *from = scanned.next;
        self.seen = self.seen.max(scanned.sequence);
        self.advance(index);
        Ok(seen_bytes)
    }

    /// The value of a key. A value that was not buffered is read now. `None` if the key was deleted, which does not
    /// happen in a snapshot.
    fn value(
        &mut self,
        found: &mut Found,
        stripe: usize,
        snapshot: Option<&Snapshot>,
        now: Second,
    ) -> Result<Option<(Shown, Vec<u8>)>, Status> {
        if let Some(value) = found.value.take() {
            return Ok(Some((found.shown, value)));
        }
        let mut read = None;
        let visit = |visited: &Visited<'_>| {
            read = Some((visited.shown, whole_value(visited)?));
            Ok(ControlFlow::Continue(()))
        };
        let only = (Bound::Included(&found.key[..]), Bound::Included(&found.key[..]));
        let scanned = self
            .store
            .scan_stripe(stripe, snapshot, only, 1, now, visit)
            .map_err(|damage| damaged(&damage))?;
        self.seen = self.seen.max(scanned.sequence);
        Ok(read)
    }
}

impl Reading {
    /// The next batch, and the rest; `None` at the end.
    async fn next(mut self) -> Result<Option<(ScanResponse, Reading)>, Status> {
        while !self.is_over {
            let (reading, step) = blocking(move || {
                let step = self.scan.step();
                (self, step)
            })
            .await?;
            self = reading;
            let Step { entries, seen, snapshot, is_over } = step?;
            self.is_over = is_over;
            // The client may also see that the scan is over: the commits that it saw must be synced.
            if !entries.is_empty() || is_over {
                self.safe.wait(seen).await?;
            }
            if !entries.is_empty() {
                return Ok(Some((ScanResponse { entries, snapshot }, self)));
            }
        }
        Ok(None)
    }
}

fn whole_value(visited: &Visited<'_>) -> Result<Vec<u8>, Damage> {
    let mut value = Vec::with_capacity(visited.shown.value_bytes);
    visited.value(|piece| {
        value.extend_from_slice(piece);
        true
    })?;
    Ok(value)
}

/// Converts a version of a key to a message.
pub(super) fn entry(
    key: impl Into<Bytes>,
    value: impl Into<Bytes>,
    &Shown { version, flags, expiry, .. }: &Shown,
) -> Entry {
    Entry {
        key: key.into(),
        value: value.into(),
        version,
        flags,
        expires_at_s: expiry.second().unwrap_or(0),
    }
}
