//! The servers' memory stays bounded when clients send half a request or do not read answers.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use knee_testkit::wait_until;

use crate::program::{KV, PROXY, Program, talk};

const CLIENTS: usize = 150;
const VALUE_BYTES: usize = 900_000;
/// Requests and answers may take 16 MiB, which is `knee-kv`'s minimum. The rest is for the pools of freed buffers, and
/// for memory that the allocator keeps until the next check.
const GROWTH_BYTES_MAX: usize = 80 << 20;
/// A middleware learns the length of an answer only from the server. So it may hold one further answer for each client.
const OWED_BYTES_MAX: usize = CLIENTS * VALUE_BYTES;

/// The resident memory of a program, in bytes.
fn resident_bytes(program: &Program) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn set(key: &str) -> Vec<u8> {
    let head = format!("set {key} 0 0 {VALUE_BYTES}\r\n");
    [head.as_bytes(), &vec![b'v'; VALUE_BYTES], b"\r\n"].concat()
}

/// Runs `test` on a store, and on a middleware in each mode. The number bounds the owed answers, in bytes.
fn each(test: impl Fn(&Program, usize)) {
    let flags = ["--admin", "127.0.0.1:0", "--threads", "2"];
    test(&Program::serve(KV, &[&["--memory-mb", "64"], &flags[..]].concat()), 0);
    for mode in [&["--pipelined"][..], &["--workers", "8"]] {
        let store = Program::serve(KV, &[]);
        let given = ["--server", store.address(), "--memory-mb", "16"];
        test(&Program::serve(PROXY, &[&given, &flags[..], mode].concat()), OWED_BYTES_MAX);
    }
}

/// Waits until the server closes a client that holds memory and stands still. Checks that the server goes on to serve
/// another client within the memory limit.
fn watch_until_one_is_closed(server: &Program, before: usize, growth_bytes_max: usize) {
    let mut other = server.connect();
    wait_until("a client that stands still is closed", || {
        talk(&mut other, b"get absent\r\n", b"END\r\n");
        let grown = resident_bytes(server).saturating_sub(before);
        assert!(grown < growth_bytes_max, "{} grew by {grown} bytes", server.address());
        let metrics = server.metrics();
        let mut lines = metrics.lines();
        lines.any(|line| line.starts_with("knee_still_clients_total{") && !line.ends_with(" 0"))
    });
}

#[test]
fn unfinished_sets_of_many_clients_keep_to_the_memory() {
    each(|server, _| {
        talk(&mut server.connect(), b"get absent\r\n", b"END\r\n");
        let before = resident_bytes(server);
        let request = set("unfinished");
        let unfinished = &request[..request.len() - 1];
        let senders: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = server.connect();
                client.set_nonblocking(true).unwrap();
                let sent = send_some(&mut client, unfinished);
                (client, sent)
            })
            .collect();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut senders = senders;
                // Send what the server has room for, until the server has closed a client.
                while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    for (client, sent) in &mut senders {
                        *sent += send_some(client, &unfinished[*sent..]);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let stop = stop;
            watch_until_one_is_closed(server, before, GROWTH_BYTES_MAX);
            drop(stop);
        });
        // The clients have left: a client with a whole request is served.
        talk(&mut server.connect(), &set("whole"), b"STORED\r\n");
    });
}

/// Sends what the kernel takes now; returns how much that is.
fn send_some(client: &mut TcpStream, bytes: &[u8]) -> usize {
    match client.write(bytes) {
        Ok(sent) => sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        // The server has closed this client.
        Err(_) => bytes.len(),
    }
}

#[test]
fn answers_that_many_clients_do_not_read_keep_to_the_memory() {
    each(|server, owed| {
        talk(&mut server.connect(), &set("long"), b"STORED\r\n");
        let before = resident_bytes(server);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            // Several answers exceed the buffers of the kernel.
            client.write_all(&b"get long\r\n".repeat(10)).unwrap();
        }
        watch_until_one_is_closed(server, before, GROWTH_BYTES_MAX + owed);
        drop(clients);
        let answer = talk(&mut server.connect(), b"get long\r\n", b"END\r\n");
        assert!(answer.len() > VALUE_BYTES);
        wait_until("the server gives memory back", || {
            resident_bytes(server) < before + GROWTH_BYTES_MAX
        });
    });
}
