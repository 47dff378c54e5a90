//! Messages about what goes wrong while the load runs.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use knee_telemetry::tell;

/// How many different messages a run prints.
const MESSAGES_MAX: usize = 8;

/// How many bytes of a wrong answer or value a message shows.
pub(crate) const SHOWN_BYTES_MAX: usize = 80;

/// Prints the messages of all threads on standard error: each once, and a limited number.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    printed: Mutex<Vec<String>>,
    printed_wrong_value: AtomicBool,
}

impl Complaints {
    /// Prints `message` unless it was printed before, or too many were.
    pub(crate) fn tell(&self, message: String) {
        self.tell_of(message.clone(), &message);
    }

    /// Prints `message` unless another one of its `kind` was printed before, or too many were.
    pub(crate) fn tell_of(&self, kind: String, message: &str) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.len() > MESSAGES_MAX || printed.contains(&kind) {
            return;
        }
        if printed.len() == MESSAGES_MAX {
            tell("knee-load", "too many kinds of errors: further ones are only counted");
        } else {
            tell("knee-load", message);
        }
        printed.push(kind);
    }

    pub(crate) fn wrong_value(&self, server: SocketAddr, wrong: &dyn Display) {
        if !self.printed_wrong_value.swap(true, Ordering::Relaxed) {
            let message =
                format_args!("wrong value from {server}: {wrong}; further ones are only counted");
            tell("knee-load", message);
        }
    }
}
