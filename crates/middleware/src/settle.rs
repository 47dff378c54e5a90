//! Turns the servers' answers, or their failures, into the client's reply.

mod conditional;
mod refusal;

use knee_proto::{Response, Status, quiet_suppresses};
use knee_reactor::{ConnId, Io};

use crate::config::Mode;
use crate::deletion;
use crate::flight::{Home, Outcome, Round, recycle};
use crate::frame;
use crate::gather::{self, Gathered};
use crate::ledger::Settled;
use crate::opaque::{Answer, Opaque};
use crate::proxy::Proxy;
use crate::queue::Served;
use crate::route::{Kind, Silence};
use crate::server::Expected;
use crate::shard;
use crate::trace::Trace;
use crate::trail::Trail;
use crate::verdict::Severity;

impl Proxy {
    pub(crate) fn take_answer(
        &mut self,
        io: &mut Io,
        expected: Expected,
        server: usize,
        answer: &Answer<'_>,
    ) {
        let response = &answer.response;
        let id = expected.flight;
        let part = usize::from(expected.part);
        if response.status.is_error() {
            self.count_error(server);
        }
        let flight = &mut self.flights[id];
        if flight.clearing >> server & 1 == 1 {
            return self.cleared(io, id, server, answer);
        }
        match flight.route.kind {
            Kind::Any | Kind::First => self.relay(io, id, answer),
            Kind::All
                if flight.missing == 1
                    && flight.lost == 0
                    && flight.needed <= 1
                    && flight.verdict.severity == Severity::Nothing =>
            {
                self.relay(io, id, answer);
            }
            Kind::All => {
                flight.missing -= 1;
                flight.needed = flight.needed.saturating_sub(1);
                let refused = matches!(response.status, Status::NotStored | Status::MetaNotStored);
                let adds = refused && flight.adds();
                if flight.verdict.weigh(server, response, adds) {
                    rewrite(&mut flight.reply, answer, &flight.opaque);
                    flight.outcome.silent = is_silent(flight.route.silence, response);
                }
                self.settle_verdict(io, id);
            }
            Kind::Shards => {
                flight.missing -= 1;
                flight.outcome.hits += response.hits as u32;
                if response.status.is_error() {
                    if flight.verdict.weigh(server, response, false) {
                        set(&mut flight.reply, frame::error_line(response.raw));
                    }
                } else {
                    rewrite(&mut flight.parts[part].bytes, answer, &flight.opaque);
                    flight.parts[part].here = true;
                }
                self.settle_shards(io, id);
            }
            Kind::Gather => {
                flight.missing -= 1;
                flight.needed = flight.needed.saturating_sub(1);
                rewrite(&mut flight.parts[part].bytes, answer, &flight.opaque);
                flight.parts[part].here = true;
                self.settle_gathered(io, id);
            }
            Kind::Cas => {
                flight.missing -= 1;
                rewrite(&mut flight.parts[part].bytes, answer, &flight.opaque);
                flight.parts[part].here = true;
                self.advance_cas(io, id, server, answer);
            }
        }
    }

