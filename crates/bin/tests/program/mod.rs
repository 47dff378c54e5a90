//! A program as a process, which ends when a test drops it.

pub(crate) mod limits;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub(crate) use knee_testkit::PATIENCE;
use knee_testkit::free_address;
use serde_json::Value;

pub(crate) const KV: &str = env!("CARGO_BIN_EXE_knee-kv");
pub(crate) const PROXY: &str = env!("CARGO_BIN_EXE_knee-proxy");
pub(crate) const QUEUE: &str = env!("CARGO_BIN_EXE_knee-queue");
pub(crate) const SPACE: &str = env!("CARGO_BIN_EXE_knee-space");
pub(crate) const LOAD: &str = env!("CARGO_BIN_EXE_knee-load");

pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    pub(crate) ready: Value,
}

/// The end of a program.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    /// Standard output behind the ready line.
    pub(crate) lines: Vec<Value>,
    pub(crate) errors: String,
}

impl End {
    /// The summary of a program that ended well.
    pub(crate) fn summary(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let summary = self.lines.last().unwrap();
        assert_eq!(summary["type"], "summary");
        summary
    }

    pub(crate) fn windows(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(|line| line["type"] == "window")
    }
}

/// A field of an operation; 0 if the operation did not occur.
pub(crate) fn count(line: &Value, op: &str, field: &str) -> u64 {
    line["ops"][op][field].as_u64().unwrap_or_default()
}

/// The errors of all operations.
pub(crate) fn errors(line: &Value) -> u64 {
    line["ops"].as_object().unwrap().values().map(|op| op["errors"].as_u64().unwrap()).sum()
}

impl Program {
    /// Starts a program that prints JSON lines.
    pub(crate) fn start(program: &str, flags: &[&str]) -> Program {
        Program::spawn(Command::new(program).args(flags))
    }

    /// A server on a leased port: no other server may take the port of a server that has died.
    pub(crate) fn serve(program: &str, flags: &[&str]) -> Program {
        Program::spawn(Command::new(program).args(["--listen", &free_address()]).args(flags))
    }

    pub(crate) fn spawn(command: &mut Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = read(child.stdout.take().unwrap(), |_| true);
        let errors = read(child.stderr.take().unwrap(), |line| !is_progress(line));
        // Ends the process when a check fails.
        let mut program = Program { child, lines, errors, ready: Value::Null };
        match program.lines.recv_timeout(PATIENCE) {
            Ok(ready) => program.ready = value(&ready),
            Err(RecvTimeoutError::Timeout) => {
                let errors = program.errors.try_iter().collect::<String>();
                panic!("{command:?} was not ready within {PATIENCE:?}: {errors}");
            }
            Err(RecvTimeoutError::Disconnected) => {
                let End { code, errors, .. } = program.end();
                panic!("{command:?} ended with {code:?} before its ready line: {errors}");
            }
        }
        assert_eq!(program.ready["type"], "ready");
        program
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> &str {
        self.ready["listen"].as_str().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Its gRPC address, from the first line on standard error.
    pub(crate) fn grpc(&mut self) -> String {
        let line = self.next_error();
        let address = line.strip_prefix("knee-kv: gRPC on ").unwrap_or_else(|| panic!("{line}"));
        format!("http://{address}")
    }

    /// Waits for the next line on standard error that is not progress.
    pub(crate) fn next_error(&mut self) -> String {
        let line = match self.errors.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => panic!("no line on standard error"),
            line => line.unwrap_or_default(),
        };
        line.trim_end_matches('\n').to_owned()
    }

    /// Further lines on standard error, without waiting.
    pub(crate) fn said(&self) -> Vec<String> {
        self.errors.try_iter().collect()
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        knee_testkit::signal(&self.child, signal);
    }

    /// Waits for the next line.
    pub(crate) fn line(&mut self) -> Value {
        value(&self.lines.recv_timeout(PATIENCE).expect("there is another line"))
    }

    /// Waits for a line for which `holds` returns true, and returns it.
    pub(crate) fn line_when(&mut self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.line();
            if holds(&line) {
                return line;
            }
            assert!(Instant::now() < deadline, "never: {what}: {line}");
        }
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> End {
        let code = wait(&mut self.child);
        let lines = self.lines.iter().map(|line| value(&line)).collect();
        End { code, lines, errors: self.errors.iter().collect() }
    }

    /// The metrics page, from the admin address.
    pub(crate) fn metrics(&self) -> String {
        let mut admin = connect(self.ready["admin"].as_str().unwrap());
        admin.write_all(b"GET /metrics HTTP/1.1\r\nHost: k\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        admin.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        page
    }

    /// Waits until the metrics page has this line. The page counts whole seconds.
    pub(crate) fn wait_for_metric(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.metrics().lines().any(|metric| metric == line) {
            assert!(Instant::now() < deadline, "no {line} in {}", self.metrics());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a process ends. Returns its exit code.
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The output of a program that ends before its ready line.
pub(crate) fn refused(program: &str, flags: &[&str]) -> Output {
    Command::new(program).args(flags).output().unwrap()
}

/// Runs `knee-load` to its end.
pub(crate) fn run_load(flags: &[&str]) -> End {
    let output = refused(LOAD, flags);
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(value).collect();
    let errors = String::from_utf8(output.stderr).unwrap();
    End { code: output.status.code(), lines, errors }
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, and returns the answer up to `end`.
pub(crate) fn talk(stream: &mut TcpStream, request: &[u8], end: &[u8]) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(end) {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {}", answer.escape_ascii());
        answer.extend_from_slice(&buffer[..read]);
    }
    answer
}

/// Whether a line of a store is progress, which the store prints once a second.
pub(crate) fn is_progress(line: &str) -> bool {
    let message = line.strip_prefix("knee-kv: ").unwrap_or_default();
    ["loading ", "opening ", "writing "].iter().any(|what| message.starts_with(what))
}

/// Reads lines on their own thread, so that the program never waits for a reader.
fn read(
    from: impl Read + Send + 'static,
    is_wanted: impl Fn(&str) -> bool + Send + 'static,
) -> Receiver<String> {
    let (read, lines) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = String::new();
        while from.read_line(&mut line).unwrap() > 0 {
            let line = std::mem::take(&mut line);
            if is_wanted(&line) {
                // The receiver ends with the program.
                let _ = read.send(line);
            }
        }
    });
    lines
}

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}
