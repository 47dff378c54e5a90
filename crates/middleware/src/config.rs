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

/// One server of the tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// The name as the user wrote it, for error lines and statistics.
    pub name: String,
    /// The resolved address.
    pub address: SocketAddr,
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
    /// Whether multi-gets are split over all servers.
    pub sharded: bool,
    /// Most clients at a time; further ones are refused.
    pub connections_max: usize,
    /// A client that sends nothing for this time is disconnected.
    pub idle_timeout: Option<Duration>,
    /// The middleware ends by itself after this time without a request, but not before the first request.
    pub exit_idle: Option<Duration>,
    /// A server that delays an answer for this time is taken out.
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
