//! Gauges and counters of a middleware.

use std::time::Instant;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use crate::level::{Level, LevelReading};
use crate::metric::{Metric, metrics};
use crate::role::{Gauges, Reading, Role};
use crate::server_counts::ServerCounts;
use crate::stage::MiddlewareTimes;

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

/// Gauges and counters of a middleware's thread.
#[derive(Debug)]
pub struct MiddlewareGauges {
    /// Requests received that wait for a worker.
    pub queue_length: Level,
    /// Worker slots with a request in flight. Stays at 0 in pipelined mode, which has no slots.
    pub busy: Level,
    workers: u32,
    /// Connections closed because an HTTP request came.
    pub http_requests: u64,
    /// Connections closed because they held memory and stood still while others waited.
    pub still_clients: u64,
    /// Keys asked of the near cache; `None` without one.
    pub cache: Option<CacheCounts>,
    /// The servers, in the order of the command line.
    pub servers: Vec<ServerCounts>,
}

/// Keys asked of a near cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Keys that it had.
    pub hits: u64,
    /// Keys that a server was asked for.
    pub misses: u64,
}

impl CacheCounts {
    fn add(&mut self, other: CacheCounts) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

impl MiddlewareGauges {
    /// The gauges of a thread with `workers` worker slots (0 in pipelined mode). All `servers` are up.
    pub fn new(now: Instant, workers: u32, servers: &[String]) -> MiddlewareGauges {
        MiddlewareGauges {
            queue_length: Level::new(now),
            busy: Level::new(now),
            workers,
            http_requests: 0,
            still_clients: 0,
            cache: None,
            servers: servers
                .iter()
                .map(|address| ServerCounts {
                    address: address.clone(),
                    up: true,
                    ..ServerCounts::default()
                })
                .collect(),
        }
    }
}

impl Gauges for MiddlewareGauges {
    type Reading = MiddlewareReading;

    fn read(&mut self, now: Instant) -> MiddlewareReading {
        MiddlewareReading {
            queue_length: self.queue_length.read(now),
            busy: self.busy.read(now),
            workers: self.workers,
            http_requests: std::mem::take(&mut self.http_requests),
            still_clients: std::mem::take(&mut self.still_clients),
            cache: self.cache.as_mut().map(std::mem::take),
            servers: self.servers.iter_mut().map(ServerCounts::take).collect(),
        }
    }
}

/// A middleware's gauges over a window.
#[derive(Clone, Debug)]
pub struct MiddlewareReading {
    /// Requests waiting for a worker.
    pub queue_length: LevelReading,
    /// Worker slots with a request in flight.
    pub busy: LevelReading,
    /// Worker slots; 0 in pipelined mode.
    pub workers: u32,
    /// Connections closed because an HTTP request came.
    pub http_requests: u64,
    /// Connections closed because they held memory and stood still while others waited.
    pub still_clients: u64,
    /// Keys asked of the near cache; `None` without one.
    pub cache: Option<CacheCounts>,
    /// The servers, in the order of the command line.
    pub servers: Vec<ServerCounts>,
}

impl Reading for MiddlewareReading {
    fn then(&mut self, later: &MiddlewareReading) {
        self.queue_length.then(&later.queue_length);
        self.busy.then(&later.busy);
        self.workers = later.workers;
        self.http_requests += later.http_requests;
        self.still_clients += later.still_clients;
        if let (Some(cache), Some(later)) = (&mut self.cache, later.cache) {
            cache.add(later);
        }
        for (server, later) in self.servers.iter_mut().zip(&later.servers) {
            server.add(later);
            server.up = later.up;
        }
    }

    fn beside(&mut self, other: &MiddlewareReading) {
        self.queue_length.beside(&other.queue_length);
        self.busy.beside(&other.busy);
        self.workers += other.workers;
        self.http_requests += other.http_requests;
        self.still_clients += other.still_clients;
        if let (Some(cache), Some(other)) = (&mut self.cache, other.cache) {
            cache.add(other);
        }
        for (server, other) in self.servers.iter_mut().zip(&other.servers) {
            server.add(other);
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
        let mut metrics = metrics! {
            gauge "knee_queue_length" "Requests waiting for a worker." = self.queue_length.end.max(0) as f64;
            counter "knee_queue_length_seconds_total" "Integral of the queue length over time: its rate is the mean queue length." = self.queue_length.area_s.max(0.0);
            counter "knee_http_requests_total" "Connections closed because an HTTP request came." = self.http_requests as f64;
            counter "knee_still_clients_total" "Connections closed because they held memory and stood still." = self.still_clients as f64;
        };
        if self.workers > 0 {
            metrics.extend(metrics! {
                gauge "knee_workers" "Worker slots." = f64::from(self.workers);
                counter "knee_workers_busy_seconds_total" "Time that worker slots had a request in flight."
                    = self.busy.area_s.max(0.0);
            });
        }
        if let Some(cache) = self.cache {
            metrics.extend(metrics! {
                counter "knee_cache_hits_total" "Keys that the near cache had." = cache.hits as f64;
                counter "knee_cache_misses_total" "Keys that the near cache lacked: a server was asked." = cache.misses as f64;
            });
        }
        if !self.servers.is_empty() {
            metrics.extend(metrics! {
                for server in self.servers, "server" = server.address.clone();
                gauge "knee_server_up" "1 if every thread uses the server, otherwise 0." = f64::from(u8::from(server.up));
                counter "knee_server_requests_total" "Requests sent to the server." = server.requests as f64;
                counter "knee_server_bytes_total" "Bytes of requests to the server and of its answers; at knee-space, of the data that requests read or write." = server.bytes as f64;
                counter "knee_server_errors_total" "Requests that the server answered with an error, or not at all." = server.errors as f64;
                counter "knee_server_ejections_total" "How often the server was taken out." = server.ejected as f64;
                counter "knee_server_probes_total" "Probes of the server, each because an answer was late." = server.probes as f64;
                counter "knee_server_retries_total" "Reads retried at another server." = server.retries as f64;
                counter "knee_server_mismatches_total" "Connections closed because an answer did not fit its request." = server.mismatches as f64;
            });
        }
        metrics
    }
}

impl Serialize for MiddlewareReading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("queue_length_mean", &self.queue_length.mean())?;
        // Threads' windows end at slightly different instants, so their sum can be negative.
        map.serialize_entry("queue_length_end", &self.queue_length.end.max(0))?;
        map.serialize_entry("queue_length_max", &self.queue_length.max.max(0))?;
        if self.workers > 0 {
            map.serialize_entry("workers", &self.workers)?;
            map.serialize_entry("workers_busy_s", &self.busy.area_s)?;
        }
        if let Some(cache) = self.cache {
            map.serialize_entry("cache_hits", &cache.hits)?;
            map.serialize_entry("cache_misses", &cache.misses)?;
        }
        map.end()
    }
}
