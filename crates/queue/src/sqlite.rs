//! Messages in a file of SQLite's, for one process: the database that needs no server.
//!
//! # Layout
//!
//! * `changes`: what alters messages. * `reads`: what does not. * `keeping`: leases that end,
//!   retention, and what deleted queues leave behind. * `writer`: the one thread that alters, and
//!   commits what waits as one transaction. * `readers`: threads that read beside it.

mod changes;
mod keeping;
mod readers;
mod reads;
mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, ffi};
use tokio::sync::broadcast;

use self::readers::Readers;
use self::writer::Writer;
use crate::database::{Arrival, Database, Failure, Stages};
use crate::operation::{Answer, QueueId, Request};
use crate::trouble::Trouble;

/// The schema's version, in the file's `user_version`.
const VERSION: i64 = 1;
/// "knee", in the file's `application_id`.
const APPLICATION: i64 = 0x6b6e_6565;
/// Arrivals that are remembered for who is slow to hear of them.
const ARRIVALS_MAX: usize = 4096;

/// How messages are kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file, which is made if it is not there; without one they are in memory.
    pub file: Option<PathBuf>,
    /// Whether what was answered has survived when the power fails. What a killed process had
    /// answered is there in either case.
    pub durable: bool,
    /// Told what nobody is who asks for something: that what has to be done anyway fails, once for each reason, and
    /// that it works again. It may take its time, on a thread of its own.
    pub tell: fn(&str),
}

/// A database in a file, or in memory.
#[derive(Debug)]
pub struct Sqlite {
    writer: Writer,
    /// Without a file, the writer is the only one who sees the messages.
    readers: Option<Readers>,
    arrivals: broadcast::Sender<Arrival>,
    /// Says to other processes that the file is in use, as long as it is open.
    _lock: Option<File>,
}

impl Sqlite {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When another process has it, when it is somebody else's, of a later version, or cannot be read.
    pub fn open(options: &Options) -> Result<Sqlite, Failure> {
        let lock = options.file.as_deref().map(lock).transpose()?;
        let mut connection = connect(options.file.as_deref())?;
        prepare(&mut connection, options).map_err(failure)?;
        let readers = match &options.file {
            Some(file) => Some(Readers::open(file)?),
            None => None,
        };
        let arrivals = broadcast::Sender::new(ARRIVALS_MAX);
        let writer = Writer::start(connection, arrivals.clone(), Trouble::new(options.tell)?)?;
        Ok(Sqlite { writer, readers, arrivals, _lock: lock })
    }
}

impl Database for Sqlite {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        match &self.readers {
            Some(readers) if request.only_reads() => readers.call(request, stages).await,
            _ => self.writer.call(request, stages).await,
        }
    }

    async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        Ok(self.arrivals.subscribe())
    }

    async fn watch(&self, queue: QueueId) -> Result<(), Failure> {
        // Every arrival passes through here anyway.
        match &self.readers {
            Some(readers) => readers.check_queue(queue).await,
            None => self.writer.check_queue(queue).await,
        }
    }
}

/// Takes the file for this process: SQLite itself would let others write to it in between.
fn lock(path: &Path) -> Result<File, Failure> {
    let told =
        |error: io::Error| Failure::Unavailable(format!("cannot open {}: {error}", path.display()));
    let open = |path: &Path| OpenOptions::new().create(true).truncate(false).write(true).open(path);
    // By the one name that it has whatever links lead there, which has to be there for that.
    let resolved = path.canonicalize().or_else(|_| open(path).and_then(|_| path.canonicalize()));
    let mut name = resolved.map_err(told)?.into_os_string();
    name.push("-lock");
    let file = open(Path::new(&name)).map_err(told)?;
    // SAFETY: a call with a descriptor that is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(file);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock {
        let text = format!("{} is in use by another process", path.display());
        return Err(Failure::Unavailable(text));
    }
    Err(told(error))
}

fn connect(file: Option<&Path>) -> Result<Connection, Failure> {
    let Some(file) = file else { return Connection::open_in_memory().map_err(failure) };
    let connection = Connection::open(file).map_err(|error| {
        Failure::Unavailable(format!("cannot open {}: {error}", file.display()))
    })?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(failure)?;
    Ok(connection)
}

/// Makes the tables where there are none, and refuses those it does not know, unaltered.
fn prepare(connection: &mut Connection, options: &Options) -> rusqlite::Result<()> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && (application != APPLICATION || version != VERSION) {
        return Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_NOTADB),
            Some(format!(
                "the file is not a message queue of this version: it says application \
                 {application:#x}, version {version}, where {APPLICATION:#x} and {VERSION} are meant"
            )),
        ));
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    let synchronous = if options.durable { "full" } else { "off" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.set_prepared_statement_cache_capacity(64);
    if tables == 0 {
        let transaction = connection.transaction()?;
        transaction.execute_batch(include_str!("sqlite/schema.sql"))?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    Ok(())
}

/// What an error of SQLite's means to who asked. Its transaction is rolled back.
fn failure(error: rusqlite::Error) -> Failure {
    let text = format!("SQLite: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Failure::Full(text),
        Some(ErrorCode::NotADatabase) => Failure::NotMigrated(text),
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure,
        ) => Failure::Unavailable(text),
        _ => Failure::Broken(text),
    }
}

/// Microseconds since 1970.
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
