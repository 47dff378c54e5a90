//! `knee-kv` on a disk that is full: a small one of its own, mounted where nobody else sees it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{PutRequest, Value};
use tonic::{Code, Status};

use super::directory::Directory;
use super::{DISK_FULL, ask, expect_filled, fill, kill};
use crate::program::PATIENCE;

const NO_SPACE: &str = "No space left on device";

/// A disk, on the thread that has mounted it and in the programs that this starts.
struct Disk {
    directory: Directory,
}

impl Disk {
    /// Runs a test with a disk of so many MiB. Where nothing may be mounted, says so instead.
    fn with(mib: u64, test: impl FnOnce(&Disk) + Send) {
        let disk = Disk { directory: Directory::new() };
        std::fs::create_dir(&disk.directory.0).unwrap();
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

    /// Mounts it in a namespace of this thread: it goes when the thread and its programs have ended.
    fn mount(&self, mib: u64) -> io::Result<()> {
        // SAFETY: a call that takes a number.
        succeeded(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        mount(Path::new("/"), libc::MS_REC | libc::MS_PRIVATE, "")?;
        mount(&self.directory.0, 0, &format!("size={mib}m"))
    }

    fn resize(&self, mib: u64) {
        mount(&self.directory.0, libc::MS_REMOUNT, &format!("size={mib}m")).unwrap();
    }

    /// Takes what is left of the disk, until the file is removed.
    fn take_rest(&self) {
        let file = File::create(self.ballast()).unwrap();
        let mut piece = 1 << 20;
        while piece >= 4096 {
            let length = file.metadata().unwrap().len() as libc::off_t;
            // SAFETY: a call with a descriptor that is open.
            let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), length, piece) };
            if failed != 0 {
                assert_eq!(failed, libc::ENOSPC);
                piece /= 2;
            }
        }
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.directory.0.join("ballast")
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

/// Past the test's own output, which is shown only where one fails.
fn skipped(error: &io::Error) {
    let line = format!("SKIPPED: full disks: this user may not mount one ({error}); root may\n");
    io::Write::write_all(&mut io::stderr(), line.as_bytes()).unwrap();
}

/// Puts a key over gRPC.
fn put(url: &str, key: &'static str, bytes: usize) -> Result<(), Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = url.to_owned();
    runtime.block_on(async {
        let value = Some(Value { value: vec![b'g'; bytes].into(), ..Value::default() });
        let request = PutRequest { key: key.into(), value, ..PutRequest::default() };
        KeyValueClient::connect(url).await.unwrap().put(request).await.map(drop)
    })
}

const FLAGS: [&str; 6] =
    ["--grpc", "127.0.0.1:0", "--memory-mb", "64", "--value-bytes-max", "30000"];

#[test]
fn a_full_disk_takes_nothing_more_and_loses_nothing() {
    Disk::with(13, |disk| {
        let mut program = disk.directory.serve(&FLAGS);
        let (mut client, url) = (program.connect(), program.grpc());
        let (count, refusal) = fill(&mut client);
        assert_eq!(refusal, DISK_FULL);
        let refusal = put(&url, "more", 20_000).unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted);
        assert!(refusal.message().contains(NO_SPACE), "{refusal}");
        expect_filled(&mut client, count);
        // Nor does it when not even a list of the segments can be written.
        disk.take_rest();
        assert_eq!(put(&url, "more", 20_000).unwrap_err().code(), Code::ResourceExhausted);
        // What was kept for what frees some stays kept over an end of either kind, whoever takes the rest.
        kill(program);
        disk.take_rest();
        let program = disk.directory.serve(&FLAGS);
        expect_filled(&mut program.connect(), count);
        program.signal(libc::SIGTERM);
        program.end();
        disk.take_rest();
        let mut program = disk.directory.serve(&FLAGS);
        let (mut client, url) = (program.connect(), program.grpc());
        expect_filled(&mut client, count);
        assert_eq!(put(&url, "more", 20_000).unwrap_err().code(), Code::ResourceExhausted);
        kill(program);
        std::fs::remove_file(disk.ballast()).unwrap();
        disk.resize(26);
        let mut program = disk.directory.serve(&FLAGS);
        let (mut client, url) = (program.connect(), program.grpc());
        expect_filled(&mut client, count);
        let (more, _) = fill(&mut client);
        assert!(2 * more > count, "{more} after {count}: it does not go on");
        // With more room it goes on, once the disk is asked again.
        disk.resize(39);
        let began = Instant::now();
        while let Err(refusal) = put(&url, "more", 20_000) {
            assert!(began.elapsed() < PATIENCE, "{refusal}");
        }
        kill(program);
        let program = disk.directory.serve(&FLAGS);
        expect_filled(&mut program.connect(), count);
        assert!(
            ask(&mut program.connect(), "get more\r\n").starts_with("VALUE more 0 20000\r\ngg")
        );
    });
}
