//! Connections: reads requests, writes answers, and records service times.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use knee_kv_cache::engine::{Engine, Figures, Second};
use knee_kv_store::calendar::Calendar;
use knee_proto::{Decoded, ErrorKind, Limits, RequestDecoder};
use knee_reactor::{Close, ConnId, Handler, Io, Origin};
use knee_server::Trace;
use knee_telemetry::{
    Moment, Op, Recorder, Sample, Store, StoreTimes, VersionGauges, elapsed_ns, tell,
};

use crate::PROGRAM;
use crate::commands::{Answered, Commands, Outcome, Progress};
use crate::counters::Counter;
use crate::trace::Traced;

/// A connection with more output bytes takes no further request before its client reads. A client that does not read
/// costs this memory and one value.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Once unread answers take a third of the memory budget, the server gives only answers up to about this length.
const SHORT_ANSWER_BYTES: usize = 4 * 1024;

/// Timer keys.
const WINDOW: u64 = 0;
const DRAIN: u64 = 1;
/// The interval of checks whether the last answers have left.
const DRAIN_POLL: Duration = Duration::from_millis(5);

type VersionFigures = (knee_kv_store::Figures, knee_kv_store::CommitFigures);

/// State of a connection between requests.
struct Connection {
    decoder: RequestDecoder,
    /// The retrieval at the front of the input, if it is partly answered.
    progress: Option<Partial>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    progress: Progress,
    bytes_out: u64,
}

/// A thread of the server.
///
/// The thread reads the clock once for each read from a connection. The service time begins when the event loop returns
/// the events of the requests. The service time ends when the last answer is in the output buffer. With an engine that
/// syncs, the thread reads the clock once for each batch, after the sync. The service time then begins with the batch,
/// up to some 100 µs before a request arrives.
pub(crate) struct Server<E> {
    commands: Commands<E>,
    connections: Vec<Option<Connection>>,
    limits: Limits,
    calendar: Calendar,
    second: (Instant, Second),
    /// Samples of the current read's requests; if the engine syncs, of the current batch's.
    samples: Vec<(Op, Sample<StoreTimes>)>,
    trace: Option<Trace>,
    /// Traces of the same requests, and the first word of each answer.
    traced: Vec<(Traced, String)>,
    /// Connections with a suspended answer, to resume after this batch has been sent.
    suspended: Vec<ConnId>,
    draining: bool,
    /// `None` after the last window was cut.
    recorder: Option<Recorder<Store>>,
    /// Whether this thread reports the engine's figures. A single thread does, because the threads share the engine.
    reports_engine: bool,
    reported: Figures,
    reported_versions: VersionFigures,
    /// The last reported reason why the engine refuses changes; `None` while it accepts them.
    shortage: Option<String>,
    /// Why the engine could not sync, after a failure.
    unsettled: Arc<OnceLock<String>>,
}

impl<E: Engine> Server<E> {
    pub(crate) fn new(
        commands: Commands<E>,
        limits: Limits,
        calendar: Calendar,
        recorder: Recorder<Store>,
        trace: Option<Trace>,
        reports_engine: bool,
        unsettled: Arc<OnceLock<String>>,
    ) -> Server<E> {
        Server {
            commands,
            connections: Vec::new(),
            limits,
            calendar,
            second: (calendar.started(), calendar.second(calendar.started())),
            samples: Vec::new(),
            trace,
            traced: Vec::new(),
            suspended: Vec::new(),
            draining: false,
            recorder: Some(recorder),
            reports_engine,
            reported: Figures::default(),
            reported_versions: VersionFigures::default(),
            shortage: None,
            unsettled,
        }
    }

    fn second(&mut self, now: Instant) -> Second {
        if self.second.0 != now {
            self.second = (now, self.calendar.second(now));
        }
        self.second.1
    }

