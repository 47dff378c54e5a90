//! The clients of one thread: their connections, what they have in flight, when they send next.
//!
//! # What is measured
//!
//! A response time ends when the thread has read the answer: the clock is read once for everything
//! that one receive brought. It begins when the request is *due*, which is
//!
//! * in a closed loop without think time, that same reading: the next request is due the moment the
//!   answer to the last one is there;
//! * in a closed loop with think time, when the think time after the last answer is over;
//! * in an open loop, when the schedule says.
//!
//! The request is handed to the kernel a little later, at the end of the batch of events at hand.
//! Whatever keeps this process from sending at once (other connections in the same batch, a
//! processor that is busy elsewhere) is part of the response time, as is whatever keeps it from
//! taking up the answer. So nothing of the load generator's own slowness is hidden; and as a client
//! is at every moment either thinking or waiting, N = X (R + Z) holds for what is reported. Where
//! the load generator's share is too large, the summary says so ([`crate::bottleneck`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use knee_proto::{Decoded, Response, ResponseDecoder};
use knee_random::Random;
use knee_reactor::{Close, ConnId, Handler, Io, Origin};
use knee_telemetry::{LATE_NS, Load, LoadTimes, Moment, Op, Recorder, Sample, elapsed_ns, tell};

use crate::error::Error;
use crate::open_loop::{Arrivals, Destination, Room};
use crate::run::{Pace, Run};
use crate::workload::{self, Requests};

/// How long answers that are outstanding at the end are waited for.
const DRAIN: Duration = Duration::from_secs(2);

/// Waits before a lost connection is opened again: the first, and the longest.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// With more than this waiting to be sent, a connection has no room in an open loop.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Requests in flight per connection that memory is set aside for from the beginning.
const IN_FLIGHT_USUAL: usize = 16;

/// Streams of think times, apart from those of requests and of arrivals.
const THINK_STREAMS: u64 = 1 << 62;

/// How much of a line that nobody understands is shown.
const SHOWN_BYTES_MAX: usize = 80;

/// What a timer is for stands in the upper half of its key; in the lower: which one.
const START: u64 = 1 << 32;
const SECOND: u64 = 2 << 32;
const END: u64 = 3 << 32;
const DRAIN_OVER: u64 = 4 << 32;
const RECONNECT: u64 = 5 << 32;
const THOUGHT: u64 = 6 << 32;
const ARRIVAL: u64 = 7 << 32;

/// The clients of one thread.
pub(crate) struct Clients {
    run: Arc<Run>,
    /// `None` once the last window was handed over.
    recorder: Option<Recorder<Load>>,
    connections: Vec<Connection>,
    /// What each client asks for. In an open loop it may go out on another one's connection.
    requests: Vec<Requests>,
    /// Whose a connection is, by the connection's index.
    owners: Vec<u32>,
    /// By server; empty in a closed loop.
    destinations: Vec<Destination>,
    phase: Phase,
    /// Connections that stand, before the start.
    standing: usize,
    in_flight: u64,
    start: Instant,
    end: Instant,
    timed_sends: u64,
    own_late_sends: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connections are opened, or stand and wait for the start.
    Waiting,
    Running,
    /// Nothing becomes due any more; answers are awaited.
    Draining,
    Done,
}

/// A client's connection.
struct Connection {
    server: usize,
    /// `None` while it is lost.
    id: Option<ConnId>,
    backoff: Duration,
    decoder: ResponseDecoder,
    in_flight: VecDeque<Sent>,
    /// The keys of the retrievals in flight, in order; kept only to verify the answers.
    asked: VecDeque<u32>,
    /// Think times: a stream apart from that of the requests, which shall not depend on when
    /// answers come.
    think_random: Random,
    /// When the slots that think will have thought (closed loop).
    thinking: BinaryHeap<Reverse<Instant>>,
    /// Slots that would send if the connection stood (closed loop).
    stranded: usize,
}

/// A request in flight.
struct Sent {
    due: Instant,
    op: Op,
    bytes: u32,
}

