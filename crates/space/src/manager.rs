//! A manager: serves a space over NBD, and asks the machines that have its parts.
//!
//! A manager keeps no data between requests, so a space may have any number of managers. Each thread has its own
//! connections to every machine, and no request takes a lock.

mod flight;
mod links;
mod machine;
mod start;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use knee_nbd::{
    Command, DATA_BYTES_MAX, EIO, Errno, Export, Negotiation, REPLY_BYTES, REQUEST_BYTES, Reply,
    Request,
};
use knee_reactor::{Close, ConnId, Handler, Io, Origin};
use knee_server::Trace;
use knee_telemetry::{Middleware, MiddlewareTimes, Moment, Recorder, Sample, elapsed_ns};

use crate::health::Health;
use crate::layout::{Layout, Span};
use crate::session::{DRAIN, DRAIN_POLL, SHORT_BYTES, WINDOW, negotiate, operation, trace_request};
use crate::slab::Slab;

pub(crate) use flight::Call;
pub(crate) use start::{Config, Doors, Running, StoreAddress, start};

use flight::{Caller, Flight, Part};
use machine::Machine;

/// Timer keys. The key of a machine's next attempt to connect is `RETRY` plus the machine's number.
const CHECK: u64 = 2;
const RETRY: u64 = 3;
/// Memory of a request besides its data.
const REQUEST_COST_BYTES: usize = 512;
/// Memory of a part without data.
const PART_COST_BYTES: usize = 128;

/// What all threads of a manager share.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) layout: Layout,
    pub(crate) export: Export,
    pub(crate) health: Health,
    /// How long a machine may take to answer.
    pub(crate) timeout: Duration,
    /// Memory of a thread for requests that its machines have not answered, in bytes.
    pub(crate) flights_bytes_max: usize,
    pub(crate) trace: Option<Trace>,
}

/// The other end of a connection.
#[derive(Debug)]
enum Peer {
    None,
    Client(Client),
    Machine {
        machine: usize,
        lane: usize,
    },
    /// A machine that may still execute requests from this connection.
    Lingering(usize),
}

#[derive(Debug)]
struct Client {
    /// `None` after the handshake.
    negotiation: Option<Negotiation>,
    /// Requests without replies, and the memory that they take.
    flights: usize,
    flights_bytes: usize,
    /// Whether the connection closes after the last reply.
    leaves: bool,
}

/// A thread of the manager.
pub(crate) struct Manager {
    space: Arc<Space>,
    machines: Vec<Machine>,
    /// By the index of the connection.
    peers: Vec<Peer>,
    flights: Slab<Flight>,
    parts: Slab<Part>,
    flights_bytes: usize,
    /// Paused clients, which wait for memory, or for the end of a shutdown.
    waiting: VecDeque<ConnId>,
    /// The client that gets memory next; it holds none. While requests are in flight, no other client's request begins
    /// before its request.
    next: Option<ConnId>,
    /// Whether a request has ended in this batch.
    has_room: bool,
    /// The parts of the current request: a kept buffer.
    spans: Vec<Span>,
    calls: Receiver<Call>,
    /// Reports that each machine was tried.
    tried: Option<Sender<()>>,
    draining: bool,
    /// `None` after the last window was cut.
    recorder: Option<Recorder<Middleware>>,
}

impl Manager {
    pub(crate) fn new(
        space: Arc<Space>,
        machines: Vec<Machine>,
        calls: Receiver<Call>,
        tried: Sender<()>,
        recorder: Recorder<Middleware>,
    ) -> Manager {
        Manager {
            space,
            machines,
            peers: Vec::new(),
            flights: Slab::default(),
            parts: Slab::default(),
            flights_bytes: 0,
            waiting: VecDeque::new(),
            next: None,
            has_room: false,
            spans: Vec::new(),
            calls,
            tried: Some(tried),
            draining: false,
            recorder: Some(recorder),
        }
    }

