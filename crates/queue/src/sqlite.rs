//! Messages in a SQLite file, which a single process uses. They need no database server.
//!
//! # Layout
//!
//! * `file`: opens the file for one process, and checks or creates the tables.
//! * `changes`: requests that write. `reads`: requests that do not. `keeping`: leases that end, retention, and messages
//!   of deleted queues.
//! * `writer`: the only thread that writes; it commits waiting requests as one transaction. `readers`: reads that run
//!   during writes.
//! * `failure`, `time`: errors and times of SQLite.

mod changes;
mod failure;
mod file;
mod keeping;
mod readers;
mod reads;
mod time;
mod writer;

use std::fs::File;
use std::path::PathBuf;

use knee_server::Trace;
use tokio::sync::broadcast;

use self::failure::failure;
use self::readers::Readers;
use self::writer::Writer;
use crate::database::{Arrival, Database, Failure, Stages};
use crate::operation::{Answer, Request};
use crate::upkeep::Report;

/// Largest number of arrivals queued for a slow subscriber.
const ARRIVALS_MAX: usize = 4096;

/// Options of the database.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file, created if it is missing; `None` keeps messages in memory.
    pub file: Option<PathBuf>,
    /// Whether an answered change survives a power failure. It always survives the end of the process.
    pub durable: bool,
    /// Where failures of background jobs are reported.
    pub log: Trace,
}

/// A database in a file, or in memory.
#[derive(Debug)]
pub struct Sqlite {
    writer: Writer,
    /// Without a file, only the writer sees the messages.
    readers: Option<Readers>,
    arrivals: broadcast::Sender<Option<Arrival>>,
    /// The lock that excludes other processes from the file.
    _lock: Option<File>,
}

impl Sqlite {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// When another process uses the file, or the file has another format or version.
    pub fn open(options: &Options) -> Result<Sqlite, Failure> {
        let lock = options.file.as_deref().map(file::lock).transpose()?;
        let mut connection = file::connect(options.file.as_deref())?;
        file::prepare(&mut connection, options.durable).map_err(failure)?;
        let readers = match &options.file {
            Some(file) => Some(Readers::open(file)?),
            None => None,
        };
        let arrivals = broadcast::Sender::new(ARRIVALS_MAX);
        let writer = Writer::start(connection, arrivals.clone(), Report::new(options.log.clone()))?;
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

    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>> {
        self.arrivals.subscribe()
    }
}
