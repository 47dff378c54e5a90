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

use serde_json::Value;

use crate::program::{self, LOAD, Program, errors, run_load};

/// So few clients that the server reports no limit of open files.
const FEW: &[&str] = &["--clients-max", "100"];

/// The requests in a round of `send-list-read-remove`.
const SEED_OPS: [&str; 4] = ["send", "list_queues", "read_all", "remove"];

/// Runs `knee-load queue` to its end. Returns its summary.
fn load(server: &Program, flags: &str) -> Value {
    let flags = format!("queue --drain-s 30 --server {} {flags}", server.address());
    let end = run_load(&flags.split(' ').collect::<Vec<_>>());
    assert_eq!(end.errors, "");
    end.summary().clone()
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
    ended(load)
}

/// Ends a program by SIGTERM. Returns its summary.
fn ended(program: Program) -> Value {
    program.signal(libc::SIGTERM);
    let end = program.end();
    assert_eq!(end.errors, "");
    end.summary().clone()
}

/// The answers of an operation.
fn count(line: &Value, op: &str) -> u64 {
    program::count(line, op, "count")
}

fn has_no_answer(line: &Value) -> bool {
    line["ops"].as_object().unwrap().is_empty()
}
