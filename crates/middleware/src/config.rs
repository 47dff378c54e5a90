//! The settings of a middleware.

use std::net::SocketAddr;
use std::time::Duration;

use knee_proto::Limits;

/// How requests reach the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// This many worker slots over all threads, each with its own connection to every server and one request in flight.
    Workers(usize),
    /// Every thread shares one connection to each server; requests leave together.
    Pipelined,
}

/// How many servers must acknowledge a write before the client reads its success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WriteQuorum {
    /// All servers: a write does not begin while a server is out.
    All,
    /// More than half of the servers; one of two.
    Majority,
    /// One server.
    One,
}

impl WriteQuorum {
    /// The number of acknowledgements, in front of `servers` servers.
    pub(crate) fn of(self, servers: usize) -> u32 {
        let count = match self {
            WriteQuorum::All => servers,
            WriteQuorum::Majority if servers > 2 => servers / 2 + 1,
            WriteQuorum::Majority | WriteQuorum::One => 1,
        };
        count as u32
    }
}

/// One server of the tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// The name as the user wrote it, for error lines and statistics.
    pub name: String,
    /// The resolved address.
    pub address: SocketAddr,
}

/// The near cache of a middleware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Memory for its values, at least 1 MiB.
    pub bytes_max: usize,
    /// How long a value is used, from the beginning of the read that brought it.
    pub lifetime: Duration,
}

/// A middleware's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The servers, at least one and at most [`Config::SERVERS_MAX`]. Cas tokens depend on the order: middlewares in
    /// front of the same servers must list them in the same order.
    pub servers: Vec<ServerAddress>,
    /// Worker slots or pipelining.
    pub mode: Mode,
    /// Event-loop threads, at least one.
    pub threads: usize,
    /// In pipelined mode: largest number of requests that leave for a server with one write; `None` for no limit.
    pub batch_max: Option<u32>,
    /// Whether multi-gets are split over all servers.
    pub sharded: bool,
    /// The near cache, which answers `get`; `None` without one.
    pub cache: Option<Cache>,
    /// Largest number of clients at a time; further ones are refused.
    pub connections_max: usize,
    /// Memory for unfinished requests and unread answers of all clients, in bytes.
    pub buffered_bytes_max: usize,
    /// A client that sends nothing for this time is disconnected.
    pub idle_timeout: Option<Duration>,
    /// The middleware ends by itself after this time without a request, but not before the first request.
    pub exit_idle: Option<Duration>,
    /// How many servers must acknowledge a write.
    pub write_quorum: WriteQuorum,
    /// Memory for the keys that a server misses while it is out. Beyond it, the server is flushed when it returns.
    pub missed_bytes_max: usize,
    /// A server that delays an answer for this time is probed, and taken out after the same time again.
    pub server_timeout: Duration,
    /// Limits of clients' requests.
    pub limits: Limits,
    /// The longest answer of a server that is relayed.
    pub reply_bytes_max: usize,
    /// Whether each request is printed with its times on standard error.
    pub trace: bool,
}

impl Config {
    /// A 64-bit set records the servers asked.
    pub const SERVERS_MAX: usize = 64;
}
