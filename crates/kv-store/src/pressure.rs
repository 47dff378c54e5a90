//! Writers wait while a full log has space that can be reclaimed.
//!
//! The log is full when a write needs a segment that the limit or the disk refuses. While the keeper reclaims space, a
//! refused writer waits and tries again. So it writes as fast as space is freed. If the keeper has found nothing to
//! reclaim, writers are refused at once. This ends when the keeper searches again, or when the log has grown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::place::Location;
use super::types::lock;

/// Longest time that a write waits for space: other clients may wait for the same thread.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Writers that wait for space, and their keeper.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    pub(super) state: Mutex<State>,
    waiting: AtomicUsize,
    /// Wakes waiting threads.
    pub(super) changed: Condvar,
    /// Wakes waiting tasks.
    pub(super) freed_some: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Number of running keepers.
    pub(super) keepers: usize,
    /// The thread of a keeper, once it runs.
    pub(super) keeper: Option<Thread>,
    /// Number of times that space was reclaimed, or may have become reclaimable.
    pub(super) freed: u64,
    /// The end of the log at the last search without result; `None` once space may be reclaimable again.
    pub(super) fruitless: Option<Location>,
}

impl State {
    /// Wakes the keeper.
    pub(super) fn ask(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.unpark();
        }
    }
}

/// How long a write still waits for space, over all its attempts.
#[derive(Debug, Clone, Default)]
pub struct Patience(Option<Begun>);

/// The state since a write began to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) until: Instant,
    /// The value of `State::freed` when the write began to wait.
    pub(super) freed: u64,
    /// The value of `State::freed` at the write's last look.
    pub(super) looked: u64,
    /// Whether its time is over: then the write tries once more.
    pub(super) is_over: bool,
}

impl Patience {
    pub(super) fn begun(&mut self, state: &State) -> &mut Begun {
        self.0.get_or_insert_with(|| Begun {
            until: Instant::now() + WAIT_MAX,
            freed: state.freed,
            looked: state.freed,
            is_over: false,
        })
    }
}

/// Counts a waiting writer until this is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a Pressure);

impl Waiting<'_> {
    pub(super) fn begin(pressure: &Pressure) -> Waiting<'_> {
        pressure.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(pressure)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pressure {
    /// Whether a writer waits for space.
    pub(super) fn is_felt(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Number of times that space was reclaimed, or may have become reclaimable.
    pub(super) fn freed(&self) -> u64 {
        lock(&self.state).freed
    }

    /// Notes a search without result while the log ended at `end`, unless the count has changed since it was `freed`.
    pub(super) fn note_fruitless(&self, end: Location, freed: u64) {
        let mut state = lock(&self.state);
        if state.freed == freed {
            state.fruitless = Some(end);
            self.wake();
        }
    }

    /// Notes that space was reclaimed, or may be reclaimable now.
    pub(super) fn note_freed(&self) {
        let mut state = lock(&self.state);
        state.freed += 1;
        state.fruitless = None;
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.changed.notify_all();
        self.freed_some.notify_waiters();
    }
}
