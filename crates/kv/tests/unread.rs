//! The cost of a client that does not read.
//!
//! The test runs in its own process, because it measures the memory of the whole process.

use std::io::Read;

use knee_testkit::alone;

use crate::harness::{Store, settings};

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn client_that_does_not_read_costs_little_memory() {
    alone("unread::client_that_does_not_read");
}

#[test]
#[ignore = "measures its process"]
fn client_that_does_not_read() {
    let store = Store::start(settings());
    let mut greedy = store.client();
    let value = "v".repeat(500_000);
    greedy.answer(&format!("set k 0 0 500000\r\n{value}\r\n"));
    let before = resident_bytes();
    // Ask for 500 values in one request, and for 500 in single requests: 500 MB of answers.
    let keys = " k".repeat(500);
    let requests = format!("get{keys}\r\n{}", "get k\r\n".repeat(500));
    greedy.send(&requests);
    // Other clients are served. Their answers show that the server has read the requests.
    let mut other = store.client();
    for _ in 0..100 {
        assert_eq!(other.answer("get absent\r\n"), "END\r\n");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for a client that does not read");
    // When the client reads, all answers come.
    let answer = format!("VALUE k 0 500000\r\n{value}\r\n").len();
    let expected = 1000 * answer + 501 * "END\r\n".len();
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    while received < expected {
        let read = greedy.stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {received} of {expected}");
        received += read;
    }
    assert_eq!(greedy.answer("get absent\r\n"), "END\r\n");
}