impl Clients {
    /// The clients of these numbers.
    pub(crate) fn new(run: Arc<Run>, recorder: Recorder<Load>, numbers: Range<u64>) -> Clients {
        let plan = &run.plan;
        let servers = plan.servers.len();
        let server_of = |number: u64| (number % servers as u64) as usize;
        let connections = numbers.clone().map(|number| Connection {
            server: server_of(number),
            id: None,
            backoff: BACKOFF_MIN,
            decoder: ResponseDecoder::new(plan.response_bytes_max()),
            in_flight: VecDeque::with_capacity(plan.pipeline.min(IN_FLIGHT_USUAL)),
            asked: VecDeque::new(),
            think_random: Random::stream(plan.workload.seed, THINK_STREAMS | number),
            thinking: BinaryHeap::new(),
            stranded: 0,
        });
        let requests =
            numbers.clone().map(|number| Requests::new(&plan.workload, number, plan.clients));
        let mut destinations = Vec::new();
        if let Pace::Open(rate) = plan.pace {
            destinations.resize_with(servers, || Destination {
                arrivals: Arrivals::new(plan.length),
                room: Room::default(),
                armed: None,
                room_since: None,
            });
            for (client, number) in (0_u32..).zip(numbers.clone()) {
                let Destination { arrivals, room, .. } = &mut destinations[server_of(number)];
                arrivals.add(client, rate, plan.workload.seed, number, plan.clients);
                room.add(client);
            }
        }
        let now = Instant::now();
        Clients {
            recorder: Some(recorder),
            connections: connections.collect(),
            requests: requests.collect(),
            owners: Vec::new(),
            destinations,
            phase: Phase::Waiting,
            standing: 0,
            in_flight: 0,
            start: now,
            end: now,
            timed_sends: 0,
            own_late_sends: 0,
            run,
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
                self.connect_later(io, client);
            }
        }
    }

    fn connect_later(&mut self, io: &mut Io, client: usize) {
        if self.phase == Phase::Running {
            let connection = &mut self.connections[client];
            io.timer(Instant::now() + connection.backoff, RECONNECT | client as u64);
            connection.backoff = (connection.backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Tells that a client's connection is of no use: before the start, that ends the run.
    fn complain(&self, io: &mut Io, client: usize, why: &str) {
        let server = self.address(client);
        match self.phase {
            Phase::Waiting => {
                // Without a receiver the run is being given up already.
                let _ = self.run.standing.send(Err(Error::Connect { server, why: why.into() }));
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
                    for _ in 0..self.run.plan.pipeline {
                        let rest = think.remainder(&mut self.connections[client].think_random);
                        self.send_after(io, client, now.mono, rest);
                    }
                }
            }
            Pace::Open(_) => {
                for client in 0..self.connections.len() {
                    self.has_room(client, self.start);
                }
                for server in 0..self.destinations.len() {
                    self.send_due(io, server);
                }
            }
        }
    }

    /// Closed loop: sends the client's next request when it has thought for `think` since `from`.
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

    /// Closed loop: a slot of the client has thought.
    fn thought(&mut self, io: &mut Io, client: usize) {
        let now = Instant::now();
        let thinking = &mut self.connections[client].thinking;
        let Some(Reverse(due)) = thinking.pop() else { return };
        if self.connections[client].id.is_some() {
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due, now));
        }
        self.send(io, client, client, due);
    }

    /// Open loop: something of the client's connection has become free, or it stands again.
    #[inline]
    fn has_room(&mut self, client: usize, now: Instant) {
        let connection = &self.connections[client];
        let destination = &mut self.destinations[connection.server];
        if connection.in_flight.is_empty() {
            destination.room.is_idle(client as u32);
        }
        destination.room_since.get_or_insert(now);
    }

    /// Open loop: sends what is due and finds room, and sets the timer for what is due next.
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
            let Some(via) = destination.room.take(idle, has_room) else {
                // The next answer makes room.
                destination.room_since = None;
                return;
            };
            let Some((_, client)) = destination.arrivals.pop() else { return };
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due.max(room_since), now));
            self.send(io, client as usize, via as usize, due);
        }
    }

    /// Counts a send that had an intended time: how late it was, and how much of that was this
    /// process's own fault.
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
        let plan = &self.run.plan;
        let before = output.len();
        let asked = &mut connection.asked;
        let op = self.requests[client].append_next(&plan.workload, output, |key| {
            if plan.verify {
                asked.push_back(key);
            }
        });
        let bytes = (output.len() - before) as u32;
        connection.in_flight.push_back(Sent { due, op, bytes });
        self.in_flight += 1;
    }

    /// The front request of a connection has its answer.
    #[inline]
    fn answered(&mut self, client: usize, response: &Response<'_>, now: Instant) {
        let connection = &mut self.connections[client];
        let Some(sent) = connection.in_flight.pop_front() else { return };
        // Not when it stands: a server may accept, and close at once.
        connection.backoff = BACKOFF_MIN;
        self.in_flight -= 1;
        let plan = &self.run.plan;
        let succeeded = workload::succeeded(sent.op, response);
        let mut sample = Sample {
            times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
            items: 1,
            hits: 0,
            misses: 0,
            bytes_in: response.raw.len() as u64,
            bytes_out: u64::from(sent.bytes),
            error: !succeeded,
        };
        if sent.op != Op::Set {
            sample.items = plan.workload.multiget;
            sample.hits = (response.hits as u32).min(sample.items);
            sample.misses = if succeeded { sample.items - sample.hits } else { 0 };
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(sent.op, &sample);
        }
        if plan.verify && sent.op != Op::Set {
            self.verify(client, response);
        }
        if !succeeded {
            self.refused(client, sent.op, response);
        }
    }

    fn verify(&mut self, client: usize, response: &Response<'_>) {
        let server = self.address(client);
        let Clients { run, connections, recorder, .. } = self;
        let asked = &mut connections[client].asked;
        let keys = run.plan.workload.multiget as usize;
        let mut wrong_values = 0;
        run.plan.workload.verify(
            &mut asked.make_contiguous()[..keys],
            response.values(),
            |value, fault| {
                wrong_values += 1;
                if !run.told_wrong_value.swap(true, Ordering::Relaxed) {
                    let message = format_args!(
                        "wrong value from {server} for key {}: {fault} (flags {}, {} bytes, \
                         beginning {}); further ones are counted, not told",
                        value.key.escape_ascii(),
                        value.flags,
                        value.value.len(),
                        value.value[..value.value.len().min(SHOWN_BYTES_MAX)].escape_ascii(),
                    );
                    tell("knee-load", message);
                }
            },
        );
        asked.drain(..keys);
        if let Some(recorder) = recorder {
            recorder.gauges.wrong_values += wrong_values;
        }
    }

    #[cold]
    fn refused(&self, client: usize, op: Op, response: &Response<'_>) {
        let line = response.raw.split(|byte| *byte == b'\r').next().unwrap_or_default();
        self.run.complaints.tell(format!(
            "{} answered a {} with {}",
            self.address(client),
            op.name(),
            line[..line.len().min(SHOWN_BYTES_MAX)].escape_ascii(),
        ));
    }

    /// What is in flight on a connection will not be answered: it counts as errors.
    fn fail_in_flight(&mut self, client: usize) {
        let now = Instant::now();
        let connection = &mut self.connections[client];
        let plan = &self.run.plan;
        connection.asked.clear();
        connection.decoder = ResponseDecoder::new(plan.response_bytes_max());
        for sent in connection.in_flight.drain(..) {
            self.in_flight -= 1;
            if let Some(recorder) = &mut self.recorder {
                let items = if sent.op == Op::Set { 1 } else { plan.workload.multiget };
                recorder.record(
                    sent.op,
                    &Sample {
                        times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
                        items,
                        hits: 0,
                        misses: 0,
                        bytes_in: 0,
                        bytes_out: u64::from(sent.bytes),
                        error: true,
                    },
                );
            }
        }
    }

    /// From `now` on nothing becomes due; what is due already is still sent.
    fn drain(&mut self, io: &mut Io, now: Instant) {
        self.phase = Phase::Draining;
        for destination in &mut self.destinations {
            destination.arrivals.stop_at(now.saturating_duration_since(self.start));
        }
        io.timer(now + DRAIN, DRAIN_OVER);
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
        if self.in_flight > 0 {
            self.run.complaints.tell(format!(
                "{} requests were not answered within {} s after the end: they count as errors",
                self.in_flight,
                DRAIN.as_secs()
            ));
        }
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
        if let Some(mut recorder) = self.recorder.take() {
            recorder.gauges.in_flight = self.in_flight;
            recorder.finish(Moment::now());
        }
        io.stop();
    }
}

