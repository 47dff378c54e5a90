//! Who writes waits, rather than is refused, while a log that is full has space that can be had back.
//!
//! The log is full where a write needs a segment that the limit does not allow, or the disk has none.
//! Then it depends on the keeper: as long as that has something back, whoever writes waits for it, and so
//! writes as fast as space is freed. Once the keeper has found nothing, whoever writes is refused at once,
//! until the log has grown or something else has happened that may have left space behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::room::Room;
use super::segment::Location;
use super::store::{Store, lock};

/// Nobody waits longer for space, whatever the keeper is at: other clients wait as well for a thread that does.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Once nothing could be had back it is not looked for again before the log has grown by this part of a
/// segment: looking takes longer than a write.
const GROWN_PART: usize = 16;

/// Who waits for space, and for whom.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    state: Mutex<State>,
    changed: Condvar,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Who has space back, while there is somebody.
    keeper: Option<Thread>,
    /// How often something was had back, or may have become so.
    freed: u64,
    /// Where the log ended when nothing could be had back, unless something may be by now.
    fruitless: Option<Location>,
}

/// The thread that has space back, until this is dropped.
#[derive(Debug)]
pub(super) struct Keeping<'a>(&'a Pressure);

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).keeper = None;
        self.0.changed.notify_all();
    }
}

impl Pressure {
    /// From now on this thread has space back whenever somebody waits for that.
    pub(super) fn keep(&self) -> Keeping<'_> {
        lock(&self.state).keeper = Some(thread::current());
        Keeping(self)
    }

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
            self.changed.notify_all();
        }
    }

    /// Something was had back, or may be now.
    pub(super) fn note_freed(&self) {
        let mut state = lock(&self.state);
        state.freed += 1;
        state.fruitless = None;
        self.changed.notify_all();
    }
}

impl Store {
    /// Waits until the log has this room, or the keeper has found that there is nothing to be had back, or
    /// does not get anywhere: whoever writes then is told that the log is full. Nothing may be locked.
    pub fn wait_for_room(&self, room: Room) {
        if !self.lacks(room) {
            return;
        }
        let Pressure { state, changed, waiting } = &self.0.pressure;
        let until = Instant::now() + WAIT_MAX;
        let mut state = lock(state);
        waiting.fetch_add(1, Ordering::Relaxed);
        while self.lacks(room) && self.may_have_some(&state) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            if let Some(keeper) = &state.keeper {
                keeper.unpark();
            }
            (state, _) = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether [`Store::wait_for_room`] would wait.
    pub(super) fn is_to_wait(&self, room: Room) -> bool {
        self.lacks(room) && self.may_have_some(&lock(&self.0.pressure.state))
    }

    fn lacks(&self, room: Room) -> bool {
        self.0.log.lacks(room.bytes, usize::from(room.frees))
    }

    fn may_have_some(&self, State { keeper, fruitless, .. }: &State) -> bool {
        let end = self.0.log.end();
        let has_grown = |then: Location| {
            let part = self.0.options.segment_bytes / GROWN_PART;
            end.segment != then.segment || end.offset() - then.offset() >= part
        };
        keeper.is_some() && fruitless.is_none_or(has_grown)
    }
}
