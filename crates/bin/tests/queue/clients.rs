//! Connections of clients that are silent for long.

use std::sync::mpsc::{Sender, channel};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

use super::silent::{ACK, PING, PREFACE};
use super::{FEW, SEED_OPS, count, ended, errors, has_no_answer, load};
use crate::program::{End, LOAD, PATIENCE, Program, QUEUE};

#[test]
fn ten_thousand_connections_are_served() {
    let server = Program::serve(QUEUE, &["--database", "null", "--admin", "127.0.0.1:0"]);
    knee_reactor::process::raise_open_files_limit().unwrap();
    // A single thread answers for all clients.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (taken, clients) = channel();
    for _ in 0..10_000 {
        let client = server.connect();
        client.set_nonblocking(true).unwrap();
        runtime.spawn(stay(client, taken.clone()));
    }
    // The server has accepted each client, and sent its settings.
    for _ in 0..10_000 {
        clients.recv_timeout(PATIENCE).unwrap();
    }
    load(&server, "--clients 10 --seconds 0.5");
    server.wait_for_metric("knee_connections{role=\"middleware\"} 10000");
    drop(runtime);
    ended(server);
}

/// An HTTP/2 client that makes no call, and answers each ping of the server (RFC 9113, 6.7). It sends to `taken` once
/// it has the server's first frame.
async fn stay(client: std::net::TcpStream, taken: Sender<()>) -> std::io::Result<()> {
    let mut client = TcpStream::from_std(client)?;
    client.write_all(PREFACE).await?;
    let mut taken = Some(taken);
    loop {
        let mut frame = vec![0; 9];
        client.read_exact(&mut frame).await?;
        if let Some(taken) = taken.take() {
            taken.send(()).unwrap();
        }
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(9 + length, 0);
        client.read_exact(&mut frame[9..]).await?;
        let [kind, flags] = &mut frame[3..5] else { unreachable!() };
        if (*kind, *flags) == (PING, 0) {
            *flags = ACK;
            client.write_all(&frame).await?;
        }
    }
}

#[test]
fn long_think_time_reconnects_without_an_error() {
    let flags = [FEW, &["--database", "null", "--idle-max-s", "1"]].concat();
    let server = Program::serve(QUEUE, &flags);
    let flags = ["queue", "--server", server.address(), "--clients", "3", "--seed", "3"];
    let flags = [&flags[..], &["--think-ms", "5000", "--seconds", "60"]].concat();
    let mut load = Program::start(LOAD, &flags);
    let (mut reconnects, mut seconds) = (0, 0.0);
    load.line_when("the clients have reconnected three times", |line| {
        reconnects += line["reconnects"].as_u64().unwrap();
        seconds += line["seconds"].as_f64().unwrap();
        assert_eq!(errors(line), 0, "{line}");
        // A request that meets the closing of its connection is lost. With this seed, none does.
        assert!(seconds > 4.0 || has_no_answer(line), "after {seconds} s: {line}");
        reconnects >= 3
    });
    load.signal(libc::SIGTERM);
    let End { lines, errors: printed, .. } = load.end();
    let summary = lines.last().unwrap();
    assert!(count(summary, "send") >= 3, "{summary}");
    assert_eq!(errors(summary), 0, "{summary}: {printed}");
    assert!(printed.contains(&format!("lost a connection to {}", server.address())), "{printed}");
    ended(server);
}

#[test]
fn rare_requests_reopen_closed_connections() {
    let flags = [FEW, &["--database", "null", "--idle-max-s", "2"]].concat();
    let server = Program::serve(QUEUE, &flags);
    // A request comes every five seconds. By then, the server has closed all connections. On a busy machine, a second
    // may pass between a new connection and its request.
    let flags = ["queue", "--server", server.address(), "--clients", "3", "--seconds", "60"];
    let flags = [&flags[..], &["--rate", "0.2", "--arrivals", "constant"]].concat();
    let mut load = Program::start(LOAD, &flags);
    let mut reconnects = 0;
    while reconnects < 2 {
        let line = load.line();
        reconnects += line["reconnects"].as_u64().unwrap();
        assert_eq!(errors(&line), 0, "{line}");
    }
    load.signal(libc::SIGTERM);
    let End { lines, errors: printed, .. } = load.end();
    let summary = lines.last().unwrap();
    assert_eq!(errors(summary), 0, "{summary}: {printed}");
    // Each request reopens only its own connection.
    let answers: u64 = SEED_OPS.map(|op| count(summary, op)).iter().sum();
    assert!(summary["reconnects"].as_u64().unwrap() <= answers, "{summary}");
    assert!(printed.contains(&format!("lost a connection to {}", server.address())), "{printed}");
    ended(server);
}
