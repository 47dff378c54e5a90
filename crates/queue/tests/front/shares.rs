//! What a connection may take, and for how long where nothing of it moves.

use std::time::Duration;

use knee_queue::grpc::Settings;
use knee_rpc::queue::{ReadAllRequest, ReadAllResponse};
use knee_serving::Limits;
use tonic::{Code, Status, Streaming};

use crate::ledger::Ledger;
use crate::server::{Client, Server, at_last, create, register, send, settings, soon, waits};

/// Begins to read what nobody will take, until that is refused.
async fn fill(client: &mut Client, request: ReadAllRequest) -> Vec<Streaming<ReadAllResponse>> {
    let mut slow = Vec::new();
    loop {
        match client.read_all(request).await {
            Ok(answer) => slow.push(answer.into_inner()),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                return slow;
            }
        }
        assert!(slow.len() < 100);
    }
}

/// The same message as often as that, each a megabyte.
async fn send_large(client: &mut Client, to: (u32, u32), times: usize) -> Result<(), Status> {
    let (me, queue) = to;
    for _ in 0..times {
        send(client, (me, me, queue), "x".repeat(1 << 20)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_connection_leaves_room_to_others() {
    let settings = Settings { messages_bytes_max: 8 << 20, ..settings() };
    let server = Server::with(settings, Ledger::open());
    let mut client = server.client().await;
    let receiver = register(&mut client).await;
    let queue = create(&mut client, receiver).await;
    send_large(&mut client, (receiver, queue), 2).await.unwrap();
    let mut greedy = server.narrow_client().await;
    let slow = fill(&mut greedy, ReadAllRequest { receiver, queue }).await;
    send_large(&mut client, (receiver, queue), 10).await.unwrap();
    drop(slow);
}

#[tokio::test]
async fn an_answer_is_given_up_that_nobody_takes_though_its_client_waits_for_a_message() {
    let ledger = Ledger::open();
    // Who prepares is not left, however slow that is.
    let patient = Server::start(ledger.clone());
    let mut client = patient.client().await;
    let receiver = register(&mut client).await;
    let queue = create(&mut client, receiver).await;
    let empty = create(&mut client, receiver).await;
    send_large(&mut client, (receiver, queue), 2).await.unwrap();
    let limits = Limits { idle_max: Some(Duration::from_millis(500)), ..settings().limits };
    let settings = Settings { messages_bytes_max: 4 << 20, limits, ..settings() };
    let server = Server::with(settings, ledger.clone());
    let mut client = server.client().await;
    let (mut slow, waiting) =
        waits(&ledger, async || server.narrow_client().await, (receiver, empty)).await;
    let request = ReadAllRequest { receiver, queue };
    let mut answers = fill(&mut slow, request).await;
    // What nobody takes has its room not for ever.
    at_last(async || slow.read_all(request).await).await;
    let outcome = async {
        while answers[0].message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    assert_eq!(soon(outcome).await.unwrap_err().code(), Code::Aborted);
    // Its connection was there all the time.
    at_last(async || send(&mut client, (receiver, receiver, empty), "it").await).await;
    assert_eq!(soon(waiting).await.unwrap().unwrap().unwrap(), "it");
}
