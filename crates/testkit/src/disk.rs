//! A small disk in a mount namespace of one test.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A disk that only the mounting thread and its child processes see.
#[derive(Debug)]
pub struct Disk {
    /// The mount point.
    pub directory: PathBuf,
}

impl Disk {
    /// Runs a test with a disk of `mib` MiB; reports a skipped test if this user may not mount one.
    pub fn with(mib: u64, test: impl FnOnce(&Disk) + Send) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-disk-{}-{number}", std::process::id());
        let disk = Disk { directory: std::env::temp_dir().join(name) };
        std::fs::create_dir(&disk.directory).unwrap();
        thread::scope(|scope| {
            let running = scope.spawn(|| match disk.mount(mib) {
                Ok(()) => test(&disk),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    skipped(&error);
                }
                Err(error) => panic!("no disk can be mounted: {error}"),
            });
            running.join().unwrap();
        });
    }

    /// Mounts the disk in a new namespace, which ends with this thread and its child processes.
    fn mount(&self, mib: u64) -> io::Result<()> {
        // SAFETY: the call takes a number and no pointers.
        succeeded(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        mount(Path::new("/"), libc::MS_REC | libc::MS_PRIVATE, "")?;
        mount(&self.directory, 0, &format!("size={mib}m"))
    }

    /// Changes the size of the disk.
    pub fn resize(&self, mib: u64) {
        mount(&self.directory, libc::MS_REMOUNT, &format!("size={mib}m")).unwrap();
    }

    /// Fills the rest of the disk.
    pub fn take_rest(&self) {
        let file = File::create(self.ballast()).unwrap();
        let mut piece = 1 << 20;
        while piece >= 4096 {
            let length = file.metadata().unwrap().len() as libc::off_t;
            // SAFETY: the descriptor is open.
            let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), length, piece) };
            if failed != 0 {
                assert_eq!(failed, libc::ENOSPC);
                piece /= 2;
            }
        }
    }

    /// Frees what [`Disk::take_rest`] took.
    pub fn give_back(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.directory.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn mount(at: &Path, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let at = CString::new(at.as_os_str().as_bytes()).unwrap();
    let options = CString::new(options).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: the strings end with a zero and outlive the call.
    succeeded(unsafe { libc::mount(kind, at.as_ptr(), kind, flags, options.as_ptr().cast()) })
}

fn succeeded(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes to standard error directly: captured output appears only if a test fails.
fn skipped(error: &io::Error) {
    let line = format!("SKIPPED: full disks: this user may not mount one ({error}); root may\n");
    io::Write::write_all(&mut io::stderr(), line.as_bytes()).unwrap();
}
