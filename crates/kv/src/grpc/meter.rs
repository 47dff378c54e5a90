//! Records calls in the windows and the trace.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::Stream;
use knee_rpc::Message;
use knee_server::{CALL_BYTES, Shards, Share, Trace, Unserved, recorders};
use knee_telemetry::{
    Moment, Op, Recorder, Reporter, Sample, Store, StoreGauges, StoreTimes, elapsed_ns,
};
use tonic::{Code, Request, Response, Status};

use super::message::{Answer, Question};
use crate::trace::Traced;

/// The recorders and the trace of a server.
#[derive(Debug, Default)]
pub struct Telemetry {
    recorders: Vec<Recorder<Store>>,
    trace: Option<Trace>,
}

impl Telemetry {
    /// Windows of `reporter` for a server with `threads`, and a line of `trace` for each call.
    pub fn new(reporter: &mut Reporter<Store>, threads: usize, trace: Option<Trace>) -> Telemetry {
        let recorders = recorders(reporter, threads, |_| StoreGauges::default());
        Telemetry { recorders, trace }
    }
}

/// Records calls.
#[derive(Debug)]
pub(super) struct Meter {
    started: Moment,
    pub(super) shards: Arc<Shards<Store>>,
    trace: Option<Trace>,
}

impl Meter {
    pub(super) fn new(workers: usize, telemetry: Telemetry) -> Meter {
        let Telemetry { recorders, trace } = telemetry;
        Meter { started: Moment::now(), shards: Arc::new(Shards::new(workers, recorders)), trace }
    }

    pub(super) fn call<Q: Question>(self: &Arc<Meter>, op: Op, request: Request<Q>) -> (Call, Q) {
        let name = if op == Op::Other { Q::NAME } else { op.name() };
        let (_, mut extensions, question) = request.into_parts();
        let share: Option<Arc<Share>> = extensions.remove();
        if let Some(share) = &share {
            share.metered();
        }
        let call = Call {
            meter: Arc::clone(self),
            op,
            received: Instant::now(),
            code: Code::Cancelled,
            items: question.items(),
            found: Found::Unasked,
            bytes_in: question.encoded_len() as u64,
            bytes_out: 0,
            traced: self.trace.as_ref().map(|_| Traced::new(name, question.key())),
            share,
            answer_bytes: 0,
        };
        (call, question)
    }
}

impl Unserved for Meter {
    fn unserved(self: Arc<Meter>, path: &str, received: Instant, code: Code) {
        let op = operation(path);
        let traced = self.trace.as_ref().map(|_| Traced::new(op.name(), path.as_bytes()));
        drop(Call {
            meter: self,
            op,
            received,
            code,
            items: 0,
            found: Found::Unasked,
            bytes_in: 0,
            bytes_out: 0,
            traced,
            share: None,
            answer_bytes: 0,
        });
    }
}

fn operation(path: &str) -> Op {
    match path.rsplit('/').next().unwrap_or_default() {
        "Read" | "ReadAt" | "GetValue" => Op::Read,
        "Insert" => Op::Insert,
        "Update" => Op::Update,
        "Put" | "PutValue" => Op::Put,
        "Append" => Op::Append,
        "Delete" => Op::Delete,
        "BulkPut" => Op::BulkPut,
        "Scan" => Op::Scan,
        "AtomicScan" => Op::AtomicScan,
        _ => Op::Other,
    }
}

/// Whether the key existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Unasked,
    Hit,
    Miss,
}

/// A running call. Its drop records the call; without an answer, as cancelled.
#[derive(Debug)]
pub(super) struct Call {
    meter: Arc<Meter>,
    op: Op,
    received: Instant,
    code: Code,
    items: u32,
    found: Found,
    bytes_in: u64,
    bytes_out: u64,
    traced: Option<Traced>,
    /// The bytes of its messages; `None` in tests of handlers.
    share: Option<Arc<Share>>,
    /// Bytes of `share` that the answer has reserved so far.
    answer_bytes: usize,
}

