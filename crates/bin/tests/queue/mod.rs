//! `knee-queue`, and `knee-load queue` against it.

mod backlog;
mod clients;
mod disk;
mod flags;
mod killed;
mod loops;
mod losses;
mod peers;
mod silent;

use std::process::Command;

use serde_json::Value;

use crate::program::{End, LOAD, Program};

/// So few clients that the server reports no limit of open files.
const FEW: &[&str] = &["--clients-max", "100"];

/// The requests in a round of `send-list-read-remove`.
const SEED_OPS: [&str; 4] = ["send", "list_queues", "read_all", "remove"];

/// Runs `knee-load queue` to its end. Returns its summary.
fn load(server: &Program, flags: &str) -> Value {
    let output = Command::new(LOAD)
        .args(["queue", "--drain-s", "30", "--server", server.address()])
        .args(flags.split(' '))
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let summary: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(summary["type"], "summary");
    summary
}

/// Runs `knee-load queue` until it has counted each of `ops`. Returns its summary.
fn load_until_counted(server: &Program, flags: &str, ops: &[&str]) -> Value {
    let flags = format!("queue --seconds 600 --drain-s 30 --server {} {flags}", server.address());
    let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
    let mut missing = ops.to_vec();
    load.line_when("each is counted", |line| {
        missing.retain(|op| count(line, op) == 0);
        missing.is_empty()
    });
    let summary = ended(load);
    assert_eq!(summary["type"], "summary");
    summary
}

/// Ends a program by SIGTERM. Returns its summary.
fn ended(program: Program) -> Value {
    program.signal(libc::SIGTERM);
    let End { code, lines, errors } = program.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    lines.last().unwrap().clone()
}

fn count(summary: &Value, op: &str) -> u64 {
    let count = &summary["ops"][op]["count"];
    if count.is_null() { 0 } else { count.as_u64().unwrap() }
}

fn has_no_answer(line: &Value) -> bool {
    line["ops"].as_object().unwrap().is_empty()
}

fn errors(line: &Value) -> u64 {
    let ops = line["ops"].as_object().unwrap();
    ops.values().map(|op| op["errors"].as_u64().unwrap()).sum()
}
