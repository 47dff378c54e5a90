//! Settings of the gRPC front.

use std::path::PathBuf;
use std::time::Duration;

/// Defaults of the memory for messages: at least so much, and so many of the largest.
const MESSAGES_BYTES_MIN: usize = 256 << 20;
const MESSAGES_MIN: usize = 4;
/// Room that a message has beside one value.
const MESSAGE_OVERHEAD_BYTES: usize = 64 << 10;
/// The default limit of connections.
pub const CONNECTIONS_MAX: usize = 1024;
/// The default limit of copies.
pub const COPIES_MAX: usize = 16;

/// How the gRPC front serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Threads that serve connections, at least 1.
    pub threads: usize,
    /// The second part of the versions that honu's interface prints.
    pub pid: u64,
    /// Largest request: at least a value and some room beside it, see [`GrpcSettings::for_values`].
    pub message_bytes_max: usize,
    /// Memory for the messages of all calls, from the first byte of a request to the last one of its answer.
    /// Those of a connection take no more than it leaves to others; further calls are refused. Three of the
    /// largest at least, so that one is taken while another is answered.
    pub messages_bytes_max: usize,
    /// Connections served at a time; further ones are closed at once.
    pub connections_max: usize,
    /// A new connection that does not begin HTTP/2 for so long is closed.
    pub silence_max: Duration,
    /// Calls of one connection that are served at a time; further ones wait.
    pub streams_max: u32,
    /// Scans served at a time; further ones are refused.
    pub scans_max: usize,
    /// Watches served at a time; further ones are refused.
    pub watches_max: usize,
    /// Directory of the files that `Init` may load; without it, none.
    pub init_dir: Option<PathBuf>,
    /// Directory for the copies that `Backup` makes; without it, none.
    pub backup_dir: Option<PathBuf>,
    /// Directories in it at most.
    pub copies_max: usize,
    /// A connection is closed when its client leaves a request unfinished, or an answer unread, for so long while
    /// no other call of the connection goes on.
    pub reader_idle_max: Duration,
    /// An atomic scan that runs for longer is ended, as it keeps what was replaced since it began.
    pub snapshot_age_max: Duration,
    /// The time that running calls have at the end of the server.
    pub grace: Duration,
}

impl GrpcSettings {
    /// Settings for values of at most so many bytes.
    #[must_use]
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
