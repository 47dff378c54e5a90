//! Servers that refuse a load, or are no `knee-queue`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::Command;

use knee_testkit::free_address;

use super::silent::Silent;
use super::{FEW, count, ended, errors, has_no_answer, load};
use crate::program::{KV, LOAD, Program, QUEUE, refused};

#[test]
fn refused_and_unanswered_requests_are_reported_apart() {
    let server = Program::serve(QUEUE, FEW);
    let backlog = load(&server, "--backlog 1 --clients 1");
    let client = &backlog["populate"]["clients"][0][0];
    // There is no such queue.
    let flags = format!("queue --server {} --as {client}:7 --loop send", server.address());
    let flags = [flags.as_str(), "--think-ms 1 --seconds 60"].join(" ");
    let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
    load.line_when("something is refused", |line| errors(line) > 0);
    let address = server.address().to_owned();
    server.signal(libc::SIGSTOP);
    load.line_when("a request waits", |line| line["in_flight"] == 1 && has_no_answer(line));
    server.signal(libc::SIGKILL);
    load.line_when("it is lost", |line| line["losses"] == 1);
    load.signal(libc::SIGTERM);
    let printed = load.end().errors;
    let refused = format!("knee-load: {address} refused a send: NotFound: ");
    let lost = format!("knee-load: {address} did not answer a send: ");
    let [first, second, ..] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(first.starts_with(&refused) && second.starts_with(&lost), "{printed}");
    assert!(!printed.contains("it answered"), "{printed}");
}

#[test]
fn other_servers_are_reported_as_no_queue() {
    let store_grpc = free_address();
    let store = Program::serve(KV, &["--grpc", &store_grpc]);
    let web = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let mute = answering(b"");
    // An alert: unexpected_message (RFC 8446, sections 5.1 and 6).
    let encrypted = answering(b"\x15\x03\x03\0\x02\x02\x0a");
    let no_http2 = |address| format!("no HTTP/2 from {address}: ");
    let rows = [
        (&web, no_http2(&web)),
        (&encrypted, no_http2(&encrypted)),
        (&mute, no_http2(&mute)),
        (
            &store_grpc,
            format!("{store_grpc} is not a knee-queue: it has no service knee.queue.v1\n"),
        ),
    ];
    for (address, why) in rows {
        for flags in ["--seconds 1", "--seconds 1 --as 1:1 --clients 9", "--backlog 5"] {
            let flags = format!("queue --server {address} {flags}");
            let output = refused(LOAD, &flags.split(' ').collect::<Vec<_>>());
            let printed = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{flags}: {printed}");
            assert!(printed.starts_with(&format!("knee-load: {why}")), "{flags}: {printed}");
        }
    }
    drop(store);
}

#[test]
fn servers_that_never_answer_are_named() {
    let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
    let silent = [Silent::new().address, Silent::new().address];
    let servers = format!("{},{},{}", server.address(), silent[0], silent[1]);
    let load = |flags: &str| {
        let flags = format!("queue --server {servers} --clients 5 --seconds 1{flags}");
        let output = refused(LOAD, &flags.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let named = format!(
        "knee-load: no answer within 10 s on 2 of 2 connections to {}, on 1 of 1 connections to {}\n",
        silent[0], silent[1]
    );
    std::thread::scope(|scope| {
        for flags in ["", " --as 1:1"] {
            let (load, named) = (&load, &named);
            scope.spawn(move || assert_eq!(&load(flags), named));
        }
    });
}

#[test]
fn unknown_client_is_refused_before_the_start() {
    let server = Program::serve(QUEUE, FEW);
    let load = |flags: &str| {
        let flags = format!("queue --server {} {flags}", server.address());
        Command::new(LOAD).args(flags.split(' ')).output().unwrap()
    };
    assert!(load("--backlog 2 --clients 2").status.success());
    let output = load("--seconds 60 --as 1:1,2:2,7:7 --clients 3 --threads 2");
    let printed = String::from_utf8(output.stderr).unwrap();
    let stranger = format!("knee-load: {} does not know client 7 of --as: ", server.address());
    assert!(printed.starts_with(&stranger), "{printed}");
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()));
    // A client without requests needs no name on the server.
    assert!(load("--seconds 0.1 --as 1:1,2:2,7:7 --clients 2 --threads 2").status.success());
    // The clients are looked up only once, however many they are.
    let summary = ended(server);
    assert_eq!(count(&summary, "read_from") - errors(&summary), 1);
}

/// A server that reads some bytes of each connection, sends `answer` and closes the connection.
fn answering(answer: &'static [u8]) -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut client in server.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = client.read(&mut [0; 4096]);
                let _ = client.write_all(answer);
                let _ = client.shutdown(Shutdown::Write);
                // Closing a socket with unread bytes would reset the connection, and lose the answer.
                let _ = std::io::copy(&mut client, &mut std::io::sink());
            });
        }
    });
    address
}
