//! Calls that wait for messages.

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

/// A client, its number, and its queue.
async fn begin(server: &Server) -> (Client, u32, u32) {
    let mut client = server.client().await;
    let me = register(&mut client).await;
    let queue = create(&mut client, me).await;
    (client, me, queue)
}

/// Starts a waiting call for each receiver and queue; returns when each call has looked once.
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
async fn lost_notification_delays_a_message_until_the_poll() {
    let ledger = Ledger::open();
    let poll_interval = Duration::from_millis(50);
    let server = Server::with(Settings { poll_interval, ..settings() }, ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue), (me, queue)]).await;
    ledger.fall_silent();
    send(&mut client, (me, me, queue), "one").await.unwrap();
    send(&mut client, (me, me, queue), "two").await.unwrap();
    for _ in 0..2 {
        soon(waiters.join_next()).await.unwrap().unwrap().1.unwrap().unwrap();
    }
}

#[tokio::test]
async fn missed_arrivals_wake_all_calls_that_find_a_message() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue); 3]).await;
    ledger.fall_silent();
    for content in ["one", "two", "three"] {
        send(&mut client, (me, me, queue), content).await.unwrap();
    }
    ledger.miss_arrivals();
    for _ in 0..3 {
        soon(waiters.join_next()).await.unwrap().unwrap().1.unwrap().unwrap();
    }
}

#[tokio::test]
async fn woken_call_that_takes_its_own_message_wakes_the_next() {
    let ledger = Ledger::open();
    let server = Server::start(ledger.clone());
    let (mut client, me, queue) = begin(&server).await;
    let other = register(&mut client).await;
    let mut waiters = wait(&ledger, &server, &[(me, queue), (other, queue)]).await;
    ledger.fall_silent();
    send(&mut client, (me, me, queue), "own").await.unwrap();
    send(&mut client, (me, 0, queue), "for anybody").await.unwrap();
    ledger.tell(queue, 0);
    // The two answers may come in either order.
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (place, content) = soon(waiters.join_next()).await.unwrap().unwrap();
        answers.push((place, content.unwrap().unwrap()));
    }
    answers.sort();
    assert_eq!(answers, [(0, "own".to_owned()), (1, "for anybody".to_owned())]);
}

/// The woken call waits for a worker when its time is over, or when its client leaves.
#[tokio::test]
async fn woken_call_that_leaves_wakes_the_next() {
    for is_cancelled in [false, true] {
        let ledger = Ledger::held();
        let server = Server::with(Settings { workers: 1, ..settings() }, ledger.clone());
        ledger.answer(4);
        let (mut client, me, queue) = begin(&server).await;
        let wait_ms = if is_cancelled { LONG_MS } else { 1000 };
        let mut waiting = Vec::new();
        for wait_ms in [wait_ms, LONG_MS] {
            let (mut waiter, before) = (server.client().await, ledger.ever());
            waiting
                .push(tokio::spawn(async move { remove(&mut waiter, (me, queue), wait_ms).await }));
            until("it looks", || ledger.ever() > before && ledger.asked() == 0).await;
        }
        let counting = tokio::spawn(async move { client.counts(CountsRequest {}).await });
        until("the worker is at work", || ledger.asked() == 1).await;
        let before = ledger.ever();
        ledger.tell(queue, me);
        let (woken, next) = (waiting.remove(0), waiting.remove(0));
        if is_cancelled {
            // Time for the wake-up.
            tokio::time::sleep(Duration::from_millis(100)).await;
            woken.abort();
        } else {
            assert_eq!(soon(woken).await.unwrap().unwrap(), None);
        }
        ledger.answer(2);
        soon(counting).await.unwrap().unwrap();
        until("the next one looks", || ledger.ever() > before).await;
        next.abort();
    }
}

/// No further request may wait for a worker.
#[tokio::test]
async fn woken_call_without_room_to_look_waits_on() {
    let ledger = Ledger::held();
    let limited = Settings {
        workers: 1,
        waiting_max: 1,
        poll_interval: Duration::from_millis(50),
        ..settings()
    };
    let server = Server::with(limited, ledger.clone());
    ledger.answer(3);
    let (_, me, queue) = begin(&server).await;
    let (mut waiter, before) = (server.client().await, ledger.ever());
    let waiting = tokio::spawn(async move { remove(&mut waiter, (me, queue), LONG_MS).await });
    until("it looks", || ledger.ever() > before && ledger.asked() == 0).await;
    let mut counting = JoinSet::new();
    for _ in 0..10 {
        let mut client = server.client().await;
        counting.spawn(async move { client.counts(CountsRequest {}).await });
    }
    // One request has the worker. Another one waits, or the woken call waits in its place.
    let refused = async {
        for _ in 0..8 {
            let status = counting.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
        }
    };
    soon(refused).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
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
            (Code::Unavailable, "the server is shutting down: nothing was done")
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
    // The places become free when the calls are gone.
    at_last(async || remove(&mut client, (me, queue), 1).await).await;
}

#[tokio::test]
async fn wait_ends_without_a_message_after_its_time() {
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
async fn waiting_lease_gets_an_arriving_message() {
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
