//! Totals as Prometheus text, exposition format 0.0.4.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use crate::clock::NS_PER_S;
use crate::metric::{Metric, metrics};
use crate::requests::Counts;
use crate::role::{Reading as _, Role};
use crate::stage::Times as _;
use crate::totals::Totals;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the histogram buckets in nanoseconds, with their `le` label in seconds. On one machine, a cache tier
/// answers within 50 µs. Behind a saturated link, it answers within 10 s, or never.
const BOUNDS: [(u64, &str); 19] = [
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

pub(crate) fn page<R: Role>(totals: &Totals<R>) -> String {
    let mut page = Page { role: R::NAME, text: String::new() };
    requests(&mut page, totals);
    histograms(&mut page, totals);
    let mut others = metrics! {
        gauge "knee_connections" "Connections open." = totals.connections() as f64;
    };
    others.extend(metrics! {
        for thread in totals.threads, "thread" = thread.name.clone();
        counter "knee_thread_cpu_seconds_total" "CPU time that the thread used, user and system." = thread.cpu.as_secs_f64();
    });
    others.extend(totals.reading().iter().flat_map(|reading| reading.metrics()));
    others.iter().for_each(|metric| page.metric(metric));
    page.text
}

fn requests<R: Role>(page: &mut Page, totals: &Totals<R>) {
    type Field = fn(&Counts) -> u64;
    let families: [(&'static str, &'static str, Field); 7] = [
        ("knee_requests_total", "Requests completed.", |c| c.count),
        ("knee_errors_total", "Requests answered with an error line.", |c| c.errors),
        ("knee_keys_total", "Keys asked for.", |c| c.items),
        ("knee_hits_total", "Keys found.", |c| c.hits),
        ("knee_misses_total", "Keys not found.", |c| c.misses),
        ("knee_bytes_received_total", "Bytes read for completed requests.", |c| c.bytes_in),
        ("knee_bytes_sent_total", "Bytes written for completed requests.", |c| c.bytes_out),
    ];
    for (name, help, field) in families {
        let samples = totals
            .ops()
            .map(|(op, total)| (op.name().to_owned(), field(&total.counts) as f64))
            .collect();
        page.metric(&Metric::counter(name, help, 0.0).by("op", samples));
    }
}

/// One histogram family per stage, by type.
fn histograms<R: Role>(page: &mut Page, totals: &Totals<R>) {
    for (position, stage) in R::Times::STAGES.iter().enumerate() {
        let name = format!("knee_{}_seconds", stage.name());
        let help = format!("The {} time of completed requests.", stage.name());
        page.header(&name, "histogram", &help);
        for (op, total) in totals.ops() {
            let histogram = &total.histograms[position];
            let sum_s = total.sums_ns[position] as f64 / NS_PER_S as f64;
            page.histogram(&name, op.name(), histogram, sum_s);
        }
    }
}

struct Page {
    role: &'static str,
    text: String,
}

impl Page {
    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("writing to memory does not fail");
    }

    fn header(&mut self, name: &str, kind: &str, help: &str) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn metric(&mut self, metric: &Metric) {
        let (name, role) = (metric.name, self.role);
        self.header(name, metric.kind, metric.help);
        for (label_value, value) in &metric.samples {
            match metric.label {
                Some(label) => {
                    let label_value = escape(label_value);
                    self.push(format_args!(
                        "{name}{{role=\"{role}\",{label}=\"{label_value}\"}} {value}\n"
                    ));
                }
                None => self.push(format_args!("{name}{{role=\"{role}\"}} {value}\n")),
            }
        }
    }

    /// Prints cumulative buckets. The upper edge of a histogram's cell decides its bucket. So a value less than 0.1 %
    /// below a bound may count above it.
    fn histogram(&mut self, name: &str, op: &str, histogram: &Histogram<u64>, sum_s: f64) {
        let labels = format!("role=\"{}\",op=\"{op}\"", self.role);
        let mut cells = histogram.iter_recorded().peekable();
        let mut below = 0;
        for (bound_ns, le) in BOUNDS {
            while let Some(cell) = cells.next_if(|cell| cell.value_iterated_to() <= bound_ns) {
                below += cell.count_at_value();
            }
            self.push(format_args!("{name}_bucket{{{labels},le=\"{le}\"}} {below}\n"));
        }
        let count = histogram.len();
        self.push(format_args!(
            "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n\
             {name}_sum{{{labels}}} {sum_s}\n\
             {name}_count{{{labels}}} {count}\n"
        ));
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
