//! Writers wait for the keeper while the log is full.

use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use tokio::time::timeout_at;

use super::place::Location;
use super::pressure::{Begun, Patience, State, Waiting};
use super::room::Room;
use super::store::Store;
use super::types::lock;

/// After a search without result, writers do not wake the keeper until the log has grown by this part of a segment.
/// They also wake it after the keeper has searched again. A search takes longer than a write.
const GROWN_PART: usize = 16;

/// Counts a keeper that reclaims space for waiting writers, until this is dropped.
#[derive(Debug)]
pub(super) struct Keeping(Store);

impl Keeping {
    pub(super) fn begin(store: Store) -> Keeping {
        lock(&store.0.pressure.state).keepers += 1;
        Keeping(store)
    }

    /// Registers the current thread as the keeper's.
    pub(super) fn runs_here(&self) {
        lock(&self.0.0.pressure.state).keeper = Some(thread::current());
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let pressure = &self.0.0.pressure;
        let mut state = lock(&pressure.state);
        state.keepers -= 1;
        pressure.wake();
    }
}

impl Store {
    /// Waits after a full log refused a write, until the log has this much space. Returns whether to try again: false
    /// once the keeper has found nothing to reclaim, or takes too long. The caller holds no lock.
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

    /// The same for a task.
    pub async fn room(&self, room: Room, patience: &mut Patience) -> bool {
        let pressure = &self.0.pressure;
        let begun = patience.begun(&lock(&pressure.state));
        let mut waiting = None;
        loop {
            let freed = pressure.freed_some.notified();
            tokio::pin!(freed);
            // Registers for notifications before the first await, so that none is missed.
            freed.as_mut().enable();
            {
                let mut state = lock(&pressure.state);
                if let Some(is_there) = self.is_decided(room, begun, &mut state) {
                    return is_there;
                }
                waiting.get_or_insert_with(|| Waiting::begin(pressure));
                state.ask();
            }
            // After a timeout the loop decides once more.
            let _ = timeout_at(begun.until.into(), freed).await;
        }
    }

    /// Decides whether to try again; `None` while that depends on the keeper.
    fn is_decided(&self, room: Room, begun: &mut Begun, state: &mut State) -> Option<bool> {
        let (was_over, lacks) = (begun.is_over, self.0.log.lacks(room));
        begun.is_over = begun.until <= Instant::now();
        if !lacks && !was_over {
            return Some(true);
        }
        if begun.is_over {
            if state.freed == begun.freed {
                // Later writers have no keeper either.
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
        // Try again: `room` is only an upper bound of the need.
        let tries_again = begun.looked != std::mem::replace(&mut begun.looked, state.freed);
        is_refused.then_some(tries_again)
    }
}