    fn set_peer(&mut self, conn: ConnId, peer: Peer) {
        if conn.index() >= self.peers.len() {
            self.peers.resize_with(conn.index() + 1, || Peer::None);
        }
        self.peers[conn.index()] = peer;
    }

    /// Begins the requests in a client's input. Returns their length.
    fn serve(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let Peer::Client(client) = &mut self.peers[conn.index()] else { return input.len() };
            if let Some(negotiation) = &mut client.negotiation {
                let (consumed, transmits) =
                    negotiate(negotiation, &self.space.export, io, conn, rest);
                at += consumed;
                if !transmits {
                    return at;
                }
                client.negotiation = None;
                continue;
            }
            let request = match Request::decode(rest) {
                Ok(Some(request)) => request,
                Ok(None) => return at,
                Err(_) => {
                    io.close(conn);
                    return input.len();
                }
            };
            let whole = REQUEST_BYTES + request.data_bytes();
            if rest.len() < whole {
                io.want(conn, whole);
                return at;
            }
            if request.command == Command::Disconnect {
                client.leaves = true;
                io.pause(conn);
                self.close_if_done(io, conn);
                return input.len();
            }
            let reads = request.command == Command::Read && request.length > SHORT_BYTES;
            if reads && !io.has_room_for_answer(conn) {
                self.step_back(conn);
                io.wait_for_room(conn);
                return at;
            }
            if self.draining || !self.finds_room(io, conn, &request) {
                io.pause(conn);
                self.waiting.push_back(conn);
                return at;
            }
            at += whole;
            self.begin(io, Caller::Client(conn), request, &rest[REQUEST_BYTES..whole]);
        }
    }

    /// Whether a request may begin. With it, a client may hold at most as much memory as stays free. A client that
    /// holds none, and whose request does not fit, becomes `next`: smaller requests of others do not keep it waiting
    /// for ever.
    fn finds_room(&mut self, io: &Io, conn: ConnId, request: &Request) -> bool {
        let Peer::Client(client) = &self.peers[conn.index()] else { return true };
        let own = client.flights_bytes + io.output_len(conn);
        let needed = self.cost(request);
        let taken = self.flights_bytes + needed;
        let bytes_max = self.space.flights_bytes_max;
        let fits = match self.next {
            None => own + needed <= bytes_max.saturating_sub(taken),
            Some(next) => next == conn && taken <= bytes_max,
        };
        let begins = fits || self.flights.is_empty();
        if begins {
            self.step_back(conn);
        } else if own == 0 {
            self.next.get_or_insert(conn);
        }
        begins
    }

    /// If the client is `next`, lets others begin again.
    fn step_back(&mut self, conn: ConnId) {
        if self.next == Some(conn) {
            self.next = None;
            self.has_room = true;
        }
    }

    /// The memory of a request in flight.
    fn cost(&self, request: &Request) -> usize {
        let data = match request.command {
            Command::Read | Command::Write => request.length.min(DATA_BYTES_MAX) as usize,
            // Any machine may have a part.
            _ => PART_COST_BYTES * self.machines.len(),
        };
        REQUEST_COST_BYTES + data
    }

    fn is_usable(&self, machine: usize) -> bool {
        self.machines[machine].is_up && !self.space.health.lingers(machine)
    }

    /// Sends the parts of a request to their machines, or answers at once why not.
    fn begin(&mut self, io: &mut Io, caller: Caller, request: Request, data: &[u8]) {
        let received = io.now();
        self.spans.clear();
        let refusal = self.space.export.refusal(&request).or_else(|| {
            if request.command == Command::Flush && self.space.export.read_only {
                return Some(0);
            }
            let Request { command, offset, length, .. } = request;
            if command == Command::Flush {
                let all = 0..self.machines.len();
                self.spans.extend(all.map(|machine| Span { machine, offset: 0, at: 0, length: 0 }));
            } else {
                self.spans.extend(self.space.layout.spans(offset, length));
            }
            let out = self.spans.iter().find(|span| !self.is_usable(span.machine))?.machine;
            self.count(out, |counts| counts.errors += 1);
            Some(EIO)
        });
        if let Some(error) = refusal {
            return self.answer(io, caller, &request, received, error, &[]);
        }
        let bytes = self.cost(&request);
        self.flights_bytes += bytes;
        if let Caller::Client(conn) = caller
            && let Peer::Client(client) = &mut self.peers[conn.index()]
        {
            client.flights += 1;
            client.flights_bytes += bytes;
        }
        let left = self.spans.len();
        let joined = if request.command == Command::Read && left > 1 {
            vec![0; request.length as usize]
        } else {
            Vec::new()
        };
        let flight = Flight { caller, request, received, left, error: 0, joined };
        let flight = self.flights.insert(flight);
        for index in 0..left {
            let span = self.spans[index];
            let (from, length) = (span.at as usize, span.length as usize);
            let data = if data.is_empty() { data } else { &data[from..][..length] };
            self.send(io, flight, &request, span, data);
        }
    }

    /// Takes the answer to a part of a request.
    fn part_ends(&mut self, io: &mut Io, number: u64, error: Errno, data: &[u8]) {
        let Some(part) = self.parts.remove(number) else { return };
        let Some(flight) = self.flights.get_mut(part.flight) else { return };
        flight.left -= 1;
        if flight.error == 0 {
            flight.error = error;
        }
        if !flight.joined.is_empty() && !data.is_empty() {
            flight.joined[part.at as usize..][..data.len()].copy_from_slice(data);
        }
        if flight.left > 0 {
            return;
        }
        let Some(flight) = self.flights.remove(part.flight) else { return };
        let Flight { caller, request, received, error, joined, .. } = flight;
        let bytes = self.cost(&request);
        self.flights_bytes -= bytes;
        self.has_room = true;
        let client = match caller {
            // If it is closed, another client may have its index.
            Caller::Client(conn) if io.is_open(conn) => Some(conn),
            _ => None,
        };
        if let Some(conn) = client
            && let Peer::Client(client) = &mut self.peers[conn.index()]
        {
            client.flights -= 1;
            client.flights_bytes -= bytes;
        }
        let data = if joined.is_empty() { data } else { &joined };
        self.answer(io, caller, &request, received, error, data);
        if let Some(conn) = client {
            self.close_if_done(io, conn);
        }
    }

    /// Answers a request, and records it.
    fn answer(
        &mut self,
        io: &mut Io,
        caller: Caller,
        request: &Request,
        received: Instant,
        error: Errno,
        data: &[u8],
    ) {
        let data = if error == 0 { data } else { &[] };
        match caller {
            Caller::Client(conn) => {
                if let Some(out) = io.output(conn) {
                    out.reserve(REPLY_BYTES + data.len());
                    Reply { error, cookie: request.cookie }.encode(out);
                    out.extend_from_slice(data);
                }
            }
            Caller::Call(answer, _share) => {
                // The caller may have left.
                let _ = answer.send(if error == 0 { Ok(data.to_vec()) } else { Err(error) });
            }
        }
        let elapsed = elapsed_ns(received, Instant::now());
        if let Some(trace) = &self.space.trace {
            trace_request(trace, request, error, elapsed);
        }
        let Some(recorder) = &mut self.recorder else { return };
        let sample = Sample {
            times: MiddlewareTimes { queueing_ns: 0, service_ns: elapsed, response_ns: elapsed },
            items: 1,
            bytes_in: (REQUEST_BYTES + request.data_bytes()) as u64,
            bytes_out: (REPLY_BYTES + data.len()) as u64,
            error: error != 0,
            ..Sample::default()
        };
        recorder.record(operation(request.command), &sample);
    }

    /// Closes the connection of a client that leaves, after its last reply.
    fn close_if_done(&mut self, io: &mut Io, conn: ConnId) {
        if let Peer::Client(Client { leaves: true, flights: 0, .. }) = &self.peers[conn.index()] {
            io.close_when_sent(conn);
        }
    }

    /// Lets waiting clients try again.
    fn wake_clients(&mut self, io: &mut Io) {
        if !self.draining {
            for conn in self.waiting.drain(..) {
                io.resume(conn);
            }
        }
    }
}

