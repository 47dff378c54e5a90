//! Remembers completed requests: a repeated request gets the same answer, and changes nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::RequestId;
use super::types::Committed;

/// Number of locks. The hash of a request chooses one, so the requests of one client use all of them.
const SHARDS: usize = 64;
/// Number of requests that a shard remembers: as many as fit a hash table of 2¹⁴. At 10,000 writes a second, all shards
/// together remember the last ninety seconds.
const SHARD_REQUESTS_MAX: usize = if cfg!(test) { 1 << 7 } else { (1 << 14) / 8 * 7 };

/// The latest requests with an id, and their outcomes.
#[derive(Debug)]
pub(crate) struct Requests {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl Default for Requests {
    fn default() -> Requests {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Requests { shards, hasher: RandomState::new() }
    }
}

impl Requests {
    /// Locks the shard of a request. A caller that holds the lock until the write is done prevents a concurrent
    /// repetition from writing as well.
    pub(crate) fn shard(&self, request: RequestId) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(request) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One part of the requests, with a lock of its own.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    made: HashMap<RequestId, Committed>,
    order: VecDeque<RequestId>,
}

impl Shard {
    /// The outcome of a completed request.
    pub(crate) fn made(&self, request: RequestId) -> Option<Committed> {
        self.made.get(&request).copied()
    }

    pub(crate) fn remember(&mut self, request: RequestId, committed: Committed) {
        if let Some(made) = self.made.get_mut(&request) {
            *made = committed;
            return;
        }
        // Remove the oldest before the insert: otherwise the table would grow.
        if self.order.len() == SHARD_REQUESTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.made.remove(&oldest);
        }
        self.made.insert(request, committed);
        self.order.push_back(request);
    }

    /// Remembers the outcome of a request older than all others, if there is space.
    pub(crate) fn remember_before_all(&mut self, request: RequestId, committed: Committed) {
        if let Some(made) = self.made.get_mut(&request) {
            *made = committed;
        } else if self.order.len() < SHARD_REQUESTS_MAX {
            self.made.insert(request, committed);
            self.order.push_front(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_requests_are_forgotten_first() {
        let mut shard = Shard::default();
        let id = |number| RequestId { client: 7, number };
        for number in 0..=SHARD_REQUESTS_MAX as u64 {
            shard.remember(id(number), Committed { sequence: number, version: number });
        }
        assert_eq!(shard.made(id(0)), None);
        assert_eq!(shard.made(id(1)), Some(Committed { sequence: 1, version: 1 }));
        assert_eq!(shard.made.len(), SHARD_REQUESTS_MAX);
    }

    #[test]
    fn request_older_than_all_pushes_none_out() {
        let mut shard = Shard::default();
        let id = |number| RequestId { client: 7, number };
        let made = |number| Committed { sequence: number, version: number };
        let full = SHARD_REQUESTS_MAX as u64;
        // The latest request, then one older request more than the shard has space for.
        shard.remember(id(full), made(full));
        for number in 0..full {
            shard.remember_before_all(id(number), made(number));
        }
        assert_eq!(shard.made(id(full)), Some(made(full)));
        assert_eq!(shard.made(id(full - 2)), Some(made(full - 2)));
        assert_eq!(shard.made(id(full - 1)), None);
        // Each further request replaces the oldest one.
        for number in full + 1..2 * full {
            shard.remember(id(number), made(number));
        }
        assert!((full..2 * full).all(|number| shard.made(id(number)) == Some(made(number))));
        assert_eq!((shard.made.len(), shard.order.len()), (SHARD_REQUESTS_MAX, SHARD_REQUESTS_MAX));
    }

    #[test]
    fn one_client_has_as_many_requests_remembered_as_many() {
        let requests = Requests::default();
        let id = |number| RequestId { client: 7, number };
        // More requests than one shard remembers: an eighth of all shards' capacity.
        let count = (SHARDS / 8 * SHARD_REQUESTS_MAX) as u64;
        for number in 0..count {
            let committed = Committed { sequence: number, version: number };
            requests.shard(id(number)).remember(id(number), committed);
        }
        assert!((0..count).all(|number| requests.shard(id(number)).made(id(number)).is_some()));
    }
}
