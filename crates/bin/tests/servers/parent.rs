//! `--tied-to-parent`: no program outlives its parent.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use knee_testkit::free_address;

use crate::program::{KV, LOAD, PROXY, Program, QUEUE, wait};

/// Each program, with flags of a long run.
fn programs(store: &Program, grpc: &str, queue: &str) -> [(&'static str, String); 6] {
    let store = store.address();
    [
        (KV, "--listen 127.0.0.1:0".to_owned()),
        (PROXY, format!("--listen 127.0.0.1:0 --server {store} --workers 2")),
        (LOAD, format!("memcached --server {store} --seconds 600 --think-ms 100")),
        (LOAD, format!("kv --server {grpc} --seconds 600 --think-ms 100")),
        (QUEUE, "--listen 127.0.0.1:0".to_owned()),
        (LOAD, format!("queue --server {queue} --seconds 600 --think-ms 100")),
    ]
}

#[test]
fn program_without_its_parent_ends_at_once() {
    let grpc = free_address();
    let store = Program::serve(KV, &["--grpc", &grpc]);
    let queue = Program::serve(QUEUE, &["--database", "null"]);
    for (program, flags) in programs(&store, &grpc, queue.address()) {
        // Process 1 is not the parent of a test's children.
        let mut child = Command::new(program)
            .args(flags.split(' '))
            .args(["--tied-to-parent", "1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait(&mut child);
    }
}

#[test]
fn program_ends_orderly_when_its_parent_is_killed() {
    let grpc = free_address();
    let store = Program::serve(KV, &["--grpc", &grpc]);
    let queue = Program::serve(QUEUE, &["--database", "null"]);
    for (program, flags) in programs(&store, &grpc, queue.address()) {
        // A shell that starts the program and waits.
        let script = format!("{program} {flags} --tied-to-parent $$ & wait");
        let mut shell =
            Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("{\"type\":\"ready\""), "{ready}");
        shell.kill().unwrap();
        shell.wait().unwrap();
        // Standard output closes when the program ends.
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let last = rest.lines().last().unwrap_or_default();
        assert!(last.starts_with("{\"type\":\"summary\""), "{program}: {rest}");
    }
}
