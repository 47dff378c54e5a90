//! The lock of a directory: one store at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The lock of a directory, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A forked process has a copy of the descriptor until it executes its program: so unlock explicitly.
        // SAFETY: a call with a descriptor that is open.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Locks a directory for one store, and perhaps `makes` the lock's file; [`io::ErrorKind::WouldBlock`] if another store
/// has it.
pub(super) fn lock(path: &Path, makes: bool) -> io::Result<Lock> {
    let mut options = OpenOptions::new();
    options.create(makes).truncate(false).read(true).write(makes);
    let file = match options.open(path.join("LOCK")) {
        // Without that file, no store has the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !makes => File::open(path)?,
        file => file?,
    };
    // SAFETY: a call with a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(Lock(file)),
        _ => Err(io::Error::last_os_error()),
    }
}
