//! The fast path: answers reads from the near cache, keeps the values of other reads, and marks writes.
//!
//! Only `get` is answered here. Servers alone know cas tokens, expiry times, and the recache tokens in answers to `mg`.

use std::time::Instant;

use knee_proto::{Expect, Get, GetVerb, Request, Response, Store, encode};
use knee_reactor::Io;

use crate::flight::{Flight, Outcome};
use crate::frame;
use crate::proxy::Proxy;
use crate::trail::{Holder, Reads, Trail};

/// Unread answers of one client at which no further request of it is answered in this batch.
pub(crate) const ANSWERS_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a multi-get's answer from the cache. Servers are asked for the other keys.
const SEVERAL_BYTES_MAX: usize = 1024 * 1024;

impl Proxy {
    /// Answers a read from the near cache as far as possible, and sends the rest to servers. Marks a write, and sends it.
    pub(crate) fn launch_near(&mut self, io: &mut Io, id: u32, request: &Request<'_>) {
        match request {
            Request::Get(get) if get.verb == GetVerb::Get => self.recall(io, id, get, request),
            _ => {
                self.flights[id].trail = self.begin_write(io.now(), id, request);
                self.pass_on(io, id, request);
            }
        }
    }

    fn recall(&mut self, io: &mut Io, id: u32, get: &Get<'_>, request: &Request<'_>) {
        let Some(near) = &mut self.near else { return };
        let (now, flight) = (io.now(), &mut self.flights[id]);
        let mut reads = Box::<Reads>::default();
        let (mut rest, mut missing) = (Vec::new(), 0);
        flight.reply.clear();
        if get.key_count == 1 {
            let key = get.keys().next().unwrap_or_default();
            if near.get(key, now, &mut flight.reply) {
                reads.hits = 1;
            } else {
                missing = 1;
                flight.trail = near.sight(key).map_or(Trail::None, Trail::Read);
            }
        } else {
            for key in get.keys() {
                let holder = if reads.values.len() < SEVERAL_BYTES_MAX
                    && near.get(key, now, &mut reads.values)
                {
                    reads.hits += 1;
                    Holder::Cache(reads.values.len())
                } else {
                    missing += 1;
                    rest.push(b' ');
                    rest.extend_from_slice(key);
                    Holder::Server(near.sight(key))
                };
                reads.names.extend_from_slice(key);
                reads.keys.push((reads.names.len(), holder));
            }
        }
        let hits = reads.hits;
        self.count_recalled(hits, missing as u32);
        if missing == 0 {
            let flight = &mut self.flights[id];
            flight.reply.append(&mut reads.values);
            flight.reply.extend_from_slice(encode::END);
            let outcome = Outcome { hits, error: false, silent: false };
            return self.settle_answered(io, id, outcome);
        }
        if get.key_count == 1 {
            return self.pass_on(io, id, request);
        }
        let flight = &mut self.flights[id];
        flight.trail = Trail::Reads(reads);
        flight.route.items -= hits;
        if hits == 0 {
            self.pass_on(io, id, request);
        } else {
            self.pass_on(io, id, &Request::Get(Get::spaced(&rest, missing)));
        }
    }

    fn count_recalled(&mut self, hits: u32, misses: u32) {
        if let Some(counts) = self.recorder().and_then(|recorder| recorder.gauges.cache.as_mut()) {
            counts.hits += u64::from(hits);
            counts.misses += u64::from(misses);
        }
    }

    fn begin_write(&mut self, now: Instant, id: u32, request: &Request<'_>) -> Trail {
        let (Some(near), true) = (&mut self.near, self.flights[id].route.changes) else {
            return Trail::None;
        };
        match request {
            Request::Store(Store { key, .. })
            | Request::Delete { key, .. }
            | Request::Arith { key, .. }
            | Request::Touch { key, .. } => Trail::Write(near.begin(key, now)),
            Request::MetaGet(meta)
            | Request::MetaSet(meta)
            | Request::MetaDelete(meta)
            | Request::MetaArith(meta) => {
                Trail::Write(near.begin(meta.key_bytes(&mut Vec::new()), now))
            }
            // A touch changes when the value ends.
            Request::Get(get) => {
                Trail::Writes(get.keys().map(|key| near.begin(key, now)).collect())
            }
            Request::FlushAll { .. } => {
                near.begin_flush(now);
                Trail::Flush
            }
            _ => Trail::None,
        }
    }

    /// Keeps the value of a read that is relayed at once.
    pub(crate) fn keep_relayed(&mut self, id: u32, response: &Response<'_>) {
        let Flight { trail, received, .. } = &mut self.flights[id];
        let (Trail::Read(sight), Some(near)) = (std::mem::take(trail), &mut self.near) else {
            return;
        };
        if let (false, Some(value)) = (response.status.is_error(), response.values().next()) {
            near.keep(&value, sight, *received);
        }
    }

    /// Keeps the values of a complete reply, and adds those that the cache had.
    pub(crate) fn join_recalled(&mut self, id: u32, outcome: &mut Outcome) {
        let Some(near) = &mut self.near else { return };
        let flight = &mut self.flights[id];
        let trail = std::mem::take(&mut flight.trail);
        match trail {
            Trail::Read(sight) => {
                let answer = frame::parse(&flight.reply, Expect::Retrieval);
                if let (false, Some(value)) =
                    (outcome.error, answer.and_then(|answer| answer.values().next()))
                {
                    near.keep(&value, sight, flight.received);
                }
            }
            Trail::Reads(reads) => {
                flight.route.items += reads.hits;
                let answer = frame::parse(&flight.reply, Expect::Retrieval);
                if let (false, Some(answer)) = (outcome.error, answer) {
                    let reply = reads.join(&answer, flight.received, near);
                    flight.reply = reply;
                    outcome.hits += reads.hits;
                }
            }
            // A write ends once its flight is complete.
            trail => flight.trail = trail,
        }
    }

    /// Ends what a flight has begun at the cache.
    pub(crate) fn end_trail(&mut self, id: u32) {
        let Some(near) = &self.near else { return };
        match std::mem::take(&mut self.flights[id].trail) {
            Trail::None | Trail::Read(_) | Trail::Reads(_) => {}
            Trail::Write(place) => near.end(place),
            Trail::Writes(places) => places.into_iter().for_each(|place| near.end(place)),
            Trail::Flush => near.end_flush(),
        }
    }
}
