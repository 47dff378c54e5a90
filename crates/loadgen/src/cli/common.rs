//! The flags that every kind of load has.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use knee_telemetry::{Load, Reporter, Stats};

use crate::error::Error;
use crate::open_loop::Rate;
use crate::run::{Pace, Plan, Ramp};
use crate::schedule::Think;

/// Open loop: requests in flight per connection, unless a flag sets another number.
const OPEN_PIPELINE: usize = 256;

/// The flags of every kind of load.
#[derive(Args, Debug)]
pub(super) struct Common {
    /// Servers (host:port); clients are assigned to them in turn.
    #[arg(long, required = true, num_args = 1.., value_delimiter = ',', value_parser = address)]
    pub(super) server: Vec<SocketAddr>,
    /// Virtual clients; each has one connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) clients: u64,
    /// Threads, which share the clients.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Start at this second of the Unix epoch, at the same time as other processes.
    #[arg(long, value_name = "UNIX_S", value_parser = unix_second)]
    start_at: Option<f64>,
    /// Seed of all random numbers. Processes that run at the same time need different seeds.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Closed loop: think time between an answer and the next request.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    think_ms: Duration,
    /// Closed loop: whether think times are constant, or exponential with the mean --think-ms.
    #[arg(long, value_enum, default_value_t = ThinkKind::Constant)]
    think: ThinkKind,
    /// Open loop: requests per second of all clients together, sent whether or not earlier ones are answered.
    #[arg(long, value_name = "PER_S", value_parser = rate, conflicts_with_all = ["think_ms", "think"])]
    rate: Option<f64>,
    /// Open loop: evenly spaced requests, or a Poisson process.
    #[arg(long, value_enum, default_value_t = ArrivalKind::Poisson, requires = "rate")]
    arrivals: ArrivalKind,
    /// Closed loop: this number of clients begins at the start, and as many more every --ramp-every-s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          requires = "ramp_every_s", conflicts_with = "rate")]
    ramp_clients: Option<u64>,
    /// Closed loop: the length of each step of --ramp-clients.
    #[arg(long, value_name = "S", value_parser = seconds, requires = "ramp_clients")]
    ramp_every_s: Option<Duration>,
    /// How long to wait for outstanding answers after the end; later ones count as errors.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    drain_s: Duration,
    /// Verify all values in answers.
    #[arg(long)]
    verify: bool,
    /// Also write the histograms of every second to this file, as an HdrHistogram log.
    #[arg(long, value_name = "FILE")]
    hdr_log: Option<PathBuf>,
    /// Serve Prometheus metrics here (host:port), on GET /metrics.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    admin: Option<SocketAddr>,
    /// Format of standard output.
    #[arg(long, value_enum, default_value_t = Stats::Json)]
    stats: Stats,
    /// End when the parent process, which has this process id, ends.
    #[arg(long, value_name = "PID")]
    pub(super) tied_to_parent: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ThinkKind {
    Constant,
    Exponential,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ArrivalKind {
    Constant,
    Poisson,
}

pub(super) enum Failure {
    Flags(String),
    Run(Error),
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Flags(message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Run(error)
    }
}

impl Common {
    /// The plan of a run of this length. `pipeline` is the number of requests in flight per connection; without it, the
    /// loop's default holds.
    pub(super) fn plan(&self, length: Option<Duration>, pipeline: Option<usize>) -> Plan {
        let pace = match (self.rate, self.arrivals) {
            (Some(rate), ArrivalKind::Constant) => Pace::Open(Rate::Constant(rate)),
            (Some(rate), ArrivalKind::Poisson) => Pace::Open(Rate::Poisson(rate)),
            (None, _) => Pace::Closed(match (self.think_ms, self.think) {
                (Duration::ZERO, _) => Think::Never,
                (time, ThinkKind::Constant) => Think::Constant(time),
                (time, ThinkKind::Exponential) => Think::Exponential { mean_s: time.as_secs_f64() },
            }),
        };
        let usual = if self.rate.is_some() { OPEN_PIPELINE } else { 1 };
        Plan {
            servers: self.server.clone(),
            clients: self.clients,
            threads: self.threads.min(self.clients) as usize,
            pipeline: pipeline.unwrap_or(usual),
            pace,
            ramp: self
                .ramp_clients
                .zip(self.ramp_every_s)
                .map(|(clients, every)| Ramp { clients, every }),
            length: length.unwrap_or_default(),
            drain: self.drain_s,
            start_at_unix_s: self.start_at,
            seed: self.seed,
            verify: self.verify,
        }
    }

    pub(super) fn reporter(&self) -> Result<Reporter<Load>, Error> {
        let mut reporter = Reporter::new("knee-load", self.stats).map_err(Error::System)?;
        if let Some(path) = &self.hdr_log {
            let what = || format!("cannot write {}", path.display());
            let file = File::create(path).map_err(|error| Error::Own { what: what(), error })?;
            reporter.log_histograms(Box::new(file));
        }
        if let Some(address) = self.admin {
            knee_reactor::bind(address)
                .and_then(|listener| reporter.serve_admin(listener))
                .map_err(|error| Error::Own { what: format!("cannot serve {address}"), error })?;
        }
        Ok(reporter)
    }

    /// Prints the summary of a phase that only fills a store.
    pub(super) fn print(&self, summary: &str) {
        if self.stats == Stats::Json {
            // A closed pipe has no reader.
            let _ = writeln!(io::stdout(), "{summary}");
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| format!("expected HOST:PORT of a host that exists ({error})"))?;
    addresses.next().ok_or_else(|| "the host has no address".into())
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {} to {}", range.start(), range.end())),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    number(text, 0.001..=1e7).map(Duration::from_secs_f64)
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    number(text, 0.0..=1e9).map(|ms| Duration::from_secs_f64(ms / 1e3))
}

fn unix_second(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1e11)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 1e-3..=1e7)
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0)
}
