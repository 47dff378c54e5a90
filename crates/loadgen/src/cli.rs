//! The command line: flags in, JSON lines out.

mod common;
mod keyed;
mod kv;
mod memcached;
mod nbd;
mod queue;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use knee_telemetry::tell;

use self::common::Failure;
use crate::error::Error;

/// The exit code if the agreed start had passed before the connections were open. It is `EX_TEMPFAIL` of sysexits.h,
/// because a later start may succeed.
const START_PASSED: u8 = 75;

/// Puts load on servers and times every response.
#[derive(Parser, Debug)]
#[command(name = "knee-load", version)]
struct Cli {
    #[command(subcommand)]
    system: System,
}

#[derive(Subcommand, Debug)]
enum System {
    /// Sets and gets over the memcached text protocol.
    ///
    /// No request is sent before the start, because knee-proxy would count it. So only errors during the run show that
    /// a server is silent or speaks another protocol.
    Memcached(Box<memcached::Memcached>),
    /// Reads, writes and scans of knee-kv, over gRPC or the memcached text protocol.
    Kv(Box<kv::Kv>),
    /// Messages through knee-queue.
    Queue(Box<queue::Queue>),
    /// Reads and writes of blocks over NBD.
    Nbd(Box<nbd::Nbd>),
}

/// Parses the arguments, runs to the end or until a signal, and returns the exit code.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().system {
        System::Memcached(flags) => flags.run(),
        System::Kv(flags) => flags.run(),
        System::Queue(flags) => flags.run(),
        System::Nbd(flags) => flags.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Flags(message)) => {
            tell("knee-load", message);
            ExitCode::from(2)
        }
        Err(Failure::Run(error)) => {
            let late = matches!(error, Error::StartPassed { .. });
            tell("knee-load", error);
            if late { ExitCode::from(START_PASSED) } else { ExitCode::FAILURE }
        }
    }
}
