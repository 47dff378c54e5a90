//! Signals while the interpreter is not held.

use std::time::Duration;

/// The interval between two checks for signals.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
