//! The start of a server program: flags that all have, listeners, report, and the reason of a failure.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use knee_reactor::{bind, process};
use knee_telemetry::{Reporter, Role, Stats, tell};

use crate::trace::Trace;

/// Descriptors that are no clients' connections: listeners, polls, timers, standard streams.
const DESCRIPTORS_OWN: u64 = 64;

/// Why a program did not run, and its exit code.
#[derive(Debug)]
pub struct Failure {
    /// One line.
    pub message: String,
    /// 1 for the system, 2 for the command line.
    pub code: u8,
}

impl Failure {
    /// The system refused something.
    #[must_use]
    pub fn system(what: &str, error: &io::Error) -> Failure {
        Failure { message: format!("{what}: {error}"), code: 1 }
    }

    /// The command line cannot be served.
    #[must_use]
    pub fn usage(message: String) -> Failure {
        Failure { message, code: 2 }
    }
}

/// Prints a failure; returns the exit code.
pub fn ended(program: &'static str, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            tell(program, message);
            ExitCode::from(code)
        }
    }
}

/// Flags of every server.
#[derive(Debug, Args)]
pub struct Observing {
    /// Address of `GET /metrics` (Prometheus text).
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub admin: Option<SocketAddr>,
    /// What is printed on standard output.
    #[arg(long, value_name = "WHAT", default_value = "json")]
    pub stats: Output,
    /// Write a line for each request on standard error.
    #[arg(long)]
    pub trace: bool,
}

/// What a program prints on standard output.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Output {
    /// A line of JSON for each second, and a summary.
    Json,
    /// Nothing.
    None,
}

impl Observing {
    /// Starts the report, and serves it at the admin address.
    ///
    /// # Errors
    /// Where the system refuses that.
    pub fn reporter<R: Role>(&self, program: &'static str) -> Result<Reporter<R>, Failure> {
        let stats = match self.stats {
            Output::Json => Stats::Json,
            Output::None => Stats::None,
        };
        let mut reporter = Reporter::new(program, stats)
            .map_err(|error| Failure::system("cannot print", &error))?;
        if let Some(admin) = self.admin {
            reporter
                .serve_admin(listen("--admin", admin)?)
                .map_err(|error| Failure::system("cannot serve the admin address", &error))?;
        }
        Ok(reporter)
    }

    /// The trace, if the flag asks for one.
    #[must_use]
    pub fn trace(&self, program: &'static str) -> Option<Trace> {
        self.trace.then(|| Trace::start(program))
    }
}

/// Parses the value of a flag that takes an address.
///
/// # Errors
/// Where it is no address.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, as in 127.0.0.1:3264".into())
}

/// Ends the process with its parent, if a flag names one.
///
/// # Errors
/// Where the system refuses that.
pub fn tie_to_parent(parent: Option<u32>) -> Result<(), Failure> {
    let Some(parent) = parent else { return Ok(()) };
    process::tie_to_parent(parent)
        .map_err(|error| Failure::system("cannot be tied to its parent", &error))
}

/// Raises the limit of open files, and warns if it is too low for so many connections, which `flags` ask for.
///
/// # Errors
/// Where the limit cannot be raised.
pub fn raise_open_files_limit(
    program: &'static str,
    connections: u64,
    flags: impl fmt::Display,
) -> Result<(), Failure> {
    let files = process::raise_open_files_limit()
        .map_err(|error| Failure::system("cannot raise the limit of open files", &error))?;
    if files < connections.saturating_add(DESCRIPTORS_OWN) {
        let message = format_args!(
            "the limit of {files} open files is too low for {flags}: further clients wait until others \
             leave; raise `ulimit -n`"
        );
        tell(program, message);
    }
    Ok(())
}

/// Listens at the address that a flag names.
///
/// # Errors
/// Where the system refuses that.
pub fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    bind(address).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "end the program that listens there, or name another address",
            ErrorKind::AddrNotAvailable => "name an address of this machine",
            ErrorKind::PermissionDenied => "name a port from 1024 on",
            _ => "name another address",
        };
        let message = format!("cannot listen on {address}: {error}; {remedy} by {flag}");
        Failure { message, code: 1 }
    })
}

/// Calls `begin` when a signal asks the process to end; a second signal ends it at once.
///
/// # Errors
/// Where the system refuses a thread.
pub fn on_signals(begin: impl Fn() + Send + 'static) -> Result<(), Failure> {
    process::on_signals(begin).map_err(|error| Failure::system("cannot wait for signals", &error))
}
