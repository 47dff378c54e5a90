//! Limits of connections, times and memory.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use knee_queue::grpc::Settings;
use knee_rpc::queue::{
    CountsRequest, LeaseRequest, ReadAllRequest, ReadAllResponse, RemoveRequest,
};
use knee_server::Limits;
use tonic::transport::Endpoint;
use tonic::{Code, Response, Status, Streaming};

use super::ledger::Ledger;
use super::server::{
    Client, PATIENCE, Server, at_last, create, register, send, settings, soon, waits,
};

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
async fn client_beyond_the_limit_is_refused_at_once() {
    let limits = Limits { connections_max: 1, ..settings().limits };
    let server = Server::with(Settings { limits, ..settings() }, Ledger::open());
    let mut first = server.client().await;
    first.counts(CountsRequest {}).await.unwrap();
    let mut second = connect(&server);
    second.write_all(PREFACE).unwrap();
    assert!(tokio::task::spawn_blocking(move || is_closed(&mut second)).await.unwrap());
    first.counts(CountsRequest {}).await.unwrap();
    drop(first);
    let mut third = server.client().await;
    at_last(async || third.counts(CountsRequest {}).await).await;
}

#[tokio::test]
async fn connection_without_a_complete_preface_is_closed() {
    let limits = Limits { silence_max: Duration::from_millis(50), ..settings().limits };
    let server = Server::with(Settings { limits, ..settings() }, Ledger::open());
    let mut silent = connect(&server);
    silent.write_all(&PREFACE[..20]).unwrap();
    assert!(is_closed(&mut silent));
}

/// A client that requested a message of 1 MiB and does not read it. The server has room for one such message, and one
/// worker.
struct Unread {
    server: Server,
    _reader: (Client, Response<Streaming<ReadAllResponse>>),
    to: (u32, u32, u32),
}

impl Unread {
    async fn with(idle_max: Option<Duration>) -> Unread {
        let ledger = Ledger::open();
        let roomy = Server::start(ledger.clone());
        let limits = Limits { idle_max, stall_max: idle_max, ..settings().limits };
        // A connection may take as much as stays free. Room is left for one such message, not for two.
        let tight = Settings { messages_bytes_max: 5 << 19, workers: 1, limits, ..settings() };
        let server = Server::with(tight, ledger);
        let mut client = roomy.client().await;
        let me = register(&mut client).await;
        let to = (me, me, create(&mut client, me).await);
        send(&mut client, to, "x".repeat(1 << 20)).await.unwrap();
        // Data beyond the client's window stays in the server.
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let endpoint = endpoint.initial_stream_window_size(65_535);
        let request = ReadAllRequest { receiver: me, queue: to.2 };
        // On a stalled machine, the connection may be closed before the client asks.
        let reader = at_last(async || {
            let mut reader = Client::new(endpoint.connect().await.unwrap());
            let answer = reader.read_all(request).await?;
            Ok((reader, answer))
        });
        let reader = reader.await;
        Unread { server, _reader: reader, to }
    }

    /// Sends a message of the same size over another connection.
    async fn send(&self) -> Result<u64, Status> {
        send(&mut self.server.client().await, self.to, "x".repeat(1 << 20)).await
    }
}

#[tokio::test]
async fn unread_answer_takes_memory_and_no_worker() {
    let unread = Unread::with(None).await;
    let refused = unread.send().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    unread.server.client().await.counts(CountsRequest {}).await.unwrap();
}

#[tokio::test]
async fn client_that_never_reads_is_closed_and_frees_its_memory() {
    let unread = Unread::with(Some(Duration::from_millis(200))).await;
    at_last(async || unread.send().await).await;
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
