//! The command line: flags in, JSON lines out.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Parser, ValueEnum};
use knee_proto::Limits;
use knee_reactor::{bind, process};
use knee_telemetry::{Reporter, Stats, tell};

use crate::config::{Cache, Config, Mode, ServerAddress, WriteQuorum};
use crate::start;

const PROGRAM: &str = "knee-proxy";

/// Serves memcached clients from several memcached servers: writes go to all servers, reads to one server in turn.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
#[command(group(ArgGroup::new("mode").required(true).args(["workers", "pipelined"])))]
struct Arguments {
    /// Address for clients; with port 0, any free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211", value_parser = resolve)]
    listen: SocketAddr,
    /// A memcached server; several servers hold the same data. All middlewares in front of the same servers must list
    /// them in the same order.
    #[arg(long = "server", value_name = "HOST:PORT", required = true, num_args = 1..)]
    servers: Vec<String>,
    /// Number of worker slots: each has its own connection to every server and one request at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    workers: Option<u32>,
    /// Use one connection from each thread to each server; requests leave together.
    #[arg(long)]
    pipelined: bool,
    /// Largest number of requests that leave for a server with one write (default: all that arrive together).
    #[arg(long, value_name = "N", conflicts_with = "workers", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch_max: Option<u32>,
    /// Number of threads that serve connections.
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How servers answer a multi-get: one server all keys, or each server a part.
    #[arg(long, value_enum, default_value_t = Multiget::Whole)]
    multiget: Multiget,
    /// Memory for a near cache, in MiB: `get` is answered from it (default: none). Writes through this middleware remove
    /// their values.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    cache_mb: Option<u32>,
    /// How long the near cache uses a value. It may be stale for this time after a write that passes another
    /// middleware, and after its expiry.
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "cache_mb",
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    cache_ms: u64,
    /// Largest number of clients at a time; further clients are refused.
    #[arg(long, value_name = "C", default_value_t = 16384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections_max: u32,
    /// Memory for unfinished requests and unread answers of all clients, in MiB. Longer requests wait for room; clients
    /// that then stand still are disconnected.
    #[arg(long, value_name = "M", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    memory_mb: u32,
    /// Disconnect clients after this many seconds without a byte (default: never).
    #[arg(long, value_name = "S", value_parser = seconds)]
    idle_timeout_s: Option<Duration>,
    /// End after this many seconds without a request, but not before the first request (default: never).
    #[arg(long, value_name = "S", value_parser = seconds)]
    exit_idle_s: Option<Duration>,
    /// Servers that must acknowledge a write. A server that is out gets no writes; before it returns, the middleware
    /// deletes there the keys that it missed.
    #[arg(long, value_enum, default_value_t = WriteQuorum::Majority)]
    write_quorum: WriteQuorum,
    /// Memory for the keys that a server misses while it is out, in MiB. Beyond it, the server is flushed when it
    /// returns: take more in front of stores whose data must stay.
    #[arg(long, value_name = "M", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    missed_mb: u32,
    /// Time limit of an answer. A slower server is probed, and taken out after the same time again.
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    server_timeout_ms: u64,
    /// Largest value that clients may send; servers also have their own limits.
    #[arg(long, value_name = "B", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    value_bytes_max: u64,
    /// Largest answer of a server. It bounds the memory of a multi-get.
    #[arg(long, value_name = "B", default_value_t = 64 << 20,
          value_parser = clap::value_parser!(u64).range(1024..=1 << 32))]
    reply_bytes_max: u64,
    /// Print each request with its times on standard error.
    #[arg(long)]
    trace: bool,
    /// Format of the statistics on standard output, once per second and at the end.
    #[arg(long, value_enum, default_value_t = Stats::Json)]
    stats: Stats,
    /// Address for Prometheus: serves `GET /metrics`.
    #[arg(long, value_name = "HOST:PORT", value_parser = resolve)]
    admin: Option<SocketAddr>,
    /// Id of the parent process: end when it ends.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Multiget {
    Whole,
    Sharded,
}

/// About thirty years. Longer times are mistakes, and might overflow the clock.
const SECONDS_MAX: f64 = 1e9;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("expected a number of seconds from 0.001 to {SECONDS_MAX}")),
    }
}