    /// Answers the requests in `input`; returns their length.
    fn serve(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let now = self.second(io.now());
        let Some(Some(connection)) = self.connections.get_mut(conn.index()) else {
            return input.len();
        };
        if self.draining && connection.progress.is_none() {
            io.pause(conn);
            return 0;
        }
        self.commands.connections = io.accepted();
        let roomy = io.has_room_for_long_answers();
        let mut budget = if roomy { OUTPUT_BYTES_MAX } else { SHORT_ANSWER_BYTES };
        let mut start = 0;
        while start < input.len() {
            match connection.decoder.decode(&input[start..]) {
                Decoded::Complete { consumed, item } => {
                    let mut partial = connection.progress.unwrap_or_default();
                    if !roomy && self.commands.is_long(&item, &partial.progress, now) {
                        connection.decoder = RequestDecoder::new(self.limits);
                        io.wait_for_room(conn);
                        break;
                    }
                    connection.progress = None;
                    let Some(out) = io.output(conn) else { return input.len() };
                    let before = out.len();
                    let outcome =
                        self.commands.answer(&item, &mut partial.progress, budget, now, out);
                    let bytes_out = out.len() - before;
                    budget = budget.saturating_sub(bytes_out);
                    partial.bytes_out += bytes_out as u64;
                    match outcome {
                        Outcome::Done(answered) => {
                            if self.trace.is_some() {
                                let begun = partial.bytes_out > bytes_out as u64;
                                let answer = if begun { b"VALUE" } else { &out[before..] };
                                let request = &input[start..start + consumed];
                                self.traced.push(traced(answered.op, request, answer));
                            }
                            start += consumed;
                            self.samples.push(sample(answered, consumed, partial.bytes_out));
                        }
                        Outcome::Suspended => {
                            connection.progress = Some(partial);
                            // The request is decoded again when it resumes.
                            connection.decoder = RequestDecoder::new(self.limits);
                        }
                        Outcome::Close => {
                            io.close_when_sent(conn);
                            return input.len();
                        }
                    }
                }
                Decoded::Invalid { consumed, error } => {
                    let request = &input[start..start + consumed];
                    start += consumed;
                    let stale = (error.kind == ErrorKind::TooLarge)
                        .then(|| connection.decoder.take_stale_key())
                        .flatten();
                    let kept = stale.and_then(|key| self.commands.drop_stale(&key.bytes(), now));
                    let answer = kept.unwrap_or_else(|| error.answer());
                    io.write(conn, answer);
                    if self.trace.is_some() {
                        self.traced.push(traced(Op::Other, request, answer));
                    }
                    let refused = Answered { error: true, ..Answered::new(Op::Other) };
                    self.samples.push(sample(refused, consumed, answer.len() as u64));
                    if error.is_fatal() {
                        if let (ErrorKind::Http, Some(recorder)) = (error.kind, &mut self.recorder)
                        {
                            recorder.gauges.http_requests += 1;
                        }
                        io.close_when_sent(conn);
                        return input.len();
                    }
                }
                Decoded::Incomplete { consumed, wanted } => {
                    start += consumed;
                    io.want(conn, wanted);
                    break;
                }
            }
            if budget == 0 || connection.progress.is_some() {
                if roomy {
                    io.pause(conn);
                    self.suspended.push(conn);
                } else {
                    io.wait_for_room(conn);
                }
                break;
            }
        }
        start
    }

    /// Passes the current samples to the recorder.
    fn record(&mut self, received: Instant) {
        if self.samples.is_empty() {
            return;
        }
        let service_ns = elapsed_ns(received, Instant::now());
        let received_unix_ns = self.calendar.unix_ns(received);
        let (mut bytes_in, mut bytes_out) = (0, 0);
        if let Some(recorder) = &mut self.recorder {
            recorder.gauges.requested(received_unix_ns);
            for (op, sample) in &mut self.samples {
                sample.times = StoreTimes { service_ns };
                bytes_in += sample.bytes_in;
                bytes_out += sample.bytes_out;
                recorder.record(*op, sample);
            }
        }
        if let Some(trace) = &self.trace {
            for ((_, sample), (traced, status)) in self.samples.iter().zip(self.traced.drain(..)) {
                traced.write(trace, received_unix_ns, sample, &status);
            }
        }
        self.samples.clear();
        self.commands.count(Counter::BytesRead, bytes_in);
        self.commands.count(Counter::BytesWritten, bytes_out);
    }

    /// Prints once why the engine refuses changes, and once that it accepts them again.
    fn report_shortage(&mut self) {
        let shortage = self.commands.engine().shortage();
        if shortage == self.shortage {
            return;
        }
        match &shortage {
            Some(why) => tell(PROGRAM, why),
            None => tell(PROGRAM, "the log has room again"),
        }
        self.shortage = shortage;
    }

    /// Updates the gauges before a window ends.
    fn gauge(&mut self, io: &Io) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.connections = io.connections() as u64;
        if self.reports_engine {
            let figures = self.commands.engine().figures();
            let gauges = &mut recorder.gauges;
            gauges.memory_bytes = figures.memory_bytes;
            gauges.items_stored = figures.items;
            gauges.evictions += figures.evictions - self.reported.evictions;
            gauges.expired += figures.expired - self.reported.expired;
            self.reported = figures;
            if let Some(figures) = self.commands.engine().version_figures() {
                let counted = gauges.versions.unwrap_or_default();
                gauges.versions = Some(version_gauges(figures, self.reported_versions, counted));
                self.reported_versions = figures;
            }
        }
    }
}

