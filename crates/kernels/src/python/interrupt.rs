//! Interrupts while the interpreter is not held.

use std::time::Duration;

/// The interval of looks for signals.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
