//! Invalid requests, and failures of the database: each has a clear status.

use knee_queue::database::Failure;
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{
    AcknowledgeRequest, CountsRequest, CreateQueueRequest, LeaseId, LeaseRequest,
    ListQueuesRequest, Outgoing, ReadAllRequest, RemoveRequest, SendRequest,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::{Code, Status};

use super::ledger::Ledger;
use super::server::{Server, create, register, send};

fn is_refused(status: Result<impl std::fmt::Debug, Status>, code: Code, message: &str) {
    let status = status.expect_err("it is refused");
    assert_eq!((status.code(), status.message()), (code, message));
}

#[tokio::test]
async fn invalid_requests_are_refused_without_the_database() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let before = ledger.ever();
    let invalid = Code::InvalidArgument;
    let zero = |name| format!("{name} is 0: use the number of a registered client");
    let outcome = send(&mut client, (0, me, queue), "content").await;
    is_refused(outcome, invalid, &zero("sender"));
    let outcome = client.list_queues(ListQueuesRequest { receiver: 0 }).await;
    is_refused(outcome, invalid, &zero("receiver"));
    let outcome = client.read_all(ReadAllRequest { receiver: 0, queue }).await;
    is_refused(outcome.map(|_| ()), invalid, &zero("receiver"));
    let outcome = send(&mut client, (me, me, queue), "x".repeat((1 << 20) + 1)).await;
    let message =
        "the content has 1048577 bytes: send at most 1048576, or raise --message-bytes-max";
    is_refused(outcome, invalid, message);
    let outcome = send(&mut client, (me, me, queue), "before\0behind").await;
    let message = "the content has the character U+0000: databases cannot store it";
    is_refused(outcome, invalid, message);
    let outcome = client.send(SendRequest { sender: me, messages: Vec::new() }).await;
    is_refused(outcome, invalid, "the call has 0 messages: send 1 to 1000");
    let messages = vec![Outgoing { receiver: me, queue, content: String::new() }; 1001];
    let outcome = client.send(SendRequest { sender: me, messages }).await;
    is_refused(outcome, invalid, "the call has 1001 messages: send 1 to 1000");
    let removal = RemoveRequest { receiver: me, queue, count: 1001, wait_ms: 0 };
    is_refused(client.remove(removal).await, invalid, "count is 1001: use at most 1000");
    let removal = RemoveRequest { count: 1, wait_ms: 3_600_001, ..removal };
    is_refused(client.remove(removal).await, invalid, "wait_ms is 3600001: use at most 3600000");
    let lease = LeaseRequest { visibility_ms: u64::MAX, queue, receiver: me, ..Default::default() };
    let message = format!("visibility_ms is {}: use at most 43200000", u64::MAX);
    is_refused(client.lease(lease).await, invalid, &message);
    let leases = vec![LeaseId::default(); 1001];
    let outcome = client.acknowledge(AcknowledgeRequest { leases }).await;
    is_refused(outcome, invalid, "the call has 1001 leases: use 1 to 1000");
    for (settings, message) in [
        (
            CreateQueueRequest { attempts_max: Some(0), ..Default::default() },
            "attempts_max is 0: use 1 to 1000000",
        ),
        (
            CreateQueueRequest { retention_ms: Some(0), ..Default::default() },
            "retention_ms is 0: leave it out to keep messages",
        ),
        (CreateQueueRequest::default(), zero("creator").as_str()),
    ] {
        is_refused(client.create_queue(settings).await, invalid, message);
    }
    assert_eq!(ledger.ever(), before);
    send(&mut client, (me, me, queue), "x".repeat(1 << 20)).await.unwrap();
}

/// No generated client can send such content, so a proxy spoils it on the way.
#[tokio::test]
async fn invalid_utf8_is_refused_and_its_connection_stays_open() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("http://{}", listener.local_addr().unwrap());
    let mut to_server = TcpStream::connect(server.address()).await.unwrap();
    tokio::spawn(async move {
        let (mut from_client, _) = listener.accept().await.unwrap();
        let (mut requests, mut replies) = from_client.split();
        let (mut answers, mut asks) = to_server.split();
        let spoil = async {
            let mut buffer = vec![0; 64 << 10];
            loop {
                let length = requests.read(&mut buffer).await.unwrap();
                let bytes = &mut buffer[..length];
                if let Some(at) = bytes.windows(8).position(|word| word == b"spoil me") {
                    bytes[at] = 0xff;
                }
                asks.write_all(bytes).await.unwrap();
            }
        };
        tokio::select! {
            () = spoil => {}
            answered = tokio::io::copy(&mut answers, &mut replies) => drop(answered),
        }
    });
    let mut client = QueueClient::connect(through).await.unwrap();
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let before = ledger.ever();
    let status = send(&mut client, (me, me, queue), "spoil me").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("the request cannot be read: "), "{status}");
    assert!(status.message().contains("UTF-8"), "{status}");
    assert_eq!(ledger.ever(), before);
    send(&mut client, (me, me, queue), "leave me").await.unwrap();
}

#[tokio::test]
async fn each_failure_of_the_database_has_a_status() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let mut client = server.client().await;
    type Kind = fn(String) -> Failure;
    let rows: [(Kind, Code); 9] = [
        (Failure::Invalid, Code::InvalidArgument),
        (Failure::NotThere, Code::NotFound),
        (Failure::NotMigrated, Code::FailedPrecondition),
        (Failure::Full, Code::ResourceExhausted),
        (Failure::NotAllowed, Code::FailedPrecondition),
        (Failure::Unavailable, Code::Unavailable),
        (Failure::Unknown, Code::Unknown),
        (Failure::TooLate, Code::ResourceExhausted),
        (Failure::Broken, Code::Internal),
    ];
    for (failure, code) in rows {
        ledger.fail(failure("why it is".into()));
        is_refused(client.counts(CountsRequest {}).await, code, "why it is");
    }
}