impl Handler for Manager {
    fn on_start(&mut self, io: &mut Io) {
        io.timer(Moment::now().next_second(), WINDOW);
        self.check(io);
        for machine in 0..self.machines.len() {
            self.connect(io, machine);
        }
    }

    fn on_open(&mut self, io: &mut Io, conn: ConnId, origin: Origin) {
        // A machine speaks first.
        if origin == Origin::Accepted {
            let mut greeting = Vec::new();
            let negotiation = Some(Negotiation::begin(&mut greeting));
            let client = Client { negotiation, flights: 0, flights_bytes: 0, leaves: false };
            self.set_peer(conn, Peer::Client(client));
            io.write(conn, &greeting);
        }
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        match self.peers[conn.index()] {
            Peer::Client(_) => self.serve(io, conn, input),
            Peer::Machine { machine, lane } => self.hear(io, conn, machine, lane, input),
            Peer::Lingering(_) | Peer::None => input.len(),
        }
    }

    fn on_drained(&mut self, io: &mut Io, _conn: ConnId) {
        self.wake_clients(io);
    }

    fn on_close(&mut self, io: &mut Io, conn: ConnId, _origin: Origin, why: Close) {
        match std::mem::replace(&mut self.peers[conn.index()], Peer::None) {
            Peer::Client(_) => {
                self.step_back(conn);
                if let (Close::Still, Some(recorder)) = (why, &mut self.recorder) {
                    recorder.gauges.still_clients += 1;
                }
            }
            // The manager itself ends.
            Peer::Machine { .. } if self.draining && self.flights.is_empty() => {}
            Peer::Machine { machine, .. } => {
                let why = match why {
                    Close::Refused(error) | Close::Failed(error) => error.to_string(),
                    _ => "it closed the connection".to_owned(),
                };
                self.lose(io, machine, &why);
            }
            Peer::Lingering(machine) => self.space.health.hung_up(machine),
            Peer::None => {}
        }
    }

