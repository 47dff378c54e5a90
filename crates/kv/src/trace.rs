//! `--trace`: the line of a request.

use std::fmt;

use knee_server::Trace;
use knee_telemetry::{Sample, StoreTimes};

/// Longest shown key or command line, in bytes; the rest is cut.
const SHOWN_BYTES_MAX: usize = 120;

/// The part of a request's trace line that is known before the answer.
#[derive(Debug)]
pub(crate) struct Traced {
    name: &'static str,
    shown: String,
}

impl Traced {
    /// An operation, and its key or command line.
    pub(crate) fn new(name: &'static str, shown: &[u8]) -> Traced {
        let shown = &shown[..shown.len().min(SHOWN_BYTES_MAX)];
        Traced { name, shown: String::from_utf8_lossy(shown).into_owned() }
    }

    /// Writes the line of a request that arrived at `received_unix_ns` and ended with `status`.
    pub(crate) fn write(
        &self,
        trace: &Trace,
        received_unix_ns: u64,
        sample: &Sample<StoreTimes>,
        status: &dyn fmt::Display,
    ) {
        let Traced { name, shown } = self;
        let received_us = received_unix_ns / 1000;
        trace.tell(format_args!(
            "{name} {shown:?} received={}.{:06} bytes_in={} bytes_out={} status={status} \
             total={:.1}us",
            received_us / 1_000_000,
            received_us % 1_000_000,
            sample.bytes_in,
            sample.bytes_out,
            sample.times.service_ns as f64 / 1000.0,
        ));
    }
}

#[cfg(test)]
mod tests {
    use knee_testkit::Lines;

    use super::*;

    #[test]
    fn key_with_newline_is_traced_on_one_line() {
        let lines = Lines::default();
        let trace = Trace::to_sink("test", lines.clone());
        let times = StoreTimes { service_ns: 85_120 };
        let sample = Sample { times, bytes_in: 3, bytes_out: 4, ..Sample::default() };
        let traced = Traced::new("put", "k\n\u{e9}".as_bytes());
        traced.write(&trace, 1_700_000_000_000_012_345, &sample, &"Ok");
        let line = "test: trace put \"k\\n\u{e9}\" received=1700000000.000012 bytes_in=3 bytes_out=4 \
                    status=Ok total=85.1us\n";
        trace.finish();
        assert_eq!(lines.text(), line);
    }
}
