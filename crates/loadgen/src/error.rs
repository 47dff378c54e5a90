//! Why a run failed.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a run, or the phase that fills a store, failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// A server could not be used, as seen before the start.
    Connect { server: SocketAddr, why: Unusable },
    /// Some connections were neither open nor refused in time, or a thread was not ready.
    ConnectTimeout { time: Duration, missing: Vec<Missing> },
    /// The limit of open files is too low for the clients.
    TooManyClients { clients: u64, open_files_max: u64 },
    /// The agreed start had passed when the connections were open.
    StartPassed { by: Duration },
    /// A signal came before the connections were open, or before everything was stored.
    Interrupted,
    /// A key could not be stored.
    Populate { server: SocketAddr, why: String },
    /// A server did not load a file.
    Init { server: SocketAddr, why: String },
    /// This process cannot write a file, or serve an address.
    Own { what: String, error: io::Error },
    /// Any other error of the operating system.
    System(io::Error),
}

/// How many of the connections to a server are not open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) server: SocketAddr,
    pub(crate) missing: u64,
    pub(crate) wanted: u64,
}

/// Why a server cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The connection failed.
    Unconnected(String),
    /// The server has not answered in time.
    Silent(Duration),
    /// The server does not speak HTTP/2, or takes no further client.
    NoHttp2 { wanted: &'static str, why: String },
    /// The server does not have the service.
    Foreign { wanted: &'static str, service: &'static str },
    /// The server refused a first call.
    Refuses(String),
    /// The server may or may not have done a first call.
    Unknown(String),
    /// The server does not know a client that was registered earlier.
    Stranger { client: u32 },
}

impl Unusable {
    pub(crate) fn of(&self, server: SocketAddr) -> String {
        match self {
            Unusable::Unconnected(why) => format!("no connection to {server}: {why}"),
            Unusable::Silent(time) => {
                format!("no answer from {server} within {} s", time.as_secs())
            }
            Unusable::NoHttp2 { wanted, why } => format!(
                "no HTTP/2 from {server}: {why}; is it a {wanted} with room for another client?"
            ),
            Unusable::Foreign { wanted, service } => {
                format!("{server} is not a {wanted}: it has no service {service}")
            }
            Unusable::Refuses(what) => format!("{server} refused {what}"),
            Unusable::Unknown(what) => format!("{server} did not say whether it did {what}"),
            Unusable::Stranger { client } => format!(
                "{server} does not know client {client} of --as: name clients that its database has"
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connect { server, why } => f.write_str(&why.of(*server)),
            Error::ConnectTimeout { time, missing } if missing.is_empty() => write!(
                f,
                "all connections are open, but a load thread was not ready within {} s",
                time.as_secs()
            ),
            Error::ConnectTimeout { time, missing } => {
                write!(f, "no answer within {} s", time.as_secs())?;
                for (number, Missing { server, missing, wanted }) in missing.iter().enumerate() {
                    let and = if number == 0 { "" } else { "," };
                    write!(f, "{and} on {missing} of {wanted} connections to {server}")?;
                }
                Ok(())
            }
            Error::TooManyClients { clients, open_files_max } => write!(
                f,
                "{clients} clients need as many connections, but this process may open only \
                 {open_files_max} files: raise `ulimit -Hn`"
            ),
            Error::StartPassed { by } => write!(
                f,
                "the connections were open {:.1} s after the agreed start: choose a later start",
                by.as_secs_f64()
            ),
            Error::Interrupted => f.write_str("interrupted before the end"),
            Error::Populate { server, why } => write!(f, "populating {server} failed: {why}"),
            Error::Init { server, why } => write!(f, "loading at {server} failed: {why}"),
            Error::Own { what, error } => write!(f, "{what}: {error}"),
            Error::System(error) => write!(f, "the system refused: {error}"),
        }
    }
}

impl std::error::Error for Error {}
