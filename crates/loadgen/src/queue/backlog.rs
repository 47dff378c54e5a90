//! The phase that only stores messages, in batches, from and to the clients of the later load.

use std::net::SocketAddr;
use std::time::Duration;

use knee_random::Random;
use knee_rpc::queue::{Outgoing, SendRequest};
use serde_json::json;
use tokio::time::timeout;

use super::calls::QueueCalls;
use super::content::content;
use super::workload::{Identity, Receivers};
use crate::error::{Error, Unusable};
use crate::grpc::{Failure, connect, phase};
use crate::run::CONNECT_TIMEOUT;

/// Largest numbers of messages and of characters in a batch: well below the 4 MiB that every server accepts.
const BATCH_MESSAGES: u64 = 1000;
const BATCH_CHARACTERS: usize = 1 << 20;

/// How long a batch may take. It is a little longer than knee-queue's default wait for a connection, so that the
/// server's own message comes first.
const ANSWER_MAX: Duration = Duration::from_secs(13);

/// The messages to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    pub(crate) messages: u64,
    pub(crate) characters: usize,
    /// The number of clients that send and receive the messages; each has a queue.
    pub(crate) clients: u64,
    pub(crate) receivers: Receivers,
    pub(crate) seed: u64,
}

/// Stores the messages through `server`. Returns a summary with the clients, as a line of JSON.
///
/// # Errors
/// When a batch is not stored, or a signal comes; the messages stored before stay there.
pub(crate) fn backlog(
    server: SocketAddr,
    backlog: Backlog,
    parent: Option<u32>,
) -> Result<String, Error> {
    let clients = phase(parent, store(server, backlog))?;
    let servers = [json!({ "address": server, "stored": backlog.messages })];
    let clients: Vec<_> = clients.iter().map(|one| [one.client, one.queue]).collect();
    let populate = json!({ "messages": backlog.messages, "clients": clients, "servers": servers });
    Ok(json!({ "type": "summary", "role": "load", "populate": populate }).to_string())
}

async fn store(server: SocketAddr, backlog: Backlog) -> Result<Vec<Identity>, Error> {
    let unusable = |why| Error::Connect { server, why };
    let failed = |why| Error::Populate { server, why };
    let mut stub = connect::<QueueCalls>(server, async |_| Ok(())).await?;
    let mut clients = Vec::new();
    for _ in 0..backlog.clients {
        let registered = timeout(CONNECT_TIMEOUT, QueueCalls::register(&mut stub)).await;
        let registered = registered.unwrap_or(Err(Unusable::Silent(CONNECT_TIMEOUT)));
        clients.push(registered.map_err(unusable)?);
    }
    let Backlog { messages, characters, receivers, seed, .. } = backlog;
    let mut random = Random::stream(seed, 0);
    let room = (BATCH_CHARACTERS / characters).max(1) as u64;
    // As in the load, each client sends messages in its own queue.
    let batch = BATCH_MESSAGES.min(room).min(messages.div_ceil(backlog.clients));
    let mut stored = 0;
    for &Identity { client: sender, queue } in clients.iter().cycle() {
        if stored == messages {
            break;
        }
        let numbers = stored..messages.min(stored + batch);
        stored = numbers.end;
        let outgoing = numbers.map(|number| {
            let receiver = match receivers {
                Receivers::Itself => sender,
                Receivers::Any => clients[random.below(backlog.clients) as usize].client,
            };
            Outgoing { receiver, queue, content: content(sender, number, characters) }
        });
        let request = SendRequest { sender, messages: outgoing.collect() };
        match timeout(ANSWER_MAX, stub.send(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => {
                return Err(failed(format!("it {}", Failure::from(status).of("send"))));
            }
            Err(_) => return Err(failed(format!("no answer for {} s", ANSWER_MAX.as_secs()))),
        }
    }
    Ok(clients)
}