impl Call {
    /// Reserves memory beyond the request's bytes.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Status> {
        self.share.as_ref().map_or(Ok(()), |share| share.take(bytes))
    }

    /// Reserves memory for an answer of `bytes`, less the bytes already reserved for the answer.
    pub(super) fn take_answer(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes > CALL_BYTES.max(self.answer_bytes) {
            self.take(bytes - self.answer_bytes)?;
            self.answer_bytes = bytes;
        }
        Ok(())
    }

    /// Copies a piece of a value into the answer, if memory is left. Returns whether to go on.
    pub(super) fn copy(&mut self, piece: &[u8], value: &mut Result<Vec<u8>, Status>) -> bool {
        if let Ok(copied) = value {
            match self.take_answer(copied.len() + piece.len()) {
                Ok(()) => copied.extend_from_slice(piece),
                Err(status) => *value = Err(status),
            }
        }
        value.is_ok()
    }

    /// The bytes of its messages, for work that outlives the call.
    pub(super) fn share(&self) -> Option<Arc<Share>> {
        self.share.clone()
    }

    pub(super) fn answered<A: Answer>(
        mut self,
        outcome: Result<A, Status>,
    ) -> Result<Response<A>, Status> {
        let outcome = outcome.and_then(|answer| {
            let bytes = answer.encoded_len();
            self.take_answer(bytes)?;
            Ok((answer, bytes))
        });
        match outcome {
            Ok((answer, bytes)) => {
                self.came_to(Code::Ok, bytes, answer.is_there());
                Ok(Response::new(answer))
            }
            Err(status) => Err(self.failed(status)),
        }
    }

    /// Ends the call with a reply that contains the code itself, and repeats the key, which may be large.
    pub(super) fn replied<R: Message>(
        mut self,
        code: Code,
        reply: R,
        is_there: bool,
    ) -> Result<Response<R>, Status> {
        let bytes = reply.encoded_len();
        match self.take_answer(bytes) {
            Ok(()) => {
                self.came_to(code, bytes, is_there);
                Ok(Response::new(reply))
            }
            Err(status) => Err(self.failed(status)),
        }
    }

    pub(super) fn failed(mut self, status: Status) -> Status {
        self.came_to(status.code(), 0, status.code() != Code::NotFound);
        status
    }

    /// Records the code, the answer's bytes, and whether the key existed.
    fn came_to(&mut self, code: Code, bytes_out: usize, is_there: bool) {
        self.code = code;
        self.bytes_out += bytes_out as u64;
        self.found = match self.op {
            Op::Read | Op::Delete if !is_there => Found::Miss,
            Op::Read | Op::Delete if code == Code::Ok => Found::Hit,
            _ if self.is_refused_write(code) => Found::Miss,
            _ => Found::Unasked,
        };
    }

    /// Whether the call is a write whose condition failed.
    fn is_refused_write(&self, code: Code) -> bool {
        use Op::{Append, BulkPut, Delete, Insert, Put, Update};
        matches!(self.op, Insert | Update | Put | Append | Delete | BulkPut)
            && matches!(code, Code::AlreadyExists | Code::NotFound | Code::Aborted)
    }

    /// Records the call at the end of its stream.
    pub(super) fn streamed<S>(self, stream: S) -> Counted<S> {
        Counted { stream, call: self }
    }

    /// A failed condition counts as a miss, not an error, as in memcached. If a client leaves a watch, a history or a
    /// load, this is no error either.
    fn is_error(&self) -> bool {
        let left_early = self.code == Code::Cancelled && self.op == Op::Other;
        self.code != Code::Ok && self.found != Found::Miss && !left_early
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let service_ns = elapsed_ns(self.received, Instant::now());
        let meter = &self.meter;
        let received_unix_ns = meter.started.unix_ns_at(self.received);
        let sample = Sample {
            times: StoreTimes { service_ns },
            items: self.items,
            hits: u32::from(self.found == Found::Hit),
            misses: u32::from(self.found == Found::Miss),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            error: self.is_error(),
        };
        meter.shards.record(|recorder| {
            // Calls such as `Stats` do not count as load.
            if self.op != Op::Other {
                recorder.gauges.requested(received_unix_ns);
            }
            recorder.record(self.op, &sample);
        });
        if let (Some(trace), Some(traced)) = (&meter.trace, &self.traced) {
            traced.write(trace, received_unix_ns, &sample, &format_args!("{:?}", self.code));
        }
    }
}

/// A stream, recorded as one call at its end, with the entries that the client received.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    call: Call,
}

impl<A: Answer, S: Stream<Item = Result<A, Status>> + Unpin> Stream for Counted<S> {
    type Item = Result<A, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<A, Status>>> {
        let next = Pin::new(&mut self.stream).poll_next(context);
        let call = &mut self.call;
        match &next {
            Poll::Ready(Some(Ok(answer))) => {
                call.items = call.items.saturating_add(answer.entries());
                call.bytes_out += answer.encoded_len() as u64;
            }
            Poll::Ready(Some(Err(status))) => call.code = status.code(),
            Poll::Ready(None) if call.code == Code::Cancelled => call.code = Code::Ok,
            Poll::Ready(None) | Poll::Pending => {}
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use knee_rpc::kv::ReadRequest;
    use knee_server::Budget;

    use super::*;

    #[test]
    fn value_takes_room_once_before_it_is_copied() {
        let meter = Arc::new(Meter::new(1, Telemetry::default()));
        let budget = Budget::new(400 << 10, "--grpc-memory-mb");
        let share = Arc::new(budget.share());
        let mut request = Request::new(ReadRequest::default());
        request.extensions_mut().insert(Arc::clone(&share));
        let (mut call, _) = meter.call(Op::Read, request);
        let mut value = Ok(Vec::new());
        assert!(call.copy(&[1; 10 << 10], &mut value), "a small answer fits");
        assert!(call.copy(&[2; 90 << 10], &mut value));
        // The answer reserves the same bytes, and 50 more.
        call.take_answer((100 << 10) + 50).expect("most of the bytes are reserved");
        assert_eq!(value.as_ref().map(Vec::len).ok(), Some(100 << 10));
        share.take((100 << 10) - 50).expect("no byte is reserved twice");
        assert!(!call.copy(&[3; 110 << 10], &mut value));
        assert_eq!(value.expect_err("no memory is left").code(), Code::ResourceExhausted);
    }
}
