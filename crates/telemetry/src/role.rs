//! The trait of a process's role, for the modules that record, merge and print.

use std::fmt::Debug;
use std::time::Instant;

use serde::Serialize;

use crate::metric::Metric;
use crate::server_counts::ServerCounts;
use crate::stage::Times;

/// The role of a process in the system. It decides at compile time which fields the process's windows have.
pub trait Role: Copy + Debug + 'static {
    /// The role's name in the output.
    const NAME: &'static str;
    /// The times of a request.
    type Times: Times + Debug + Send;
    /// A thread's gauges and counters.
    type Gauges: Gauges<Reading = Self::Reading> + Debug + Send;
    /// The values of those gauges over a window.
    type Reading: Reading;
    /// The program's own fields of the summary.
    type Closing: Serialize;
}

/// A thread's gauges and counters, updated in place.
pub trait Gauges {
    /// The values over a window.
    type Reading;

    /// Ends a window at `now`: levels continue, counters restart at 0.
    fn read(&mut self, now: Instant) -> Self::Reading;
}

/// The values of gauges over a window, which serialise to fields of a window's line.
pub trait Reading: Clone + Debug + Send + Serialize {
    /// Adds a later window of the same thread: counters add up, and the later levels replace the earlier ones.
    fn then(&mut self, later: &Self);

    /// Adds another thread's window over the same time: counters and levels add up.
    fn beside(&mut self, other: &Self);

    /// The time average of the queue's length; 0 for a role without a queue.
    fn queue_length_mean(&self) -> f64 {
        0.0
    }

    /// The servers behind this process, if its role has any.
    fn servers(&self) -> Option<&[ServerCounts]> {
        None
    }

    /// The values as metrics for Prometheus.
    fn metrics(&self) -> Vec<Metric>;
}
