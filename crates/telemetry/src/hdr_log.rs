//! The HdrHistogram interval log, which the tools of that project read and plot.
//!
//! One line per second and type of request: `Tag=OP,START,LENGTH,MAX,HISTOGRAM`. The start is in seconds of the Unix
//! epoch, the length in seconds, the maximum in milliseconds. The histogram is in nanoseconds, as V2-deflate in base64.
//! This is format version 1.3, as HdrHistogram's Java `HistogramLogWriter` writes it.

use hdrhistogram::serialization::V2DeflateSerializer;

use crate::clock::NS_PER_S;
use crate::collate::Second;
use crate::histogram::{HIGHEST_NS, encode};
use crate::output::Output;
use crate::role::Role;

/// Writes the histograms of the role's headline stage.
#[derive(Debug)]
pub(crate) struct HdrLog {
    output: Output,
    begun: bool,
}

impl HdrLog {
    pub(crate) fn new(output: Output) -> HdrLog {
        HdrLog { output, begun: false }
    }

    /// Appends one second, after the header if it is the first one.
    pub(crate) fn second<R: Role>(
        &mut self,
        second: &Second<R>,
        serializer: &mut V2DeflateSerializer,
    ) {
        let start_s = second.from_unix_ns as f64 / NS_PER_S as f64;
        if !self.begun {
            self.begin(start_s);
            self.begun = true;
        }
        for (op, window) in second.ops() {
            let Some(histogram) = window.histograms.last() else {
                continue;
            };
            let max_ms = histogram.max().min(HIGHEST_NS) as f64 / 1e6;
            self.output.line(&format!(
                "Tag={},{start_s:.3},{:.3},{max_ms:.3},{}",
                op.name(),
                second.seconds,
                encode(serializer, histogram)
            ));
        }
    }

    fn begin(&mut self, start_s: f64) {
        self.output.line("#[Histogram log format version 1.3]");
        self.output.line(&format!("#[StartTime: {start_s:.3} (seconds since epoch)]"));
        self.output.line(
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
             \"Interval_Compressed_Histogram\"",
        );
    }
}
