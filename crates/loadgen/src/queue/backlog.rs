//! The phase that only stores messages: from and to clients of its own, in batches.

use std::net::SocketAddr;

use knee_random::Random;
use knee_rpc::queue::{CreateQueueRequest, Outgoing, RegisterClientRequest, SendRequest};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::call::{Failure, connect};
use super::content::content;
use crate::error::Error;
use crate::run::end_with;

/// Clients that the messages are from and to, each with a queue.
const CLIENTS: u64 = 10;
/// Messages of a batch, and characters with which one is full: well below the 4 MiB that every server
/// takes.
const BATCH_MESSAGES: u64 = 1000;
const BATCH_CHARACTERS: usize = 1 << 20;

/// What is to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    pub(crate) messages: u64,
    pub(crate) characters: usize,
    pub(crate) seed: u64,
}

/// Stores it through `server`, and returns a summary as a line of JSON.
///
/// # Errors
/// When anything is not stored, with the server's answer; when interrupted.
pub(crate) fn backlog(
    server: SocketAddr,
    backlog: Backlog,
    parent: Option<u32>,
) -> Result<String, Error> {
    let (end, mut ended) = watch::channel(false);
    end_with(parent, move || {
        end.send_replace(true);
    })?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::System)?;
    runtime.block_on(async {
        tokio::select! {
            stored = store(server, backlog) => {
                stored.map_err(|why| Error::Populate { server, why })
            }
            _ = ended.wait_for(|ended| *ended) => Err(Error::Interrupted),
        }
    })?;
    let servers = [json!({ "address": server, "stored": backlog.messages })];
    let populate = json!({ "messages": backlog.messages, "servers": servers });
    Ok(json!({ "type": "summary", "role": "load", "populate": populate }).to_string())
}

async fn store(server: SocketAddr, backlog: Backlog) -> Result<(), String> {
    let refused = |status| Failure::from(status).text();
    let mut client = connect(server).await?.client;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let registered = client.register_client(RegisterClientRequest {}).await.map_err(refused)?;
        let creator = registered.into_inner().client;
        let request = CreateQueueRequest { creator, ..CreateQueueRequest::default() };
        let queue = client.create_queue(request).await.map_err(refused)?.into_inner().queue;
        clients.push((creator, queue));
    }
    let Backlog { messages, characters, seed } = backlog;
    let mut random = Random::stream(seed, 0);
    let batch = BATCH_MESSAGES.min((BATCH_CHARACTERS / characters).max(1) as u64);
    let mut stored = 0;
    while stored < messages {
        let mut drawn = || clients[random.below(CLIENTS) as usize];
        let (sender, _) = drawn();
        let numbers = stored..messages.min(stored + batch);
        stored = numbers.end;
        let outgoing = numbers.map(|number| {
            let (receiver, queue) = drawn();
            Outgoing { receiver, queue, content: content(sender, number, characters) }
        });
        let request = SendRequest { sender, messages: outgoing.collect() };
        client.send(request).await.map_err(refused)?;
    }
    Ok(())
}
