//! Requests that only read.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::failure::failure;
use crate::database::Failure;
use crate::operation::{ANYBODY, Answer, ClientId, Counts, MessageId, QueueId, Request, Stored};

/// The columns of a message, as [`stored`] reads them.
pub(super) const COLUMNS: &str = "id, sender, receiver, queue, arrived_at_us, content";

/// Answers a request that only reads ([`Request::only_reads`]).
pub(super) fn answer(connection: &Connection, request: &Request) -> Result<Answer, Failure> {
    match *request {
        Request::ListQueues { receiver } => {
            check_client(connection, receiver)?;
            queues(connection, receiver).map(Answer::Queues).map_err(failure)
        }
        Request::Read { receiver, queue, after, count, content_bytes_max } => {
            check_client(connection, receiver)?;
            check_queue(connection, queue)?;
            heads(connection, receiver, queue, after, count, content_bytes_max)
                .map(Answer::Messages)
                .map_err(failure)
        }
        Request::ReadFrom { receiver, sender } => {
            check_client(connection, receiver)?;
            check_client(connection, sender)?;
            from(connection, receiver, sender)
                .map(|message| Answer::Messages(message.into_iter().collect()))
                .map_err(failure)
        }
        Request::Counts => counts(connection).map(Answer::Counts).map_err(failure),
        _ => unreachable!("the request writes"),
    }
}

pub(super) fn check_client(connection: &Connection, client: ClientId) -> Result<(), Failure> {
    let found =
        client == ANYBODY || exists(connection, "SELECT 1 FROM client WHERE id = ?1", client)?;
    if found { Ok(()) } else { Err(Failure::no_client(client)) }
}

pub(super) fn check_queue(connection: &Connection, queue: QueueId) -> Result<(), Failure> {
    let found = exists(connection, "SELECT 1 FROM queue WHERE id = ?1", queue)?;
    if found { Ok(()) } else { Err(Failure::no_queue(queue)) }
}

fn exists(connection: &Connection, query: &str, id: u32) -> Result<bool, Failure> {
    connection.prepare_cached(query).and_then(|mut found| found.exists([id])).map_err(failure)
}

pub(super) fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let id: i64 = row.get(0)?;
    Ok(Stored {
        id: id.unsigned_abs(),
        sender: row.get(1)?,
        receiver: row.get(2)?,
        queue: row.get(3)?,
        arrived_at_us: row.get(4)?,
        content: row.get(5)?,
    })
}

/// The first messages of a queue with numbers above `after`, to this client or to any client.
pub(super) fn heads(
    connection: &Connection,
    receiver: ClientId,
    queue: QueueId,
    after: MessageId,
    count: u32,
    content_bytes_max: u64,
) -> rusqlite::Result<Vec<Stored>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM message
         WHERE receiver = ?1 AND queue = ?2 AND leased_until_us IS NULL AND id > ?3
         UNION ALL
         SELECT {COLUMNS} FROM message
         WHERE receiver = {ANYBODY} AND queue = ?2 AND leased_until_us IS NULL AND id > ?3
         ORDER BY id LIMIT ?4"
    ))?;
    let mut rows = select.query(params![receiver, queue, after, count])?;
    let (mut messages, mut bytes) = (Vec::new(), 0_u64);
    while bytes < content_bytes_max.max(1) {
        let Some(row) = rows.next()? else { break };
        let message = stored(row)?;
        bytes += message.content.len() as u64;
        messages.push(message);
    }
    Ok(messages)
}

/// Steps from one queue to the next in the index, so the number of messages does not matter.
fn queues(connection: &Connection, receiver: ClientId) -> rusqlite::Result<Vec<QueueId>> {
    let mut next = connection.prepare_cached(
        "SELECT min(queue) FROM message
         WHERE receiver = ?1 AND queue > ?2 AND leased_until_us IS NULL",
    )?;
    let mut queues = Vec::new();
    for whose in [receiver, ANYBODY] {
        let mut last = 0;
        while let Some(queue) = next.query_row([whose, last], |row| row.get::<_, Option<u32>>(0))? {
            queues.push(queue);
            last = queue;
        }
    }
    queues.sort_unstable();
    queues.dedup();
    let mut there = connection.prepare_cached("SELECT 1 FROM queue WHERE id = ?1")?;
    let mut left = Vec::with_capacity(queues.len());
    for queue in queues {
        if there.exists([queue])? {
            left.push(queue);
        }
    }
    Ok(left)
}

fn from(
    connection: &Connection,
    receiver: ClientId,
    sender: ClientId,
) -> rusqlite::Result<Option<Stored>> {
    let part = |whose: &str| {
        format!(
            "SELECT {COLUMNS} FROM message WHERE receiver = {whose} AND sender = ?2
             AND leased_until_us IS NULL AND queue IN (SELECT id FROM queue)"
        )
    };
    connection
        .prepare_cached(&format!(
            "{} UNION ALL {} ORDER BY id LIMIT 1",
            part("?1"),
            part(&ANYBODY.to_string())
        ))?
        .query_row([receiver, sender], stored)
        .optional()
}

fn counts(connection: &Connection) -> rusqlite::Result<Counts> {
    connection
        .prepare_cached(
            "SELECT (SELECT count(*) FROM message WHERE queue IN (SELECT id FROM queue)),
                    (SELECT count(*) FROM client), (SELECT count(*) FROM queue)",
        )?
        .query_row([], |row| {
            let number = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(Counts { messages: number(0)?, clients: number(1)?, queues: number(2)? })
        })
}
