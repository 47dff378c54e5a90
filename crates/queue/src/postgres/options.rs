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
    /// Connections for requests, at least 1. Background jobs use three more, and one more listens.
    pub connections: usize,
    /// How long a request may wait for a free connection. Opening a connection may take longer.
    pub connection_wait: Duration,
    /// PostgreSQL undoes a call that takes longer. A connection without an answer for twice this time is closed.
    pub call_max: Duration,
    /// Unused connections are closed after this time, except for one.
    pub idle_max: Option<Duration>,
    /// Most requests that are combined into one call; 1 combines none.
    pub combine_max: usize,
    /// Where failures of background jobs are reported.
    pub log: Trace,
}
