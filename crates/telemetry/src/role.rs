//! What a role of a process is, for the modules that record, merge and print.

use std::fmt::Debug;
use std::time::Instant;

use serde::Serialize;

use crate::metric::Metric;
use crate::server_counts::ServerCounts;
use crate::stage::Times;

/// What a process does in the system. The role decides at compile time which fields its windows
/// have.
pub trait Role: Copy + Debug + 'static {
    /// The role's name in the output.
    const NAME: &'static str;
    /// What it times of a request.
    type Times: Times + Debug + Send;
    /// What a thread keeps besides its requests.
    type Gauges: Gauges<Reading = Self::Reading> + Debug + Send;
    /// What those gauges said over a window.
    type Reading: Reading;
    /// What the program adds to the summary.
    type Closing: Serialize;
}

/// A thread's gauges and counters, updated in place.
pub trait Gauges {
    /// What they say over a window.
    type Reading;

    /// Ends a window at `now`: levels go on, counters start again at 0.
    fn read(&mut self, now: Instant) -> Self::Reading;
}

/// What gauges said over a window; serialised, the fields of a window's line.
pub trait Reading: Clone + Debug + Send + Serialize {
    /// Takes in a later window of the same thread: counters add up, levels are the later ones.
    fn then(&mut self, later: &Self);

    /// Takes in another thread's window over the same time: everything adds up.
    fn beside(&mut self, other: &Self);

    /// The time average of the queue's length; 0 for a role without a queue.
    fn queue_length_mean(&self) -> f64 {
        0.0
    }

    /// The servers behind this process, if its role has any: they are in the summary only.
    fn servers(&self) -> Option<&[ServerCounts]> {
        None
    }

    /// The same for Prometheus.
    fn metrics(&self) -> Vec<Metric>;
}
