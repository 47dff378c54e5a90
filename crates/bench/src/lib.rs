//! Floors: programs that only move bytes, on the same event loop as Knee's programs.
//!
//! A proxy, a load generator or a durable store cannot cost less than its system calls. A floor makes only these calls.
//! Flags set the lengths of requests and replies, so the floor counts bytes instead of parsing. A real program minus
//! its floor is the cost of the program's own work.
//!
//! * [`relay`] (`floor-relay`): all clients share one connection to each server.
//! * [`send`] (`floor-send`): connections that repeat one prepared request.
//! * [`log`] (`floor-log`): requests are written to a file, and answered once they are safe.
//!
//! All requests and all replies have fixed sizes. `floor-relay` and `floor-send` end with exit code 1 if a peer
//! deviates.

pub mod log;
pub mod relay;
pub mod send;

use std::io;
use std::process::{ExitCode, exit};
use std::time::Duration;

use serde_json::{Value, json};

/// The work of a floor that counts requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Requests answered.
    pub requests: u64,
    /// The time from the first request to the last reply.
    pub time: Duration,
}

impl From<Moved> for Value {
    fn from(Moved { requests, time }: Moved) -> Value {
        json!({"type": "summary", "requests": requests, "seconds": time.as_secs_f64()})
    }
}

/// Prints the summary of a program, or ends it because of an error.
pub fn report(program: &str, outcome: Result<impl Into<Value>, String>) {
    match outcome {
        Ok(summary) => println!("{}", summary.into()),
        Err(message) => {
            eprintln!("{program}: {message}");
            exit(1);
        }
    }
}

/// The exit code of a program.
pub fn ended(program: &str, outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