    fn on_wake(&mut self, io: &mut Io) {
        while let Ok(Call { request, data, answer, share }) = self.calls.try_recv() {
            self.begin(io, Caller::Call(answer, share), request, &data);
        }
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        match key {
            WINDOW => {
                let now = Moment::now();
                if let Some(recorder) = &mut self.recorder {
                    let clients = self.peers.iter().filter(|peer| matches!(peer, Peer::Client(_)));
                    recorder.connections = clients.count() as u64;
                    recorder.cut(now);
                }
                io.timer(now.next_second(), WINDOW);
            }
            DRAIN => {
                let waits =
                    !self.flights.is_empty() || io.ids().any(|(conn, _)| io.output_len(conn) > 0);
                if waits { io.timer(io.now() + DRAIN_POLL, DRAIN) } else { io.stop() }
            }
            CHECK => self.check(io),
            key => self.connect(io, (key - RETRY) as usize),
        }
    }

    fn on_batch_end(&mut self, io: &mut Io) {
        if std::mem::take(&mut self.has_room) {
            self.wake_clients(io);
        }
    }

    fn on_shutdown(&mut self, io: &mut Io) {
        self.draining = true;
        io.timer(io.now(), DRAIN);
    }

    fn on_stop(&mut self, _io: &mut Io) {
        if let Some(mut recorder) = self.recorder.take() {
            recorder.connections = 0;
            recorder.finish(Moment::now());
        }
    }
}