    /// Handles the loss of a server that had not answered this part of a flight.
    pub(crate) fn lost(&mut self, io: &mut Io, id: u32, part: u16, server: usize) {
        let flight = &mut self.flights[id];
        let (kind, changes) = (flight.route.kind, flight.route.changes);
        // The server may or may not have executed the request.
        flight.lost |= 1 << server;
        if flight.round_writes() && !flight.may_keep(server) {
            self.miss(id, server);
        }
        let flight = &mut self.flights[id];
        match kind {
            Kind::Any | Kind::First if changes => {
                let mut text = Vec::new();
                self.say_down(server, &mut text);
                self.fail(io, id, &text);
            }
            Kind::Any | Kind::First => {
                self.retry(io, id, part.into(), server);
            }
            Kind::All | Kind::Gather => {
                flight.missing -= 1;
                self.settle_if_answered(io, id);
            }
            Kind::Shards => {
                if self.retry(io, id, part.into(), server) {
                    return;
                }
                let mut text = Vec::new();
                self.say_all_down(&mut text);
                let flight = &mut self.flights[id];
                flight.missing -= 1;
                if flight.verdict.lose() {
                    set(&mut flight.reply, &text);
                }
                self.settle_shards(io, id);
            }
            Kind::Cas if flight.round == Round::Following => {
                flight.missing -= 1;
                self.settle_cas(io, id);
            }
            Kind::Cas if flight.round == Round::Asking && flight.may_lose(server) => {
                // Go on without this server. If the client's token includes this server, `decide_cas` finds that the
                // token no longer holds.
                flight.members &= !(1 << server);
                flight.missing -= 1;
                if flight.missing == 0 {
                    self.decide_cas(io, id);
                }
            }
            Kind::Cas => {
                flight.missing -= 1;
                let mut text = Vec::new();
                self.say_down(server, &mut text);
                let flight = &mut self.flights[id];
                if flight.verdict.lose() {
                    set(&mut flight.reply, &text);
                }
                if flight.missing == 0 {
                    self.settle_error(io, id);
                }
            }
        }
    }

    /// Handles a server's answer to a deletion, which replaces a write or undoes it.
    fn cleared(&mut self, io: &mut Io, id: u32, server: usize, answer: &Answer<'_>) {
        if !deletion::is_done(&answer.response.status) {
            self.miss(id, server);
        }
        self.flights[id].missing -= 1;
        self.settle_if_answered(io, id);
    }

    /// Settles a flight that asked all servers. Does nothing while an answer is missing.
    fn settle_if_answered(&mut self, io: &mut Io, id: u32) {
        match self.flights[id].route.kind {
            Kind::Gather => self.settle_gathered(io, id),
            Kind::Cas => self.settle_cas(io, id),
            _ => self.settle_verdict(io, id),
        }
    }

    /// One server may keep its value (see [`Flight::may_keep`](crate::flight::Flight::may_keep)). If that server was
    /// lost, but not all servers were, notes that it missed the write.
    fn settle_kept(&mut self, id: u32) {
        let flight = &self.flights[id];
        let kept = flight.members & flight.members.wrapping_neg();
        let is_lost = |set: u64| flight.lost & set == set;
        if flight.round_writes() && is_lost(kept) && !is_lost(flight.members) {
            self.miss(id, kept.trailing_zeros() as usize);
        }
    }

    fn settle_verdict(&mut self, io: &mut Io, id: u32) {
        if self.flights[id].missing > 0 {
            return;
        }
        self.settle_kept(id);
        // If a server refused the write, the servers that executed the write delete the new value.
        let undone = self.flights[id].verdict.take_undone();
        if undone != 0 {
            let request = std::mem::take(&mut self.flights[id].request);
            self.delete_instead(io, id, undone, &request);
            self.flights[id].request = request;
            if self.flights[id].missing > 0 {
                return;
            }
        }
        let flight = &mut self.flights[id];
        if flight.needed > 0 && flight.lost != 0 {
            let server = flight.lost.trailing_zeros() as usize;
            return self.refuse_down(io, id, server);
        }
        let outcome = Outcome {
            hits: 0,
            error: flight.verdict.severity == Severity::Error,
            silent: flight.outcome.silent,
        };
        self.settle_answered(io, id, outcome);
    }

    fn settle_shards(&mut self, io: &mut Io, id: u32) {
        let flight = &mut self.flights[id];
        if flight.missing > 0 {
            return;
        }
        if flight.verdict.severity == Severity::Error {
            return self.settle_error(io, id);
        }
        let mut reply = std::mem::take(&mut flight.reply);
        reply.clear();
        shard::join(flight.answers(), &mut reply);
        flight.reply = reply;
        let outcome = Outcome { error: false, ..flight.outcome };
        self.settle_answered(io, id, outcome);
    }

