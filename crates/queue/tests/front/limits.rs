//! Limits of connections and memory. The tests of `knee-kv` over gRPC cover the limits that both servers share.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use knee_queue::grpc::Settings;
use knee_rpc::queue::{LeaseRequest, ReadAllRequest, RemoveRequest};
use knee_server::Limits;
use tonic::Code;

use super::ledger::Ledger;
use super::server::{PATIENCE, Server, at_last, create, register, send, settings, soon, waits};

/// The least that an HTTP/2 client sends: its preface, and empty settings (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn idle_max(idle_max: Duration) -> Settings {
    let idle_max = Some(idle_max);
    let limits = Limits { idle_max, stall_max: idle_max, ..settings().limits };
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
async fn idle_connection_is_closed_unless_a_call_waits() {
    let ledger = Ledger::open();
    // This server never closes an idle connection, so a slow machine does not disturb the preparation.
    let patient = Server::start(ledger.clone());
    let mut client = patient.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let server = Server::with(idle_max(Duration::from_millis(500)), ledger.clone());
    let mut client = server.client().await;
    let (_, waiting) = waits(&ledger, async || server.client().await, (me, queue)).await;
    let mut idle = connect(&server);
    idle.write_all(PREFACE).unwrap();
    assert!(tokio::task::spawn_blocking(move || is_closed(&mut idle)).await.unwrap());
    // The server may have closed the client's connection: the client opens another one then.
    at_last(async || send(&mut client, (me, me, queue), "it").await).await;
    assert_eq!(soon(waiting).await.unwrap().unwrap().unwrap(), "it");
}

#[tokio::test]
async fn queue_larger_than_the_memory_is_read() {
    let settings = Settings { messages_bytes_max: 2 << 20, ..settings() };
    let server = Server::with(settings, Ledger::open());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    for _ in 0..20 {
        send(&mut client, (me, me, queue), "x".repeat(200 << 10)).await.unwrap();
    }
    // Parts that the client has read take no memory.
    let answer = client.read_all(ReadAllRequest { receiver: me, queue }).await;
    let (mut parts, mut read) = (answer.unwrap().into_inner(), 0);
    while let Some(part) = parts.message().await.unwrap() {
        read += part.messages.len();
    }
    assert_eq!(read, 20);
}

/// Messages that were removed for an answer exist nowhere else.
#[tokio::test]
async fn removed_messages_are_answered_without_free_memory() {
    let ledger = Ledger::open();
    let roomy = Server::start(ledger.clone());
    let tight = Server::with(Settings { messages_bytes_max: 40 << 10, ..settings() }, ledger);
    let mut client = roomy.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let content = "x".repeat(100 << 10);
    for _ in 0..8 {
        send(&mut client, (me, me, queue), content.as_str()).await.unwrap();
    }
    let mut client = tight.client().await;
    // A read leaves the messages in the queue, so it can be refused.
    let status = client.read_all(ReadAllRequest { receiver: me, queue }).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    // If an answer did not return its memory, the next calls would find even less.
    for count in [1, 3] {
        let lease = LeaseRequest { receiver: me, queue, count, ..LeaseRequest::default() };
        let leased = client.lease(lease).await.unwrap().into_inner().leases;
        assert_eq!(leased.len(), count as usize);
        assert!(leased.into_iter().all(|leased| leased.message.unwrap().content == content));
        let removal = RemoveRequest { receiver: me, queue, count, wait_ms: 0 };
        let removed = client.remove(removal).await.unwrap().into_inner().messages;
        assert_eq!(removed.len(), count as usize);
        assert!(removed.into_iter().all(|message| message.content == content));
    }
}
