//! A storage machine: serves memory over NBD, with one thread.

use std::io;
use std::net::TcpListener;
use std::time::Instant;

use knee_nbd::{
    BLOCK_BYTES, Command, EIO, Errno, Export, FLAG_NO_HOLE, Negotiation, REPLY_BYTES,
    REQUEST_BYTES, Reply, Request,
};
use knee_reactor::{Close, ConnId, Group, Handler, Io, Origin, Shutdown};
use knee_server::Trace;
use knee_telemetry::{
    Moment, Recorder, Reporter, Running, Sample, Store as Role, StoreGauges, StoreTimes, elapsed_ns,
};

use crate::memory::Memory;
use crate::session::{
    DRAIN, DRAIN_POLL, Limits, OUTPUT_BYTES_MAX, SHORT_BYTES, WINDOW, negotiate, operation,
    trace_request,
};

/// A running storage machine.
#[derive(Debug)]
pub(crate) struct StoreServer {
    group: Group,
    running: Running<Role>,
}

impl StoreServer {
    /// Serves `bytes` of memory on `listener`. `before_ready` gets the shutdown handle before the `ready` line.
    ///
    /// # Errors
    /// When the system refuses the addresses, a poll or a thread.
    pub(crate) fn start(
        bytes: usize,
        limits: &Limits,
        listener: TcpListener,
        mut reporter: Reporter<Role>,
        trace: Option<Trace>,
        before_ready: impl FnOnce(Shutdown) -> io::Result<()>,
    ) -> io::Result<StoreServer> {
        let address = listener.local_addr()?;
        let mut memory = Some(Memory::reserve(bytes)?);
        let group = Group::start("net", 1, &limits.loop_config(), Some(listener), |_, _| {
            let memory = memory.take().expect("there is one thread");
            let now = Moment::now();
            Store {
                export: Export { bytes: memory.bytes(), read_only: false },
                memory,
                sessions: Vec::new(),
                suspended: Vec::new(),
                served: Vec::new(),
                trace: trace.clone(),
                draining: false,
                started: now,
                recorder: Some(reporter.recorder("net-0", StoreGauges::default(), now)),
            }
        })?;
        before_ready(group.shutdown())?;
        reporter.ready(Some(address));
        Ok(StoreServer { group, running: reporter.start()? })
    }

    /// Waits until the server has ended, and prints the summary.
    ///
    /// # Errors
    /// The failure that ended the thread before a shutdown.
    pub(crate) fn join(self) -> io::Result<()> {
        let ended = self.group.join();
        self.running.finish(|_| ());
        ended
    }
}

/// The state of a connection.
#[derive(Debug)]
enum Session {
    Negotiating(Negotiation),
    Serving,
    Writing(Writing),
}

/// A write whose data is still arriving. Whole blocks go to the memory at once, so that a client that dies leaves no
/// block half written.
#[derive(Debug)]
struct Writing {
    request: Request,
    /// Why the data is dropped.
    refusal: Option<Errno>,
    /// Bytes of data that are in the memory, or dropped.
    done: u32,
    /// The front of the block that follows them.
    front: Vec<u8>,
}

impl Writing {
    /// Takes data from the front of `input`. Returns its length, and whether the write is complete.
    fn take(&mut self, memory: &mut Memory, input: &[u8]) -> (usize, bool) {
        let left = self.request.length - self.done - self.front.len() as u32;
        let input = &input[..input.len().min(left as usize)];
        if self.refusal.is_some() {
            self.done += input.len() as u32;
            return (input.len(), self.done == self.request.length);
        }
        let mut rest = input;
        while !rest.is_empty() {
            let position = self.request.offset + u64::from(self.done);
            let held = self.front.len();
            let available = (held + rest.len()) as u64;
            let left = u64::from(self.request.length - self.done);
            let end = position + available;
            let whole = if available == left { end } else { end / BLOCK_BYTES * BLOCK_BYTES };
            if whole <= position {
                self.front.extend_from_slice(rest);
                break;
            }
            // A block that has a front comes first, alone.
            let whole = if held > 0 {
                whole.min((position / BLOCK_BYTES + 1) * BLOCK_BYTES)
            } else {
                whole
            };
            let (now, later) = rest.split_at((whole - position) as usize - held);
            if held > 0 {
                self.front.extend_from_slice(now);
                memory.write(position, &self.front);
                self.front.clear();
            } else {
                memory.write(position, now);
            }
            self.done += (whole - position) as u32;
            rest = later;
        }
        (input.len(), self.done == self.request.length)
    }
}

struct Store {
    export: Export,
    memory: Memory,
    /// By the index of the connection.
    sessions: Vec<Session>,
    /// Connections with further requests, to resume after this batch has been sent.
    suspended: Vec<ConnId>,
    /// Requests of the current read, and their errors.
    served: Vec<(Request, Errno)>,
    trace: Option<Trace>,
    draining: bool,
    started: Moment,
    /// `None` after the last window was cut.
    recorder: Option<Recorder<Role>>,
}

