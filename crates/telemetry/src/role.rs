//! The roles, and what each keeps besides its requests.

mod broker;
mod store;

use std::fmt::Debug;
use std::time::Instant;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use crate::level::{Level, LevelReading};
use crate::prometheus::{Metric, MetricKind};
use crate::stage::{LoadTimes, MiddlewareTimes, StoreTimes, Times};

pub use broker::{Broker, BrokerGauges, BrokerReading};
pub use store::{RequestSpan, StoreGauges, VersionGauges};

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

/// `knee-proxy`.
#[derive(Clone, Copy, Debug)]
pub struct Middleware;

impl Role for Middleware {
    const NAME: &'static str = "middleware";
    type Times = MiddlewareTimes;
    type Gauges = MiddlewareGauges;
    type Reading = MiddlewareReading;
    type Closing = ();
}

/// `knee-kv` and other stores.
#[derive(Clone, Copy, Debug)]
pub struct Store;

impl Role for Store {
    const NAME: &'static str = "store";
    type Times = StoreTimes;
    type Gauges = StoreGauges;
    type Reading = StoreGauges;
    type Closing = ();
}

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

/// What a thread of a middleware keeps besides its requests.
#[derive(Debug)]
pub struct MiddlewareGauges {
    /// Requests received that wait for a worker.
    pub queue_length: Level,
    /// Worker slots with a request in flight. Stays at 0 in pipelined mode, which has no slots.
    pub busy: Level,
    workers: u32,
    /// The servers, in the order of the command line.
    pub servers: Vec<ServerCounts>,
}

impl MiddlewareGauges {
    /// The gauges of a thread that owns `workers` worker slots (0 in pipelined mode) and knows
    /// these servers, all of them up.
    pub fn new(now: Instant, workers: u32, servers: &[String]) -> MiddlewareGauges {
        MiddlewareGauges {
            queue_length: Level::new(now),
            busy: Level::new(now),
            workers,
            servers: servers
                .iter()
                .map(|address| ServerCounts {
                    address: address.clone(),
                    requests: 0,
                    errors: 0,
                    ejected: 0,
                    up: true,
                })
                .collect(),
        }
    }
}

/// One server as one middleware thread sees it.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct ServerCounts {
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// Requests sent to it.
    pub requests: u64,
    /// Requests that it answered with an error line, or not at all.
    pub errors: u64,
    /// How often it was taken out.
    pub ejected: u64,
    /// Whether it is in use; for a whole process, whether every thread uses it.
    pub up: bool,
}

impl Gauges for MiddlewareGauges {
    type Reading = MiddlewareReading;

    fn read(&mut self, now: Instant) -> MiddlewareReading {
        let reading = MiddlewareReading {
            queue_length: self.queue_length.read(now),
            busy: self.busy.read(now),
            workers: self.workers,
            servers: self.servers.clone(),
        };
        for server in &mut self.servers {
            server.requests = 0;
            server.errors = 0;
            server.ejected = 0;
        }
        reading
    }
}

/// What a middleware's gauges said over a window.
#[derive(Clone, Debug)]
pub struct MiddlewareReading {
    /// Requests waiting for a worker.
    pub queue_length: LevelReading,
    /// Worker slots with a request in flight.
    pub busy: LevelReading,
    /// Worker slots; 0 in pipelined mode.
    pub workers: u32,
    /// The servers, in the order of the command line.
    pub servers: Vec<ServerCounts>,
}

impl Reading for MiddlewareReading {
    fn then(&mut self, later: &MiddlewareReading) {
        self.queue_length.then(&later.queue_length);
        self.busy.then(&later.busy);
        self.workers = later.workers;
        for (server, later) in self.servers.iter_mut().zip(&later.servers) {
            server.requests += later.requests;
            server.errors += later.errors;
            server.ejected += later.ejected;
            server.up = later.up;
        }
    }

    fn beside(&mut self, other: &MiddlewareReading) {
        self.queue_length.beside(&other.queue_length);
        self.busy.beside(&other.busy);
        self.workers += other.workers;
        for (server, other) in self.servers.iter_mut().zip(&other.servers) {
            server.requests += other.requests;
            server.errors += other.errors;
            server.ejected += other.ejected;
            server.up &= other.up;
        }
    }

    fn queue_length_mean(&self) -> f64 {
        self.queue_length.mean()
    }

