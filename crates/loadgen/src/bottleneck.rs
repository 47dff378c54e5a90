//! Whether the load generator itself was the bottleneck.

use knee_telemetry::{Bottleneck, BottleneckReason, Load, Totals};

/// A thread that uses at least this share of a processor, averaged over the run, counts as saturated.
const CPU_SHARE_MAX: f64 = 0.9;

/// With a larger share of late sends, the 99th percentile of all sends is late.
const LATE_SHARE_MAX: f64 = 0.01;

/// Finds out whether the load generator was the bottleneck: a thread was saturated, or sends were late.
/// `own_late_sends` of the `timed_sends` were late although a connection had room.
pub(crate) fn find(
    totals: &Totals<Load>,
    timed_sends: u64,
    own_late_sends: u64,
) -> Option<Bottleneck> {
    let busiest = totals
        .cpu()
        .map(|(name, cpu)| (name, cpu.as_secs_f64() / totals.seconds()))
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    if let Some((name, share)) = busiest.filter(|(_, share)| *share >= CPU_SHARE_MAX) {
        return Some(Bottleneck {
            reason: BottleneckReason::Cpu,
            detail: format!(
                "thread {name} used {:.0} % of a processor; use more --threads, or more hosts",
                share * 100.0
            ),
        });
    }
    let share = own_late_sends as f64 / timed_sends.max(1) as f64;
    (share > LATE_SHARE_MAX).then(|| Bottleneck {
        reason: BottleneckReason::Late,
        detail: format!(
            "{:.1} % of the sends went out more than 1 ms after they were due although their \
             connections had room: this process waited for a processor",
            share * 100.0
        ),
    })
}
