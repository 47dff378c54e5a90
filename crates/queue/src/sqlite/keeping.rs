//! What has to be done though nobody asks for it.

use rusqlite::{Connection, OptionalExtension, params};

use super::now_us;
use crate::database::Arrival;

/// Messages that are dealt with at a time, so that nobody waits long for the writer.
const BATCH: u32 = 500;

/// Ends leases that are over, removes what is too old and what deleted queues have left behind.
/// Answers what arrives again, and whether there may be more to do at once.
pub(super) fn keep(connection: &Connection) -> rusqlite::Result<(Vec<Arrival>, bool)> {
    let (arrivals, more_leases) = end_leases(connection)?;
    let more_old = remove_old(connection)?;
    let more_left = remove_left_behind(connection)?;
    Ok((arrivals, more_leases || more_old || more_left))
}

fn end_leases(connection: &Connection) -> rusqlite::Result<(Vec<Arrival>, bool)> {
    let mut over = connection.prepare_cached(
        "SELECT id FROM message WHERE leased_until_us <= ?1 ORDER BY leased_until_us LIMIT ?2",
    )?;
    let ids: Vec<i64> =
        over.query_map(params![now_us(), BATCH], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut arrivals = Vec::new();
    for &id in &ids {
        arrivals.extend(put_back(connection, id)?);
    }
    Ok((arrivals, ids.len() == BATCH as usize))
}

/// Lets others have a leased message, at its old place; after its queue's last attempt, in the queue
/// of dead letters. Nothing arrives where the queue is gone.
pub(super) fn put_back(connection: &Connection, id: i64) -> rusqlite::Result<Option<Arrival>> {
    let back = connection
        .prepare_cached(
            "UPDATE message SET leased_until_us = NULL, queue = target.queue,
                    attempts_elsewhere =
                        iif(target.queue = message.queue, attempts_elsewhere, attempts)
             FROM (SELECT m.id, iif(m.attempts - m.attempts_elsewhere >= q.attempts_max,
                                    coalesce(dead.id, q.id), q.id) AS queue
                   FROM message m JOIN queue q ON q.id = m.queue
                   LEFT JOIN queue dead ON dead.id = q.dead_letters
                   WHERE m.id = ?1) AS target
             WHERE message.id = target.id
             RETURNING queue, receiver",
        )?
        .query_row([id], |row| Ok(Arrival { queue: row.get(0)?, receiver: row.get(1)? }))
        .optional()?;
    if back.is_none() {
        connection.prepare_cached("DELETE FROM message WHERE id = ?1")?.execute([id])?;
    }
    Ok(back)
}

/// The pairs of receiver and queue that have messages: as many steps as there are pairs.
const PAIRS: &str = "WITH RECURSIVE pair (receiver, queue) AS (
        SELECT * FROM (SELECT receiver, queue FROM message WHERE leased_until_us IS NULL
                       ORDER BY receiver, queue LIMIT 1)
        UNION ALL
        SELECT m.receiver, m.queue FROM pair JOIN message m ON m.id =
            (SELECT n.id FROM message n WHERE n.leased_until_us IS NULL
             AND (n.receiver, n.queue) > (pair.receiver, pair.queue)
             ORDER BY n.receiver, n.queue LIMIT 1))";

fn remove_old(connection: &Connection) -> rusqlite::Result<bool> {
    let any = connection
        .prepare_cached("SELECT 1 FROM queue WHERE retention_us IS NOT NULL LIMIT 1")?
        .exists([])?;
    if !any {
        return Ok(false);
    }
    let mut pairs = connection.prepare_cached(&format!(
        "{PAIRS} SELECT receiver, queue, ?1 - retention_us FROM pair
         JOIN queue ON queue.id = pair.queue WHERE retention_us IS NOT NULL"
    ))?;
    let pairs = pairs
        .query_map([now_us()], |row| {
            Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    // The oldest are at the head, but for those that came back from elsewhere, which are older still.
    let mut delete = connection.prepare_cached(
        "DELETE FROM message WHERE id IN (
            SELECT id FROM message
            WHERE receiver = ?1 AND queue = ?2 AND leased_until_us IS NULL
            ORDER BY id LIMIT ?4) AND arrived_at_us < ?3",
    )?;
    let mut more = false;
    for (receiver, queue, before) in pairs {
        more |= delete.execute(params![receiver, queue, before, BATCH])? == BATCH as usize;
    }
    Ok(more)
}

fn remove_left_behind(connection: &Connection) -> rusqlite::Result<bool> {
    let any = connection.prepare_cached("SELECT 1 FROM deleted_queue LIMIT 1")?.exists([])?;
    if !any {
        return Ok(false);
    }
    let mut pairs = connection.prepare_cached(&format!(
        "{PAIRS} SELECT receiver, queue FROM pair WHERE queue IN (SELECT id FROM deleted_queue)"
    ))?;
    let pair =
        pairs.query_row([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))).optional()?;
    match pair {
        Some((receiver, queue)) => connection
            .prepare_cached(
                "DELETE FROM message WHERE id IN (
                    SELECT id FROM message
                    WHERE receiver = ?1 AND queue = ?2 AND leased_until_us IS NULL LIMIT ?3)",
            )?
            .execute(params![receiver, queue, BATCH])?,
        // What is leased goes when its lease is over.
        None => connection.prepare_cached("DELETE FROM deleted_queue")?.execute([])?,
    };
    Ok(pair.is_some())
}