    fn servers(&self) -> Option<&[ServerCounts]> {
        Some(&self.servers)
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![
            Metric::gauge(
                "knee_queue_length",
                "Requests waiting for a worker.",
                self.queue_length.end.max(0) as f64,
            ),
            Metric::counter(
                "knee_queue_length_seconds_total",
                "Integral of the queue length over time: its rate is the mean queue length.",
                self.queue_length.area_s.max(0.0),
            ),
        ];
        if self.workers > 0 {
            metrics.push(Metric::gauge("knee_workers", "Worker slots.", f64::from(self.workers)));
            metrics.push(Metric::counter(
                "knee_workers_busy_seconds_total",
                "Time that worker slots had a request in flight.",
                self.busy.area_s.max(0.0),
            ));
        }
        if self.servers.is_empty() {
            return metrics;
        }
        let servers = |value: fn(&ServerCounts) -> f64| {
            let samples = self.servers.iter().map(|s| (s.address.clone(), value(s)));
            ("server", samples.collect::<Vec<_>>())
        };
        metrics.extend([
            Metric::labelled(
                MetricKind::Gauge,
                "knee_server_up",
                "1 where every thread uses the server, 0 where it was taken out.",
                servers(|server| f64::from(u8::from(server.up))),
            ),
            Metric::labelled(
                MetricKind::Counter,
                "knee_server_requests_total",
                "Requests sent to the server.",
                servers(|server| server.requests as f64),
            ),
            Metric::labelled(
                MetricKind::Counter,
                "knee_server_errors_total",
                "Requests that the server answered with an error, or not at all.",
                servers(|server| server.errors as f64),
            ),
            Metric::labelled(
                MetricKind::Counter,
                "knee_server_ejections_total",
                "How often the server was taken out.",
                servers(|server| server.ejected as f64),
            ),
        ]);
        metrics
    }
}

impl Serialize for MiddlewareReading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("queue_length_mean", &self.queue_length.mean())?;
        // A sum over threads that were cut at slightly different instants can dip below 0.
        map.serialize_entry("queue_length_end", &self.queue_length.end.max(0))?;
        map.serialize_entry("queue_length_max", &self.queue_length.max.max(0))?;
        if self.workers > 0 {
            map.serialize_entry("workers", &self.workers)?;
            map.serialize_entry("workers_busy_s", &self.busy.area_s)?;
        }
        map.end()
    }
}

/// A send later than this after its intended time counts as late.
pub const LATE_NS: u64 = 1_000_000;

/// What a thread of a load generator keeps besides its requests.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct LoadGauges {
    /// Sends more than [`LATE_NS`] after their intended time (open loop).
    pub late_sends: u64,
    /// The latest send of all, in nanoseconds after its intended time.
    pub late_max_ns: u64,
    /// Values that were not what the key's value must be.
    pub wrong_values: u64,
    /// Connections that were lost, whether or not they were opened again.
    pub losses: u64,
    /// Connections opened again after they had been lost.
    pub reconnects: u64,
    /// Connections that were cut: lost with a request in flight, or not opened again at the first try.
    pub cut: u64,
    /// Connections that were cut and do not stand again yet.
    pub missing: u64,
    /// Requests that will have no answer.
    pub unanswered: u64,
    /// Requests sent and not yet answered now.
    pub in_flight: u64,
    /// Think times begun (closed loop with thinking).
    pub thinks: u64,
    /// Their lengths, summed.
    pub think_sum_ns: u64,
}

impl LoadGauges {
    /// A client thinks for `think_ns` before its next request.
    #[inline]
    pub fn thought(&mut self, think_ns: u64) {
        self.thinks += 1;
        self.think_sum_ns += think_ns;
    }

    /// A send went out `late_ns` after its intended time.
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
        vec![
            Metric::counter(
                "knee_late_sends_total",
                "Sends more than 1 ms after their intended time.",
                self.late_sends as f64,
            ),
            Metric::counter(
                "knee_wrong_values_total",
                "Values that were not what the key's value must be.",
                self.wrong_values as f64,
            ),
            Metric::counter(
                "knee_losses_total",
                "Connections that were lost, whether or not they were opened again.",
                self.losses as f64,
            ),
            Metric::counter(
                "knee_reconnects_total",
                "Connections opened again after they had been lost.",
                self.reconnects as f64,
            ),
            Metric::gauge(
                "knee_requests_in_flight",
                "Requests sent and not yet answered.",
                self.in_flight as f64,
            ),
        ]
    }
}

/// What a load generator adds to its summary.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct LoadClosing {
    /// Virtual clients.
    pub clients: u64,
    /// Why the figures tell more of the load generator than of the system; `None` when they do not.
    pub bottleneck: Option<Bottleneck>,
    /// Whether a signal ended the run before its time; left out when not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Requests that were due in an open loop and never sent, as every connection had all it may
    /// have in flight until the end.
    pub unsent: u64,
}

/// Why a load generator was itself the bottleneck.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Bottleneck {
    /// What it lacked.
    pub reason: BottleneckReason,
    /// The evidence, for people.
    pub detail: String,
}

/// What a load generator lacked.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum BottleneckReason {
    /// A thread used (nearly) all of its processor.
    Cpu,
    /// Sends went out later than intended.
    Late,
}
