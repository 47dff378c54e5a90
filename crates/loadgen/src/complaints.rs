//! Messages for people about what goes wrong while the load runs: each once, and not many.

use std::sync::{Mutex, PoisonError};

use knee_telemetry::tell;

/// How many different messages are told of one run.
const TOLD_MAX: usize = 8;

/// Tells what went wrong on standard error, over all threads each message once.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    told: Mutex<Vec<String>>,
}

impl Complaints {
    /// Tells `message` unless it was told already, or enough was.
    pub(crate) fn tell(&self, message: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > TOLD_MAX || told.contains(&message) {
            return;
        }
        if told.len() == TOLD_MAX {
            tell("knee-load", "further errors are counted, not told");
        } else {
            tell("knee-load", &message);
        }
        told.push(message);
    }
}
