//! Stops a subcommand early on a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use knee_server::program::{Failure, on_signals};

/// The exit code of a command that a signal stopped: the code of shells after SIGINT.
const STOPPED: u8 = 130;

/// The interval of lines that report progress.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A flag that the first signal sets; the second one ends the process.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stops = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stops);
    on_signals(move || stop.store(true, Ordering::Release))?;
    Ok(stops)
}

pub(super) fn stopped(message: String) -> Failure {
    Failure { message, code: STOPPED }
}
