//! Telemetry and trace of calls.

use std::sync::Arc;
use std::time::Instant;

use knee_rpc::Message;
use knee_server::{CALL_BYTES, Shards, Share, Trace, Unserved};
use knee_telemetry::{
    Broker, BrokerGauges, BrokerTimes, Level, Moment, Op, Recorder, Reporter, Sample, elapsed_ns,
};
use tonic::{Code, Request, Response, Status};

use super::message::Question;
use crate::database::Stages;

/// The recorders and the trace of a server.
#[derive(Debug)]
pub struct Telemetry {
    /// See [`recorders`].
    pub shards: Arc<Shards<Broker>>,
    /// Has a line for each call.
    pub trace: Option<Trace>,
}

/// Makes a recorder for each thread of a server with this many worker slots.
pub fn recorders(
    reporter: &mut Reporter<Broker>,
    threads: usize,
    workers: u32,
) -> Vec<Recorder<Broker>> {
    let now = Instant::now();
    // The slots belong to no thread: the first recorder counts all of them.
    let slots = |index| if index == 0 { workers } else { 0 };
    knee_server::recorders(reporter, threads, |index| BrokerGauges::new(now, slots(index)))
}

/// Records the calls of a server.
#[derive(Debug)]
pub(super) struct Meter {
    started: Moment,
    telemetry: Telemetry,
}

/// A state of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Doing {
    /// It waits for a worker.
    Queueing,
    Working,
    /// It waits for a message.
    Awaiting,
}

impl Doing {
    fn level(self, gauges: &mut BrokerGauges) -> &mut Level {
        match self {
            Doing::Queueing => &mut gauges.middleware.queue_length,
            Doing::Working => &mut gauges.middleware.busy,
            Doing::Awaiting => &mut gauges.awaiting,
        }
    }
}

/// Counts a request in a state, until it is dropped.
#[derive(Debug)]
pub(super) struct Does<'a> {
    meter: &'a Meter,
    doing: Doing,
    /// When the state ended; `None` if it ends with the drop.
    until: Option<Instant>,
}

impl Drop for Does<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        self.meter.change(self.doing, self.until.unwrap_or(now), now, -1);
    }
}

impl Does<'_> {
    /// Ends the state at an earlier moment.
    pub(super) fn until(mut self, until: Instant) {
        self.until = Some(until);
    }
}

impl Meter {
    pub(super) fn new(telemetry: Telemetry) -> Meter {
        Meter { started: Moment::now(), telemetry }
    }

    /// Counts a request in a state from now on.
    pub(super) fn does(&self, doing: Doing) -> Does<'_> {
        self.does_from(Instant::now(), doing)
    }

    /// Counts a request in a state since `from`.
    pub(super) fn does_from(&self, from: Instant, doing: Doing) -> Does<'_> {
        self.change(doing, from, Instant::now(), 1);
        Does { meter: self, doing, until: None }
    }

    fn change(&self, doing: Doing, from: Instant, now: Instant, change: i64) {
        self.telemetry.shards.record(|recorder| {
            doing.level(&mut recorder.gauges).add_from(from, now, change);
        });
    }

    pub(super) fn call<Q: Question>(self: &Arc<Meter>, op: Op, request: Request<Q>) -> (Call, Q) {
        let (_, mut extensions, question) = request.into_parts();
        let share: Option<Arc<Share>> = extensions.remove();
        if let Some(share) = &share {
            share.metered();
        }
        let mut call = Call::begun(Arc::clone(self), op, Instant::now());
        call.bytes_in = question.encoded_len() as u64;
        call.traced = self.telemetry.trace.as_ref().map(|_| {
            let name = if op == Op::Other { Q::NAME } else { op.name() };
            format!("{name}{}", question.about())
        });
        call.share = share;
        (call, question)
    }

    /// Hands over the last records. The runtime's threads must have ended.
    pub(super) fn finish(&self) {
        self.telemetry.shards.finish();
    }
}

