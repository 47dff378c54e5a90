//! A versioned store as an engine of items: the memcached protocol on the same data.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::log::Unwritable;
use super::record::Sequence;
use super::store::Store;
use crate::engine::{Change, Engine, Figures, Item, Refused, Second, Version};

/// A thread's handle to a versioned store.
#[derive(Debug, Clone)]
pub struct Items {
    store: Store,
    shared: Arc<Shared>,
    /// The last commit that was made or seen since [`Engine::settle`].
    seen: Sequence,
    /// A value that is in several pieces, put together.
    value: Vec<u8>,
}

/// What the handles of all threads have in common. It ends with the process.
#[derive(Debug, Default)]
struct Shared {
    /// When everything put before is removed; 0 is never.
    clear_at: AtomicU32,
    /// Held by whoever does that, while the others wait.
    clearing: Mutex<()>,
    puts: AtomicU64,
}

impl Items {
    /// A handle to a store.
    #[must_use]
    pub fn new(store: Store) -> Items {
        Items { store, shared: Arc::default(), seen: 0, value: Vec::new() }
    }

    /// Removes everything, if the time that was given for that has come.
    #[inline]
    fn clear_if_due(&mut self, now: Second) -> Result<(), Refused> {
        let at = self.shared.clear_at.load(Ordering::Acquire);
        if at == 0 || at > now { Ok(()) } else { self.clear_due(now) }
    }

    /// Says where it is that there is no room.
    fn refused(&self, refused: Refused) -> Refused {
        match refused {
            Refused::Full if self.store.shortage().is_some() => Refused::NoSpace,
            refused => refused,
        }
    }

    #[cold]
    fn clear_due(&mut self, now: Second) -> Result<(), Refused> {
        let clearing = self.shared.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.shared.clear_at.load(Ordering::Acquire);
        if at == 0 || at > now {
            return Ok(());
        }
        let cleared = self.store.clear(now).map_err(|refused| self.refused(refused))?;
        // Not before it is done: until then nobody else is shown anything.
        self.shared.clear_at.store(0, Ordering::Release);
        drop(clearing);
        self.seen = self.seen.max(cleared);
        Ok(())
    }
}

impl Engine for Items {
    const SETTLES: bool = true;

    fn get<R>(
        &mut self,
        key: &[u8],
        now: Second,
        visit: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> Result<R, Refused> {
        self.clear_if_due(now)?;
        let shown = self.store.show(key, now, &mut self.value, visit);
        let (outcome, sequence) = shown.map_err(|_| Refused::Damaged)?;
        self.seen = self.seen.max(sequence);
        Ok(outcome)
    }

    fn update<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        if let Err(refused) = self.clear_if_due(now) {
            return (Err(refused), decide(None).1);
        }
        let (made, outcome) = self.store.change(key, now, &mut self.value, decide);
        let version = made.map(|made| {
            self.seen = self.seen.max(made.sequence);
            self.shared.puts.fetch_add(u64::from(made.put), Ordering::Relaxed);
            made.version
        });
        (version.map_err(|refused| self.refused(refused)), outcome)
    }

    fn clear(&mut self, at: Second, now: Second) -> Result<(), Refused> {
        let _clearing = self.shared.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        if at > now {
            self.shared.clear_at.store(at, Ordering::Release);
            return Ok(());
        }
        let cleared = self.store.clear(now).map_err(|refused| self.refused(refused))?;
        self.shared.clear_at.store(0, Ordering::Release);
        self.seen = self.seen.max(cleared);
        Ok(())
    }

    fn set_memory_limit(&mut self, bytes: usize, _now: Second) -> bool {
        self.store.set_limit(bytes as u64)
    }

    fn figures(&mut self) -> Figures {
        Figures { puts: self.shared.puts.load(Ordering::Relaxed), ..self.store.item_figures() }
    }

    fn shortage(&mut self) -> Option<String> {
        self.store.shortage()
    }

    fn version_figures(&mut self) -> Option<(super::Figures, super::CommitFigures)> {
        Some((self.store.figures(), self.store.commit_figures()))
    }

    fn settle(&mut self) -> Result<(), String> {
        self.store.sync(std::mem::take(&mut self.seen)).map_err(|error| match error {
            Unwritable::Full(why) | Unwritable::Broken(why) => why,
        })
    }

    #[inline]
    fn is_unsettled(&self) -> bool {
        self.store.synced() < self.seen
    }
}
