//! Settings of the gRPC front.

use std::path::PathBuf;
use std::time::Duration;

/// What all messages may take unless somebody says otherwise, and so many of the largest ones.
const MESSAGES_BYTES_MIN: usize = 256 << 20;
const MESSAGES_MIN: usize = 4;
/// Room that a message has beside one value.
const MESSAGE_OVERHEAD_BYTES: usize = 64 << 10;
/// Connections that are served unless somebody says otherwise.
pub const CONNECTIONS_MAX: usize = 1024;
/// Copies that clients may have made unless somebody says otherwise.
pub const COPIES_MAX: usize = 16;

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Threads that serve connections, at least 1.
    pub threads: usize,
    /// The second part of the versions that honu's interface prints.
    pub pid: u64,
    /// Largest request: of one value, or of a bulk put. A value and some room around it is what it
    /// must have at least, see [`GrpcSettings::for_values`].
    pub message_bytes_max: usize,
    /// What the messages of all calls take together, from the first byte of a request to the last one
    /// of its answer, and those of a connection no more than they leave to others; what is beyond it
    /// is refused. Three of the largest at least: then one is taken while another one is answered.
    pub messages_bytes_max: usize,
    /// Connections served at a time; further ones are closed at once.
    pub connections_max: usize,
    /// A connection that says nothing from its beginning on is closed after so long.
    pub silence_max: Duration,
    /// Calls of one connection that are served at a time; further ones wait.
    pub streams_max: u32,
    /// Scans served at a time; further ones are refused.
    pub scans_max: usize,
    /// Watches served at a time; further ones are refused.
    pub watches_max: usize,
    /// Where the files are that clients may have loaded; without it, none.
    pub init_dir: Option<PathBuf>,
    /// Where clients may have copies of the store made; without it, nowhere.
    pub backup_dir: Option<PathBuf>,
    /// Directories that there may be in it.
    pub copies_max: usize,
    /// A connection is closed after its clients left a request unfinished, or an answer unread, for so long;
    /// other calls of the connection that go on count as movement.
    pub reader_idle_max: Duration,
    /// An atomic scan that goes on for longer is given up: what was replaced since it began is kept
    /// for it.
    pub snapshot_age_max: Duration,
    /// Calls that go on when the server is to end have so long.
    pub grace: Duration,
}

impl GrpcSettings {
    /// What suits a store with values of at most so many bytes.
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