    fn settle_gathered(&mut self, io: &mut Io, id: u32) {
        if self.flights[id].missing > 0 {
            return;
        }
        self.settle_kept(id);
        let flight = &mut self.flights[id];
        if flight.verdict.severity == Severity::Error {
            return self.settle_error(io, id);
        }
        if flight.needed > 0 && flight.route.changes {
            let server = flight.lost.trailing_zeros() as usize;
            return self.refuse_down(io, id, server);
        }
        let absent = self.all() & !self.flights[id].answered();
        let flight = &mut self.flights[id];
        let mut reply = std::mem::take(&mut flight.reply);
        reply.clear();
        let frames: Vec<&[u8]> = flight.answers().collect();
        if frames.is_empty() {
            flight.reply = reply;
            return self.refuse_all_down(io, id);
        }
        let merged = match flight.route.form.asked(&flight.request) {
            Some(asked) => gather::retrieval(asked, &frames, absent, &mut reply),
            None => gather::meta(&frames, absent, &mut reply),
        };
        self.settle_merged(io, id, merged, reply);
    }

    fn settle_merged(&mut self, io: &mut Io, id: u32, merged: Gathered, reply: Vec<u8>) {
        let flight = &mut self.flights[id];
        let expect = flight.route.form.expect();
        let outcome = Outcome {
            hits: if flight.route.retrieves { merged.hits } else { 0 },
            error: merged.severity == Severity::Error,
            silent: frame::parse(&reply, expect)
                .is_some_and(|response| is_silent(flight.route.silence, &response)),
        };
        flight.reply = reply;
        self.settle_answered(io, id, outcome);
    }

    pub(crate) fn settle_answered(&mut self, io: &mut Io, id: u32, outcome: Outcome) {
        self.flights[id].answered = io.now();
        self.settle(io, id, outcome);
    }

    /// Ends a flight with one server's answer.
    fn relay(&mut self, io: &mut Io, id: u32, answer: &Answer<'_>) {
        let response = &answer.response;
        let flight = &mut self.flights[id];
        let outcome = Outcome {
            hits: if flight.route.retrieves { hits(response) } else { 0 },
            error: response.status.is_error(),
            silent: is_silent(flight.route.silence, response),
        };
        let home = flight.home;
        let joins = matches!(flight.trail, Trail::Reads(_));
        if matches!(flight.trail, Trail::Read(_)) {
            self.keep_relayed(id, response);
        }
        if let Home::Client(conn) = home
            && !joins
            && let Some(client) = self.client(conn)
            && client.order.front() == Some(&id)
        {
            // No earlier reply is missing: copy the answer straight into the client's output.
            client.replied(response.raw.len());
            let mut written = 0;
            if !outcome.silent
                && let Some(output) = io.output(conn)
            {
                written = answer.write(&self.flights[id].opaque, output);
            }
            let flight = &mut self.flights[id];
            flight.answered = io.now();
            flight.outcome = outcome;
            self.release_lane(io, id);
            self.complete(id, written);
            return self.reply_in_order(io, conn);
        }
        let flight = &mut self.flights[id];
        rewrite(&mut flight.reply, answer, &flight.opaque);
        self.settle_answered(io, id, outcome);
    }

    /// Ends a flight with a complete reply. The reply leaves after all earlier replies.
    pub(crate) fn settle(&mut self, io: &mut Io, id: u32, mut outcome: Outcome) {
        self.release_lane(io, id);
        if !matches!(self.flights[id].trail, Trail::None) {
            self.join_recalled(id, &mut outcome);
        }
        let flight = &mut self.flights[id];
        flight.outcome = outcome;
        match flight.home {
            Home::Client(conn) => {
                flight.done = true;
                self.reply_in_order(io, conn);
            }
            Home::Gone => self.complete(id, 0),
            Home::Thread { thread, flight: job } => {
                let served = Served {
                    flight: job,
                    reply: std::mem::take(&mut flight.reply),
                    request: std::mem::take(&mut flight.request),
                    outcome,
                    dequeued: flight.dequeued,
                    sent: flight.sent,
                    answered: flight.answered,
                    tried: flight.tried,
                };
                self.guests -= 1;
                self.flights.free(id);
                self.shared.post(thread as usize, served);
            }
        }
    }