/// The gauges of a versioned store: adds its work since the `reported` figures to `counted`.
fn version_gauges(
    (figures, commits): VersionFigures,
    (reported, commits_reported): VersionFigures,
    counted: VersionGauges,
) -> VersionGauges {
    let reclaim_time = figures.reclaim_time.saturating_sub(reported.reclaim_time);
    VersionGauges {
        keys: figures.keys,
        versions: figures.versions,
        snapshots_open: figures.snapshots_open,
        snapshot_age_ns: figures.snapshot_age.unwrap_or_default().as_nanos() as u64,
        file_bytes: figures.file_bytes,
        file_live_bytes: figures.live_bytes,
        commits: counted.commits + (commits.groups - commits_reported.groups),
        commit_sum_ns: counted.commit_sum_ns + (commits.sum_ns - commits_reported.sum_ns),
        commit_max_ns: counted.commit_max_ns.max(commits.max_ns),
        commit_records: counted.commit_records + (commits.records - commits_reported.records),
        reclaims: counted.reclaims + (figures.reclaims - reported.reclaims),
        reclaim_sum_ns: counted.reclaim_sum_ns + reclaim_time.as_nanos() as u64,
    }
}

fn traced(op: Op, request: &[u8], answer: &[u8]) -> (Traced, String) {
    let front = |text: &'_ [u8], ends: &[u8]| {
        text.iter().position(|byte| ends.contains(byte)).unwrap_or(text.len())
    };
    let line = &request[..front(request, b"\r\n")];
    let word = &answer[..front(answer, b" \r\n")];
    let status = if word.is_empty() { "-".into() } else { String::from_utf8_lossy(word) };
    (Traced::new(op.name(), line), status.into_owned())
}

fn sample(answered: Answered, bytes_in: usize, bytes_out: u64) -> (Op, Sample<StoreTimes>) {
    let Answered { op, items, hits, misses, error } = answered;
    let times = StoreTimes::default();
    (op, Sample { times, items, hits, misses, bytes_in: bytes_in as u64, bytes_out, error })
}

impl<E: Engine> Handler for Server<E> {
    fn on_start(&mut self, io: &mut Io) {
        io.timer(Moment::now().next_second(), WINDOW);
    }

    fn on_open(&mut self, _io: &mut Io, conn: ConnId, _origin: Origin) {
        let index = conn.index();
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] =
            Some(Connection { decoder: RequestDecoder::new(self.limits), progress: None });
        self.commands.count(Counter::TotalConnections, 1);
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let received = io.now();
        let consumed = self.serve(io, conn, input);
        if !E::SETTLES {
            self.record(received);
        }
        consumed
    }

    fn on_close(&mut self, _io: &mut Io, conn: ConnId, _origin: Origin, why: Close) {
        if let (Close::Still, Some(recorder)) = (why, &mut self.recorder) {
            recorder.gauges.still_clients += 1;
        }
        self.connections[conn.index()] = None;
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        match key {
            WINDOW => {
                let now = Moment::now();
                if self.reports_engine {
                    self.report_shortage();
                }
                self.gauge(io);
                if let Some(recorder) = &mut self.recorder {
                    recorder.cut(now);
                }
                io.timer(now.next_second(), WINDOW);
            }
            _ => self.drain(io),
        }
    }

    /// Requests that arrive during a sync share the next one.
    fn gathers(&mut self) -> bool {
        self.commands.engine().is_unsettled()
    }

    /// A sync may wait until this time, so that further commits share it.
    fn waits_until(&mut self) -> Option<Instant> {
        self.commands.engine().settles_at()
    }

    fn on_batch_end(&mut self, io: &mut Io) {
        // No answer of the batch has left yet.
        if let Err(why) = self.commands.engine().settle() {
            // Another thread may have stored its reason first; all threads end.
            let _ = self.unsettled.set(why);
            self.suspended.clear();
            io.abandon();
            return;
        }
        if E::SETTLES {
            self.record(io.now());
        }
        for conn in self.suspended.drain(..) {
            io.resume(conn);
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

impl<E: Engine> Server<E> {
    /// Stops once all answers have been sent. The event loop stops in any case after its grace period.
    fn drain(&mut self, io: &mut Io) {
        let waiting = io.ids().any(|(conn, _)| io.output_len(conn) > 0)
            || self.connections.iter().flatten().any(|connection| connection.progress.is_some());
        if waiting {
            io.timer(io.now() + DRAIN_POLL, DRAIN);
        } else {
            io.stop();
        }
    }
}