impl Handler for Clients {
    fn on_start(&mut self, io: &mut Io) {
        for client in 0..self.connections.len() {
            self.connect(io, client);
        }
    }

    fn on_open(&mut self, io: &mut Io, conn: ConnId, _origin: Origin) {
        let client = self.owners[conn.index()] as usize;
        let connection = &mut self.connections[client];
        connection.id = Some(conn);
        if let Some(recorder) = &mut self.recorder {
            recorder.connections += 1;
            recorder.gauges.reconnects += u64::from(self.phase != Phase::Waiting);
        }
        match (self.phase, self.run.plan.pace) {
            (Phase::Waiting, _) => {
                self.standing += 1;
                if self.standing == self.connections.len() {
                    // Without a receiver the run is being given up already.
                    let _ = self.run.standing.send(Ok(()));
                }
            }
            (Phase::Running, Pace::Closed(_)) => {
                let now = Instant::now();
                for _ in 0..std::mem::take(&mut connection.stranded) {
                    self.send(io, client, client, now);
                }
            }
            (_, Pace::Open(_)) => {
                let server = connection.server;
                self.has_room(client, Instant::now());
                self.send_due(io, server);
            }
            (_, Pace::Closed(_)) => {}
        }
    }

    fn on_wake(&mut self, io: &mut Io) {
        if let (Phase::Waiting, Some(start)) = (self.phase, self.run.start.get()) {
            self.start = *start;
            io.timer(*start, START);
        }
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let now = Instant::now();
        let client = self.owners[conn.index()] as usize;
        let mut start = 0;
        while start < input.len() {
            let connection = &mut self.connections[client];
            let Some(front) = connection.in_flight.front() else {
                let shown = &input[start..input.len().min(start + SHOWN_BYTES_MAX)];
                self.complain(io, client, &format!("it sent unasked: {}", shown.escape_ascii()));
                io.close(conn);
                return input.len();
            };
            let expect = workload::expect(front.op);
            match connection.decoder.decode(&input[start..], expect) {
                Decoded::Complete { consumed, item } => {
                    start += consumed;
                    self.answered(client, &item, now);
                    if let (Phase::Running, Pace::Closed(think)) = (self.phase, self.run.plan.pace)
                    {
                        let think = think.next(&mut self.connections[client].think_random);
                        if let Some(recorder) = &mut self.recorder
                            && !think.is_zero()
                        {
                            recorder.gauges.thought(think.as_nanos() as u64);
                        }
                        self.send_after(io, client, now, think);
                    }
                }
                Decoded::Incomplete { consumed, wanted } => {
                    start += consumed;
                    io.want(conn, wanted);
                    break;
                }
                Decoded::Invalid { error, .. } => {
                    let shown = &input[start..input.len().min(start + SHOWN_BYTES_MAX)];
                    self.complain(io, client, &format!("{error}: {}", shown.escape_ascii()));
                    io.close(conn);
                    return input.len();
                }
            }
        }
        if let Pace::Open(_) = self.run.plan.pace {
            let server = self.connections[client].server;
            let was_full = self.destinations[server].room_since.is_none();
            self.has_room(client, now);
            if was_full {
                self.send_due(io, server);
            }
        }
        self.finish_when_drained(io);
        start
    }

