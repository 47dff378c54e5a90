//! Gauges and counters of a store.

use std::time::Instant;

use serde::{Serialize, Serializer};

use crate::clock::NS_PER_S;
use crate::metric::{Metric, metrics};
use crate::role::{Gauges, Reading, Role};
use crate::stage::StoreTimes;

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

/// Gauges and counters of a store's thread. If threads share one store, one thread reports them. If each thread has a
/// shard, each reports its own.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct StoreGauges {
    /// Memory that items take now, in bytes.
    pub memory_bytes: u64,
    /// Items stored now.
    pub items_stored: u64,
    /// Items evicted for want of memory.
    pub evictions: u64,
    /// Items removed because they had expired.
    pub expired: u64,
    /// Connections closed because an HTTP request came; in the metrics only.
    #[serde(skip)]
    pub http_requests: u64,
    /// Connections closed because they held memory and stood still while others waited; in the metrics only.
    #[serde(skip)]
    pub still_clients: u64,
    /// When requests came; `None` without requests.
    #[serde(flatten)]
    pub requests: Option<RequestSpan>,
    /// Gauges and counters of a store that keeps versions. `None` for other stores, and for threads whose store another
    /// thread reports.
    #[serde(flatten)]
    pub versions: Option<VersionGauges>,
}

/// When the first and the last of some requests came. The requests completed between them give the server's own view of
/// its throughput.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
pub struct RequestSpan {
    /// Nanosecond of the Unix epoch of the first one.
    #[serde(rename = "first_request_unix_s", serialize_with = "seconds")]
    pub first_unix_ns: u64,
    /// Nanosecond of the Unix epoch of the last one.
    #[serde(rename = "last_request_unix_s", serialize_with = "seconds")]
    pub last_unix_ns: u64,
}

/// Gauges and counters of a store that keeps versions. The first fields are levels, the others counters.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct VersionGauges {
    /// Stored keys, and deleted keys that the store has not forgotten yet.
    pub keys: u64,
    /// Versions of these keys that can be read.
    pub versions: u64,
    /// Open snapshots.
    pub snapshots_open: u64,
    /// The age of the oldest snapshot, in nanoseconds.
    #[serde(rename = "snapshot_age_s", serialize_with = "seconds")]
    pub snapshot_age_ns: u64,
    /// Bytes that the log takes.
    pub file_bytes: u64,
    /// Bytes of the log that a read may still return.
    pub file_live_bytes: u64,
    /// Groups of changes made safe, each with one write and one sync.
    pub commits: u64,
    /// The time of all commits.
    pub commit_sum_ns: u64,
    /// The time of the longest commit.
    pub commit_max_ns: u64,
    /// Records made safe by the commits.
    pub commit_records: u64,
    /// Reclaimed segments of the log.
    pub reclaims: u64,
    /// The time of all reclaims.
    pub reclaim_sum_ns: u64,
}

fn seconds<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ns as f64 / NS_PER_S as f64)
}

impl StoreGauges {
    /// Records a request at this nanosecond of the Unix epoch.
    #[inline]
    pub fn requested(&mut self, unix_ns: u64) {
        self.span(RequestSpan { first_unix_ns: unix_ns, last_unix_ns: unix_ns });
    }

    #[inline]
    fn span(&mut self, more: RequestSpan) {
        let span = self.requests.get_or_insert(more);
        span.first_unix_ns = span.first_unix_ns.min(more.first_unix_ns);
        span.last_unix_ns = span.last_unix_ns.max(more.last_unix_ns);
    }
}

impl VersionGauges {
    /// The same levels, with counters of 0.
    fn levels(self) -> VersionGauges {
        VersionGauges {
            commits: 0,
            commit_sum_ns: 0,
            commit_max_ns: 0,
            commit_records: 0,
            reclaims: 0,
            reclaim_sum_ns: 0,
            ..self
        }
    }

