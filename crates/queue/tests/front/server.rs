//! A server in this process, and its clients.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::database::Database;
use knee_queue::grpc::{Serving, Settings, Telemetry};
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{
    CreateQueueRequest, Outgoing, RegisterClientRequest, RemoveRequest, SendRequest, Stored,
};
use knee_server::{Limits, Shards, runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::ledger::Ledger;

pub(crate) type Client = QueueClient<Channel>;

/// How long a test waits before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// A wait for a message that outlasts any test.
pub(crate) const LONG_MS: u64 = 600_000;

pub(crate) fn settings() -> Settings {
    Settings {
        workers: 4,
        waiting_max: 1000,
        waiters_max: 1000,
        // Longer than a test waits: so a lost wake-up fails the test.
        poll_interval: 3 * PATIENCE,
        content_bytes_max: 1 << 20,
        messages_bytes_max: 256 << 20,
        limits: Limits {
            connections_max: 1000,
            silence_max: PATIENCE,
            idle_max: None,
            stall_max: None,
        },
        tls: None,
        grace: Duration::from_millis(500),
    }
}

/// A running server, which ends with the test.
pub(crate) struct Server(Option<Serving>);

impl Server {
    pub(crate) fn start(database: impl Database) -> Server {
        Server::with(settings(), database)
    }

    pub(crate) fn with(settings: Settings, database: impl Database) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let telemetry = Telemetry { shards: Arc::new(Shards::new(2, Vec::new())), trace: None };
        // A thread of a runtime cannot start another runtime.
        let start = move || {
            let runtime = runtime(&telemetry.shards, |builder| builder).unwrap();
            Serving::start(&settings, runtime, database, listener, telemetry).unwrap()
        };
        Server(Some(std::thread::spawn(start).join().unwrap()))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.as_ref().unwrap().address()
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        QueueClient::new(self.endpoint().tcp_nodelay(true).connect().await.unwrap())
    }

    /// A client whose window is too small for a large answer, unless it reads.
    pub(crate) async fn narrow_client(&self) -> Client {
        let endpoint = self.endpoint().initial_stream_window_size(1 << 10);
        QueueClient::new(endpoint.connect().await.unwrap())
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address())).unwrap()
    }

    /// A client with a configured endpoint.
    pub(crate) async fn client_with(
        &self,
        with: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Client, tonic::transport::Error> {
        let address = format!("https://localhost:{}", self.address().port());
        let endpoint = with(Endpoint::from_shared(address).unwrap());
        Ok(QueueClient::new(endpoint.connect().await?))
    }

    pub(crate) fn shut_down(&mut self) {
        let serving = self.0.take().unwrap();
        serving.shutdown().begin();
        std::thread::spawn(|| serving.join()).join().unwrap().unwrap();
    }

    /// Begins the shutdown, and does not wait for its end.
    pub(crate) fn begin_to_end(&self) {
        self.0.as_ref().unwrap().shutdown().begin();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(serving) = self.0.take() {
            serving.shutdown().begin();
            let _ = std::thread::spawn(|| serving.join()).join();
        }
    }
}

pub(crate) async fn register(client: &mut Client) -> u32 {
    client.register_client(RegisterClientRequest {}).await.unwrap().into_inner().client
}

pub(crate) async fn create(client: &mut Client, creator: u32) -> u32 {
    let request = CreateQueueRequest { creator, ..CreateQueueRequest::default() };
    client.create_queue(request).await.unwrap().into_inner().queue
}

/// Sends one message, and returns its number.
pub(crate) async fn send(
    client: &mut Client,
    (sender, receiver, queue): (u32, u32, u32),
    content: impl Into<String>,
) -> Result<u64, Status> {
    let messages = vec![Outgoing { receiver, queue, content: content.into() }];
    let response = client.send(SendRequest { sender, messages }).await?;
    Ok(response.into_inner().ids[0])
}

/// Sends this many messages of one letter to the sender. A full page of them is small: the server reads the next page
/// while the page before waits for room.
pub(crate) async fn send_small(client: &mut Client, (me, queue): (u32, u32), count: usize) {
    for place in (0..count).step_by(1000) {
        let small = Outgoing { receiver: me, queue, content: "x".to_owned() };
        let messages = vec![small; (count - place).min(1000)];
        client.send(SendRequest { sender: me, messages }).await.unwrap();
    }
}

pub(crate) fn removal(receiver: u32, queue: u32, wait_ms: u64) -> RemoveRequest {
    RemoveRequest { receiver, queue, count: 1, wait_ms }
}

/// Removes one message, and returns its content.
pub(crate) async fn remove(
    client: &mut Client,
    (receiver, queue): (u32, u32),
    wait_ms: u64,
) -> Result<Option<String>, Status> {
    let response = client.remove(removal(receiver, queue, wait_ms)).await?;
    let mut messages = response.into_inner().messages;
    assert!(messages.len() <= 1);
    Ok(messages.pop().map(|Stored { content, .. }| content))
}

/// A call that waits for a message over a connection, and its result.
pub(crate) type Waits = (Client, JoinHandle<Result<Option<String>, Status>>);

/// Connects, and waits for a message of `(receiver, queue)`; returns when the call has reached the server. On a stalled
/// machine, the server may close the connection before the call: only then it is repeated.
pub(crate) async fn waits(
    ledger: &Ledger,
    connect: impl AsyncFn() -> Client,
    (receiver, queue): (u32, u32),
) -> Waits {
    let (before, deadline) = (ledger.ever(), Instant::now() + PATIENCE);
    loop {
        let client = connect().await;
        let mut waiter = client.clone();
        let waiting =
            tokio::spawn(async move { remove(&mut waiter, (receiver, queue), LONG_MS).await });
        while ledger.ever() == before && !waiting.is_finished() {
            assert!(Instant::now() < deadline, "no call waits");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if ledger.ever() > before {
            return (client, waiting);
        }
        assert!(Instant::now() < deadline, "{:?}", waiting.await);
    }
}

/// The result of a future that must end within [`PATIENCE`].
pub(crate) async fn soon<T>(something: impl Future<Output = T>) -> T {
    timeout(PATIENCE, something).await.expect("it comes soon")
}

/// Repeats a call until it succeeds.
pub(crate) async fn at_last<T>(mut ask: impl AsyncFnMut() -> Result<T, Status>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(status) => assert!(Instant::now() < deadline, "{status}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