    fn on_end(&mut self, io: &mut Io, conn: ConnId) {
        let client = self.owners[conn.index()] as usize;
        self.complain(io, client, "the server closed it");
        io.close(conn);
    }

    fn on_close(&mut self, io: &mut Io, conn: ConnId, _origin: Origin, why: Close) {
        if self.phase == Phase::Done {
            return;
        }
        let client = self.owners[conn.index()] as usize;
        match why {
            // That was told when it was decided.
            Close::Local => {}
            Close::Refused(error) | Close::Failed(error) => {
                self.complain(io, client, &error.to_string());
            }
            Close::Idle | Close::Overflow => {
                self.complain(io, client, "it was closed");
            }
        }
        let failed = self.connections[client].in_flight.len();
        self.fail_in_flight(client);
        if self.connections[client].id.take().is_some()
            && let Some(recorder) = &mut self.recorder
        {
            recorder.connections -= 1;
        }
        if let Pace::Closed(_) = self.run.plan.pace {
            self.connections[client].stranded += failed;
        }
        self.connect_later(io, client);
        self.finish_when_drained(io);
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        let which = (key & u64::from(u32::MAX)) as usize;
        match (key & !u64::from(u32::MAX), self.phase) {
            (START, Phase::Waiting) => self.begin(io),
            (SECOND, Phase::Running | Phase::Draining) => {
                let now = Moment::now();
                if let Some(recorder) = &mut self.recorder {
                    recorder.gauges.in_flight = self.in_flight;
                    recorder.cut(now);
                }
                io.timer(now.next_second(), SECOND);
            }
            (END, Phase::Running) => self.drain(io, self.end),
            (DRAIN_OVER, Phase::Draining) => self.give_up_waiting(io),
            (RECONNECT, Phase::Running) => self.connect(io, which),
            (THOUGHT, Phase::Running) => self.thought(io, which),
            (ARRIVAL, Phase::Running | Phase::Draining) => self.send_due(io, which),
            _ => {}
        }
    }

    fn on_shutdown(&mut self, io: &mut Io) {
        let now = Instant::now();
        match self.phase {
            Phase::Waiting => {
                self.run.interrupted.store(true, Ordering::Relaxed);
                if self.standing < self.connections.len() {
                    // Whoever waits for the connections shall not do so in vain.
                    let _ = self.run.standing.send(Err(Error::Interrupted));
                }
                io.stop();
            }
            Phase::Running => {
                // After the end, it was another thread that had finished first.
                if now < self.end {
                    self.run.interrupted.store(true, Ordering::Relaxed);
                }
                self.drain(io, now.min(self.end));
            }
            Phase::Draining | Phase::Done => {}
        }
    }
}
