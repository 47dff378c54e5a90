//! The command line: flags in, JSON lines out.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use knee_proto::Limits;
use knee_reactor::{Config, Group, bind, process};
use knee_telemetry::{Moment, Reporter, Stats, Store, StoreGauges};

use crate::commands::{Commands, Facts};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::memory::{Memory, MemoryLimits};
use crate::server::{Calendar, Server};
use crate::stripes::Stripes;

const PROGRAM: &str = "knee-kv";

/// Threads that make sense to ask for.
const THREADS_MAX: u64 = 256;
/// Descriptors that are not clients' connections: listener, polls, timers, standard streams.
const DESCRIPTORS_OWN: u64 = 64;
/// A request without its value: more than the longest line but a retrieval's.
const LINE_BYTES_MAX: usize = 64 * 1024;

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
    #[arg(long, value_name = "S", default_value_t = 0)]
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

/// Parses the arguments, runs until told to stop, returns the exit code.
pub fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            eprintln!("{PROGRAM}: {message}");
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
    fn flags(message: String) -> Failure {
        Failure { message, code: 2 }
    }

    fn start(what: &str, error: &std::io::Error) -> Failure {
        Failure { message: format!("{what}: {error}"), code: 1 }
    }
}

fn run(flags: &Flags) -> Result<(), Failure> {
    let value_bytes_max = flags.value_bytes_max as usize;
    let limits =
        MemoryLimits { memory_bytes_max: (flags.memory_mb as usize) << 20, value_bytes_max };
    let too_small = || {
        let needed = MemoryLimits::memory_bytes_min(value_bytes_max).div_ceil(1 << 20);
        Failure::flags(format!(
            "--memory-mb {} is too little for --value-bytes-max {value_bytes_max}: \
             at least {needed} is needed",
            flags.memory_mb
        ))
    };
    if flags.threads == 1 {
        let mut engine = Some(Memory::new(limits).ok_or_else(too_small)?);
        serve(flags, |_| engine.take().expect("one thread asks for one engine"))
    } else {
        let stripes = Stripes::new(flags.threads as usize, limits).ok_or_else(too_small)?;
        serve(flags, |_| stripes.clone())
    }
}

/// Serves the engine whose handles `engine` gives to the threads.
fn serve<E: Engine + Send + 'static>(
    flags: &Flags,
    mut engine: impl FnMut(usize) -> E,
) -> Result<(), Failure> {
    if let Some(parent) = flags.tied_to_parent {
        process::tie_to_parent(parent)
            .map_err(|error| Failure::start("cannot be tied to its parent", &error))?;
    }
    let files = process::raise_open_files_limit()
        .map_err(|error| Failure::start("cannot raise the limit of open files", &error))?;
    if files < flags.connections_max + DESCRIPTORS_OWN {
        eprintln!(
            "{PROGRAM}: the limit of {files} open files is less than --connections-max {} needs: \
             clients beyond it wait until others leave",
            flags.connections_max
        );
    }
    let bound = |address| {
        bind(address)
            .map_err(|error| Failure::start(&format!("cannot listen on {address}"), &error))
    };
    let listener = bound(flags.listen)?;
    let listen = listener
        .local_addr()
        .map_err(|error| Failure::start("cannot tell the listening address", &error))?;

    let stats = match flags.stats {
        Output::Json => Stats::Json,
        Output::None => Stats::None,
    };
    let mut reporter = Reporter::<Store>::new(PROGRAM, stats)
        .map_err(|error| Failure::start("cannot print", &error))?;
    if let Some(admin) = flags.admin {
        reporter
            .serve_admin(bound(admin)?)
            .map_err(|error| Failure::start("cannot serve the admin address", &error))?;
    }

    let threads = flags.threads as usize;
    let started = Moment::now();
    let facts = Arc::new(Facts {
        listen,
        threads,
        connections_max: flags.connections_max as usize,
        value_bytes_max: flags.value_bytes_max as usize,
        idle_timeout_s: flags.idle_timeout_s,
        started: started.mono,
    });
    let counters = Arc::new(Counters::new(threads));
    let limits = Limits { value_bytes_max: flags.value_bytes_max as usize, ..Limits::default() };
    let request_bytes_max =
        limits.value_bytes_max.max(limits.retrieval_line_bytes_max) + LINE_BYTES_MAX;
    let config = Config {
        input_bytes_max: request_bytes_max,
        connections_max: flags.connections_max as usize,
        refusal: b"ERROR Too many open connections\r\n",
        idle_timeout: (flags.idle_timeout_s > 0).then(|| Duration::from_secs(flags.idle_timeout_s)),
        ..Config::default()
    };
    let group = Group::start("net", threads, &config, Some(listener), |thread, _| {
        let commands =
            Commands::new(engine(thread), Arc::clone(&counters), Arc::clone(&facts), thread);
        let recorder = reporter.recorder(format!("net-{thread}"), StoreGauges::default(), started);
        Server::new(commands, limits, Calendar::new(started), recorder, thread == 0)
    })
    .map_err(|error| Failure::start("cannot start", &error))?;
    process::shutdown_on_signals(group.shutdown())
        .map_err(|error| Failure::start("cannot handle signals", &error))?;
    reporter.ready(Some(listen));
    let running = reporter.start().map_err(|error| Failure::start("cannot start", &error))?;
    let ended = group.join();
    running.finish(|_| ());
    ended.map_err(|error| Failure::start("an event loop failed", &error))
}
