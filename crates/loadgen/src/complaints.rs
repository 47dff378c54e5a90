//! Messages for people about what goes wrong while the load runs: each once, and not many.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use knee_telemetry::tell;

use crate::traffic::Fault;

/// How many different messages are told of one run.
const TOLD_MAX: usize = 8;

/// How much is shown of a line that nobody understands, or of a value that is wrong.
pub(crate) const SHOWN_BYTES_MAX: usize = 80;

/// Tells what went wrong on standard error, over all threads each message once.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// What of.
    told: Mutex<Vec<String>>,
    told_wrong_value: AtomicBool,
}

/// A value that is not what it must be.
pub(crate) struct WrongValue<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) value: &'a [u8],
    pub(crate) fault: Fault,
}

impl Complaints {
    /// Tells `message` unless it was told already, or enough was.
    pub(crate) fn tell(&self, message: String) {
        self.tell_of(message.clone(), &message);
    }

    /// Tells `message` unless another one of the same matter was told already, or enough was.
    pub(crate) fn tell_of(&self, matter: String, message: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > TOLD_MAX || told.contains(&matter) {
            return;
        }
        if told.len() == TOLD_MAX {
            tell("knee-load", "further errors are counted, not told");
        } else {
            tell("knee-load", message);
        }
        told.push(matter);
    }

    /// Tells of the first wrong value.
    pub(crate) fn wrong_value(&self, wrong: &WrongValue<'_>) {
        if self.told_wrong_value.swap(true, Ordering::Relaxed) {
            return;
        }
        let WrongValue { server, key, flags, value, fault } = wrong;
        let message = format_args!(
            "wrong value from {server} for key {}: {fault} (flags {flags}, {} bytes, beginning {}); \
             further ones are counted, not told",
            key.escape_ascii(),
            value.len(),
            value[..value.len().min(SHOWN_BYTES_MAX)].escape_ascii(),
        );
        tell("knee-load", message);
    }
}
