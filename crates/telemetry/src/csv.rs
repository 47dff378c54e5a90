//! The CSV of the middleware from which Knee grew: one row per second, and the response-time histograms at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::collate::Second;
use crate::op::Op;
use crate::role::{Reading as _, Role};
use crate::stage::{Stage, Times as _};
use crate::totals::Totals;

/// The columns, with the names of that middleware's report (2018, table 1).
pub(crate) const HEADER: &str = "secs,qlen,thru,msrt,items,nset,nget,nmget,sqt,gqt,mqt,swt,gwt,mwt";

/// Width of the histograms' bins: 0.1 ms.
const BIN_NS: u64 = 100_000;

const COLUMNS: [Op; 3] = [Op::Set, Op::Get, Op::Multiget];

/// Prints seconds as rows, from the first request on.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    first_second: Option<u64>,
}

impl Rows {
    /// The row of one second, without its line feed; `None` as long as no request came.
    pub(crate) fn row<R: Role>(&mut self, second: &Second<R>) -> Option<String> {
        if second.ops().next().is_some() {
            self.first_second.get_or_insert(second.second);
        }
        let secs = second.second - self.first_second?;

        let mut requests = 0;
        let (mut items, mut hits, mut misses) = (0, 0, 0);
        for (op, window) in second.ops() {
            requests += window.counts.count;
            if matches!(op, Op::Get | Op::Multiget) {
                items += window.counts.items;
                hits += window.counts.hits;
                misses += window.counts.misses;
            }
        }
        let throughput = ratio(requests as f64, second.seconds);
        let miss_rate = ratio(misses as f64, (hits + misses) as f64);
        let queue_length = second.reading.queue_length_mean();
        let mut row = format!("{secs},{queue_length:.3},{throughput:.3},{miss_rate:.7},{items}");

        let columns = COLUMNS.map(|op| second.ops[op as usize].as_ref());
        for window in columns {
            let count = window.map_or(0, |window| window.counts.count);
            write!(row, ",{count}").expect("writing to memory does not fail");
        }
        for stage in [Stage::Queueing, Stage::Service] {
            let position = R::Times::STAGES.iter().position(|s| *s == stage);
            for window in columns {
                let mean_ms = match (window, position) {
                    (Some(window), Some(position)) => {
                        ratio(window.sums_ns[position] as f64, window.counts.count as f64) / 1e6
                    }
                    _ => 0.0,
                };
                write!(row, ",{mean_ms:.6}").expect("writing to memory does not fail");
            }
        }
        Some(row)
    }
}

fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

/// The histograms of the role's headline stage: `# histogram set`, then `upper_ms,count` rows for
/// the bins that are not empty.
pub(crate) fn histogram_lines<R: Role>(totals: &Totals<R>) -> Vec<String> {
    let mut lines = Vec::new();
    for (op, total) in totals.ops() {
        let Some(histogram) = total.histograms.last() else {
            continue;
        };
        let mut bins = BTreeMap::new();
        for cell in histogram.iter_recorded() {
            // A cell may straddle the edge of a bin: then its middle decides.
            let middle = histogram.median_equivalent(cell.value_iterated_to());
            *bins.entry(middle / BIN_NS).or_insert(0) += cell.count_at_value();
        }
        lines.push(format!("# histogram {}", op.name()));
        for (bin, count) in bins {
            let upper_tenths_ms = bin + 1;
            lines.push(format!("{}.{},{count}", upper_tenths_ms / 10, upper_tenths_ms % 10));
        }
    }
    lines
}
