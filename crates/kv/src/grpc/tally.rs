//! Counts of calls since the start.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counters that all calls share. They are read one by one, so they may be slightly inconsistent.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) scans: AtomicU64,
    pub(super) scan_entries: AtomicU64,
    pub(super) scan_bytes: AtomicU64,
    /// Time of the first call, in nanoseconds of the Unix epoch; 0 before it.
    pub(super) first_call_unix_ns: AtomicU64,
    pub(super) last_call_unix_ns: AtomicU64,
}

impl Tally {
    pub(super) fn call(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = since_epoch.as_nanos() as u64;
        if self.first_call_unix_ns.load(Ordering::Relaxed) == 0 {
            let _ = self.first_call_unix_ns.compare_exchange(
                0,
                now,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        self.last_call_unix_ns.fetch_max(now, Ordering::Relaxed);
    }
}
