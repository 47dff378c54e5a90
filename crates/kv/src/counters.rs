//! The numbers of `stats`: counters of each thread, without a lock, and constants.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::settings::MemcachedSettings;

/// Constants of the running server.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) settings: MemcachedSettings,
    pub(crate) listen: SocketAddr,
    pub(crate) started: Instant,
}

macro_rules! counters {
    ($($name:ident => $label:literal,)*) => {
        /// A counter, by memcached's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Counter { $($name,)* }

        /// Every counter, in the order in which `stats` prints them.
        const ALL: &[(Counter, &str)] = &[$((Counter::$name, $label),)*];
    };
}

counters! {
    TotalConnections => "total_connections",
    CmdGet => "cmd_get",
    CmdSet => "cmd_set",
    CmdFlush => "cmd_flush",
    CmdTouch => "cmd_touch",
    CmdMeta => "cmd_meta",
    GetHits => "get_hits",
    GetMisses => "get_misses",
    DeleteMisses => "delete_misses",
    DeleteHits => "delete_hits",
    IncrMisses => "incr_misses",
    IncrHits => "incr_hits",
    DecrMisses => "decr_misses",
    DecrHits => "decr_hits",
    CasMisses => "cas_misses",
    CasHits => "cas_hits",
    CasBadval => "cas_badval",
    TouchHits => "touch_hits",
    TouchMisses => "touch_misses",
    StoreTooLarge => "store_too_large",
    StoreNoMemory => "store_no_memory",
    BytesRead => "bytes_read",
    BytesWritten => "bytes_written",
}

/// The counters of a thread, which only that thread writes.
#[derive(Debug, Default)]
struct Cells([AtomicU64; ALL.len()]);

#[derive(Debug)]
pub(crate) struct Counters {
    threads: Box<[Cells]>,
    /// Their sums at the last reset of the statistics.
    zero: Mutex<[u64; ALL.len()]>,
}

impl Counters {
    pub(crate) fn new(threads: usize) -> Counters {
        Counters {
            threads: (0..threads).map(|_| Cells::default()).collect(),
            zero: Mutex::new([0; ALL.len()]),
        }
    }

    /// Adds to a counter of `thread`, which must be the calling thread.
    #[inline]
    pub(crate) fn add(&self, thread: usize, counter: Counter, more: u64) {
        // Each cell has one writer, so an atomic addition is not needed.
        let cell = &self.threads[thread].0[counter as usize];
        cell.store(cell.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Sums since the start or the last reset.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let zero = *self.zero.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = self.sums();
        ALL.iter().map(move |&(counter, label)| {
            (label, sums[counter as usize].saturating_sub(zero[counter as usize]))
        })
    }

    pub(crate) fn reset(&self) {
        *self.zero.lock().unwrap_or_else(PoisonError::into_inner) = self.sums();
    }

    fn sums(&self) -> [u64; ALL.len()] {
        let mut sums = [0; ALL.len()];
        for cells in &self.threads {
            for (sum, cell) in sums.iter_mut().zip(&cells.0) {
                *sum += cell.load(Ordering::Relaxed);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_threads_add_up_and_reset_to_zero() {
        let counters = Counters::new(2);
        let hits = |counters: &Counters| {
            counters.totals().find(|(label, _)| *label == "get_hits").map(|(_, sum)| sum)
        };
        counters.add(0, Counter::GetHits, 3);
        counters.add(1, Counter::GetHits, 4);
        assert_eq!(hits(&counters), Some(7));
        counters.reset();
        counters.add(1, Counter::GetHits, 5);
        assert_eq!(hits(&counters), Some(5));
    }
}
