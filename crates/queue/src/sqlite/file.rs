//! Opens the file for one process, and creates or checks its tables.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ffi};

use super::failure::failure;
use crate::database::Failure;

/// The schema's version, in the file's `user_version`.
const VERSION: i64 = 1;
/// "knee", in the file's `application_id`.
const APPLICATION: i64 = 0x6b6e_6565;

/// Locks the file for this process. SQLite's own locks would let other processes write between two transactions.
pub(super) fn lock(path: &Path) -> Result<File, Failure> {
    let failed = |error: io::Error| Failure::Unavailable(format!("cannot open the file: {error}"));
    let open = |path: &Path| OpenOptions::new().create(true).truncate(false).write(true).open(path);
    // All names of the file share one lock, so resolve links. The file has to exist for that.
    let resolved = path.canonicalize().or_else(|_| open(path).and_then(|_| path.canonicalize()));
    let mut name = resolved.map_err(failed)?.into_os_string();
    name.push("-lock");
    let file = open(Path::new(&name)).map_err(failed)?;
    // SAFETY: a call with a descriptor that is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(file);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock {
        return Err(Failure::Unavailable("another process uses the file".to_owned()));
    }
    Err(failed(error))
}

pub(super) fn connect(file: Option<&Path>) -> Result<Connection, Failure> {
    let Some(file) = file else { return Connection::open_in_memory().map_err(failure) };
    let connection = Connection::open(file)
        .map_err(|error| Failure::Unavailable(format!("cannot open the file: {error}")))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(failure)?;
    Ok(connection)
}

/// Creates the tables in an empty file. Refuses a file with other tables, and leaves it unchanged.
pub(super) fn prepare(connection: &mut Connection, durable: bool) -> rusqlite::Result<()> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && (application != APPLICATION || version != VERSION) {
        return Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_NOTADB),
            Some(format!(
                "the file is not a message queue of this version: it has application \
                 {application:#x} and version {version}, not {APPLICATION:#x} and {VERSION}"
            )),
        ));
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    let synchronous = if durable { "full" } else { "off" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.set_prepared_statement_cache_capacity(64);
    if tables == 0 {
        let transaction = connection.transaction()?;
        transaction.execute_batch(include_str!("schema.sql"))?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    Ok(())
}
