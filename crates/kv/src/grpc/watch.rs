//! `Watch`: changes of a range's keys, as fast as the client reads.
//!
//! A commit puts an event into the buffer of each watch and never waits: a full buffer ends its watch. Events
//! leave the buffer once they are safe.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use knee_rpc::kv::{self, WatchRequest, WatchResponse, past};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tonic::Status;

use super::blocking::blocking;
use super::refusal::check_range;
use super::safe::Safe;
use crate::versioned::{Event, Store, What};

/// Bytes in a buffer at most, unless one event is larger.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes of events in one message.
const BATCH_BYTES: usize = 64 << 10;
/// Bytes of an event beside its key and value.
const EVENT_COST_BYTES: usize = 128;

/// A running watch.
pub(super) struct Watch {
    store: Store,
    safe: Safe,
    id: u64,
    buffer: Arc<Buffer>,
    /// The commit after which it begins.
    from: u64,
    begun: bool,
    ending: watch::Receiver<bool>,
}

struct Buffer {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

struct Waiting {
    events: VecDeque<(u64, kv::Event)>,
    bytes: usize,
    /// Its place among the watches; `None` after the buffer was full.
    place: Option<OwnedSemaphorePermit>,
}

impl Waiting {
    /// Ends the watch and frees its events: a stream that is not read cannot do so itself.
    fn give_up(&mut self) {
        *self = Waiting { events: VecDeque::new(), bytes: 0, place: None };
    }
}

impl Buffer {
    /// Events are added whole: the buffer stays usable after a panic.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, if there is room. Returns whether the watch goes on.
    fn push(&self, event: Event, values: bool) -> bool {
        let sequence = event.sequence;
        let event = message(event, values);
        let mut waiting = self.lock();
        if !waiting.events.is_empty() && waiting.bytes + cost(&event) > BUFFER_BYTES {
            waiting.give_up();
        }
        let goes_on = waiting.place.is_some();
        if goes_on {
            waiting.bytes += cost(&event);
            waiting.events.push_back((sequence, event));
        }
        drop(waiting);
        self.arrived.notify_one();
        goes_on
    }

    /// Whether there is an event, or the watch has ended.
    fn is_ready(&self) -> bool {
        let waiting = self.lock();
        waiting.place.is_none() || !waiting.events.is_empty()
    }

    /// The next events after the commit `from`, up to the commit `last`, which is complete. Fails after the buffer
    /// was full.
    fn take(&self, from: u64, last: u64) -> Result<Option<Batch>, Status> {
        let mut waiting = self.lock();
        if waiting.place.is_none() {
            return Err(Status::aborted(
                "client too slow: events were lost; read the range again, and watch from there",
            ));
        }
        let (mut events, mut seen, mut bytes) = (Vec::new(), 0, 0);
        while bytes < BATCH_BYTES
            && waiting.events.front().is_some_and(|(sequence, _)| *sequence <= last)
            && let Some((sequence, event)) = waiting.events.pop_front()
        {
            waiting.bytes -= cost(&event);
            if sequence > from {
                bytes += cost(&event);
                seen = sequence;
                events.push(event);
            }
        }
        // The last commit may have more events.
        let is_part = waiting.events.front().is_some_and(|(next, _)| *next == seen);
        let commit = seen - u64::from(is_part);
        Ok((!events.is_empty())
            .then_some(Batch { response: WatchResponse { events, commit }, seen }))
    }
}

/// The events of one message.
struct Batch {
    response: WatchResponse,
    /// The last commit with an event in it, perhaps not with all of its events.
    seen: u64,
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
        let waiting = Waiting { events: VecDeque::new(), bytes: 0, place: Some(permit) };
        let buffer = Arc::new(Buffer { waiting: Mutex::new(waiting), arrived: Notify::new() });
        let listener = Arc::clone(&buffer);
        let range = (Bound::Included(start.to_vec()), end);
        let id = store.watch(range, Box::new(move |event| listener.push(event, values)));
        // Read after the registration: of a commit before that, the buffer may have only a part.
        let from = store.last();
        Ok(Watch { store, safe, id, buffer, from, begun: false, ending })
    }

    /// Its messages.
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
        let batch = if self.begun {
            self.wait().await?
        } else {
            self.begun = true;
            let response = WatchResponse { events: Vec::new(), commit: self.from };
            Batch { response, seen: self.from }
        };
        self.safe.wait(batch.seen).await?;
        Ok(batch.response)
    }

    /// Waits for events.
    async fn wait(&mut self) -> Result<Batch, Status> {
        loop {
            if self.buffer.is_ready() {
                // Read after an event came: the buffer has all events of complete commits.
                let store = self.store.clone();
                let last = blocking(move || store.last()).await?;
                if let Some(batch) = self.buffer.take(self.from, last)? {
                    return Ok(batch);
                }
            }
            tokio::select! {
                () = self.buffer.arrived.notified() => {}
                _ = self.ending.wait_for(|ends| *ends) => {
                    return Err(Status::unavailable("the server ends: watch again later"));
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
