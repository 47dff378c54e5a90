//! Settings of the gRPC server.

use std::path::PathBuf;
use std::time::Duration;

/// The default memory for messages: at least these bytes, and this number of largest messages.
const MESSAGES_BYTES_MIN: usize = 256 << 20;
const MESSAGES_MIN: usize = 4;
const MESSAGE_OVERHEAD_BYTES: usize = 64 << 10;
/// The default limit of connections.
pub const CONNECTIONS_MAX: usize = 1024;
/// The default limit of copies.
pub const COPIES_MAX: usize = 16;

/// Settings of the gRPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Number of threads that serve connections, at least 1.
    pub threads: usize,
    /// The second part of the versions that honu's interface prints.
    pub pid: u64,
    /// Largest request, in bytes: more than the largest value, see [`GrpcSettings::for_values`].
    pub message_bytes_max: usize,
    /// Memory for the messages of all calls, in bytes. A request counts from its first byte to its answer's last byte.
    /// A connection may use at most as much memory as is then left for others; further calls are refused. The minimum
    /// is three of the largest messages, so that a message can arrive while another is answered.
    pub messages_bytes_max: usize,
    /// Largest number of connections served at a time (see [`Limits::connections_max`](knee_server::Limits)).
    pub connections_max: usize,
    /// A new connection that does not begin HTTP/2 within this time is closed.
    pub silence_max: Duration,
    /// Largest number of calls of one connection that are served at a time; further ones wait.
    pub streams_max: u32,
    /// Largest number of scans served at a time; further ones are refused.
    pub scans_max: usize,
    /// Largest number of watches served at a time; further ones are refused.
    pub watches_max: usize,
    /// Directory of the files that `Init` may load; without it, none.
    pub init_dir: Option<PathBuf>,
    /// Directory for the copies that `Backup` makes; without it, none.
    pub backup_dir: Option<PathBuf>,
    /// Largest number of copies in `backup_dir`.
    pub copies_max: usize,
    /// The server closes a connection if its client leaves a request unfinished, or an answer unread, for this time.
    /// Other calls of the connection must not make progress, either.
    pub reader_idle_max: Duration,
    /// Longest atomic scan: its snapshot keeps all versions that are replaced during the scan.
    pub snapshot_age_max: Duration,
    /// The time that running calls have to finish at shutdown.
    pub grace: Duration,
}

impl GrpcSettings {
    /// Default settings for values of at most `value_bytes_max`.
    pub fn for_values(value_bytes_max: usize) -> GrpcSettings {
        let message_bytes_max = (4 << 20).max(value_bytes_max) + MESSAGE_OVERHEAD_BYTES;
        GrpcSettings {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            pid: 1,
            message_bytes_max,
            messages_bytes_max: MESSAGES_BYTES_MIN.max(MESSAGES_MIN * message_bytes_max),
            connections_max: CONNECTIONS_MAX,
            silence_max: Duration::from_secs(10),
            streams_max: 256,
            scans_max: 64,
            watches_max: 64,
            init_dir: None,
            backup_dir: None,
            copies_max: COPIES_MAX,
            reader_idle_max: Duration::from_secs(30),
            snapshot_age_max: Duration::from_secs(3600),
            grace: Duration::from_secs(5),
        }
    }
}
