//! The clients of one thread: their connections, requests in flight, and next sends.
//!
//! # What is measured
//!
//! A response time ends when the thread has read the answer. The thread reads the clock once for all data of one
//! receive. A response time begins when the request is *due*:
//!
//! * in a closed loop without think time, when the last answer has come and, with `--verify`, has been checked;
//! * in a closed loop with think time, when the think time after the last answer is over;
//! * in an open loop, at the time in the schedule.
//!
//! The kernel gets the request a little later, at the end of the batch of events. If this process delays the send, or
//! the reading of the answer, the delay is part of the response time. Causes are other connections in the batch and a
//! busy processor. So the load generator's own slowness is never hidden. Except while it verifies or reconnects, a
//! client thinks or waits, so N = X (R + Z) holds for the figures. The summary reports a load generator that was too
//! slow ([`crate::bottleneck`]).

mod events;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use knee_proto::Value;
use knee_random::Random;
use knee_reactor::{ConnId, Io};
use knee_telemetry::{LATE_NS, Load, LoadTimes, Moment, Op, Recorder, Sample, elapsed_ns};

use crate::backoff::{BACKOFF_MAX, BACKOFF_MIN};
use crate::error::{Error, Unusable};
use crate::open_loop::{self, Destination};
use crate::run::{Pace, Run};
use crate::schedule;
use crate::traffic::{Traffic, WrongValue};

/// Open loop: a connection with more unsent bytes has no room.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Each connection initially reserves memory for this number of requests in flight.
const IN_FLIGHT_USUAL: usize = 16;

/// The upper half of a timer's key is its kind; the lower half is a client or a server.
const START: u64 = 1 << 32;
const SECOND: u64 = 2 << 32;
const END: u64 = 3 << 32;
const DRAIN_OVER: u64 = 4 << 32;
const RECONNECT: u64 = 5 << 32;
const THOUGHT: u64 = 6 << 32;
const ARRIVAL: u64 = 7 << 32;

pub(crate) struct Clients<T: Traffic> {
    run: Arc<Run>,
    traffic: Arc<T>,
    /// The number of the first client.
    first: u64,
    /// `None` after the last window was recorded.
    recorder: Option<Recorder<Load>>,
    connections: Vec<Connection<T>>,
    /// By client. In an open loop, another client's connection may carry the requests.
    requests: Vec<T::Requests>,
    /// The client of a connection, by the connection's index.
    owners: Vec<u32>,
    /// By server; empty in a closed loop.
    destinations: Vec<Destination>,
    phase: Phase,
    /// Number of connections opened before the start.
    opened: usize,
    in_flight: u64,
    /// The number of connections with `is_missing`.
    missing: u64,
    start: Instant,
    end: Instant,
    timed_sends: u64,
    own_late_sends: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connections are being opened, or wait for the start.
    Waiting,
    Running,
    /// No request becomes due any more; answers are outstanding.
    Draining,
    Done,
}

struct Connection<T: Traffic> {
    server: usize,
    /// `None` while the connection is not open.
    id: Option<ConnId>,
    backoff: Duration,
    decoder: T::Decoder,
    in_flight: VecDeque<Sent>,
    /// The expected answers, for verification.
    memory: T::Memory,
    /// Draws think times. Requests have their own stream, so that they do not depend on answers.
    think_random: Random,
    /// The ends of think times (closed loop). A client has `pipeline` slots, each with one request or think time at a
    /// time.
    thinking: BinaryHeap<Reverse<Instant>>,
    /// Number of slots that will send when the connection is open again (closed loop).
    stranded: usize,
    /// Whether the connection was cut, and is not open again yet.
    is_missing: bool,
}

/// A request in flight.
struct Sent {
    due: Instant,
    op: Op,
    bytes: u32,
}

