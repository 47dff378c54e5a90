//! Calls of clients, and the requests that reach the database.

use knee_rpc::queue::{
    AcknowledgeRequest, CountsRequest, CreateQueueRequest, DeleteQueueRequest, ExtendRequest,
    LeaseId, LeaseRequest, ListQueuesRequest, Outgoing, ReadAllRequest, ReadFromRequest,
    ReleaseRequest, RemoveRequest, SendRequest,
};

use knee_queue::grpc::Settings;
use tokio::time::timeout;

use super::ledger::Ledger;
use super::server::{
    Client, PATIENCE, Server, create, register, remove, send, send_small, settings, until,
};

async fn read_all(client: &mut Client, receiver: u32, queue: u32) -> Vec<Vec<String>> {
    let request = ReadAllRequest { receiver, queue };
    let mut stream = client.read_all(request).await.unwrap().into_inner();
    let mut parts = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        parts.push(part.messages.into_iter().map(|message| message.content).collect());
    }
    parts
}

#[tokio::test]
async fn messages_are_sent_listed_read_and_removed() {
    let server = Server::start(Ledger::open());
    let mut client = server.client().await;
    let (me, other) = (register(&mut client).await, register(&mut client).await);
    let queue = create(&mut client, me).await;
    let first = send(&mut client, (me, other, queue), "first").await.unwrap();
    let second = send(&mut client, (me, 0, queue), "second").await.unwrap();
    assert!(first < second);
    let listed = async |client: &mut Client, receiver| {
        client.list_queues(ListQueuesRequest { receiver }).await.unwrap().into_inner().queues
    };
    assert_eq!(listed(&mut client, other).await, [queue]);
    assert_eq!(read_all(&mut client, other, queue).await, [["first", "second"]]);
    assert_eq!(read_all(&mut client, me, queue).await, [["second"]]);
    let request = ReadFromRequest { receiver: other, sender: me };
    let oldest = client.read_from(request).await.unwrap().into_inner().message.unwrap();
    assert_eq!((oldest.id, oldest.sender, oldest.receiver), (first, me, other));
    assert_eq!((oldest.queue, oldest.content.as_str()), (queue, "first"));
    let counts = client.counts(CountsRequest {}).await.unwrap().into_inner();
    assert_eq!((counts.messages, counts.clients, counts.queues), (2, 2, 1));
    assert_eq!(remove(&mut client, (other, queue), 0).await.unwrap().unwrap(), "first");
    assert_eq!(remove(&mut client, (other, queue), 0).await.unwrap().unwrap(), "second");
    assert_eq!(remove(&mut client, (other, queue), 0).await.unwrap(), None);
    assert!(listed(&mut client, other).await.is_empty());
    assert_eq!(client.read_from(request).await.unwrap().into_inner().message, None);
    client.delete_queue(DeleteQueueRequest { queue }).await.unwrap();
    assert_eq!(client.counts(CountsRequest {}).await.unwrap().into_inner().queues, 0);
}

#[tokio::test]
async fn batches_are_sent_and_removed_in_order() {
    let server = Server::start(Ledger::open());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let outgoing = |number| Outgoing { receiver: me, queue, content: format!("{number}") };
    let request = SendRequest { sender: me, messages: (0..10).map(outgoing).collect() };
    let ids = client.send(request).await.unwrap().into_inner().ids;
    assert!(ids.is_sorted() && ids.len() == 10);
    let request = RemoveRequest { receiver: me, queue, count: 4, wait_ms: 0 };
    let removed = client.remove(request).await.unwrap().into_inner().messages;
    assert_eq!(removed.iter().map(|message| message.id).collect::<Vec<_>>(), ids[..4]);
}

