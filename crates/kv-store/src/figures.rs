//! Counts synced commits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use knee_kv_cache::versions::CommitFigures;

#[derive(Debug, Default)]
pub(crate) struct CommitCounters {
    groups: AtomicU64,
    records: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl CommitCounters {
    /// Counts a synced group. The counters are only printed: their memory order does not matter.
    pub(crate) fn count(&self, records: u64, began: Instant) {
        let ns = began.elapsed().as_nanos() as u64;
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> CommitFigures {
        CommitFigures {
            groups: self.groups.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.swap(0, Ordering::Relaxed),
        }
    }
}
