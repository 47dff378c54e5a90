//! Waiting for messages.

use std::time::Duration;

use knee_queue::grpc::Settings;
use knee_queue::operation::Request;
use knee_rpc::queue::{CountsRequest, DeleteQueueRequest, LeaseRequest};
use tokio::task::JoinSet;
use tonic::Code;

use super::ledger::Ledger;
use super::server::{
    Client, LONG_MS, Server, at_last, create, register, remove, send, settings, soon, until,
};

/// A client, its number, and a queue of its own.
async fn begin(server: &Server) -> (Client, u32, u32) {
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    (client, me, queue)
}

/// Lets so many wait, and returns when all of them do: each has looked once.
async fn wait(ledger: &Ledger, server: &Server, receivers: &[(u32, u32)]) -> JoinSet<Outcome> {
    let mut waiters = JoinSet::new();
    for (place, &(receiver, queue)) in receivers.iter().enumerate() {
        let mut client = server.client().await;
        let before = ledger.ever();
        waiters
            .spawn(async move { (place, remove(&mut client, (receiver, queue), LONG_MS).await) });
        until("it looks", || ledger.ever() > before && ledger.asked() == 0).await;
    }
    waiters
}

type Outcome = (usize, Result<Option<String>, tonic::Status>);

#[tokio::test]
async fn waiting_call_holds_no_worker() {
    let ledger = Ledger::open();
    let server = Server::with(Settings { workers: 1, ..settings() }, ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue), (me, queue)]).await;
    send(&mut client, (me, me, queue), "it").await.unwrap();
    let (first, content) = soon(waiters.join_next()).await.unwrap().unwrap();
    assert_eq!((first, content.unwrap().unwrap().as_str()), (0, "it"));
    send(&mut client, (me, 0, queue), "for anybody").await.unwrap();
    let (second, content) = soon(waiters.join_next()).await.unwrap().unwrap();
    assert_eq!((second, content.unwrap().unwrap().as_str()), (1, "for anybody"));
}

#[tokio::test]
async fn lost_notifications_delay_a_message_by_a_second() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue), (me, queue)]).await;
    ledger.fall_silent();
    send(&mut client, (me, me, queue), "one").await.unwrap();
    send(&mut client, (me, me, queue), "two").await.unwrap();
    // More than it remembers, of a queue without waiting calls.
    (0..100).for_each(|_| ledger.tell(queue + 1000, me));
    for _ in 0..2 {
        soon(waiters.join_next()).await.unwrap().unwrap().1.unwrap().unwrap();
    }
}

#[tokio::test]
async fn deleted_queue_ends_waiting_calls() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let other = register(&mut client).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue), (other, queue), (me, queue)]).await;
    client.delete_queue(DeleteQueueRequest { queue }).await.unwrap();
    while let Some(outcome) = soon(waiters.join_next()).await {
        assert_eq!(outcome.unwrap().1.unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test]
async fn ending_server_ends_waiting_calls() {
    let ledger = Ledger::open();
    let mut server = Server::start(ledger.clone());
    let (_, me, queue) = begin(&server).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue), (me, queue)]).await;
    server.begin_to_end();
    while let Some(outcome) = soon(waiters.join_next()).await {
        let status = outcome.unwrap().1.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unavailable, "the server ends: nothing was done")
        );
    }
    server.shut_down();
}

#[tokio::test]
async fn waiting_calls_are_limited() {
    let ledger = Ledger::open();
    let server = Server::with(Settings { waiters_max: 2, ..settings() }, ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let waiters = wait(&ledger, &server, &[(me, queue); 2]).await;
    let status = remove(&mut client, (me, queue), LONG_MS).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(waiters);
    // Their places are free once they are gone.
    at_last(async || remove(&mut client, (me, queue), 1).await).await;
}

#[tokio::test]
async fn a_wait_ends_with_nothing_when_its_time_is_over() {
    let server = Server::start(Ledger::open());
    let (mut client, me, queue) = begin(&server).await;
    let begun = std::time::Instant::now();
    assert_eq!(remove(&mut client, (me, queue), 50).await.unwrap(), None);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn wait_ends_in_time_without_a_free_worker() {
    let ledger = Ledger::held();
    let server = Server::with(Settings { workers: 1, ..settings() }, ledger.clone());
    ledger.answer(2);
    let (mut client, me, queue) = begin(&server).await;
    let mut waiter = server.client().await;
    let before = ledger.ever();
    ledger.answer(1);
    let waiting = tokio::spawn(async move { remove(&mut waiter, (me, queue), 900).await });
    until("it looks", || ledger.ever() == before + 1 && ledger.asked() == 0).await;
    let counting = tokio::spawn(async move { client.counts(CountsRequest {}).await });
    until("the worker is at work", || ledger.asked() == 1).await;
    assert!(ledger.was_last_asked(&Request::Counts));
    ledger.tell(queue, me);
    let outcome = soon(waiting).await;
    assert_eq!(outcome.unwrap().unwrap(), None);
    ledger.answer(1);
    soon(counting).await.unwrap().unwrap();
}

#[tokio::test]
async fn leases_are_waited_for_as_well() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let before = ledger.ever();
    let mut waiter = server.client().await;
    let lease = LeaseRequest { receiver: me, queue, wait_ms: LONG_MS, ..LeaseRequest::default() };
    let leased = tokio::spawn(async move { waiter.lease(lease).await });
    until("it looks", || ledger.ever() > before && ledger.asked() == 0).await;
    send(&mut client, (me, me, queue), "it").await.unwrap();
    assert_eq!(soon(leased).await.unwrap().unwrap().into_inner().leases.len(), 1);
}
