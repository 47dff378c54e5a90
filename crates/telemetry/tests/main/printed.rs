//! A reporter that prints to memory, and parsers of its output.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use knee_telemetry::{Moment, Reporter, Role, Stats};
use knee_testkit::Lines;
use serde_json::Value;

/// The beginning of every test's time, 1,700,000,000.25 s.
#[derive(Clone, Copy)]
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn at(self, ms: u64) -> Moment {
        Moment {
            unix_ns: (1_700_000_000_250 + ms) * 1_000_000,
            mono: self.0 + Duration::from_millis(ms),
        }
    }
}

pub(crate) fn reporter<R: Role>(stats: Stats) -> (Reporter<R>, Lines, Clock) {
    let sink = Lines::default();
    let reporter = Reporter::to_sink("test", stats, Box::new(sink.clone()));
    (reporter, sink, Clock(Instant::now()))
}

pub(crate) fn json_lines(sink: &Lines) -> Vec<Value> {
    sink.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn decode(text: &Value) -> Histogram<u64> {
    decode_text(text.as_str().unwrap())
}

pub(crate) fn decode_text(text: &str) -> Histogram<u64> {
    let bytes = BASE64.decode(text).unwrap();
    Deserializer::new().deserialize(&mut Cursor::new(bytes)).unwrap()
}

pub(crate) fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}
