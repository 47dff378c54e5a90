//! Connections that a load loses. The tests of `knee-load kv` have further cases of the same driver.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::silent::{NOTHING, Silent, hear_first_call};
use super::{FEW, errors};
use crate::program::{End, LOAD, PATIENCE, Program, QUEUE};

#[test]
fn accepted_connection_without_an_answer_is_not_back() {
    for pace in ["--think-ms 1", "--rate 100"] {
        let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
        let flags = format!("queue --server {} --clients 3 {pace}", server.address());
        let flags = [flags.as_str(), "--seconds 60 --drain-s 0.1"].join(" ");
        let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        load.line();
        let address = server.address().to_owned();
        server.signal(libc::SIGKILL);
        server.end();
        // The kernel accepts connections like this while a process is being killed.
        let silent = Silent::at(&address, |_| Ok(()));
        let deadline = Instant::now() + PATIENCE;
        while silent.clients.lock().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "no client comes");
            load.line();
        }
        // The second line counts clients that were back before the first one.
        load.line();
        load.line();
        load.signal(libc::SIGTERM);
        let End { code, lines, errors: printed } = load.end();
        let summary = lines.last().unwrap();
        let counts = ["losses", "reconnects", "connections"].map(|name| &summary[name]);
        assert_eq!(code, Some(0), "{pace}: {printed}");
        assert_eq!(counts, [3, 0, 0], "{pace}: {summary}: {printed}");
    }
}

#[test]
fn refused_client_backs_off() {
    // The server closes connections at once, as at its limit of clients, or after the first call, without an answer.
    for (speaks, pace) in [
        (false, "--think-ms 1"),
        (false, "--rate 100"),
        (true, "--think-ms 1"),
        (true, "--rate 100"),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let (turned_away, tries) = channel();
        std::thread::spawn(move || {
            let mut incoming = server.incoming().map_while(Result::ok);
            // Before the start, the server answers.
            let mut first = incoming.next().unwrap();
            hear_first_call(&mut first).unwrap();
            first.write_all(NOTHING).unwrap();
            first.read_exact(&mut [0]).unwrap();
            drop(first);
            for mut client in incoming {
                if speaks && hear_first_call(&mut client).is_err() {
                    // The load ended while it opened this connection.
                    continue;
                }
                turned_away.send(()).unwrap();
            }
        });
        let flags = format!("queue --server {address} --as 1:1 --clients 1 {pace}");
        let flags = [flags.as_str(), "--seconds 60 --drain-s 0.1"].join(" ");
        let begun = Instant::now();
        let load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        for _ in 0..5 {
            tries.recv_timeout(PATIENCE).unwrap();
        }
        load.signal(libc::SIGTERM);
        let End { lines, errors: printed, .. } = load.end();
        let took = begun.elapsed();
        let tries = 5 + tries.try_iter().count();
        // Even on a slow machine, the client has waited before each attempt.
        let waits = (0..tries).map(|times| (10 << times.min(7)).min(1000));
        let waited = Duration::from_millis(waits.sum());
        assert!(waited <= took, "{pace}: {tries} within {took:?}: {printed}");
        let back = &lines.last().unwrap()["reconnects"];
        let is_mute = printed.contains(&format!("knee-load: no HTTP/2 from {address}: "));
        assert_eq!((back != 0, is_mute), (speaks, !speaks), "{pace}: {back}: {printed}");
    }
}

#[test]
fn cut_off_client_reconnects_only_for_due_requests() {
    let server = Silent::after_the_first_call();
    // Within 3 s, each client has sent a request. Later, a request becomes due every half second.
    let mut load = server.load("--as 1:1,2:2,3:3,4:4,5:5,6:6 --clients 6 --rate 2");
    load.line_when("each waits for an answer", |line| line["in_flight"].as_u64().unwrap() >= 6);
    server.cut();
    let (mut failed, mut reconnects) = (0, 0);
    load.line_when("they are cut off, and one has come back", |line| {
        failed += errors(line);
        reconnects += line["reconnects"].as_u64().unwrap();
        failed >= 6 && reconnects > 0
    });
    load.signal(libc::SIGTERM);
    let End { lines, errors: printed, .. } = load.end();
    let summary = lines.last().unwrap();
    let due = errors(summary) + summary["unsent"].as_u64().unwrap();
    assert!(summary["reconnects"].as_u64().unwrap() <= due - 6, "{summary}: {printed}");
}

#[test]
fn full_connection_that_was_cut_is_opened_again() {
    let server = Silent::after_the_first_call();
    let mut load = server.load("--as 1:1 --clients 1 --rate 1000");
    load.line_when("as many are in flight as may be", |line| line["in_flight"] == 256);
    server.cut();
    load.line_when("it has come back", |line| line["reconnects"] == 1);
    load.signal(libc::SIGTERM);
    load.end();
}
