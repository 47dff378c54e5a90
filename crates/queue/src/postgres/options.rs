//! Options of a database in PostgreSQL.

use std::path::PathBuf;
use std::time::Duration;

use knee_server::Trace;

/// Options of the database.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgresql://USER@HOST:PORT/DATABASE`, without a password. `sslmode`, `sslrootcert`, `sslcert` and `sslkey`
    /// configure TLS, in the address or as `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT` and `PGSSLKEY`.
    pub address: String,
    /// The file with the password. Without it: `PGPASSWORD`, the file that `PGPASSFILE` names, or `~/.pgpass`.
    pub password_file: Option<PathBuf>,
    /// Number of connections for requests, at least 1. Background jobs use three more, and one more listens.
    pub connections: usize,
    /// Longest wait of a request for a free connection. If a connection must be opened, the wait may be longer.
    pub connection_wait: Duration,
    /// Longest time of a call: PostgreSQL undoes a call that takes longer. A connection without an answer for twice
    /// this time is closed.
    pub call_max: Duration,
    /// Connections that were unused for this time are closed, but at least one idle connection is kept.
    pub idle_max: Option<Duration>,
    /// Largest number of requests that are combined into one call; 1 combines none.
    pub combine_max: usize,
    /// Where failures of background jobs are reported.
    pub log: Trace,
}
