//! The phase that only stores messages, in batches, from and to the clients of the later load.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use knee_random::Random;
use knee_rpc::queue::{Outgoing, SendRequest};
use serde_json::json;
use tokio::time::timeout;

use super::calls::QueueCalls;
use super::content::content;
use super::workload::{Identity, Receivers};
use crate::error::{Error, Left, Unusable};
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
/// When a batch is not stored, or a signal comes; the error has the number of messages that are stored.
pub(crate) fn backlog(
    server: SocketAddr,
    backlog: Backlog,
    parent: Option<u32>,
) -> Result<String, Error> {
    let left = Cell::new(Left { wanted: backlog.messages, ..Left::default() });
    let interrupted = || Error::BacklogInterrupted(left.get());
    let clients = phase(parent, store(server, backlog, &left), interrupted)?;
    let servers = [json!({ "address": server, "stored": backlog.messages })];
    let clients: Vec<_> = clients.iter().map(|one| [one.client, one.queue]).collect();
    let populate = json!({ "messages": backlog.messages, "clients": clients, "servers": servers });
    Ok(json!({ "type": "summary", "role": "load", "populate": populate }).to_string())
}

async fn store(
    server: SocketAddr,
    backlog: Backlog,
    left: &Cell<Left>,
) -> Result<Vec<Identity>, Error> {
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
    for &Identity { client: sender, queue } in clients.iter().cycle() {
        let Left { stored, .. } = left.get();
        if stored == messages {
            break;
        }
        let numbers = stored..messages.min(stored + batch);
        let asked = numbers.end - stored;
        let outgoing = numbers.map(|number| {
            let receiver = match receivers {
                Receivers::Itself => sender,
                Receivers::Any => clients[random.below(backlog.clients) as usize].client,
            };
            Outgoing { receiver, queue, content: content(sender, number, characters) }
        });
        let request = SendRequest { sender, messages: outgoing.collect() };
        left.set(Left { asked, ..left.get() });
        let sent = timeout(ANSWER_MAX, stub.send(request)).await;
        match sent {
            Ok(Ok(_)) => left.set(Left { stored: stored + asked, asked: 0, ..left.get() }),
            Ok(Err(status)) => {
                let failure = Failure::from(status);
                let left = left_by(&failure, left.get());
                return Err(failed(format!("it {}{left}", failure.of("send"))));
            }
            Err(_) => {
                let left = left.get();
                return Err(failed(format!("no answer for {} s{left}", ANSWER_MAX.as_secs())));
            }
        }
    }
    Ok(clients)
}

/// The messages that are, or may be, stored after a batch failed.
fn left_by(failure: &Failure, left: Left) -> Left {
    match failure {
        Failure::Refused { .. } => Left { asked: 0, ..left },
        Failure::Unknown { .. } | Failure::Lost(_) => left,
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn refused_batch_is_not_stored() {
        let left = Left { stored: 2000, asked: 1000, wanted: 5000 };
        let message = |code| {
            let failure = Failure::from(Status::new(code, "why"));
            format!("it {}{}", failure.of("send"), left_by(&failure, left))
        };
        let stays = "2000 of 5000 messages are stored and stay there";
        for code in [Code::NotFound, Code::Unavailable, Code::ResourceExhausted] {
            assert_eq!(message(code), format!("it refused a send: {code:?}: why; {stays}"));
        }
        for code in [Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
            let unknown = format!("it did not say whether it did a send: {code:?}: why");
            assert_eq!(message(code), format!("{unknown}; {stays}, and perhaps 1000 more"));
        }
    }

    #[test]
    fn empty_backlog_leaves_no_messages() {
        let message = |asked| {
            let left = Left { asked, wanted: 5000, ..Left::default() };
            Error::BacklogInterrupted(left).to_string()
        };
        assert_eq!(message(0), "interrupted before the end");
        let stays = "0 of 5000 messages are stored and stay there, and perhaps 7 more";
        assert_eq!(message(7), format!("interrupted before the end; {stays}"));
    }
}
