//! The records of answered requests of one thread.

use std::time::Instant;

use knee_telemetry::{Middleware, Moment, Recorder, Sample, Stamps};

use crate::trace::Trace;

/// An answered request, for the statistics.
pub(crate) struct Settled {
    pub(crate) op: knee_telemetry::Op,
    pub(crate) received: Instant,
    pub(crate) dequeued: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    pub(crate) items: u32,
    pub(crate) hits: u32,
    pub(crate) misses: u32,
    pub(crate) bytes_in: u32,
    pub(crate) bytes_out: usize,
    pub(crate) error: bool,
    pub(crate) trace: Option<Box<Trace>>,
}

/// A thread's recorder, and the requests of this batch that are not yet recorded.
pub(crate) struct Ledger {
    /// `None` once the thread has ended.
    recorder: Option<Recorder<Middleware>>,
    settled: Vec<Settled>,
}

impl Ledger {
    pub(crate) fn new(recorder: Recorder<Middleware>) -> Ledger {
        Ledger { recorder: Some(recorder), settled: Vec::new() }
    }

    pub(crate) fn recorder(&mut self) -> Option<&mut Recorder<Middleware>> {
        self.recorder.as_mut()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty()
    }

    /// Adds a request whose reply leaves with this batch.
    pub(crate) fn enter(&mut self, settled: Settled) {
        self.settled.push(settled);
    }

    /// Records the added requests, whose replies left at `replied`.
    pub(crate) fn record(&mut self, replied: Instant) {
        let Some(recorder) = &mut self.recorder else { return };
        for settled in self.settled.drain(..) {
            let stamps = Stamps {
                received: settled.received,
                dequeued: settled.dequeued,
                sent: settled.sent,
                answered: settled.answered,
                replied,
            };
            if let Some(trace) = &settled.trace {
                trace.print(&stamps, settled.error);
            }
            recorder.record(
                settled.op,
                &Sample {
                    times: stamps.times(),
                    items: settled.items,
                    hits: settled.hits,
                    misses: settled.misses,
                    bytes_in: settled.bytes_in.into(),
                    bytes_out: settled.bytes_out as u64,
                    error: settled.error,
                },
            );
        }
    }

    /// Records the remaining requests, and ends the recorder.
    pub(crate) fn finish(&mut self) {
        self.record(Instant::now());
        if let Some(recorder) = self.recorder.take() {
            recorder.finish(Moment::now());
        }
    }
}
