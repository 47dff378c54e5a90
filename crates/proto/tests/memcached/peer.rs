//! The memcached of a test.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A memcached with a socket in its own directory. Its drop stops it.
pub(crate) struct Memcached {
    process: Child,
    directory: PathBuf,
}

impl Memcached {
    pub(crate) fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("knee-proto-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let process = Command::new("memcached")
            .args(["-u", "root", "-t", "1", "-s"])
            .arg(directory.join("socket"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "this test compares with the real memcached, which does not start ({error}): \
                     install it with `apt-get install memcached`, or run `make test`"
                )
            });
        let server = Memcached { process, directory };
        let deadline = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(server.directory.join("socket")).is_err() {
            assert!(Instant::now() < deadline, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(server.ask(b"version\r\n"), b"VERSION 1.6.18\r\n", "compared with this version");
        server
    }

    /// The server's answers to `input` before the connection ends.
    pub(crate) fn ask(&self, input: &[u8]) -> Vec<u8> {
        self.exchange(input, true)
    }

    /// The server's answers to `input` before the server itself closes the connection.
    pub(crate) fn ask_until_closed(&self, input: &[u8]) -> Vec<u8> {
        self.exchange(input, false)
    }

    fn exchange(&self, input: &[u8], finish: bool) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.directory.join("socket")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(input).unwrap();
        if finish {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // The server closed the connection with unread input.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            result => drop(result.unwrap()),
        }
        answer
    }

    /// Empties the server.
    pub(crate) fn flush(&self) {
        assert_eq!(self.ask(b"flush_all\r\n"), b"OK\r\n");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
