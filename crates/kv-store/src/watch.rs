//! Reports commits as they are made.

use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use knee_kv_cache::engine::Version;

use super::record::Sequence;

/// What a commit did to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The commit: not to be shown before it is safe, see [`super::Store::sync`].
    pub sequence: Sequence,
    /// The version that the key has now.
    pub version: Version,
    /// The key.
    pub key: Vec<u8>,
    /// What happened to it.
    pub what: What,
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It has this value.
    Put(Vec<u8>),
    /// Its value grew by this.
    Appended(Vec<u8>),
    /// It is gone.
    Deleted,
}

/// Takes an event without waiting; `false` ends the watch.
pub type Listener = Box<dyn Fn(Event) -> bool + Send + Sync>;

/// All watches.
#[derive(Default)]
pub(crate) struct Watches {
    watches: Mutex<Vec<Watch>>,
    /// How many there are, so that commits lock nothing when there are none.
    count: AtomicUsize,
    next: AtomicU64,
}

struct Watch {
    id: u64,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    listener: Listener,
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Watches {
    pub(crate) fn add(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>), listener: Listener) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.push(Watch { id, range, listener });
        self.count.store(watches.len(), Ordering::Release);
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.id != id);
        self.count.store(watches.len(), Ordering::Release);
    }

    /// Tells those whose range the key is in, if there are any.
    #[inline]
    pub(crate) fn tell(&self, key: &[u8], event: impl Fn() -> Event) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.tell_some(key, event);
        }
    }

    #[cold]
    fn tell_some(&self, key: &[u8], event: impl Fn() -> Event) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| !holds(&watch.range, key) || (watch.listener)(event()));
        self.count.store(watches.len(), Ordering::Release);
    }
}

fn holds(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let begun = match &range.0 {
        Bound::Included(first) => key >= &first[..],
        Bound::Excluded(before) => key > &before[..],
        Bound::Unbounded => true,
    };
    begun
        && match &range.1 {
            Bound::Included(last) => key <= &last[..],
            Bound::Excluded(end) => key < &end[..],
            Bound::Unbounded => true,
        }
}
