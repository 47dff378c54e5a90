//! `Watch`: what happens to the keys of a range, as fast as it is read, or not at all.
//!
//! Whoever commits leaves an event in the buffer of each watcher and never waits: a buffer that is
//! full ends its watch. What is in a buffer is told once it is safe.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use knee_rpc::kv::{self, WatchRequest, WatchResponse, past};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tonic::Status;

use super::refusal::check_range;
use super::safe::Safe;
use crate::versioned::{Event, Store, What};

/// What waits for a watcher at most, and an event that is larger.
const BUFFER_BYTES: usize = 4 << 20;
/// Events are sent together up to so much.
const BATCH_BYTES: usize = 64 << 10;
/// What an event takes beside its key and value.
const EVENT_COST_BYTES: usize = 128;

/// A watch that goes on.
pub(super) struct Watch {
    store: Store,
    safe: Safe,
    id: u64,
    buffer: Arc<Buffer>,
    /// The commit behind which it begins.
    from: u64,
    begun: bool,
    ending: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Buffer {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<(u64, kv::Event)>,
    bytes: usize,
    /// There was no room for an event: none came behind it.
    over: bool,
}

impl Buffer {
    /// An event is added whole: it stays usable whatever a thread that held it did.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event, if there is room.
    fn push(&self, event: Event, values: bool) -> bool {
        let sequence = event.sequence;
        let event = message(event, values);
        let mut waiting = self.lock();
        waiting.over = !waiting.events.is_empty() && waiting.bytes + cost(&event) > BUFFER_BYTES;
        if !waiting.over {
            waiting.bytes += cost(&event);
            waiting.events.push_back((sequence, event));
        }
        let goes_on = !waiting.over;
        drop(waiting);
        self.arrived.notify_one();
        goes_on
    }

    /// The next events behind a commit, and the commit of the last of them; an error behind the last
    /// one that there was room for.
    fn take(&self, from: u64) -> Result<Option<WatchResponse>, Status> {
        let mut waiting = self.lock();
        let (mut events, mut commit, mut bytes) = (Vec::new(), 0, 0);
        while bytes < BATCH_BYTES
            && let Some((sequence, event)) = waiting.events.pop_front()
        {
            waiting.bytes -= cost(&event);
            if sequence > from {
                bytes += cost(&event);
                commit = sequence;
                events.push(event);
            }
        }
        match events.is_empty() {
            false => Ok(Some(WatchResponse { events, commit })),
            true if waiting.over => Err(Status::aborted(
                "it was read too slowly, and events were lost: read anew, and watch from there",
            )),
            true => Ok(None),
        }
    }
}

impl Watch {
    /// Begins to watch a range.
    pub(super) fn new(
        WatchRequest { start, end, values }: WatchRequest,
        store: Store,
        safe: Safe,
        ending: watch::Receiver<bool>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Watch, Status> {
        check_range(&start, &end)?;
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.to_vec()) };
        let buffer = Arc::<Buffer>::default();
        let listener = Arc::clone(&buffer);
        let range = (Bound::Included(start.to_vec()), end);
        let id = store.watch(range, Box::new(move |event| listener.push(event, values)));
        // Asked for when it is registered: of a commit that was being made then, only part was told.
        let from = store.last();
        Ok(Watch { store, safe, id, buffer, from, begun: false, ending, _permit: permit })
    }

    /// What it tells.
    pub(super) fn responses(self) -> impl Stream<Item = Result<WatchResponse, Status>> + Send {
        unfold(Some(self), |watch| async {
            let mut watch = watch?;
            Some(match watch.next().await {
                Ok(response) => (Ok(response), Some(watch)),
                Err(status) => (Err(status), None),
            })
        })
    }

    async fn next(&mut self) -> Result<WatchResponse, Status> {
        let response = if self.begun {
            self.wait().await?
        } else {
            self.begun = true;
            WatchResponse { events: Vec::new(), commit: self.from }
        };
        self.safe.wait(response.commit).await?;
        Ok(response)
    }

    /// Waits for events.
    async fn wait(&mut self) -> Result<WatchResponse, Status> {
        loop {
            if let Some(response) = self.buffer.take(self.from)? {
                return Ok(response);
            }
            tokio::select! {
                () = self.buffer.arrived.notified() => {}
                _ = self.ending.wait_for(|ends| *ends) => {
                    return Err(Status::unavailable("the server ends, and with it the watch"));
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.store.unwatch(self.id);
    }
}

fn cost(event: &kv::Event) -> usize {
    EVENT_COST_BYTES + event.key.len() + event.value.len()
}

fn message(Event { version, key, what, .. }: Event, values: bool) -> kv::Event {
    let (kind, value) = match what {
        What::Put(value) => (past::Kind::Put, value),
        What::Appended(tail) => (past::Kind::Append, tail),
        What::Deleted => (past::Kind::Delete, Vec::new()),
    };
    let bytes = value.len() as u64;
    let value = if values { value.into() } else { Bytes::new() };
    kv::Event { key: key.into(), kind: kind.into(), version, value, bytes }
}
