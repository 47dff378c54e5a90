//! Requests that write.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::failure::failure;
use super::reads::{check_client, check_queue, heads};
use super::time::{micros, now_us};
use super::{keeping, reads};
use crate::database::{Arrival, Failure};
use crate::operation::{
    ANYBODY, Answer, ClientId, Lease, Outgoing, QueueId, QueueSettings, Request, Stored,
};

/// Answers a request, and adds its arrivals.
pub(super) fn answer(
    connection: &Connection,
    request: &Request,
    arrivals: &mut Vec<Arrival>,
) -> Result<Answer, Failure> {
    match request {
        Request::RegisterMiddleware => {
            insert(connection, "INSERT INTO middleware DEFAULT VALUES", []).map(Answer::Id)
        }
        Request::RegisterClient { middleware } => {
            insert(connection, "INSERT INTO client (middleware) VALUES (?1)", [middleware])
                .map(Answer::Id)
        }
        Request::CreateQueue { creator, settings } => {
            create_queue(connection, *creator, settings).map(Answer::Id)
        }
        Request::DeleteQueue { queue } => {
            delete_queue(connection, *queue)?;
            arrivals.push(Arrival { queue: *queue, receiver: ANYBODY });
            Ok(Answer::Done)
        }
        Request::Send { sender, messages } => send(connection, *sender, messages, arrivals),
        &Request::Remove { receiver, queue, count, content_bytes_max } => {
            let messages = take(connection, receiver, queue, count, content_bytes_max)?;
            let mut delete = prepare(connection, "DELETE FROM message WHERE id = ?1")?;
            for message in &messages {
                delete.execute([message.id.cast_signed()]).map_err(failure)?;
            }
            Ok(Answer::Messages(messages))
        }
        &Request::Lease { receiver, queue, count, content_bytes_max, visibility } => {
            let messages = take(connection, receiver, queue, count, content_bytes_max)?;
            let until = now_us().saturating_add(micros(visibility));
            let mut lease = prepare(
                connection,
                "UPDATE message SET leased_until_us = ?2, attempts = attempts + 1 WHERE id = ?1
                 RETURNING attempts",
            )?;
            let mut leased = Vec::with_capacity(messages.len());
            for message in messages {
                let attempt = lease
                    .query_row([message.id.cast_signed(), until], |row| row.get(0))
                    .map_err(failure)?;
                leased.push((message, attempt));
            }
            Ok(Answer::Leased(leased))
        }
        Request::Acknowledge { leases } => each_lease(connection, leases, |id| {
            prepare(connection, "DELETE FROM message WHERE id = ?1")?
                .execute([id])
                .map_err(failure)?;
            Ok(())
        }),
        Request::Release { leases } => each_lease(connection, leases, |id| {
            arrivals.extend(keeping::put_back(connection, id).map_err(failure)?);
            Ok(())
        }),
        Request::Extend { leases, visibility } => {
            let until = now_us().saturating_add(micros(*visibility));
            each_lease(connection, leases, |id| {
                prepare(connection, "UPDATE message SET leased_until_us = ?2 WHERE id = ?1")?
                    .execute([id, until])
                    .map_err(failure)?;
                Ok(())
            })
        }
        Request::ListQueues { .. }
        | Request::Read { .. }
        | Request::ReadFrom { .. }
        | Request::Counts => reads::answer(connection, request),
    }
}

fn prepare<'c>(
    connection: &'c Connection,
    query: &str,
) -> Result<rusqlite::CachedStatement<'c>, Failure> {
    connection.prepare_cached(query).map_err(failure)
}

/// Inserts a row; returns its number.
fn insert(
    connection: &Connection,
    query: &str,
    values: impl rusqlite::Params,
) -> Result<u32, Failure> {
    let id = prepare(connection, query)?.insert(values).map_err(failure)?;
    u32::try_from(id)
        .map_err(|_| Failure::Full("no free id is left: 2^32 - 1 have been used".to_owned()))
}

fn create_queue(
    connection: &Connection,
    creator: ClientId,
    settings: &QueueSettings,
) -> Result<QueueId, Failure> {
    check_client(connection, creator)?;
    if let Some(queue) = settings.dead_letters {
        check_queue(connection, queue)?;
    }
    insert(
        connection,
        "INSERT INTO queue (creator, dead_letters, attempts_max, retention_us)
         VALUES (?1, ?2, ?3, ?4)",
        params![
            creator,
            settings.dead_letters,
            settings.attempts_max,
            settings.retention.map(micros)
        ],
    )
}

fn delete_queue(connection: &Connection, queue: QueueId) -> Result<(), Failure> {
    check_queue(connection, queue)?;
    prepare(connection, "DELETE FROM queue WHERE id = ?1")?.execute([queue]).map_err(failure)?;
    prepare(connection, "INSERT INTO deleted_queue VALUES (?1)")?
        .execute([queue])
        .map_err(failure)?;
    Ok(())
}

fn send(
    connection: &Connection,
    sender: ClientId,
    messages: &[Outgoing],
    arrivals: &mut Vec<Arrival>,
) -> Result<Answer, Failure> {
    check_client(connection, sender)?;
    for message in messages {
        check_client(connection, message.receiver)?;
        check_queue(connection, message.queue)?;
    }
    let mut insert = prepare(
        connection,
        "INSERT INTO message (queue, sender, receiver, arrived_at_us, content)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let now = now_us();
    let mut ids = Vec::with_capacity(messages.len());
    for Outgoing { receiver, queue, content } in messages {
        let id = insert.insert(params![queue, sender, receiver, now, content]).map_err(failure)?;
        ids.push(id.unsigned_abs());
        arrivals.push(Arrival { queue: *queue, receiver: *receiver });
    }
    Ok(Answer::Sent(ids))
}

/// The messages to remove or to lease.
fn take(
    connection: &Connection,
    receiver: ClientId,
    queue: QueueId,
    count: u32,
    content_bytes_max: u64,
) -> Result<Vec<Stored>, Failure> {
    check_client(connection, receiver)?;
    check_queue(connection, queue)?;
    heads(connection, receiver, queue, 0, count, content_bytes_max).map_err(failure)
}

/// Acts on each lease that has not ended; answers with the ended leases. A repeated lease counts once.
fn each_lease(
    connection: &Connection,
    leases: &[Lease],
    mut act: impl FnMut(i64) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    let mut current = prepare(
        connection,
        "SELECT 1 FROM message WHERE id = ?1 AND attempts = ?2 AND leased_until_us IS NOT NULL
         AND queue IN (SELECT id FROM queue)",
    )?;
    let (mut done, mut ended) = (HashSet::new(), Vec::new());
    for lease in leases {
        if done.contains(lease) {
            continue;
        }
        let id = i64::try_from(lease.message).unwrap_or(i64::MAX);
        let found = current
            .query_row(params![id, lease.attempt], |_| Ok(()))
            .optional()
            .map_err(failure)?;
        match found {
            Some(()) => {
                act(id)?;
                done.insert(*lease);
            }
            None => ended.push(*lease),
        }
    }
    Ok(Answer::Ended(ended))
}