impl Unserved for Meter {
    fn unserved(self: Arc<Meter>, path: &str, received: Instant, code: Code) {
        let op = operation(path);
        let traced = self.telemetry.trace.as_ref().map(|_| format!("{} {path:?}", op.name()));
        let mut call = Call::begun(self, op, received);
        call.code = code;
        call.traced = traced;
    }
}

fn operation(path: &str) -> Op {
    match path.rsplit('/').next().unwrap_or_default() {
        "Send" => Op::Send,
        "ListQueues" => Op::ListQueues,
        "ReadAll" => Op::ReadAll,
        "ReadFrom" => Op::ReadFrom,
        "Remove" => Op::Remove,
        "Lease" => Op::Lease,
        "Acknowledge" => Op::Acknowledge,
        "Release" => Op::Release,
        "Extend" => Op::Extend,
        _ => Op::Other,
    }
}

/// A running call. The drop records it, as cancelled if it has no other status.
#[derive(Debug)]
pub(super) struct Call {
    meter: Arc<Meter>,
    op: Op,
    pub(super) received: Instant,
    times: BrokerTimes,
    /// When it got a worker.
    dequeued: Option<Instant>,
    /// Its progress in the database.
    stages: Stages,
    code: Code,
    messages: u32,
    bytes_in: u64,
    bytes_out: u64,
    traced: Option<String>,
    /// The memory that its messages take, if the server limits memory.
    share: Option<Arc<Share>>,
}

impl Call {
    fn begun(meter: Arc<Meter>, op: Op, received: Instant) -> Call {
        Call {
            meter,
            op,
            received,
            times: BrokerTimes::default(),
            dequeued: None,
            stages: Stages::default(),
            code: Code::Cancelled,
            messages: 0,
            bytes_in: 0,
            bytes_out: 0,
            traced: None,
            share: None,
        }
    }

    /// Records a wait for a worker, from `since` to `dequeued`.
    pub(super) fn dequeued(&mut self, since: Instant, dequeued: Instant) {
        self.times.queueing_ns += elapsed_ns(since, dequeued);
        self.dequeued = Some(dequeued);
        self.stages = Stages::default();
    }

    /// The database records the call's progress here. So the record survives a cancelled call.
    pub(super) fn stages(&mut self) -> &mut Stages {
        &mut self.stages
    }

    /// Records the time in the database: it has answered, or the call is cancelled.
    pub(super) fn was_answered(&mut self) {
        let Some(dequeued) = self.dequeued.take() else { return };
        let answered = self.stages.answered.unwrap_or_else(Instant::now);
        // Without a connection, the call waited for one all the time.
        let connected = self.stages.connected.unwrap_or(answered);
        self.times.connection_ns += elapsed_ns(dequeued, connected);
        self.times.service_ns += elapsed_ns(dequeued, answered);
    }

    /// Counts messages that the call sends or returns.
    pub(super) fn carries(&mut self, messages: usize) {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        self.messages = self.messages.saturating_add(messages);
    }

    /// Takes memory for a part of the answer; fails if none is left.
    pub(super) fn shows(&mut self, bytes: usize) -> Result<(), Status> {
        // Each call has taken this much from the start.
        if let Some(share) = &self.share
            && bytes > CALL_BYTES
        {
            share.take(bytes)?;
        }
        self.bytes_out += bytes as u64;
        Ok(())
    }

    /// Ends the call. Its answer may exceed the memory limit: removed messages exist nowhere else.
    pub(super) fn answered<A: Message>(
        mut self,
        outcome: Result<A, Status>,
    ) -> Result<Response<A>, Status> {
        self.ends(outcome.as_ref().err());
        let answer = outcome?;
        let bytes = answer.encoded_len();
        if let Some(share) = &self.share
            && bytes > CALL_BYTES
        {
            share.overdraw(bytes);
        }
        self.bytes_out += bytes as u64;
        Ok(Response::new(answer))
    }

