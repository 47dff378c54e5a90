//! Reads requests from a client's bytes, and starts their flights.

use memchr::memchr;

use knee_proto::{Decoded, ErrorKind, Meta, MetaVerb, Request, RequestDecoder, StaleKey};
use knee_reactor::{ConnId, Io};

use crate::client::{Client, Ending};
use crate::config::Mode;
use crate::fast_path::ANSWERS_BYTES_MAX;
use crate::flight::{Flight, Home};
use crate::form::Form;
use crate::opaque::Opaque;
use crate::proxy::{Peer, Proxy};
use crate::queue::{Job, Served};
use crate::route::{Kind, Plan, Route, plan};
use crate::source::Source;

/// In pipelined mode, clients are held back at this many requests in flight on one connection to a server…
const SERVER_IN_FLIGHT_MAX: usize = 8 * 1024;
/// …or at this many bytes of unsent output.
const SERVER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The answer to a line that different servers could read differently.
const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";

/// As the last word of a line, this asks for no answer, even in a key's place.
const NOREPLY: &[u8] = b"noreply";

/// Largest number of flags that memcached accepts in every meta command, including the middleware's opaque.
const META_FLAGS_MAX: usize = 16;
/// The length of the longest opaque of the middleware, with the line end. A longer line would make memcached close the
/// connection.
const OPAQUE_BYTES_MAX: usize = b" O4294967295\r\n".len();
const TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";

/// The meta command, if the request is one and its answer repeats the opaque.
fn numbered<'r, 'a>(request: &'r Request<'a>) -> Option<&'r Meta<'a>> {
    match request {
        Request::MetaGet(meta)
        | Request::MetaSet(meta)
        | Request::MetaDelete(meta)
        | Request::MetaArith(meta) => Some(meta),
        _ => None,
    }
}

