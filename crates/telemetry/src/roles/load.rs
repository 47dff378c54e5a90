//! Gauges and counters of a load generator.

use std::time::Instant;

use serde::Serialize;

use crate::metric::{Metric, metrics};
use crate::role::{Gauges, Reading, Role};
use crate::stage::LoadTimes;

/// `knee-load`.
#[derive(Clone, Copy, Debug)]
pub struct Load;

impl Role for Load {
    const NAME: &'static str = "load";
    type Times = LoadTimes;
    type Gauges = LoadGauges;
    type Reading = LoadGauges;
    type Closing = LoadClosing;
}

/// A send later than this after its intended time counts as late.
pub const LATE_NS: u64 = 1_000_000;

/// Gauges and counters of a load generator's thread.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct LoadGauges {
    /// Sends more than [`LATE_NS`] after their intended time (open loop).
    pub late_sends: u64,
    /// The delay of the latest send after its intended time, in nanoseconds.
    pub late_max_ns: u64,
    /// Values that differ from the key's expected value.
    pub wrong_values: u64,
    /// Connections that were lost, whether or not they were opened again.
    pub losses: u64,
    /// Connections opened again after they had been lost.
    pub reconnects: u64,
    /// Connections that were cut: lost with a request in flight, or not opened again at the first try.
    pub cut: u64,
    /// Connections that were cut and are not open again yet.
    pub missing: u64,
    /// Requests that will have no answer.
    pub unanswered: u64,
    /// Requests sent and not yet answered.
    pub in_flight: u64,
    /// Think times begun (closed loop with thinking).
    pub thinks: u64,
    /// The sum of all think times.
    pub think_sum_ns: u64,
}

impl LoadGauges {
    /// Records that a client thinks for `think_ns` before its next request.
    #[inline]
    pub fn thought(&mut self, think_ns: u64) {
        self.thinks += 1;
        self.think_sum_ns += think_ns;
    }

    /// Records a send `late_ns` after its intended time.
    #[inline]
    pub fn sent(&mut self, late_ns: u64) {
        self.late_sends += u64::from(late_ns > LATE_NS);
        self.late_max_ns = self.late_max_ns.max(late_ns);
    }
}

impl Gauges for LoadGauges {
    type Reading = LoadGauges;

    fn read(&mut self, _now: Instant) -> LoadGauges {
        let reading = *self;
        let LoadGauges { in_flight, missing, .. } = *self;
        *self = LoadGauges { in_flight, missing, ..LoadGauges::default() };
        reading
    }
}

impl Reading for LoadGauges {
    fn then(&mut self, later: &LoadGauges) {
        let LoadGauges { in_flight, missing, .. } = *later;
        self.beside(later);
        (self.in_flight, self.missing) = (in_flight, missing);
    }

    fn beside(&mut self, other: &LoadGauges) {
        self.late_sends += other.late_sends;
        self.late_max_ns = self.late_max_ns.max(other.late_max_ns);
        self.wrong_values += other.wrong_values;
        self.losses += other.losses;
        self.reconnects += other.reconnects;
        self.cut += other.cut;
        self.missing += other.missing;
        self.unanswered += other.unanswered;
        self.in_flight += other.in_flight;
        self.thinks += other.thinks;
        self.think_sum_ns += other.think_sum_ns;
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics! {
            counter "knee_late_sends_total" "Sends more than 1 ms after their intended time." = self.late_sends as f64;
            counter "knee_wrong_values_total" "Values that differ from the key's expected value." = self.wrong_values as f64;
            counter "knee_losses_total" "Connections that were lost, whether or not they were opened again." = self.losses as f64;
            counter "knee_reconnects_total" "Connections opened again after they had been lost." = self.reconnects as f64;
            gauge "knee_requests_in_flight" "Requests sent and not yet answered." = self.in_flight as f64;
        }
    }
}

/// A load generator's own fields of the summary.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct LoadClosing {
    /// Virtual clients.
    pub clients: u64,
    /// Why the load generator limited the measurement; `None` if it did not.
    pub bottleneck: Option<Bottleneck>,
    /// Whether a signal ended the run early; left out if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Requests of an open loop that were due but never sent. Until the end, no connection had room for another
    /// request.
    pub unsent: u64,
}

/// Why a load generator was itself the bottleneck.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Bottleneck {
    /// The missing resource.
    pub reason: BottleneckReason,
    /// The evidence, for a human reader.
    pub detail: String,
}

/// The resource that a load generator lacked.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum BottleneckReason {
    /// A thread used (nearly) all of its processor.
    Cpu,
    /// Sends went out later than intended.
    Late,
}
