//! `Watch`: streams the changes of keys in a range, as fast as the client reads.
//!
//! A commit puts an event into the channel of each watch and never waits: a full channel ends its watch. An event
//! leaves the channel once its commit is synced.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use knee_kv_store::{Event, Store, What};
use knee_rpc::kv::{self, WatchRequest, WatchResponse, past};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tonic::Status;

use super::blocking::blocking;
use super::refusal::check_range;
use super::safe::Safe;

/// Largest number of bytes in a channel, unless one event is larger.
const CHANNEL_BYTES: usize = 4 << 20;
const BATCH_BYTES: usize = 64 << 10;
/// Bytes of an event besides its key and value.
const EVENT_COST_BYTES: usize = 128;

pub(super) struct Watch {
    store: Store,
    safe: Safe,
    id: u64,
    /// The channel; closed after it was full.
    events: mpsc::UnboundedReceiver<Sent>,
    /// The next event, already taken from the channel.
    next: Option<Sent>,
    /// The commit after which the watch begins.
    from: u64,
    begun: bool,
    ending: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

/// An event in the channel.
struct Sent {
    sequence: u64,
    event: kv::Event,
    /// The bytes of the channel that the event takes.
    _room: OwnedSemaphorePermit,
}

/// The events of one message.
struct Batch {
    response: WatchResponse,
    /// The last commit with an event in the batch; further events of that commit may be missing.
    seen: u64,
}

impl Watch {
    pub(super) fn new(
        WatchRequest { start, end, values }: WatchRequest,
        store: Store,
        safe: Safe,
        ending: watch::Receiver<bool>,
        place: OwnedSemaphorePermit,
    ) -> Result<Watch, Status> {
        check_range(&start, &end)?;
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.to_vec()) };
        let room = Arc::new(Semaphore::new(CHANNEL_BYTES));
        let (send, events) = mpsc::unbounded_channel();
        let listener = move |event: Event| {
            let (sequence, event) = (event.sequence, message(event, values));
            let bytes = cost(&event).min(CHANNEL_BYTES) as u32;
            // If the channel is full, the store drops the listener, and the channel closes.
            Arc::clone(&room)
                .try_acquire_many_owned(bytes)
                .is_ok_and(|room| send.send(Sent { sequence, event, _room: room }).is_ok())
        };
        let id = store.watch((Bound::Included(start.to_vec()), end), Box::new(listener));
        // Read the last commit after the registration: the channel may have only a part of an earlier commit.
        let from = store.last();
        let (next, begun) = (None, false);
        Ok(Watch { store, safe, id, events, next, from, begun, ending, _place: place })
    }

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
            self.batch().await?
        } else {
            self.begun = true;
            let response = WatchResponse { events: Vec::new(), commit: self.from };
            Batch { response, seen: self.from }
        };
        self.safe.wait(batch.seen).await?;
        Ok(batch.response)
    }

    /// Waits for events.
    async fn batch(&mut self) -> Result<Batch, Status> {
        loop {
            if self.next.is_none() {
                self.next = tokio::select! {
                    event = self.events.recv() => event,
                    _ = self.ending.wait_for(|ends| *ends) => {
                        return Err(Status::unavailable("the server ends: watch again later"));
                    }
                };
            }
            if self.next.is_none() {
                return Err(Status::aborted(
                    "client too slow: events were lost; read the range again, and watch from there",
                ));
            }
            // Read the last commit after an event arrived: the channel then has all events up to that commit.
            let store = self.store.clone();
            let last = blocking(move || store.last()).await?;
            if let Some(batch) = self.take(last) {
                return Ok(batch);
            }
        }
    }

    /// Takes the next events up to the complete commit `last`.
    fn take(&mut self, last: u64) -> Option<Batch> {
        let (mut events, mut seen, mut bytes) = (Vec::new(), 0, 0);
        while bytes < BATCH_BYTES && self.next_sequence().is_some_and(|next| next <= last) {
            let Sent { sequence, event, .. } = self.next.take()?;
            if sequence > self.from {
                bytes += cost(&event);
                seen = sequence;
                events.push(event);
            }
        }
        // The last commit may have more events: in the channel, or lost because the channel was full.
        let is_part = match self.next_sequence() {
            Some(next) => next == seen,
            None => self.events.is_closed(),
        };
        let commit = seen - u64::from(is_part);
        (!events.is_empty()).then_some(Batch { response: WatchResponse { events, commit }, seen })
    }

    /// The commit of the next event in the channel.
    fn next_sequence(&mut self) -> Option<u64> {
        self.next = self.next.take().or_else(|| self.events.try_recv().ok());
        self.next.as_ref().map(|next| next.sequence)
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
