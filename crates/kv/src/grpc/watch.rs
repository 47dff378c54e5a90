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

use super::blocking::blocking;
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
}

struct Buffer {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

struct Waiting {
    events: VecDeque<(u64, kv::Event)>,
    bytes: usize,
    /// Its place among those that are served; it has none when it is read too slowly.
    place: Option<OwnedSemaphorePermit>,
}

impl Waiting {
    /// Nothing more is told. A stream that is not read cannot end itself: what it has goes now.
    fn give_up(&mut self) {
        *self = Waiting { events: VecDeque::new(), bytes: 0, place: None };
    }
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

    /// Whether there is something to take, or nothing any more.
    fn is_ready(&self) -> bool {
        let waiting = self.lock();
        waiting.place.is_none() || !waiting.events.is_empty()
    }

    /// The next events behind a commit, of those up to `last`, which is over; an error when it was
    /// read too slowly.
    fn take(&self, from: u64, last: u64) -> Result<Option<Told>, Status> {
        let mut waiting = self.lock();
        if waiting.place.is_none() {
            return Err(Status::aborted(
                "it was read too slowly, and events were lost: read anew, and watch from there",
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
        // There may be more of the last one.
        let is_part = waiting.events.front().is_some_and(|(next, _)| *next == seen);
        let commit = seen - u64::from(is_part);
        Ok((!events.is_empty())
            .then_some(Told { response: WatchResponse { events, commit }, seen }))
    }
}

/// What is told at once.
struct Told {
    response: WatchResponse,
    /// The last commit that it tells of, if only in part.
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
        // Asked for when it is registered: of a commit that was being made then, only part was told.
        let from = store.last();
        Ok(Watch { store, safe, id, buffer, from, begun: false, ending })
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
        let told = if self.begun {
            self.wait().await?
        } else {
            self.begun = true;
            let response = WatchResponse { events: Vec::new(), commit: self.from };
            Told { response, seen: self.from }
        };
        self.safe.wait(told.seen).await?;
        Ok(told.response)
    }

    /// Waits for events.
    async fn wait(&mut self) -> Result<Told, Status> {
        loop {
            if self.buffer.is_ready() {
                // Asked for when there is something: of a commit that is over, all is there.
                let store = self.store.clone();
                let last = blocking(move || store.last()).await?;
                if let Some(told) = self.buffer.take(self.from, last)? {
                    return Ok(told);
                }
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
