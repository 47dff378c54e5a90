//! Reports commits as they are made.

use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use knee_kv_cache::engine::Version;

use super::record::Sequence;

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The commit. No client may see the event before that is synced, see [`super::Store::sync`].
    pub sequence: Sequence,
    /// The key's new version.
    pub version: Version,
    /// The key.
    pub key: Vec<u8>,
    /// The kind of change.
    pub what: What,
}

/// The kind of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The key has this new value.
    Put(Vec<u8>),
    /// These bytes were appended to the value.
    Appended(Vec<u8>),
    /// The key was deleted.
    Deleted,
}

/// Receives an event and must not wait; `false` ends the watch.
pub type Listener = Box<dyn Fn(Event) -> bool + Send + Sync>;

#[derive(Default)]
pub(crate) struct Watches {
    watches: Mutex<Vec<Watch>>,
    /// Number of watches; commits take no lock while it is 0.
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

    /// Calls the listeners whose range has the key.
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
