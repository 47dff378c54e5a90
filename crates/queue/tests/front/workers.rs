//! Workers, and requests that wait for them.

use knee_queue::grpc::Settings;
use knee_rpc::queue::CountsRequest;
use tokio::task::JoinSet;
use tonic::Code;

use super::ledger::Ledger;
use super::server::{Server, at_last, settings, soon, until};

#[tokio::test]
async fn workers_and_waiting_requests_are_limited() {
    let ledger = Ledger::held();
    let server =
        Server::with(Settings { workers: 3, waiting_max: 5, ..settings() }, ledger.clone());
    let client = server.client().await;
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let mut client = client.clone();
        calls.spawn(async move { client.counts(CountsRequest {}).await });
    }
    // Requests beyond the limit are refused at once.
    for _ in 0..4 {
        let status = soon(calls.join_next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let message = "5 requests wait for a worker already: nothing was done";
        assert!(status.message().starts_with(message), "{status}");
    }
    until("three ask", || ledger.asked() == 3).await;
    assert_eq!(ledger.ever(), 3);
    ledger.answer(2);
    for _ in 0..2 {
        soon(calls.join_next()).await.unwrap().unwrap().unwrap();
    }
    until("two more ask", || ledger.ever() == 5).await;
    assert_eq!(ledger.asked(), 3);
    ledger.answer(6);
    while let Some(outcome) = soon(calls.join_next()).await {
        outcome.unwrap().unwrap();
    }
    assert_eq!(ledger.ever(), 8);
}

#[tokio::test]
async fn client_that_leaves_frees_worker_and_place() {
    let ledger = Ledger::held();
    let server =
        Server::with(Settings { workers: 1, waiting_max: 1, ..settings() }, ledger.clone());
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        calls.spawn(async move { client.counts(CountsRequest {}).await });
    }
    // The third request is refused: one request has the worker, and one waits.
    let status = soon(calls.join_next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    calls.abort_all();
    let mut client = server.client().await;
    until("no request is left", || ledger.asked() == 0).await;
    ledger.answer(100);
    at_last(async || client.counts(CountsRequest {}).await).await;
}

#[tokio::test]
async fn running_call_is_answered_before_the_end() {
    let ledger = Ledger::held();
    let mut server = Server::start(ledger.clone());
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.counts(CountsRequest {}).await });
    until("it asks", || ledger.asked() == 1).await;
    server.begin_to_end();
    ledger.answer(1);
    soon(call).await.unwrap().unwrap();
    server.shut_down();
}
