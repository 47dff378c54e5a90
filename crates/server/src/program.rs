//! The start of a server program: common flags, listeners, report, and failures.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use knee_reactor::{bind, process};
use knee_telemetry::{Reporter, Role, Stats, tell};

use crate::trace::Trace;

/// Number of descriptors besides the clients' connections: listeners, polls, timers, standard streams.
const DESCRIPTORS_OWN: u64 = 64;

/// Why a program failed, and its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The message, in one line.
    pub message: String,
    /// 1 for an error of the system, 2 for an error on the command line.
    pub code: u8,
}

impl Failure {
    /// An error of the system.
    pub fn system(what: &str, error: &io::Error) -> Failure {
        Failure { message: format!("{what}: {error}"), code: 1 }
    }

    /// An error on the command line.
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

/// The flags of every server.
#[derive(Debug, Args)]
pub struct Observing {
    /// Address of `GET /metrics` (Prometheus text).
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub admin: Option<SocketAddr>,
    /// Output on standard output.
    #[arg(long, value_name = "WHAT", default_value = "json")]
    pub stats: Output,
    /// Write a line for each request on standard error.
    #[arg(long)]
    pub trace: bool,
}

/// The output of a program on standard output.
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
    /// When the system refuses the output or the address.
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
    pub fn trace(&self, program: &'static str) -> Option<Trace> {
        self.trace.then(|| Trace::start(program))
    }
}

/// Parses the value of a flag that takes an address.
///
/// # Errors
/// When the text is not an address.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, as in 127.0.0.1:3264".into())
}

/// Ends the process with its parent, if a flag names one.
///
/// # Errors
/// When the system refuses that.
pub fn tie_to_parent(parent: Option<u32>) -> Result<(), Failure> {
    let Some(parent) = parent else { return Ok(()) };
    process::tie_to_parent(parent)
        .map_err(|error| Failure::system("cannot be tied to its parent", &error))
}

/// Raises the limit of open files. Warns if it is too low for the connections that `flags` allow.
///
/// # Errors
/// When the limit cannot be raised.
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

/// Listens at the address of a flag.
///
/// # Errors
/// When the system refuses the address.
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

/// Calls `begin` at the first signal that ends a process. A second signal ends the process at once.
///
/// # Errors
/// When the system refuses a thread.
pub fn on_signals(begin: impl Fn() + Send + 'static) -> Result<(), Failure> {
    process::on_signals(begin).map_err(|error| Failure::system("cannot wait for signals", &error))
}
