//! How messages are kept in PostgreSQL.

use std::path::PathBuf;
use std::time::Duration;

use knee_server::Trace;

/// How messages are kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgresql://USER@HOST:PORT/DATABASE`, without a password. TLS is as its `sslmode`, `sslrootcert`, `sslcert` and
    /// `sslkey` say, or `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT` and `PGSSLKEY`.
    pub address: String,
    /// The file with the password; otherwise it is in `PGPASSWORD`, or in the file that `PGPASSFILE` names
    /// or `~/.pgpass`.
    pub password_file: Option<PathBuf>,
    /// Connections for requests, at least 1. Three more are for background jobs, and one listens.
    pub connections: usize,
    /// How long a request may wait for a connection to come free. Opening one takes its own time.
    pub connection_wait: Duration,
    /// How long a call may take until PostgreSQL undoes it. A connection without an answer for twice that
    /// is closed.
    pub call_max: Duration,
    /// Unused connections are closed after this time, except for one.
    pub idle_max: Option<Duration>,
    /// Requests of one call, at most; with 1, each is its own.
    pub combine_max: usize,
    /// Where failures of background jobs are reported.
    pub log: Trace,
}
