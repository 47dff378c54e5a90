//! `knee-kv` as a process: what it prints, and how it starts and ends.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nothing that is waited for here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(20);

struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    ready: Value,
}

impl Program {
    fn start(flags: &[&str]) -> Program {
        let mut child = Command::new(env!("CARGO_BIN_EXE_knee-kv"))
            .args(["--listen", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let ready = next(&mut lines).expect("the ready line comes first");
        Program { child, lines, ready }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.ready["listen"].as_str().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes two numbers; the process is our child and not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// Waits for the end; returns the exit code and what was printed last.
    fn end(mut self) -> (Option<i32>, Vec<Value>) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "knee-kv does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        (status.code(), std::iter::from_fn(|| next(&mut self.lines)).collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next(lines: &mut impl BufRead) -> Option<Value> {
    let mut line = String::new();
    (lines.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
}

fn talk(stream: &mut TcpStream, request: &[u8], end: &[u8]) -> Vec<u8> {
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

fn refused(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_knee-kv")).args(flags).output().unwrap()
}

#[test]
fn counts_what_it_answered_and_ends_on_sigterm() {
    let program = Program::start(&[]);
    assert_eq!(program.ready["type"], "ready");
    assert_eq!(program.ready["role"], "store");
    assert_eq!(program.ready["pid"], program.child.id());
    let mut client = program.connect();
    talk(&mut client, b"set k 0 0 3\r\nabc\r\nset l 0 -1 1\r\nx\r\n", b"STORED\r\nSTORED\r\n");
    talk(&mut client, b"get k\r\nget k l m\r\nget l\r\nnonsense\r\ndelete k\r\n", b"DELETED\r\n");
    program.signal(libc::SIGTERM);
    let (code, lines) = program.end();
    assert_eq!(code, Some(0));
    let summary = lines.last().unwrap();
    assert_eq!(summary["type"], "summary");
    let ops = &summary["ops"];
    let rows = [
        ("set", "count", 2),
        ("set", "items", 2),
        ("set", "bytes_in", 35),
        ("set", "bytes_out", 16),
        ("get", "count", 2),
        ("get", "hits", 1),
        ("get", "misses", 1),
        ("get", "bytes_in", 14),
        ("get", "bytes_out", 28),
        ("multiget", "count", 1),
        ("multiget", "items", 3),
        ("multiget", "hits", 1),
        ("multiget", "misses", 2),
        ("delete", "count", 1),
        ("delete", "hits", 1),
        ("other", "count", 1),
        ("other", "errors", 1),
    ];
    for (op, field, expected) in rows {
        assert_eq!(ops[op][field], expected, "{op}.{field}");
    }
    assert!(ops["get"]["service_sum_ns"].as_u64().unwrap() > 0);
    assert_eq!(summary["expired"], 1);
    let windows = lines.iter().filter(|line| line["type"] == "window");
    let counted: u64 = windows.filter_map(|line| line["ops"]["set"]["count"].as_u64()).sum();
    assert_eq!(counted, 2, "the windows add up to the summary");
}

#[test]
fn sigint_ends_it_too_and_stats_none_is_quiet() {
    let program = Program::start(&["--stats", "none", "--threads", "2"]);
    talk(&mut program.connect(), b"get k\r\n", b"END\r\n");
    program.signal(libc::SIGINT);
    assert_eq!(program.end(), (Some(0), vec![]));
}

#[test]
fn serves_prometheus_on_the_admin_address() {
    let program = Program::start(&["--admin", "127.0.0.1:0"]);
    talk(&mut program.connect(), b"get k\r\n", b"END\r\n");
    // The page tells of the seconds that are over.
    let deadline = Instant::now() + PATIENCE;
    while !metrics(&program).contains("knee_requests_total{role=\"store\",op=\"get\"} 1\n") {
        assert!(Instant::now() < deadline, "{}", metrics(&program));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn metrics(program: &Program) -> String {
    let mut admin = TcpStream::connect(program.ready["admin"].as_str().unwrap()).unwrap();
    admin.set_read_timeout(Some(PATIENCE)).unwrap();
    admin.write_all(b"GET /metrics HTTP/1.1\r\nHost: k\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    admin.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    page
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = refused(&["--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with(&format!("knee-kv: cannot listen on {address}: ")), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn wrong_flags_exit_with_2_and_say_what_is_wrong() {
    let rows: [(&[&str], &str); 5] = [
        (&["--memory-mb", "1"], "--memory-mb 1 is too little"),
        (&["--threads", "0"], "--threads"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--stats", "csv"], "--stats"),
        (&["--nonsense"], "--nonsense"),
    ];
    for (flags, expected) in rows {
        let output = refused(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(expected), "{flags:?}: {message}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}

#[test]
fn ends_at_once_when_the_parent_it_is_tied_to_is_gone() {
    // Process 1 is not the parent of a test's children.
    let mut child = Command::new(env!("CARGO_BIN_EXE_knee-kv"))
        .args(["--listen", "127.0.0.1:0", "--tied-to-parent", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it outlives its parent");
        std::thread::sleep(Duration::from_millis(5));
    }
}
