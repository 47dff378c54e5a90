//! A minimal durable server, for comparison: it appends a batch of requests to a file, syncs the file, and answers.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use knee_reactor::{Close, ConnId, Handler, Io, Origin};

/// The reply to every request.
pub const REPLY: &[u8] = b"STORED\r\n";

/// The log writes this many zeros ahead at a time, as the store does.
const AHEAD_BYTES: usize = 256 * 1024;
static ZEROS: [u8; AHEAD_BYTES] = [0; AHEAD_BYTES];

/// The requests that were made safe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Logged {
    /// Requests written and answered.
    pub records: u64,
    /// Groups of requests: each took one write and one fdatasync.
    pub commits: u64,
    /// The time that the commits took.
    pub commit_time: Duration,
}

/// The handler that owns the log and runs on one reactor thread.
pub struct LogHandler<F> {
    file: File,
    /// The size of the file; a full log starts again at the beginning.
    file_bytes: u64,
    position: u64,
    /// The end of the written part, including zeros.
    ahead: u64,
    request_bytes: NonZeroUsize,
    /// The requests of the present batch.
    group: Vec<u8>,
    logged: Logged,
    report: F,
}

impl<F: FnMut(Result<Logged, String>)> LogHandler<F> {
    /// A log of requests of this length. Its file has reserved space, and zeros are written ahead, like the store's
    /// segments. Otherwise fdatasync would also write metadata: the file's new length, or which blocks are in use.
    /// `report` gets the counts at the end, or the error.
    ///
    /// # Errors
    /// When the space cannot be reserved.
    pub fn new(
        file: File,
        file_bytes: u64,
        request_bytes: NonZeroUsize,
        report: F,
    ) -> io::Result<Self> {
        let length = libc::off_t::try_from(file_bytes).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open.
        let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        file.sync_all()?;
        Ok(LogHandler {
            file,
            file_bytes,
            position: 0,
            ahead: 0,
            request_bytes,
            group: Vec::new(),
            logged: Logged::default(),
            report,
        })
    }

    fn commit(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let length = self.group.len() as u64;
        if self.position + length > self.file_bytes {
            self.position = 0;
        }
        self.file.write_all_at(&self.group, self.position)?;
        self.position += length;
        if self.ahead < self.position {
            self.ahead = self.file_bytes.min(self.position + AHEAD_BYTES as u64);
            let zeros = &ZEROS[..(self.ahead - self.position) as usize];
            self.file.write_all_at(zeros, self.position)?;
        }
        self.file.sync_data()?;
        self.logged.records += length / self.request_bytes.get() as u64;
        self.logged.commits += 1;
        self.logged.commit_time += began.elapsed();
        self.group.clear();
        Ok(())
    }
}

impl<F: FnMut(Result<Logged, String>)> Handler for LogHandler<F> {
    fn on_open(&mut self, _io: &mut Io, _conn: ConnId, _origin: Origin) {}

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let size = self.request_bytes.get();
        let requests = input.len() / size;
        self.group.extend_from_slice(&input[..requests * size]);
        for _ in 0..requests {
            io.write(conn, REPLY);
        }
        requests * size
    }

    /// Requests that arrive before the sync join the batch, as in the store. So both form equal batches.
    fn gathers(&mut self) -> bool {
        !self.group.is_empty()
    }

    /// Commits the group; the answers leave after this.
    fn on_batch_end(&mut self, io: &mut Io) {
        if !self.group.is_empty()
            && let Err(error) = self.commit()
        {
            io.abandon();
            (self.report)(Err(format!("cannot write the log: {error}")));
        }
    }

    fn on_close(&mut self, _io: &mut Io, _conn: ConnId, _origin: Origin, _why: Close) {}

    fn on_stop(&mut self, _io: &mut Io) {
        (self.report)(Ok(self.logged));
    }
}
