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

/// After a fruitless search the keeper is not asked again before the log has grown by this part of a segment, or the
/// keeper has searched by itself: a search takes longer than a write.
const GROWN_PART: usize = 16;

/// A keeper reclaims space for waiting writers until this is dropped.
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
        pressure.wake();
    }
}

impl Store {
    /// Waits after a write that a full log refused, until the log has this room. Returns whether to try again; the
    /// answer is no once the keeper has found nothing to reclaim, or takes too long. The caller holds no lock.
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
    pub async fn room(&self, room: Room, patience: &mut Patience) -> bool {
        let pressure = &self.0.pressure;
        let begun = patience.begun(&lock(&pressure.state));
        let mut waiting = None;
        loop {
            let freed = pressure.freed_some.notified();
            tokio::pin!(freed);
            // From here on it hears, also of what happens before it waits.
            freed.as_mut().enable();
            {
                let mut state = lock(&pressure.state);
                if let Some(is_there) = self.is_decided(room, begun, &mut state) {
                    return is_there;
                }
                waiting.get_or_insert_with(|| Waiting::begin(pressure));
                state.ask();
            }
            // After a timeout it looks and decides as well.
            let _ = timeout_at(begun.until.into(), freed).await;
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
                // Later writers have none either.
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