    /// Sends complete replies up to the first missing one. Then takes more requests of the client, or closes the
    /// connection.
    fn reply_in_order(&mut self, io: &mut Io, conn: ConnId) {
        while let Some(client) = self.client(conn) {
            let Some(&id) = client.order.front() else { break };
            let flight = &self.flights[id];
            if !flight.done {
                break;
            }
            let mut written = 0;
            if !flight.outcome.silent {
                io.write(conn, &flight.reply);
                written = flight.reply.len();
            }
            self.complete(id, written);
            if let Some(client) = self.client(conn) {
                client.replied(written);
            }
        }
        let draining = self.is_draining();
        let pipelined = self.config.mode == Mode::Pipelined;
        let Some(client) = self.client(conn) else { return };
        // Resume only below half the limit, not after every reply.
        let resume_below = if pipelined { client.in_flight_max().div_ceil(2) } else { 1 };
        if client.paused && !draining && client.may_take(resume_below) {
            client.paused = false;
            io.resume(conn);
        }
        self.close_if_answered(io, conn);
    }

    /// Frees the flight's worker slot.
    fn release_lane(&mut self, io: &mut Io, id: u32) {
        let Some(lane) = self.flights[id].lane.take() else { return };
        if self.config.mode != Mode::Pipelined {
            self.idle.push(lane);
            let now = io.now();
            if let Some(recorder) = self.recorder() {
                recorder.gauges.busy.add(now, -1);
            }
        }
    }

    /// Records the outcome of a flight, and frees the flight.
    pub(crate) fn complete(&mut self, id: u32, bytes_out: usize) {
        if !matches!(self.flights[id].trail, Trail::None) {
            self.end_trail(id);
        }
        let flight = &self.flights[id];
        if !flight.local {
            let hits = flight.outcome.hits;
            let misses = if flight.route.retrieves && !flight.outcome.error {
                flight.route.items.saturating_sub(hits)
            } else {
                0
            };
            let trace = self.config.trace.then(|| {
                let tried = flight.tried;
                Box::new(Trace::new(flight.route.op, &flight.request, tried, &self.servers))
            });
            self.ledger.enter(Settled {
                op: flight.route.op,
                received: flight.received,
                dequeued: flight.dequeued,
                sent: flight.sent,
                answered: flight.answered,
                items: flight.route.items,
                hits,
                misses,
                bytes_in: flight.bytes_in,
                bytes_out,
                error: flight.outcome.error,
                trace,
            });
        }
        self.flights.free(id);
    }
}

fn hits(response: &Response<'_>) -> u32 {
    // `mg` without the flag `v` gets `HD` for a hit. `response.hits` counts values, so it does not count this hit.
    let without_value = usize::from(matches!(response.status, Status::MetaDone));
    (response.hits + without_value) as u32
}

fn is_silent(silence: Silence, response: &Response<'_>) -> bool {
    match silence {
        Silence::None => false,
        Silence::Noreply => true,
        Silence::Quiet(verb) => quiet_suppresses(verb, response.status),
    }
}

fn rewrite(buffer: &mut Vec<u8>, answer: &Answer<'_>, opaque: &Opaque) {
    recycle(buffer);
    answer.write(opaque, buffer);
}

fn set(buffer: &mut Vec<u8>, bytes: &[u8]) {
    recycle(buffer);
    buffer.extend_from_slice(bytes);
}
