//! The settings of a middleware.

use std::net::SocketAddr;
use std::time::Duration;

use knee_proto::Limits;

/// How requests reach the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// So many worker slots over all threads, each with its own connection to every server and one
    /// request in flight.
    Workers(usize),
    /// Every thread shares one connection to each server; requests leave together.
    Pipelined,
}

/// One server of the tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// As the user wrote it; error lines and statistics call the server so.
    pub name: String,
    /// Where it is.
    pub address: SocketAddr,
}

/// A middleware's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The servers, at least one and at most [`Config::SERVERS_MAX`]. The order is part of the
    /// meaning of cas tokens: middlewares in front of the same servers list them alike.
    pub servers: Vec<ServerAddress>,
    /// Worker slots or pipelining.
    pub mode: Mode,
    /// Event-loop threads, at least one.
    pub threads: usize,
    /// Multi-gets are split over all servers.
    pub sharded: bool,
    /// Clients served at a time; further ones are turned away.
    pub connections_max: usize,
    /// A client that is silent for so long is disconnected.
    pub idle_timeout: Option<Duration>,
    /// The middleware ends by itself when no request has come for so long after the first.
    pub exit_idle: Option<Duration>,
    /// A server that keeps an answer waiting for so long is taken out.
    pub server_timeout: Duration,
    /// What clients may send.
    pub limits: Limits,
    /// The longest answer of a server that is relayed.
    pub reply_bytes_max: usize,
    /// Each request and its times are printed on standard error.
    pub trace: bool,
}

impl Config {
    /// Which servers were asked is kept as one bit each.
    pub const SERVERS_MAX: usize = 64;
}
