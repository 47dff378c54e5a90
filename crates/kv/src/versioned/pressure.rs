//! Who writes waits, rather than is refused, while a log that is full has space that can be had back.
//!
//! The log is full where a write needs a segment that the limit does not allow, or the disk has none.
//! Then it depends on the keeper: as long as that has something back, whoever was refused waits for it and
//! tries again, and so writes as fast as space is freed. Once the keeper has found nothing, whoever writes is
//! refused at once, until it has looked again, or the log has grown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::room::Room;
use super::segment::Location;
use super::store::{Store, lock};

/// No write waits longer for space, whatever the keeper is at: other clients may wait for the thread as well.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Once nothing could be had back it is not looked for again before the log has grown by this part of a
/// segment, or the keeper has looked by itself: looking takes longer than a write.
const GROWN_PART: usize = 16;

/// Who waits for space, and for whom.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    state: Mutex<State>,
    waiting: AtomicUsize,
    /// For threads that wait.
    changed: Condvar,
    /// For tasks.
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Those who have space back.
    keepers: usize,
    /// The thread of one, once it runs.
    keeper: Option<Thread>,
    /// How often something was had back, or may have become so.
    freed: u64,
    /// Where the log ended when nothing could be had back, unless something may be by now.
    fruitless: Option<Location>,
}

impl State {
    /// Has the keeper look at once.
    fn ask(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.unpark();
        }
    }
}

/// Until when a write waits for space, which may be several times.
#[derive(Debug, Clone, Default)]
pub struct Patience(Option<Begun>);

/// When it began to wait.
#[derive(Debug, Clone, Copy)]
struct Begun {
    until: Instant,
    /// How often something had been had back by then.
    freed: u64,
    /// The same, when it looked last.
    looked: u64,
    /// Whether its time is over: then it tries once more.
    is_over: bool,
}

impl Patience {
    fn begun(&mut self, state: &State) -> &mut Begun {
        self.0.get_or_insert_with(|| Begun {
            until: Instant::now() + WAIT_MAX,
            freed: state.freed,
            looked: state.freed,
            is_over: false,
        })
    }
}

/// Somebody waits, until this is dropped.
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

/// Somebody has space back whenever it is waited for, until this is dropped.
#[derive(Debug)]
pub(super) struct Keeping(Store);

impl Keeping {
    pub(super) fn begin(store: Store) -> Keeping {
        lock(&store.0.pressure.state).keepers += 1;
        Keeping(store)
    }

    /// It is this thread that does.
    pub(super) fn runs_here(&self) {
        lock(&self.0.0.pressure.state).keeper = Some(thread::current());
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let pressure = &self.0.0.pressure;
        let mut state = lock(&pressure.state);
        state.keepers -= 1;
        pressure.tell();
    }
}

impl Pressure {
    /// Whether somebody waits for space.
    pub(super) fn is_felt(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How often something was had back, or may have become so.
    pub(super) fn freed(&self) -> u64 {
        lock(&self.state).freed
    }

    /// There was nothing to be had back when the log ended there, unless something has become so since
    /// it was asked how often that was.
    pub(super) fn note_fruitless(&self, end: Location, freed: u64) {
        let mut state = lock(&self.state);
        if state.freed == freed {
            state.fruitless = Some(end);
            self.tell();
        }
    }

    /// Something was had back, or may be now.
    pub(super) fn note_freed(&self) {
        let mut state = lock(&self.state);
        state.freed += 1;
        state.fruitless = None;
        self.tell();
    }

    fn tell(&self) {
        self.changed.notify_all();
        self.told.notify_waiters();
    }
}

impl Store {
    /// Waits, behind a write that the log was too full for, until it has this room, and returns whether to
    /// try again: not where the keeper has found nothing to be had back, or does not get anywhere. Nothing
    /// may be locked.
    pub fn wait_for_room(&self, room: Room, patience: &mut Patience) -> bool {
        let pressure = &self.0.pressure;
        let mut waiting = None;
        let mut state = lock(&pressure.state);
        let begun = patience.begun(&state);
        loop {
            if let Some(is_there) = self.is_decided(room, begun, &mut state) {
                return is_there;
            }
            waiting.get_or_insert_with(|| Waiting::begin(pressure));
            state.ask();
            let left = begun.until.saturating_duration_since(Instant::now());
            let woken = pressure.changed.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same in a task.
    pub(crate) async fn room(&self, room: Room, patience: &mut Patience) -> bool {
        let pressure = &self.0.pressure;
        let begun = patience.begun(&lock(&pressure.state));
        let mut waiting = None;
        loop {
            let told = pressure.told.notified();
            tokio::pin!(told);
            // From here on it hears, also of what happens before it waits.
            told.as_mut().enable();
            {
                let mut state = lock(&pressure.state);
                if let Some(is_there) = self.is_decided(room, begun, &mut state) {
                    return is_there;
                }
                waiting.get_or_insert_with(|| Waiting::begin(pressure));
                state.ask();
            }
            // Too late is the same as told: it looks, and decides.
            let _ = timeout_at(begun.until.into(), told).await;
        }
    }

    /// Whether to try again, unless that depends on the keeper.
    fn is_decided(&self, room: Room, begun: &mut Begun, state: &mut State) -> Option<bool> {
        let (was_over, lacks) = (begun.is_over, self.0.log.lacks(room));
        begun.is_over = begun.until <= Instant::now();
        if !lacks && !was_over {
            return Some(true);
        }
        if begun.is_over {
            if state.freed == begun.freed {
                // Nor will those who come next have any.
                state.fruitless = Some(self.0.log.end());
            }
            return Some(false);
        }
        let is_hopeless = |then: Location| {
            let grown = self.0.options.segment_bytes / GROWN_PART;
            let end = self.0.log.end();
            end.segment == then.segment && end.offset() < then.offset() + grown
        };
        let is_refused = state.keepers == 0
            || !self.0.log.ever_fits(room)
            || state.fruitless.is_some_and(is_hopeless);
        // It may need less than it is thought to.
        let tries_again = begun.looked != std::mem::replace(&mut begun.looked, state.freed);
        is_refused.then_some(tries_again)
    }
}
