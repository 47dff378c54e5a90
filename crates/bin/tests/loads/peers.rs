//! memcached and knee-load as processes, which end when a test drops them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use knee_testkit::free_port;
use serde_json::Value;

/// How long a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Debian's memcached on a free port.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Memcached {
    pub(crate) fn start(flags: &[&str]) -> Memcached {
        let port = free_port();
        let child = memcached(port, flags);
        let memcached = Memcached { child, address: ([127, 0, 0, 1], port).into() };
        eventually("memcached's port", || TcpStream::connect(memcached.address).ok());
        memcached
    }

    /// Starts again, empty, where it was.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = memcached(self.address.port(), &[]);
        eventually("memcached's return", || TcpStream::connect(self.address).ok());
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, signal: i32) {
        send(self.child.id(), signal);
    }

    /// Sends a request of another client, and returns the answer up to a line that ends with `end`.
    pub(crate) fn ask(&self, request: &str, end: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let mut reader = BufReader::new(stream);
        while !answer.trim_end().ends_with(end) {
            assert!(reader.read_line(&mut answer).unwrap() > 0, "cut short: {answer}");
        }
        answer
    }

    pub(crate) fn stats(&self) -> HashMap<String, u64> {
        let answer = self.ask("stats\r\n", "END");
        let numbers = answer.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        });
        numbers.collect()
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A `knee-load memcached` at work.
pub(crate) struct Load {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

/// The output of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) lines: Vec<Value>,
    pub(crate) errors: String,
}

impl Load {
    pub(crate) fn start(servers: &[&Memcached], flags: &str) -> Load {
        let addresses: Vec<String> =
            servers.iter().map(|server| format!("--server={}", server.address)).collect();
        // Late answers on a slow machine are no errors.
        let drain: &[&str] = if flags.contains("--drain-s") { &[] } else { &["--drain-s", "30"] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_knee-load"))
            .arg("memcached")
            .args(addresses)
            .args(drain)
            .args(flags.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Load { child, output }
    }

    /// Runs a load to its end.
    pub(crate) fn run(servers: &[&Memcached], flags: &str) -> Outcome {
        Load::start(servers, flags).finish()
    }

    /// Waits for the next line, if there is one.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0)
            .then(|| serde_json::from_str(&line).unwrap())
    }

    /// Waits for the next line, which must be of this type.
    pub(crate) fn expect(&mut self, kind: &str) -> Value {
        let line = self.line().expect("there is another line");
        assert_eq!(line["type"], kind, "{line}");
        line
    }

    pub(crate) fn signal(&self, signal: i32) {
        send(self.child.id(), signal);
    }

    /// Waits until the load handles a signal.
    pub(crate) fn wait_until_it_handles(&self, signal: i32) {
        eventually("a signal handler", || {
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
            (caught >> (signal - 1) & 1 == 1).then_some(())
        });
    }

    /// Closes the reading end of its standard error.
    pub(crate) fn close_errors(&mut self) {
        self.child.stderr = None;
    }

    /// Its whole output, which is no JSON.
    pub(crate) fn printed(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        text
    }

    pub(crate) fn finish(mut self) -> Outcome {
        let (mut text, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut text).unwrap();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut errors).unwrap();
        }
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Outcome { code: self.child.wait().unwrap().code(), lines, errors }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    /// The summary of a run that ended well.
    pub(crate) fn summary(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let summary = self.lines.last().unwrap();
        assert_eq!(summary["type"], "summary");
        summary
    }

    pub(crate) fn windows(&self) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["type"] == "window").collect()
    }
}

/// A field of an operation; 0 when it did not occur.
pub(crate) fn count(line: &Value, op: &str, field: &str) -> u64 {
    line["ops"][op][field].as_u64().unwrap_or(0)
}

fn memcached(port: u16, flags: &[&str]) -> Child {
    Command::new("memcached")
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", "1", "-u", "root"])
        .args(flags)
        .spawn()
        .expect("these tests need memcached: apt-get install memcached")
}

fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers; the process is a child that was not waited for yet.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}