impl Store {
    /// Answers the requests in `input`. Returns their length.
    fn serve(&mut self, io: &mut Io, conn: ConnId, session: &mut Session, input: &[u8]) -> usize {
        let (mut at, mut written) = (0, 0);
        loop {
            let rest = &input[at..];
            match session {
                Session::Negotiating(negotiation) => {
                    let (consumed, transmits) =
                        negotiate(negotiation, &self.export, io, conn, rest);
                    at += consumed;
                    if !transmits {
                        return at;
                    }
                    *session = Session::Serving;
                }
                Session::Serving => {
                    let request = match Request::decode(rest) {
                        Ok(Some(request)) => request,
                        Ok(None) => return at,
                        Err(_) => {
                            io.close(conn);
                            return input.len();
                        }
                    };
                    if self.draining || written >= OUTPUT_BYTES_MAX {
                        io.pause(conn);
                        self.suspended.push(conn);
                        return at;
                    }
                    let reads = request.command == Command::Read && request.length > SHORT_BYTES;
                    if reads && !io.has_room_for_answer(conn) {
                        io.wait_for_room(conn);
                        return at;
                    }
                    at += REQUEST_BYTES;
                    let refusal = self.export.refusal(&request);
                    match request.command {
                        Command::Disconnect => {
                            io.close_when_sent(conn);
                            return input.len();
                        }
                        Command::Write => {
                            let front = Vec::new();
                            *session =
                                Session::Writing(Writing { request, refusal, done: 0, front });
                        }
                        _ => written += self.answer(io, conn, request, refusal),
                    }
                }
                Session::Writing(writing) => {
                    let (consumed, complete) = writing.take(&mut self.memory, rest);
                    at += consumed;
                    if !complete {
                        return at;
                    }
                    let (request, refusal) = (writing.request, writing.refusal);
                    *session = Session::Serving;
                    written += self.answer(io, conn, request, refusal);
                }
            }
        }
    }

    /// Executes a request, whose data is in the memory. Returns the length of the reply.
    fn answer(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        request: Request,
        refusal: Option<Errno>,
    ) -> usize {
        let Request { command, flags, cookie, offset, length } = request;
        let error = match (refusal, command) {
            (Some(error), _) => error,
            (None, Command::Trim | Command::WriteZeroes) => {
                let zeroed = self.memory.zero(offset, length, flags & FLAG_NO_HOLE == 0);
                zeroed.map_or(EIO, |()| 0)
            }
            (None, _) => 0,
        };
        self.served.push((request, error));
        let data = match command {
            Command::Read if error == 0 => self.memory.read(offset, length),
            _ => &[],
        };
        if let Some(out) = io.output(conn) {
            out.reserve(REPLY_BYTES + data.len());
            Reply { error, cookie }.encode(out);
            out.extend_from_slice(data);
        }
        REPLY_BYTES + data.len()
    }

    /// Records the requests of the current read.
    fn record(&mut self, received: Instant) {
        if self.served.is_empty() {
            return;
        }
        let service_ns = elapsed_ns(received, Instant::now());
        let received_unix_ns = self.started.unix_ns_at(received);
        for (request, error) in self.served.drain(..) {
            let read = if request.command == Command::Read { request.length as usize } else { 0 };
            let sample = Sample {
                times: StoreTimes { service_ns },
                items: 1,
                bytes_in: (REQUEST_BYTES + request.data_bytes()) as u64,
                bytes_out: (REPLY_BYTES + if error == 0 { read } else { 0 }) as u64,
                error: error != 0,
                ..Sample::default()
            };
            if let Some(recorder) = &mut self.recorder {
                recorder.gauges.requested(received_unix_ns);
                recorder.record(operation(request.command), &sample);
            }
            if let Some(trace) = &self.trace {
                trace_request(trace, &request, error, service_ns);
            }
        }
    }

    /// Updates the gauges before a window ends.
    fn gauge(&mut self, io: &Io) {
        if let Some(recorder) = &mut self.recorder {
            recorder.connections = io.connections() as u64;
            recorder.gauges.memory_bytes = self.memory.resident_bytes();
        }
    }
}

impl Handler for Store {
    fn on_start(&mut self, io: &mut Io) {
        io.timer(Moment::now().next_second(), WINDOW);
    }

    fn on_open(&mut self, io: &mut Io, conn: ConnId, _origin: Origin) {
        let mut greeting = Vec::new();
        let session = Session::Negotiating(Negotiation::begin(&mut greeting));
        io.write(conn, &greeting);
        if conn.index() >= self.sessions.len() {
            self.sessions.resize_with(conn.index() + 1, || Session::Serving);
        }
        self.sessions[conn.index()] = session;
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let received = io.now();
        let mut session = std::mem::replace(&mut self.sessions[conn.index()], Session::Serving);
        let consumed = self.serve(io, conn, &mut session, input);
        self.sessions[conn.index()] = session;
        self.record(received);
        consumed
    }

    fn on_close(&mut self, _io: &mut Io, conn: ConnId, _origin: Origin, why: Close) {
        self.sessions[conn.index()] = Session::Serving;
        if let (Close::Still, Some(recorder)) = (why, &mut self.recorder) {
            recorder.gauges.still_clients += 1;
        }
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        if key == DRAIN {
            let waits = io.ids().any(|(conn, _)| io.output_len(conn) > 0);
            return if waits { io.timer(io.now() + DRAIN_POLL, DRAIN) } else { io.stop() };
        }
        let now = Moment::now();
        self.gauge(io);
        if let Some(recorder) = &mut self.recorder {
            recorder.cut(now);
        }
        io.timer(now.next_second(), WINDOW);
    }

    fn on_batch_end(&mut self, io: &mut Io) {
        if !self.draining {
            for conn in self.suspended.drain(..) {
                io.resume(conn);
            }
        }
    }

    fn on_shutdown(&mut self, io: &mut Io) {
        self.draining = true;
        io.timer(io.now(), DRAIN);
    }

    fn on_stop(&mut self, io: &mut Io) {
        self.gauge(io);
        if let Some(recorder) = self.recorder.take() {
            recorder.finish(Moment::now());
        }
    }
}
