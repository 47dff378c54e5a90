//! Who is served, for how long, and what that may take.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use knee_queue::grpc::Settings;
use knee_rpc::queue::{CountsRequest, ReadAllRequest};
use knee_serving::Limits;
use tonic::Code;

use crate::ledger::Ledger;
use crate::server::{LONG_MS, PATIENCE, Server, create, register, remove, send, settings};

/// As little as a client of HTTP/2 says: its preface, and empty settings (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn idle_max(idle_max: Duration) -> Settings {
    let limits = Limits { idle_max: Some(idle_max), ..settings().limits };
    Settings { limits, ..settings() }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the server closes.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[tokio::test]
async fn who_does_nothing_is_left_and_who_waits_for_a_message_is_not() {
    let server = Server::with(idle_max(Duration::from_millis(100)), Ledger::open());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let mut waiter = server.client().await;
    let waiting = tokio::spawn(async move { remove(&mut waiter, (me, queue), LONG_MS).await });
    let mut idle = connect(&server);
    idle.write_all(PREFACE).unwrap();
    assert!(tokio::task::spawn_blocking(move || is_closed(&mut idle)).await.unwrap());
    // Its connection may have been closed: it has another one then.
    while send(&mut client, (me, me, queue), "it").await.is_err() {}
    assert_eq!(waiting.await.unwrap().unwrap().unwrap(), "it");
}

#[tokio::test]
async fn who_never_says_anything_is_left() {
    let limits = Limits { silence_max: Duration::from_millis(50), ..settings().limits };
    let server = Server::with(Settings { limits, ..settings() }, Ledger::open());
    let mut silent = connect(&server);
    silent.write_all(&PREFACE[..20]).unwrap();
    assert!(is_closed(&mut silent));
}

#[tokio::test]
async fn a_client_that_never_reads_its_answers_is_left_and_holds_up_nobody() {
    let server = Server::with(
        Settings { messages_bytes_max: 16 << 20, workers: 1, ..idle_max(Duration::from_secs(2)) },
        Ledger::open(),
    );
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    for _ in 0..8 {
        send(&mut client, (me, me, queue), "x".repeat(1 << 20)).await.unwrap();
    }
    // Answers that nobody reads take all there is; others are refused meanwhile, and told so.
    let mut slow = Vec::new();
    let refused = loop {
        let mut reader = server.client().await;
        match reader.read_all(ReadAllRequest { receiver: me, queue }).await {
            Ok(answer) => slow.push((reader, answer)),
            Err(status) => break status,
        }
        // A reader may be the one that is refused, and told so behind the part that it does not read.
        if let Err(status) = send(&mut client, (me, me, queue), "x".repeat(1 << 20)).await {
            break status;
        }
        assert!(slow.len() < 100);
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    // Small ones still fit in, or do so once the slow ones are left.
    let deadline = std::time::Instant::now() + PATIENCE;
    while client.counts(CountsRequest {}).await.is_err() {
        assert!(std::time::Instant::now() < deadline);
    }
    // What they held is free again without their doing anything.
    while send(&mut client, (me, me, queue), "x".repeat(1 << 20)).await.is_err() {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_queue_is_read_that_takes_more_than_all_calls_may() {
    let settings = Settings { messages_bytes_max: 2 << 20, ..settings() };
    let server = Server::with(settings, Ledger::open());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    for _ in 0..20 {
        send(&mut client, (me, me, queue), "x".repeat(200 << 10)).await.unwrap();
    }
    // As its reader takes it, it is out of the way.
    let answer = client.read_all(ReadAllRequest { receiver: me, queue }).await;
    let (mut parts, mut read) = (answer.unwrap().into_inner(), 0);
    while let Some(part) = parts.message().await.unwrap() {
        read += part.messages.len();
    }
    assert_eq!(read, 20);
}

#[tokio::test]
async fn what_was_removed_is_answered_even_where_there_is_no_room_for_it() {
    let ledger = Ledger::open();
    let roomy = Server::start(ledger.clone());
    let tight = Server::with(Settings { messages_bytes_max: 40 << 10, ..settings() }, ledger);
    let mut client = roomy.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let content = "x".repeat(100 << 10);
    send(&mut client, (me, me, queue), content.as_str()).await.unwrap();
    let mut client = tight.client().await;
    // It stays where it is: that can be refused.
    let status = client.read_all(ReadAllRequest { receiver: me, queue }).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(remove(&mut client, (me, queue), 0).await.unwrap().unwrap(), content);
}