impl<T: Traffic> Clients<T> {
    /// The clients with these numbers.
    pub(crate) fn new(
        run: Arc<Run>,
        traffic: Arc<T>,
        recorder: Recorder<Load>,
        numbers: Range<u64>,
    ) -> Clients<T> {
        let plan = &run.plan;
        let servers = plan.servers.len();
        let first = numbers.start;
        let connections = numbers.clone().map(|number| Connection {
            server: open_loop::server_of(number, servers),
            id: None,
            backoff: BACKOFF_MIN,
            decoder: traffic.decoder(),
            in_flight: VecDeque::with_capacity(plan.pipeline.min(IN_FLIGHT_USUAL)),
            memory: T::Memory::default(),
            think_random: schedule::thinking(plan.seed, number),
            thinking: BinaryHeap::new(),
            stranded: 0,
            is_missing: false,
        });
        let requests =
            numbers.clone().map(|number| traffic.requests(number, plan.clients)).collect();
        let destinations = match plan.pace {
            Pace::Closed(_) => Vec::new(),
            Pace::Open(rate) => Destination::of_clients(
                servers,
                rate,
                plan.length,
                plan.seed,
                numbers,
                plan.clients,
            ),
        };
        let now = Instant::now();
        Clients {
            recorder: Some(recorder),
            connections: connections.collect(),
            requests,
            owners: Vec::new(),
            destinations,
            phase: Phase::Waiting,
            opened: 0,
            in_flight: 0,
            missing: 0,
            start: now,
            end: now,
            timed_sends: 0,
            own_late_sends: 0,
            run,
            traffic,
            first,
        }
    }

    fn address(&self, client: usize) -> SocketAddr {
        self.run.plan.servers[self.connections[client].server]
    }

    fn connect(&mut self, io: &mut Io, client: usize) {
        match io.connect(self.address(client), client as u64) {
            Ok(id) => {
                if self.owners.len() <= id.index() {
                    self.owners.resize(id.index() + 1, 0);
                }
                self.owners[id.index()] = client as u32;
            }
            Err(error) => {
                self.complain(io, client, &error.to_string());
                self.is_cut(client);
                self.connect_later(io, client);
            }
        }
    }

    /// Whether a client's server may get further requests. After the end, this holds while due requests are left.
    fn is_wanted(&self, client: usize) -> bool {
        let server = self.connections[client].server;
        let is_due = |server: &Destination| server.arrivals.next_due().is_some();
        match self.phase {
            Phase::Running => true,
            Phase::Draining => self.destinations.get(server).is_some_and(is_due),
            Phase::Waiting | Phase::Done => false,
        }
    }

