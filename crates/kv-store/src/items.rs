//! Serves a versioned store's data through the memcached protocol: implements [`Engine`] for the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use knee_kv_cache::engine::{Change, Engine, Figures, Head, Item, Refused, Second, Version};

use super::change::{Changed, Shows};
use super::pressure::Patience;
use super::record::Sequence;
use super::room::Room;
use super::store::Store;
use super::types::Durability;

/// A thread's handle to a versioned store.
#[derive(Debug, Clone)]
pub struct Items {
    store: Store,
    /// Values that were put, by all threads.
    puts: Arc<AtomicU64>,
    /// The last commit that this handle made or saw since [`Engine::settle`].
    seen: Sequence,
    /// A buffer that assembles a value in several pieces.
    value: Vec<u8>,
    /// How long a repeated change may still wait for space.
    patience: Patience,
}

impl Items {
    /// Makes a handle to a store.
    pub fn new(store: Store) -> Items {
        Items {
            store,
            puts: Arc::default(),
            seen: 0,
            value: Vec::new(),
            patience: Patience::default(),
        }
    }

    /// Records the outcome of a change.
    fn noted(&mut self, made: Result<Changed, Refused>) -> Result<Version, Refused> {
        if made != Err(Refused::Changed) {
            self.patience = Patience::default();
        }
        let made = made?;
        self.seen = self.seen.max(made.sequence);
        self.puts.fetch_add(u64::from(made.put), Ordering::Relaxed);
        Ok(made.version)
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
        let room = (&mut self.value, &mut self.patience);
        let decide = |item: Option<Item<'_>>, _| decide(item);
        let (made, outcome) = self.store.change(key, now, room, Shows::Item, decide);
        (self.noted(made), outcome)
    }

    fn update_by_head<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        decide: impl FnOnce(Option<Head>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        let room = (&mut self.value, &mut self.patience);
        let decide = |item: Option<Item<'_>>, value_bytes| {
            decide(item.map(|item| Head { value_bytes, ..Head::from(item) }))
        };
        let (made, outcome) = self.store.change(key, now, room, Shows::Head, decide);
        (self.noted(made), outcome)
    }

    fn clear(&mut self, at: Second, now: Second) -> Result<(), Refused> {
        let mut patience = Patience::default();
        let cleared = loop {
            let cleared = self.store.clear(at, now);
            let is_full = cleared.is_err_and(Refused::is_full);
            if !is_full || !self.store.wait_for_room(Room::CLEAR, &mut patience) {
                break cleared?;
            }
        };
        self.seen = self.seen.max(cleared);
        Ok(())
    }

    fn set_memory_limit(&mut self, bytes: usize, _now: Second) -> bool {
        self.store.set_limit(bytes as u64)
    }

    fn figures(&mut self) -> Figures {
        Figures { puts: self.puts.load(Ordering::Relaxed), ..self.store.item_figures() }
    }

    fn shortage(&mut self) -> Option<String> {
        self.store.shortage()
    }

    fn version_figures(&mut self) -> Option<(super::Figures, super::CommitFigures)> {
        Some((self.store.figures(), self.store.commit_figures()))
    }

    fn settle(&mut self) -> Result<(), String> {
        self.store.sync(std::mem::take(&mut self.seen)).map_err(|error| error.to_string())
    }

    fn settles_at(&self) -> Option<Instant> {
        if self.is_unsettled() { self.store.dallies_until() } else { None }
    }

    #[inline]
    fn is_unsettled(&self) -> bool {
        self.store.durability() == Some(Durability::Always) && self.store.synced() < self.seen
    }
}
