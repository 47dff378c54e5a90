//! Why a run failed.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why the load generator gives up.
#[derive(Debug)]
pub(crate) enum Error {
    /// A server was of no use before the start.
    Connect { server: SocketAddr, why: Unusable },
    /// Connections neither stood nor failed in time.
    ConnectTimeout { time: Duration, missing: Vec<Missing> },
    /// The process may not open so many connections.
    TooManyClients { clients: u64, open_files_max: u64 },
    /// The agreed start had passed when the connections stood.
    StartPassed { by: Duration },
    /// A signal came before the connections stood, or before every key was stored.
    Interrupted,
    /// A signal came while messages were stored.
    BacklogInterrupted(Left),
    /// A key could not be stored.
    Populate { server: SocketAddr, why: String },
    /// A server did not load a file.
    Init { server: SocketAddr, why: String },
    /// A file or an address of this process.
    Own { what: String, error: io::Error },
    /// The system refused something else.
    System(io::Error),
}

/// How many of the connections to a server do not stand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) server: SocketAddr,
    pub(crate) missing: u64,
    pub(crate) wanted: u64,
}

/// The messages of an unfinished backlog that stay in the queue. Follows the cause in a message; empty where none stays.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    pub(crate) stored: u64,
    /// Messages sent without an answer: they may be stored.
    pub(crate) asked: u64,
    pub(crate) wanted: u64,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left { stored, asked, wanted } = self;
        if *stored == 0 && *asked == 0 {
            return Ok(());
        }
        write!(f, "; {stored} of {wanted} messages are stored and stay there")?;
        if *asked > 0 { write!(f, ", and perhaps {asked} more") } else { Ok(()) }
    }
}

/// Why a server is of no use.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// There is no connection to it.
    Unconnected(String),
    /// It has not answered in time.
    Silent(Duration),
    /// It does not speak HTTP/2, or not with one more client.
    NoHttp2 { wanted: &'static str, why: String },
    /// It does not have the service.
    Foreign { wanted: &'static str, service: &'static str },
    /// It refused a first call.
    Refuses(String),
    /// It may have done a first call, or not.
    Unknown(String),
    /// It does not know a client that was registered earlier.
    Stranger { client: u32 },
}

impl Unusable {
    /// The message about a server.
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
                format!("{server} is no {wanted}: it does not know {service}")
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
                "all connections stand, but a load thread was not ready within {} s",
                time.as_secs()
            ),
            Error::ConnectTimeout { time, missing } => {
                write!(f, "within {} s there was no answer", time.as_secs())?;
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
                "the agreed start was over by {:.1} s when the connections stood: agree on a later one",
                by.as_secs_f64()
            ),
            Error::Interrupted => f.write_str("interrupted: it is not done"),
            Error::BacklogInterrupted(left) => write!(f, "interrupted: it is not done{left}"),
            Error::Populate { server, why } => write!(f, "populating {server} failed: {why}"),
            Error::Init { server, why } => write!(f, "loading at {server} failed: {why}"),
            Error::Own { what, error } => write!(f, "{what}: {error}"),
            Error::System(error) => write!(f, "the system refused: {error}"),
        }
    }
}

impl std::error::Error for Error {}