#[tokio::test]
async fn leases_are_acknowledged_released_and_extended() {
    let server = Server::start(Ledger::open());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let request = CreateQueueRequest {
        creator: me,
        attempts_max: Some(3),
        retention_ms: Some(60_000),
        ..CreateQueueRequest::default()
    };
    let queue = client.create_queue(request).await.unwrap().into_inner().queue;
    send(&mut client, (me, me, queue), "leased").await.unwrap();
    let lease = LeaseRequest { receiver: me, queue, count: 2, ..LeaseRequest::default() };
    let leases = client.lease(lease).await.unwrap().into_inner().leases;
    let [leased] = leases.as_slice() else { panic!("{leases:?}") };
    let message = leased.message.as_ref().unwrap();
    assert_eq!((message.content.as_str(), leased.attempt), ("leased", 1));
    assert_eq!(remove(&mut client, (me, queue), 0).await.unwrap(), None);
    let ids = vec![LeaseId { message: message.id, attempt: 1 }];
    let request = ExtendRequest { leases: ids.clone(), visibility_ms: 1000 };
    assert!(client.extend(request).await.unwrap().into_inner().ended.is_empty());
    let request = ReleaseRequest { leases: ids };
    assert!(client.release(request).await.unwrap().into_inner().ended.is_empty());
    assert_eq!(client.lease(lease).await.unwrap().into_inner().leases.len(), 1);
    let ids = vec![LeaseId { message: message.id, attempt: 2 }];
    let request = AcknowledgeRequest { leases: ids.clone() };
    assert!(client.acknowledge(request.clone()).await.unwrap().into_inner().ended.is_empty());
    assert_eq!(client.acknowledge(request).await.unwrap().into_inner().ended, ids);
}

#[tokio::test]
async fn read_all_streams_parts_and_stops_after_the_last() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    let content = |number: usize| format!("{number:06}").repeat(10_000);
    for number in 0..12 {
        send(&mut client, (me, me, queue), content(number)).await.unwrap();
    }
    let before = ledger.ever();
    let parts = read_all(&mut client, me, queue).await;
    // Messages of 60,000 bytes; a part ends after 256 KiB.
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 2]);
    assert_eq!(ledger.ever() - before, 3);
    let read: Vec<String> = parts.concat();
    assert!(read.iter().enumerate().all(|(number, read)| *read == content(number)));
}

#[tokio::test]
async fn slow_read_all_holds_no_worker() {
    let ledger = Ledger::open();
    let server = Server::with(Settings { workers: 1, ..settings() }, ledger.clone());
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    for _ in 0..20 {
        send(&mut client, (me, me, queue), "x".repeat(500_000)).await.unwrap();
    }
    let mut slow = server.client().await;
    let request = ReadAllRequest { receiver: me, queue };
    let mut stream = slow.read_all(request).await.unwrap().into_inner();
    // Other calls are served, and the stream continues where it was.
    for _ in 0..10 {
        remove(&mut client, (me, queue), 0).await.unwrap().unwrap();
    }
    let mut last = 0;
    while let Some(part) = stream.message().await.unwrap() {
        for message in part.messages {
            assert!(message.id > last);
            last = message.id;
        }
    }
    assert_eq!(last, 20);
}

/// A part without room is not sent. The server has already requested the next page, but does not poll it.
#[tokio::test]
async fn reader_that_stops_within_a_page_holds_no_worker() {
    let ledger = Ledger::held();
    let server = Server::with(Settings { workers: 1, ..settings() }, ledger.clone());
    let (mut client, mut slow) = (server.client().await, server.narrow_client().await);
    ledger.answer(5);
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    send_small(&mut client, (me, queue), 2001).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let before = ledger.ever();
        ledger.answer(1);
        let reading = slow.read_all(ReadAllRequest { receiver: me, queue });
        let answer = timeout(PATIENCE, reading).await.expect("its first page is read");
        unread.push(answer.unwrap());
        until("its second page is asked for", || ledger.ever() == before + 2).await;
        ledger.answer(1);
        until("its third page is asked for", || ledger.ever() == before + 3).await;
        ledger.answer(1);
    }
    ledger.answer(1);
    let counts = timeout(PATIENCE, client.counts(CountsRequest {})).await;
    counts.expect("others are served").unwrap();
}