    /// Ends the call with a status; without one, successfully, unless it has ended already.
    pub(super) fn ends(&mut self, status: Option<&Status>) {
        match status {
            Some(status) => self.code = status.code(),
            None if self.code == Code::Cancelled => self.code = Code::Ok,
            None => {}
        }
    }

    /// Whether the call may find no message.
    fn looks_for_messages(&self) -> bool {
        matches!(self.op, Op::ReadAll | Op::ReadFrom | Op::Remove | Op::Lease)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.was_answered();
        let now = Instant::now();
        self.times.response_ns = elapsed_ns(self.received, now);
        let has_looked = self.looks_for_messages() && self.code == Code::Ok;
        let sample = Sample {
            times: self.times,
            items: self.messages,
            hits: u32::from(has_looked && self.messages > 0),
            misses: u32::from(has_looked && self.messages == 0),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            error: self.code != Code::Ok,
        };
        let Meter { started, telemetry } = &*self.meter;
        telemetry.shards.record(|recorder| recorder.record(self.op, &sample));
        if let (Some(trace), Some(traced)) = (&telemetry.trace, &self.traced) {
            let received_us = started.unix_ns_at(self.received) / 1000;
            let BrokerTimes { queueing_ns, connection_ns, service_ns, response_ns } = self.times;
            let us = |ns: u64| ns as f64 / 1000.0;
            trace.tell(format_args!(
                "{traced} received={}.{:06} bytes_in={} bytes_out={} messages={} status={:?} \
                 queued={:.1}us connecting={:.1}us asking={:.1}us total={:.1}us",
                received_us / 1_000_000,
                received_us % 1_000_000,
                self.bytes_in,
                self.bytes_out,
                self.messages,
                self.code,
                us(queueing_ns),
                us(connection_ns),
                us(service_ns.saturating_sub(connection_ns)),
                us(response_ns),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use knee_testkit::Lines;

    use super::*;

    fn traced() -> (Arc<Meter>, Trace, Lines) {
        let lines = Lines::default();
        let trace = Trace::to_sink("test", lines.clone());
        let shards = Arc::new(Shards::new(1, Vec::new()));
        let meter = Meter::new(Telemetry { shards, trace: Some(trace.clone()) });
        (Arc::new(meter), trace, lines)
    }

    /// Times of a cancelled call in microseconds: the wait for a connection, and the time with it.
    fn cancelled(connected: impl FnOnce(Instant) -> Option<Instant>) -> (f64, f64) {
        let (meter, trace, lines) = traced();
        let since = Instant::now().checked_sub(Duration::from_millis(30)).expect("later than that");
        let mut call = Call::begun(meter, Op::Send, since);
        call.traced = Some("send".to_owned());
        call.dequeued = Some(since);
        call.stages().connected = connected(since);
        drop(call);
        trace.finish();
        let line = lines.text();
        let us = |name: &str| {
            let (_, rest) = line.split_once(name).expect("it is in the line");
            rest.split("us").next().and_then(|us| us.parse().ok()).expect("a number")
        };
        (us(" connecting="), us(" asking="))
    }

    #[test]
    fn cancelled_call_counts_its_time_with_a_connection() {
        let (connecting_us, asking_us) = cancelled(|_| None);
        assert!(connecting_us >= 30e3 && asking_us == 0.0, "{connecting_us} {asking_us}");
        let (connecting_us, asking_us) = cancelled(|since| Some(since + Duration::from_millis(20)));
        assert!(connecting_us == 20e3 && asking_us >= 10e3, "{connecting_us} {asking_us}");
    }

    #[test]
    fn refused_call_is_traced() {
        let (meter, trace, lines) = traced();
        let path = "/knee.queue.v1.Queue/ReadAll";
        meter.unserved(path, Instant::now(), Code::ResourceExhausted);
        trace.finish();
        let line = lines.text();
        assert!(line.starts_with(&format!("test: trace read_all {path:?} received=")), "{line}");
        assert!(line.contains(" status=ResourceExhausted "), "{line}");
    }
}