    /// The later levels, and the counters of both.
    fn after(self, earlier: VersionGauges) -> VersionGauges {
        VersionGauges {
            commits: self.commits + earlier.commits,
            commit_sum_ns: self.commit_sum_ns + earlier.commit_sum_ns,
            commit_max_ns: self.commit_max_ns.max(earlier.commit_max_ns),
            commit_records: self.commit_records + earlier.commit_records,
            reclaims: self.reclaims + earlier.reclaims,
            reclaim_sum_ns: self.reclaim_sum_ns + earlier.reclaim_sum_ns,
            ..self
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let seconds = |ns: u64| ns as f64 / NS_PER_S as f64;
        metrics! {
            gauge "knee_keys" "Stored keys, and deleted keys not yet forgotten." = self.keys as f64;
            gauge "knee_versions" "Versions kept." = self.versions as f64;
            gauge "knee_snapshots_open" "Open snapshots." = self.snapshots_open as f64;
            gauge "knee_snapshot_age_seconds" "Age of the oldest snapshot." = seconds(self.snapshot_age_ns);
            gauge "knee_file_bytes" "Bytes that the log takes." = self.file_bytes as f64;
            gauge "knee_file_live_bytes" "Bytes of the log that a read may return." = self.file_live_bytes as f64;
            counter "knee_commits_total" "Groups of changes made safe." = self.commits as f64;
            counter "knee_commit_seconds_total" "Time of making groups of changes safe." = seconds(self.commit_sum_ns);
            gauge "knee_commit_seconds_max" "Time of the longest group since the start." = seconds(self.commit_max_ns);
            counter "knee_commit_records_total" "Records made safe." = self.commit_records as f64;
            counter "knee_reclaims_total" "Segments reclaimed." = self.reclaims as f64;
            counter "knee_reclaim_seconds_total" "Time of reclaiming segments." = seconds(self.reclaim_sum_ns);
        }
    }
}

impl Gauges for StoreGauges {
    type Reading = StoreGauges;

    fn read(&mut self, _now: Instant) -> StoreGauges {
        let reading = *self;
        self.evictions = 0;
        self.expired = 0;
        self.http_requests = 0;
        self.still_clients = 0;
        self.requests = None;
        self.versions = self.versions.map(VersionGauges::levels);
        reading
    }
}

impl Reading for StoreGauges {
    fn then(&mut self, later: &StoreGauges) {
        self.memory_bytes = later.memory_bytes;
        self.items_stored = later.items_stored;
        self.evictions += later.evictions;
        self.expired += later.expired;
        self.http_requests += later.http_requests;
        self.still_clients += later.still_clients;
        self.requests_too(later);
        self.versions = match (self.versions, later.versions) {
            (Some(earlier), Some(later)) => Some(later.after(earlier)),
            (one, other) => other.or(one),
        };
    }

    fn beside(&mut self, other: &StoreGauges) {
        self.memory_bytes += other.memory_bytes;
        self.items_stored += other.items_stored;
        self.evictions += other.evictions;
        self.expired += other.expired;
        self.http_requests += other.http_requests;
        self.still_clients += other.still_clients;
        self.requests_too(other);
        // Only one thread reports versions.
        self.versions = self.versions.or(other.versions);
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = metrics! {
            gauge "knee_memory_bytes" "Memory that items take." = self.memory_bytes as f64;
            gauge "knee_items" "Items stored." = self.items_stored as f64;
            counter "knee_evictions_total" "Items evicted for want of memory." = self.evictions as f64;
            counter "knee_expired_total" "Items removed because they had expired." = self.expired as f64;
            counter "knee_http_requests_total" "Connections closed because an HTTP request came." = self.http_requests as f64;
            counter "knee_still_clients_total" "Connections closed because they held memory and stood still." = self.still_clients as f64;
        };
        if let Some(RequestSpan { first_unix_ns, last_unix_ns }) = self.requests {
            let seconds = |ns: u64| ns as f64 / NS_PER_S as f64;
            metrics.extend(metrics! {
                gauge "knee_first_request_timestamp_seconds" "When the first request came." = seconds(first_unix_ns);
                gauge "knee_last_request_timestamp_seconds" "When the last request came." = seconds(last_unix_ns);
            });
        }
        metrics.extend(self.versions.iter().flat_map(VersionGauges::metrics));
        metrics
    }
}

impl StoreGauges {
    fn requests_too(&mut self, other: &StoreGauges) {
        if let Some(span) = other.requests {
            self.span(span);
        }
    }
}