/// The command line of a request, without its line end.
fn first_line(raw: &[u8]) -> &[u8] {
    let line = memchr(b'\n', raw).map_or(raw, |end| &raw[..end]);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether the text has a NUL or a C white-space byte other than the blank. Some versions of memcached end a line or a
/// word there. Other control characters are part of a key for all of them.
fn has_hidden_end(text: &[u8]) -> bool {
    // Look at all bytes, without an early exit: the compiler then compares many bytes at once.
    text.iter().fold(false, |found, &byte| found | (byte == 0) | (byte.wrapping_sub(b'\t') < 5))
}

/// Whether versions of memcached read the canonical line differently. In `delete noreply`, version 1.6.18 sees a key,
/// and 1.6.45 a request for silence.
fn is_ambiguous(request: &Request<'_>) -> bool {
    matches!(request, Request::Delete { key, .. } if *key == NOREPLY)
}

/// Whether the answer may show a decoded key with a line end. If `mg` or `ma` made an item with the flag `b`, memcached
/// shows its key decoded. The rest of such an answer would then pass for an answer to another client.
fn may_show_line_end(request: &Request<'_>) -> bool {
    let meta = match request {
        Request::MetaDebug(meta) => meta,
        _ => match numbered(request) {
            Some(meta) if meta.has(b'k') => meta,
            _ => return false,
        },
    };
    meta.has(b'b') && has_hidden_end(meta.key_bytes(&mut Vec::new()))
}

impl Proxy {
    /// Takes as many requests as are complete and allowed; returns the number of bytes used.
    pub(crate) fn take_requests(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        if !self.has_room(io) {
            self.hold(io, conn);
            return 0;
        }
        if !io.has_room_for_answer(conn) {
            io.wait_for_room(conn);
            return 0;
        }
        let pipelined = self.config.mode == Mode::Pipelined;
        let draining = self.is_draining();
        let recalls = self.near.is_some();
        let limits = self.config.limits;
        let Some(client) = self.client(conn) else { return input.len() };
        // Worker slots serve a client's requests sequentially.
        let in_flight_max = if pipelined { client.in_flight_max() } else { 1 };
        // Take the decoder out of the table, because its requests change the table.
        let mut decoder = std::mem::replace(&mut client.decoder, RequestDecoder::new(limits));
        let mut used = 0;
        while used < input.len() {
            let Some(client) = self.client(conn) else { return input.len() };
            if draining || !client.may_take(in_flight_max) {
                client.paused = true;
                io.pause(conn);
                break;
            }
            if recalls && io.output_len(conn) >= ANSWERS_BYTES_MAX {
                self.hold(io, conn);
                break;
            }
            match decoder.decode(&input[used..]) {
                Decoded::Complete { consumed, item } => {
                    let raw = &input[used..used + consumed];
                    used += consumed;
                    self.take_request(io, conn, &item, raw);
                }
                Decoded::Incomplete { consumed, wanted } => {
                    used += consumed;
                    if input.len() - used < wanted {
                        io.want(conn, wanted);
                        break;
                    }
                }
                Decoded::Invalid { consumed, error } => {
                    used += consumed;
                    if let Some(key) = decoder.take_stale_key() {
                        self.forget_key(io, conn, &key);
                    }
                    self.answer_here(io, conn, error.answer());
                    if error.is_fatal() {
                        if let (ErrorKind::Http, Some(recorder)) = (error.kind, self.recorder()) {
                            recorder.gauges.http_requests += 1;
                        }
                        self.end_client(io, conn);
                    }
                }
            }
        }
        if self.config.exit_idle.is_some() && used > 0 {
            self.shared.heard(io.now());
        }
        if let Some(client) = self.client(conn) {
            client.decoder = decoder;
        }
        used
    }

    fn take_request(&mut self, io: &mut Io, conn: ConnId, request: &Request<'_>, raw: &[u8]) {
        // One version of memcached may read these bytes as one request, another version as none or two.
        if has_hidden_end(first_line(raw)) || is_ambiguous(request) || may_show_line_end(request) {
            return self.answer_here(io, conn, BAD_LINE);
        }
        let route = match plan(request, self.servers.len(), self.config.sharded) {
            Plan::Forward(route) => route,
            Plan::Answer(text) => return self.answer_here(io, conn, text),
            Plan::Close => return self.end_client(io, conn),
        };
        let meta = numbered(request);
        if let Some(meta) = meta
            && (meta.options.count() + usize::from(!meta.has(b'O')) > META_FLAGS_MAX
                || first_line(raw).len()
                    > self.config.limits.line_bytes_max.saturating_sub(OPAQUE_BYTES_MAX))
        {
            return self.answer_here(io, conn, TOO_MANY_FLAGS);
        }
        let id = self.flights.insert(Home::Client(conn), route, io.now());
        if let Some(meta) = meta {
            self.flights[id].opaque = Opaque::new(self.next_number(), meta.opaque());
        }
        self.flights[id].bytes_in = raw.len() as u32;
        if let Some(client) = self.client(conn) {
            client.order.push_back(id);
            // The request takes several rounds: later requests must not be sent in between.
            client.barrier = route.kind == Kind::Cas;
        }
        self.launch(io, id, request);
    }

    /// Deletes a key after the proxy refused its new value as too large. memcached also deletes the old value when it
    /// refuses a new one.
    fn forget_key(&mut self, io: &mut Io, conn: ConnId, key: &StaleKey) {
        let deletion = key.deletion();
        // No server has such a key, because the middleware refuses requests with it.
        if has_hidden_end(key.as_sent()) || is_ambiguous(&deletion) {
            return;
        }
        let form = match deletion {
            Request::MetaDelete(_) => Form::Meta(MetaVerb::Delete),
            _ => Form::Delete,
        };
        let route = Route { form, ..Route::FORGET };
        let id = self.flights.insert(Home::Client(conn), route, io.now());
        self.flights[id].opaque = Opaque::new(self.next_number(), None);
        self.flights[id].local = true;
        if let Some(client) = self.client(conn) {
            client.order.push_back(id);
        }
        self.launch(io, id, &deletion);
    }

    /// Sends a request of this thread's own client, or queues it until a slot is idle.
    ///
    /// Servers get the parsed request in canonical form, never the client's bytes, so that every server reads exactly
    /// one request. Servers are always asked to answer, even if the client wants no answer.
    fn launch(&mut self, io: &mut Io, id: u32, request: &Request<'_>) {
        if self.near.is_some() {
            return self.launch_near(io, id, request);
        }
        self.pass_on(io, id, request);
    }

    pub(crate) fn pass_on(&mut self, io: &mut Io, id: u32, request: &Request<'_>) {
        let pipelined = self.config.mode == Mode::Pipelined;
        let lane = match pipelined {
            true => Some(0),
            false if self.shared.is_empty() => self.idle.pop(),
            false => None,
        };
        if lane.is_none() && self.away >= self.config.connections_max {
            // Clients that leave right after their requests can leave several requests each.
            return self.refuse(io, id, b"SERVER_ERROR the request queue is full\r\n");
        }
        let flight = &mut self.flights[id];
        let source = Source::Parsed(request, flight.opaque.number);
        let keep = self.config.trace || flight.keeps_request(self.servers.len());
        match lane {
            Some(lane) if !keep => self.dispatch(io, id, lane, source),
            Some(lane) => {
                let canonical = flight.keep(request, source);
                if self.config.trace {
                    // A request that is refused at once ends before `put_back`.
                    flight.request.clone_from(&canonical);
                }
                self.dispatch(io, id, lane, Source::Canonical(&canonical));
                self.put_back(id, canonical);
            }
            None => {
                let request = flight.keep(request, source);
                let Flight { route, opaque, condition, .. } = *flight;
                let thread = self.thread as u32;
                self.away += 1;
                self.must_drain_queue = true;
                io.hold_request(request.len());
                self.shared.put(Job { thread, flight: id, route, opaque, condition, request });
                let now = io.now();
                if let Some(recorder) = self.recorder() {
                    recorder.gauges.queue_length.add(now, 1);
                }
            }
        }
    }

    /// Returns the buffer that was taken out of a flight for sending. A refused flight has already ended.
    fn put_back(&mut self, id: u32, request: Vec<u8>) {
        if self.flights[id].lane.is_some() {
            self.flights[id].request = request;
        }
    }

    /// Assigns waiting requests to idle slots, in the order of their arrival.
    pub(crate) fn serve_queue(&mut self, io: &mut Io) {
        if self.is_starting() {
            return;
        }
        loop {
            while let Some(&lane) = self.idle.last() {
                if !self.shared.is_empty() && !io.may_answer() {
                    return self.shared.publish_idle(self.thread, self.idle.len());
                }
                let Some(job) = self.shared.take() else { break };
                self.idle.pop();
                self.serve(io, job, lane);
            }
            self.shared.publish_idle(self.thread, self.idle.len());
            if self.idle.is_empty() || self.shared.is_empty() {
                break;
            }
        }
        // This thread was woken for its idle slots, but its own clients may have taken them. Another thread with idle
        // slots then takes the rest.
        if std::mem::take(&mut self.must_drain_queue) && !self.shared.is_empty() {
            self.shared.call_idle(self.thread);
        }
    }

    fn serve(&mut self, io: &mut Io, job: Job, lane: u32) {
        let now = io.now();
        io.release_request(job.request.len());
        if let Some(recorder) = self.recorder() {
            recorder.gauges.queue_length.add(now, -1);
        }
        let id = if job.thread as usize == self.thread {
            self.away -= 1;
            job.flight
        } else {
            self.guests += 1;
            let home = Home::Thread { thread: job.thread, flight: job.flight };
            let id = self.flights.insert(home, job.route, now);
            self.flights[id].opaque = job.opaque;
            self.flights[id].condition = job.condition;
            id
        };
        self.dispatch(io, id, lane, Source::Canonical(&job.request));
        self.put_back(id, job.request);
    }

    /// Takes back the flights that slots of other threads have served.
    pub(crate) fn take_back(&mut self, io: &mut Io) {
        let shared = std::sync::Arc::clone(&self.shared);
        for answer in shared.answers(self.thread) {
            let Served { flight: id, reply, request, outcome, dequeued, sent, answered, tried } =
                answer;
            self.away -= 1;
            let flight = &mut self.flights[id];
            flight.reply = reply;
            flight.request = request;
            flight.dequeued = dequeued;
            flight.sent = sent;
            flight.answered = answered;
            flight.tried = tried;
            self.settle(io, id, outcome);
        }
    }

    /// Answers a request without a server, after the replies to earlier requests.
    fn answer_here(&mut self, io: &mut Io, conn: ConnId, text: &'static [u8]) {
        let Some(client) = self.client(conn) else { return };
        if text.is_empty() {
            return;
        }
        if client.order.is_empty() {
            return io.write(conn, text);
        }
        let id = self.flights.insert(Home::Client(conn), Route::NOWHERE, io.now());
        if let Some(client) = self.client(conn) {
            client.order.push_back(id);
        }
        let flight = &mut self.flights[id];
        flight.reply.clear();
        flight.reply.extend_from_slice(text);
        flight.done = true;
        flight.local = true;
    }

    /// Takes no further request from a client, and closes the connection after the last answer.
    fn end_client(&mut self, io: &mut Io, conn: ConnId) {
        if let Some(client) = self.client(conn) {
            client.ending = Ending::Answering;
        }
        self.close_if_answered(io, conn);
    }

    pub(crate) fn close_if_answered(&mut self, io: &mut Io, conn: ConnId) {
        let Some(client) = self.client(conn) else { return };
        if client.ending == Ending::Answering && client.order.is_empty() {
            io.close_when_sent(conn);
        }
    }

    /// Continues the requests of a client that has left, and drops the answers.
    pub(crate) fn forget_client(&mut self, client: Client) {
        for id in client.order {
            self.flights[id].home = Home::Gone;
            if self.flights[id].done {
                self.complete(id, 0);
            }
        }
    }

    /// Whether all servers can take more requests. Otherwise, and until every server was tried, clients are held back.
    fn has_room(&self, io: &Io) -> bool {
        if self.is_starting() {
            return false;
        }
        if self.config.mode != Mode::Pipelined {
            // Each slot has one request.
            return true;
        }
        self.lanes.iter().flat_map(|lane| &lane.upstreams).all(|upstream| {
            upstream.expected.len() < SERVER_IN_FLIGHT_MAX
                && upstream.conn.is_none_or(|conn| io.output_len(conn) < SERVER_BYTES_MAX)
        })
    }

    fn hold(&mut self, io: &mut Io, conn: ConnId) {
        io.pause(conn);
        self.held.push(conn);
    }

    /// Resumes clients that were held back, once there is room.
    pub(crate) fn release_held(&mut self, io: &mut Io) {
        if self.held.is_empty() || !self.has_room(io) {
            return;
        }
        for conn in std::mem::take(&mut self.held) {
            if matches!(self.peers.get(conn.index()), Some(Peer::Client(client)) if !client.paused)
            {
                io.resume(conn);
            }
        }
    }
}
