//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than any wait takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Repeats an attempt until it succeeds.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "never within {PATIENCE:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, || condition().then_some(()));
}
