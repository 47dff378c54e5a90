//! The command line: flags in, JSON lines out.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use knee_reactor::{bind, process};
use knee_telemetry::{Reporter, Stats, Store, tell};

use crate::memory::MemoryLimits;
use crate::serving::{Serving, Settings, StartError};

const PROGRAM: &str = "knee-kv";

/// Longer times than these thirty years are a mistake, and would overflow the clock.
const SECONDS_MAX: u64 = 1_000_000_000;
/// Threads that make sense to ask for.
const THREADS_MAX: u64 = 256;
/// Descriptors that are not clients' connections: listener, polls, timers, standard streams.
const DESCRIPTORS_OWN: u64 = 64;
const MIB: usize = 1 << 20;

/// A key-value store behind the memcached protocol, in memory.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Flags {
    /// Address to serve; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    listen: SocketAddr,
    /// Event loops. With one, nothing is locked.
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: u64,
    /// Memory for items, index and free room together, in MiB; beyond it, items are evicted.
    #[arg(long, value_name = "M", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: u64,
    /// Largest value, in bytes.
    #[arg(long, value_name = "B", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    value_bytes_max: u64,
    /// Connections served at a time; further ones are refused.
    #[arg(long, value_name = "C", default_value_t = 16 * 1024,
          value_parser = clap::value_parser!(u64).range(1..))]
    connections_max: u64,
    /// Connections without traffic for so many seconds are closed; 0 keeps them.
    #[arg(long, value_name = "S", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    idle_timeout_s: u64,
    /// Address of `GET /metrics` (Prometheus text).
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// What is printed on standard output.
    #[arg(long, value_name = "WHAT", default_value = "json")]
    stats: Output,
    /// End when the parent process, which has this id, does.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    None,
}

impl Flags {
    fn settings(&self) -> Settings {
        Settings {
            threads: self.threads as usize,
            limits: MemoryLimits {
                memory_bytes_max: self.memory_mb as usize * MIB,
                value_bytes_max: self.value_bytes_max as usize,
            },
            connections_max: self.connections_max as usize,
            idle_timeout: (self.idle_timeout_s > 0)
                .then(|| Duration::from_secs(self.idle_timeout_s)),
        }
    }
}

/// Parses the arguments, runs until told to stop, returns the exit code.
pub fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            tell(PROGRAM, message);
            ExitCode::from(code)
        }
    }
}

/// Why the program did not run, and the exit code that says so.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn start(what: &str, error: &std::io::Error) -> Failure {
        Failure { message: format!("{what}: {error}"), code: 1 }
    }
}

fn run(flags: &Flags) -> Result<(), Failure> {
    if let Some(parent) = flags.tied_to_parent {
        process::tie_to_parent(parent)
            .map_err(|error| Failure::start("cannot be tied to its parent", &error))?;
    }
    let files = process::raise_open_files_limit()
        .map_err(|error| Failure::start("cannot raise the limit of open files", &error))?;
    if files < flags.connections_max + DESCRIPTORS_OWN {
        let message = format_args!(
            "the limit of {files} open files is less than --connections-max {} needs: clients \
             beyond it wait until others leave",
            flags.connections_max
        );
        tell(PROGRAM, message);
    }
    let listener = listen(flags.listen)?;
    let stats = match flags.stats {
        Output::Json => Stats::Json,
        Output::None => Stats::None,
    };
    let mut reporter = Reporter::<Store>::new(PROGRAM, stats)
        .map_err(|error| Failure::start("cannot print", &error))?;
    if let Some(admin) = flags.admin {
        reporter
            .serve_admin(listen(admin)?)
            .map_err(|error| Failure::start("cannot serve the admin address", &error))?;
    }
    let settings = flags.settings();
    let serving = Serving::start(&settings, listener, reporter, process::shutdown_on_signals)
        .map_err(|error| match error {
            StartError::TooLittleMemory => Failure {
                message: format!(
                    "--memory-mb {} is too little for values of --value-bytes-max {}: \
                 it takes at least {}",
                    flags.memory_mb,
                    flags.value_bytes_max,
                    MemoryLimits::memory_bytes_min(settings.limits.value_bytes_max).div_ceil(MIB)
                ),
                code: 2,
            },
            StartError::Io(error) => Failure::start("cannot start", &error),
        })?;
    serving.join().map_err(|error| Failure::start("an event loop failed", &error))
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    bind(address).map_err(|error| Failure::start(&format!("cannot listen on {address}"), &error))
}