/// Parses the arguments, runs until a signal, and returns the exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match config(&arguments) {
        Ok(config) => config,
        Err(error) => {
            tell(PROGRAM, error);
            return ExitCode::from(2);
        }
    };
    match run(&arguments, &config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, config: &Config) -> Result<(), String> {
    let say = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    warn_if_files_are_few(config);

    let listener =
        bind(arguments.listen).map_err(say(&format!("cannot listen at {}", arguments.listen)))?;
    let mut reporter = Reporter::new(PROGRAM, arguments.stats).map_err(say("cannot report"))?;
    if let Some(admin) = arguments.admin {
        let complaint = format!("cannot serve metrics at {admin}");
        let listener = bind(admin).map_err(say(&complaint))?;
        reporter.serve_admin(listener).map_err(say(&complaint))?;
    }
    let running = start::start(config, listener, &mut reporter).map_err(say("cannot start"))?;
    process::shutdown_on_signals(running.shutdown()).map_err(say("cannot handle signals"))?;
    if let Some(parent) = arguments.tied_to_parent {
        process::tie_to_parent(parent).map_err(say("cannot be tied to the parent"))?;
    }
    running.wait_for_servers();
    reporter.ready(running.address());
    let reporting = reporter.start().map_err(say("cannot report"))?;
    let outcome = running.join().map_err(say("a thread failed"));
    reporting.finish(|_| ());
    outcome
}

fn config(arguments: &Arguments) -> Result<Config, String> {
    let mut servers: Vec<ServerAddress> = Vec::new();
    for name in &arguments.servers {
        let address = resolve(name).map_err(|error| format!("--server {name}: {error}"))?;
        // That server would execute every write twice.
        if let Some(same) = servers.iter().find(|server| server.address == address) {
            return Err(format!("--server {name}: {} is the same server", same.name));
        }
        servers.push(ServerAddress { name: name.clone(), address });
    }
    if servers.len() > Config::SERVERS_MAX {
        return Err(format!("--server: at most {} servers", Config::SERVERS_MAX));
    }
    Ok(Config {
        servers,
        mode: match arguments.workers {
            Some(workers) => Mode::Workers(workers as usize),
            None => Mode::Pipelined,
        },
        threads: arguments.threads as usize,
        batch_max: arguments.batch_max,
        sharded: arguments.multiget == Multiget::Sharded,
        cache: arguments.cache_mb.map(|megabytes| Cache {
            bytes_max: (megabytes as usize) << 20,
            lifetime: Duration::from_millis(arguments.cache_ms),
        }),
        connections_max: arguments.connections_max as usize,
        buffered_bytes_max: (arguments.memory_mb as usize) << 20,
        idle_timeout: arguments.idle_timeout_s,
        exit_idle: arguments.exit_idle_s,
        write_quorum: arguments.write_quorum,
        missed_bytes_max: (arguments.missed_mb as usize) << 20,
        server_timeout: Duration::from_millis(arguments.server_timeout_ms),
        limits: Limits { value_bytes_max: arguments.value_bytes_max as usize, ..Limits::default() },
        reply_bytes_max: arguments.reply_bytes_max as usize,
        trace: arguments.trace,
    })
}

fn resolve(address: &str) -> Result<SocketAddr, String> {
    let mut found =
        address.to_socket_addrs().map_err(|error| format!("not a HOST:PORT: {error}"))?;
    found.next().ok_or_else(|| "the host has no address".to_owned())
}

/// Each client takes a descriptor, and each slot takes one for each server.
fn warn_if_files_are_few(config: &Config) {
    let lanes = match config.mode {
        Mode::Workers(workers) => workers,
        Mode::Pipelined => config.threads,
    };
    let needed = (config.connections_max + lanes * config.servers.len() + 64) as u64;
    if let Ok(allowed) = process::raise_open_files_limit()
        && allowed < needed
    {
        let message = format_args!(
            "open files: the limit is {allowed}, {} clients need {needed}; \
             raise `ulimit -n` or lower --connections-max",
            config.connections_max
        );
        tell(PROGRAM, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn time_of_a_cache_requires_a_cache() {
        let parse = |extra: &[&str]| {
            let base = ["knee-proxy", "--server", "127.0.0.1:1", "--pipelined"];
            Arguments::try_parse_from(base.iter().chain(extra)).ok()
        };
        assert_eq!(parse(&["--cache-mb", "64"]).map(|arguments| arguments.cache_ms), Some(1000));
        assert!(parse(&[]).is_some() && parse(&["--cache-ms", "5"]).is_none());
    }

    #[test]
    fn exactly_one_mode_is_required() {
        let parse = |extra: &[&str]| {
            let base = ["knee-proxy", "--server", "127.0.0.1:1"];
            Arguments::try_parse_from(base.iter().chain(extra)).is_ok()
        };
        assert!(!parse(&[]));
        assert!(parse(&["--pipelined"]));
        assert!(parse(&["--workers", "8"]));
        assert!(!parse(&["--workers", "8", "--pipelined"]));
        assert!(!parse(&["--workers", "0"]));
        assert!(parse(&["--pipelined", "--batch-max", "1"]));
        assert!(!parse(&["--workers", "8", "--batch-max", "1"]));
    }
}
