//! A store for several threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::{Change, Engine, Figures, Item, Refused, Second, Version};
use crate::memory::{KeyHash, Memory, MemoryLimits, Versions};

/// Number of stripes for each thread, unless they would be too small. With this many, two threads seldom need the same
/// stripe.
const STRIPES_PER_THREAD: usize = 8;
/// Each stripe has room for at least this number of values of the largest size.
const LARGEST_VALUES_MIN: usize = 4;

/// A handle to several memory engines. Each engine has its own lock and a part of the keys.
///
/// Any connection may request any key, so all threads need all keys. Passing a request to the thread that owns its key
/// would cost two wake-ups of some microseconds. A free lock costs some 20 ns. A single thread needs neither, and owns
/// a [`Memory`].
#[derive(Debug, Clone)]
pub struct Stripes {
    stripes: Arc<[Mutex<Memory>]>,
    hash: KeyHash,
}

impl Stripes {
    /// Divides the memory among stripes. `None` if the memory does not suffice for one stripe.
    pub fn new(threads: usize, limits: MemoryLimits) -> Option<Stripes> {
        let share_min = MemoryLimits::memory_bytes_min(limits.value_bytes_max)
            .max(LARGEST_VALUES_MIN * limits.value_bytes_max);
        let mut count = (threads * STRIPES_PER_THREAD).next_power_of_two();
        while count > 1 && limits.memory_bytes_max / count < share_min {
            count /= 2;
        }
        let share = MemoryLimits { memory_bytes_max: limits.memory_bytes_max / count, ..limits };
        let hash = KeyHash::random();
        let stripes = (0..count)
            .map(|index| {
                let versions = Versions { first: index as u64 + 1, step: count as u64 };
                Memory::with_versions(share, hash, versions).map(Mutex::new)
            })
            .collect::<Option<_>>()?;
        Some(Stripes { stripes, hash })
    }

    /// The stripe of a hash. The stripe's index chooses its table by other bits of the hash.
    fn stripe(&self, hash: u64) -> MutexGuard<'_, Memory> {
        lock(&self.stripes[(hash >> 32) as usize & (self.stripes.len() - 1)])
    }
}

/// Locks a stripe, even after a panic. A panic in a thread ends the server; until then, other threads continue.
fn lock(stripe: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for Stripes {
    fn get<R>(
        &mut self,
        key: &[u8],
        now: Second,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> Result<R, Refused> {
        let hash = self.hash.hash(key);
        Ok(self.stripe(hash).get_hashed(hash, key, now, visit))
    }

    fn update<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        let hash = self.hash.hash(key);
        self.stripe(hash).update_hashed(hash, key, now, decide)
    }

    fn clear(&mut self, at: Second, now: Second) -> Result<(), Refused> {
        self.stripes.iter().try_for_each(|stripe| lock(stripe).clear(at, now))
    }

    fn set_memory_limit(&mut self, bytes: usize, now: Second) -> bool {
        let share = bytes / self.stripes.len();
        // All stripes have equal limits, so either the first stripe refuses, or none does.
        self.stripes.iter().all(|stripe| lock(stripe).set_memory_limit(share, now))
    }

    fn figures(&mut self) -> Figures {
        self.stripes.iter().fold(Figures::default(), |mut sum, stripe| {
            let figures = lock(stripe).figures();
            sum.items += figures.items;
            sum.item_bytes += figures.item_bytes;
            sum.memory_bytes += figures.memory_bytes;
            sum.memory_bytes_max += figures.memory_bytes_max;
            sum.puts += figures.puts;
            sum.evictions += figures.evictions;
            sum.evictions_unread += figures.evictions_unread;
            sum.expired += figures.expired;
            sum
        })
    }
}
