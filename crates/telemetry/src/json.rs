//! The JSON lines of `docs/formats.md`.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::{Counter, Histogram};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use crate::collate::Second;
use crate::histogram::{HIGHEST_NS, encode};
use crate::op::Op;
use crate::requests::Counts;
use crate::role::{Reading as _, Role};
use crate::server_counts::ServerCounts;
use crate::stage::{STAGES_MAX, Times as _};
use crate::totals::Totals;

/// The `ready` line: the program serves at these addresses.
#[derive(Debug, Serialize)]
pub(crate) struct ReadyLine {
    pub(crate) r#type: &'static str,
    pub(crate) role: &'static str,
    pub(crate) program: &'static str,
    pub(crate) version: &'static str,
    pub(crate) pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grpc: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin: Option<SocketAddr>,
}

#[derive(Serialize)]
struct WindowLine<'a, R: Role> {
    r#type: &'static str,
    role: &'static str,
    second: u64,
    seconds: f64,
    ops: Ops,
    #[serde(flatten)]
    reading: &'a R::Reading,
    threads: Vec<Thread<'a>>,
    connections: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<&'a [ServerCounts]>,
}

#[derive(Serialize)]
struct SummaryLine<'a, R: Role> {
    r#type: &'static str,
    role: &'static str,
    started_unix_s: f64,
    ended_unix_s: f64,
    seconds: f64,
    ops: Ops,
    #[serde(flatten)]
    reading: Option<&'a R::Reading>,
    threads: Vec<Thread<'a>>,
    connections: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<&'a [ServerCounts]>,
    #[serde(flatten)]
    closing: &'a R::Closing,
    histograms: Vec<HistogramLine>,
}

#[derive(Serialize)]
struct Thread<'a> {
    name: &'a str,
    cpu_s: f64,
}

/// The types that occurred, as a map from name to fields.
struct Ops(Vec<(Op, OpFields)>);

impl Serialize for Ops {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(op, fields)| (op.name(), fields)))
    }
}

struct OpFields {
    counts: Counts,
    /// Names and sums of the stages that the role times.
    sums_ns: Vec<(&'static str, u64)>,
    /// The headline stage's histogram.
    response: String,
}

impl OpFields {
    fn new<R: Role, C: Counter>(
        counts: Counts,
        sums_ns: [u64; STAGES_MAX],
        histograms: &[Histogram<C>],
        serializer: &mut V2DeflateSerializer,
    ) -> OpFields {
        OpFields {
            counts,
            sums_ns: R::Times::STAGES.iter().map(|stage| stage.sum_field()).zip(sums_ns).collect(),
            response: histograms
                .last()
                .map_or_else(String::new, |histogram| encode(serializer, histogram)),
        }
    }
}

impl Serialize for OpFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let counts = [
            ("count", self.counts.count),
            ("errors", self.counts.errors),
            ("items", self.counts.items),
            ("hits", self.counts.hits),
            ("misses", self.counts.misses),
            ("bytes_in", self.counts.bytes_in),
            ("bytes_out", self.counts.bytes_out),
        ];
        for (name, value) in counts.iter().chain(&self.sums_ns) {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("response", &self.response)?;
        map.end()
    }
}

#[derive(Serialize)]
struct HistogramLine {
    op: &'static str,
    stage: &'static str,
    unit: &'static str,
    count: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p95: u64,
    p99: u64,
    p999: u64,
    max: u64,
    hdr: String,
}

impl HistogramLine {
    fn new(
        op: Op,
        stage: &'static str,
        histogram: &Histogram<u64>,
        sum_ns: u64,
        serializer: &mut V2DeflateSerializer,
    ) -> HistogramLine {
        // A cell's upper edge can lie beyond the highest value that is ever counted.
        let quantile = |q| histogram.value_at_quantile(q).min(HIGHEST_NS);
        HistogramLine {
            op: op.name(),
            stage,
            unit: "ns",
            count: histogram.len(),
            mean: sum_ns as f64 / histogram.len() as f64,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: quantile(1.0),
            hdr: encode(serializer, histogram),
        }
    }
}

/// One second of the process as a line, without its line feed.
pub(crate) fn window_line<R: Role>(
    second: &Second<R>,
    thread_names: &[String],
    serializer: &mut V2DeflateSerializer,
) -> String {
    let ops = second
        .ops()
        .map(|(op, window)| {
            let fields = OpFields::new::<R, _>(
                window.counts,
                window.sums_ns,
                &window.histograms,
                serializer,
            );
            (op, fields)
        })
        .collect();
    line(&WindowLine::<R> {
        r#type: "window",
        role: R::NAME,
        second: second.second,
        seconds: second.seconds,
        ops: Ops(ops),
        reading: &second.reading,
        threads: second
            .cpu
            .iter()
            .map(|(thread, cpu)| named(&thread_names[*thread], *cpu))
            .collect(),
        connections: second.connections,
        servers: second.reading.servers(),
    })
}

/// The whole life of the process as a line, without its line feed.
pub(crate) fn summary_line<R: Role>(totals: &Totals<R>, closing: &R::Closing) -> String {
    let mut serializer = V2DeflateSerializer::new();
    let mut ops = Vec::new();
    let mut histograms = Vec::new();
    for (op, total) in totals.ops() {
        let fields =
            OpFields::new::<R, _>(total.counts, total.sums_ns, &total.histograms, &mut serializer);
        ops.push((op, fields));
        for ((stage, histogram), sum_ns) in
            R::Times::STAGES.iter().zip(&total.histograms).zip(total.sums_ns)
        {
            let name = stage.name();
            histograms.push(HistogramLine::new(op, name, histogram, sum_ns, &mut serializer));
        }
    }
    let reading = totals.reading();
    line(&SummaryLine::<R> {
        r#type: "summary",
        role: R::NAME,
        started_unix_s: totals.started_unix_s(),
        ended_unix_s: totals.ended_unix_s(),
        seconds: totals.seconds(),
        ops: Ops(ops),
        reading: reading.as_ref(),
        threads: totals.cpu().map(|(name, cpu)| named(name, cpu)).collect(),
        connections: totals.connections(),
        servers: reading.as_ref().and_then(|reading| reading.servers()),
        closing,
        histograms,
    })
}

fn named(name: &str, cpu: Duration) -> Thread<'_> {
    Thread { name, cpu_s: cpu.as_secs_f64() }
}

pub(crate) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("keys are strings, and writing to memory does not fail")
}
