//! The share of memory that a connection may take.

use knee_queue::grpc::Settings;
use knee_rpc::queue::{ReadAllRequest, ReadAllResponse};
use tonic::{Code, Status, Streaming};

use super::ledger::Ledger;
use super::server::{Client, Server, create, register, send, settings};

/// Opens streams that stay unread, until the server refuses one.
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

/// Sends a message of a megabyte this many times.
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
