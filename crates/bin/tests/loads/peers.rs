//! `knee-load memcached` as a process, which ends when a test drops it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use knee_testkit::{Memcached, eventually};
use serde_json::Value;

/// A running `knee-load memcached`.
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

    /// Closes the reading end of the load's standard error.
    pub(crate) fn close_errors(&mut self) {
        self.child.stderr = None;
    }

    /// The load's whole output, which is no JSON.
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

/// A field of an operation; 0 if the operation did not occur.
pub(crate) fn count(line: &Value, op: &str, field: &str) -> u64 {
    line["ops"][op][field].as_u64().unwrap_or(0)
}

fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers; the process is a child that was not waited for yet.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}