    /// Connects after a wait: while a server is being killed, its kernel still accepts connections. If the protocol has
    /// no greeting, such a connection looks like a working one.
    fn connect_later(&mut self, io: &mut Io, client: usize) {
        if self.is_wanted(client) {
            let connection = &mut self.connections[client];
            io.timer(Instant::now() + connection.backoff, RECONNECT | client as u64);
            connection.backoff = (connection.backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Reports a connection that failed. Before the start, this ends the run.
    fn complain(&self, io: &mut Io, client: usize, why: &str) {
        let server = self.address(client);
        match self.phase {
            Phase::Waiting => {
                // If there is no receiver, the run has failed already.
                let why = Unusable::Unconnected(why.into());
                let _ = self.run.ready.send(Err(Error::Connect { server, why }));
                io.stop();
            }
            Phase::Running | Phase::Draining => {
                self.run.complaints.tell(format!("lost a connection to {server}: {why}"));
            }
            Phase::Done => {}
        }
    }

    fn begin(&mut self, io: &mut Io) {
        let now = Moment::now();
        if let Some(recorder) = &mut self.recorder {
            recorder.begin(now);
        }
        self.phase = Phase::Running;
        self.end = self.start + self.run.plan.length;
        io.timer(now.next_second(), SECOND);
        io.timer(self.end, END);
        match self.run.plan.pace {
            Pace::Closed(think) => {
                for client in 0..self.connections.len() {
                    let wait = self.run.plan.begins_after(self.first + client as u64);
                    for _ in 0..self.run.plan.pipeline {
                        let rest = think.remainder(&mut self.connections[client].think_random);
                        self.send_after(io, client, now.mono, wait + rest);
                    }
                }
            }
            Pace::Open(_) => {
                for client in 0..self.connections.len() {
                    self.note_room(client, self.start);
                }
                for server in 0..self.destinations.len() {
                    self.send_due(io, server);
                }
            }
        }
    }

    /// Closed loop: sends the client's next request after a think time `think` that began at `from`.
    #[inline]
    fn send_after(&mut self, io: &mut Io, client: usize, from: Instant, think: Duration) {
        if think.is_zero() {
            self.send(io, client, client, from);
        } else {
            let due = from + think;
            self.connections[client].thinking.push(Reverse(due));
            io.timer(due, THOUGHT | client as u64);
        }
    }

    /// Closed loop: the think time of a slot is over.
    fn thought(&mut self, io: &mut Io, client: usize) {
        let now = Instant::now();
        let thinking = &mut self.connections[client].thinking;
        let Some(Reverse(due)) = thinking.pop() else { return };
        if self.connections[client].id.is_some() {
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due, now));
        }
        self.send(io, client, client, due);
    }

    /// Open loop: the client's connection has room for a request, or has been opened again.
    #[inline]
    fn note_room(&mut self, client: usize, now: Instant) {
        let connection = &self.connections[client];
        let destination = &mut self.destinations[connection.server];
        if connection.in_flight.is_empty() {
            destination.choice.add_idle(client as u32);
        }
        destination.room_since.get_or_insert(now);
    }

    /// Open loop: sends the due requests for which there is room, and sets the timer for the next one.
    fn send_due(&mut self, io: &mut Io, server: usize) {
        let now = Instant::now();
        let pipeline = self.run.plan.pipeline;
        loop {
            let destination = &mut self.destinations[server];
            let Some(due) = destination.arrivals.next_due().map(|due| self.start + due) else {
                return;
            };
            if due > now {
                if destination.armed.is_none_or(|armed| armed > due || armed <= now) {
                    destination.armed = Some(due);
                    io.timer(due, ARRIVAL | server as u64);
                }
                return;
            }
            let Some(room_since) = destination.room_since else { return };
            let connections = &self.connections;
            let idle = |client: u32| {
                let connection = &connections[client as usize];
                connection.id.is_some() && connection.in_flight.is_empty()
            };
            let has_room = |client: u32| {
                let connection = &connections[client as usize];
                connection.in_flight.len() < pipeline
                    && connection.id.is_some_and(|id| io.output_len(id) <= OUTPUT_BYTES_MAX)
            };
            let Some(via) = destination.choice.take(idle, has_room) else {
                // The next answer makes room.
                destination.room_since = None;
                return;
            };
            let Some((_, client)) = destination.arrivals.pop() else { return };
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due.max(room_since), now));
            self.send(io, client as usize, via as usize, due);
        }
    }

    /// Counts a send that had an intended time. `late_ns` is its delay. `own_late_ns` is the part of the delay during
    /// which a connection had room. Only this process can have caused that part.
    fn sent_late(&mut self, late_ns: u64, own_late_ns: u64) {
        self.timed_sends += 1;
        self.own_late_sends += u64::from(own_late_ns > LATE_NS);
        if let Some(recorder) = &mut self.recorder {
            recorder.gauges.sent(late_ns);
        }
    }

    /// Sends the next request of `client` on the connection of `via`.
    #[inline]
    fn send(&mut self, io: &mut Io, client: usize, via: usize, due: Instant) {
        let connection = &mut self.connections[via];
        let Some(output) = connection.id.and_then(|id| io.output(id)) else {
            connection.stranded += 1;
            return;
        };
        let before = output.len();
        let memory = self.run.plan.verify.then_some(&mut connection.memory);
        let op = self.traffic.append_next(&mut self.requests[client], output, memory);
        let bytes = (output.len() - before) as u32;
        connection.in_flight.push_back(Sent { due, op, bytes });
        self.in_flight += 1;
    }

    /// Counts the answer to the oldest request of a connection.
    #[inline]
    fn answered(&mut self, client: usize, answer: &T::Answer<'_>, bytes: usize, now: Instant) {
        let connection = &mut self.connections[client];
        let Some(sent) = connection.in_flight.pop_front() else { return };
        // An open connection is not enough to reset the wait: a server may accept and close at once.
        connection.backoff = BACKOFF_MIN;
        self.in_flight -= 1;
        let judgement = self.traffic.judge(sent.op, answer);
        if let Some(recorder) = &mut self.recorder {
            recorder.record(
                judgement.op,
                &Sample {
                    times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
                    items: self.traffic.keys_of(sent.op),
                    hits: judgement.hits,
                    misses: judgement.misses,
                    bytes_in: bytes as u64,
                    bytes_out: u64::from(sent.bytes),
                    error: judgement.error,
                },
            );
        }
        if self.run.plan.verify {
            self.verify(client, sent.op, answer);
        }
        if judgement.error {
            self.refused(client, sent.op, answer);
        }
    }

    fn verify(&mut self, client: usize, op: Op, answer: &T::Answer<'_>) {
        let server = self.address(client);
        let Clients { run, traffic, connections, recorder, .. } = self;
        let mut wrong_values = 0;
        traffic.verify(&mut connections[client].memory, op, answer, |value, fault| {
            wrong_values += 1;
            let Value { key, flags, value, .. } = *value;
            run.complaints.wrong_value(server, &WrongValue { key, flags, value, fault });
        });
        if let Some(recorder) = recorder {
            recorder.gauges.wrong_values += wrong_values;
        }
    }

    #[cold]
    fn refused(&self, client: usize, op: Op, answer: &T::Answer<'_>) {
        self.run.complaints.tell(format!(
            "{} answered a {} with {}",
            self.address(client),
            op.name(),
            T::shown(answer),
        ));
    }

    /// Counts a connection as cut: its loss made a request fail, or the client could not open it again at once.
    fn is_cut(&mut self, client: usize) {
        if let Phase::Running | Phase::Draining = self.phase
            && !std::mem::replace(&mut self.connections[client].is_missing, true)
        {
            self.missing += 1;
            if let Some(recorder) = &mut self.recorder {
                recorder.gauges.cut += 1;
            }
        }
    }

    /// Updates the gauges of current levels.
    fn gauge(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.gauges.in_flight = self.in_flight;
            recorder.gauges.missing = self.missing;
        }
    }

    /// Counts the requests in flight on a lost connection as errors.
    fn fail_in_flight(&mut self, client: usize) {
        let now = Instant::now();
        let connection = &mut self.connections[client];
        if let Some(recorder) = &mut self.recorder {
            recorder.gauges.unanswered += connection.in_flight.len() as u64;
        }
        T::forget(&mut connection.memory);
        connection.decoder = self.traffic.decoder();
        for sent in connection.in_flight.drain(..) {
            self.in_flight -= 1;
            if let Some(recorder) = &mut self.recorder {
                recorder.record(
                    sent.op,
                    &Sample {
                        times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
                        items: self.traffic.keys_of(sent.op),
                        bytes_out: u64::from(sent.bytes),
                        error: true,
                        ..Sample::default()
                    },
                );
            }
        }
    }

    /// Ends the schedule at `now`. Requests that are due already are still sent.
    fn drain(&mut self, io: &mut Io, now: Instant) {
        self.phase = Phase::Draining;
        for destination in &mut self.destinations {
            destination.arrivals.stop_at(now.saturating_duration_since(self.start));
        }
        io.timer(now + self.run.plan.drain, DRAIN_OVER);
        self.finish_when_drained(io);
    }

    fn finish_when_drained(&mut self, io: &mut Io) {
        let drained = self.in_flight == 0
            && self.destinations.iter().all(|server| server.arrivals.next_due().is_none());
        if self.phase == Phase::Draining && drained {
            self.finish(io);
        }
    }

    fn give_up_waiting(&mut self, io: &mut Io) {
        self.run.unanswered.fetch_add(self.in_flight, Ordering::Relaxed);
        for client in 0..self.connections.len() {
            self.fail_in_flight(client);
        }
        let unsent: u64 =
            self.destinations.iter_mut().map(|server| server.arrivals.abandon()).sum();
        self.run.unsent.fetch_add(unsent, Ordering::Relaxed);
        self.finish(io);
    }

    fn finish(&mut self, io: &mut Io) {
        self.phase = Phase::Done;
        self.run.timed_sends.fetch_add(self.timed_sends, Ordering::Relaxed);
        self.run.own_late_sends.fetch_add(self.own_late_sends, Ordering::Relaxed);
        self.gauge();
        if let Some(recorder) = self.recorder.take() {
            recorder.finish(Moment::now());
        }
        io.stop();
    }
}
