//! Background jobs: leases that end, retention, deleted queues.

use rusqlite::{Connection, OptionalExtension, params};

use super::time::now_us;
use crate::database::Arrival;

/// Largest number of messages of one step, so that requests do not wait long for the writer.
const BATCH: u32 = 500;
/// Largest number of pairs of receiver and queue in one step.
const PAIRS: u32 = 100;

/// Ends expired leases; returns the arrivals, and whether there may be more.
pub(super) fn end_leases(connection: &Connection) -> rusqlite::Result<(Vec<Arrival>, bool)> {
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

/// Puts a leased message back at its old place or, after the last attempt, into the queue of dead letters. Removes a
/// message of a deleted queue.
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

/// A walk over the pairs of receiver and queue with ready messages, in steps.
#[derive(Debug)]
pub(super) struct Round {
    /// The last finished pair.
    receiver: u32,
    queue: u32,
    /// Queues that were deleted before the round began. By its end, their ready messages are removed.
    gone: Vec<u32>,
}

impl Round {
    /// `None` if no queue has retention and none was deleted.
    fn begin(connection: &Connection) -> rusqlite::Result<Option<Round>> {
        let mut gone = connection.prepare_cached("SELECT id FROM deleted_queue")?;
        let gone = gone.query_map([], |row| row.get(0))?.collect::<Result<Vec<u32>, _>>()?;
        let any = !gone.is_empty()
            || connection
                .prepare_cached("SELECT 1 FROM queue WHERE retention_us IS NOT NULL LIMIT 1")?
                .exists([])?;
        Ok(any.then_some(Round { receiver: 0, queue: 0, gone }))
    }

    /// Forgets the deleted queues. Their leased messages are removed when the leases end.
    fn end(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut forget = connection.prepare_cached("DELETE FROM deleted_queue WHERE id = ?1")?;
        self.gone.iter().try_for_each(|queue| forget.execute([queue]).map(drop))
    }
}

/// Continues the round, or begins one: removes expired messages, and messages of deleted queues. Returns whether there
/// is more to remove at once.
pub(super) fn sweep(connection: &Connection, round: &mut Option<Round>) -> rusqlite::Result<bool> {
    let begun = match round.take() {
        Some(round) => Some(round),
        None => Round::begin(connection)?,
    };
    let Some(mut at) = begun else { return Ok(false) };
    // The head of the next pair, and the time before which its messages are expired.
    let mut next = connection.prepare_cached(
        "SELECT m.receiver, m.queue, m.arrived_at_us,
                iif(q.id IS NULL, ?4, ?3 - q.retention_us)
         FROM message m LEFT JOIN queue q ON q.id = m.queue
         WHERE m.id = (SELECT n.id FROM message n WHERE n.leased_until_us IS NULL
                       AND (n.receiver, n.queue) > (?1, ?2)
                       ORDER BY n.receiver, n.queue, n.id LIMIT 1)",
    )?;
    // The oldest messages have the lowest numbers.
    let mut delete = connection.prepare_cached(
        "DELETE FROM message WHERE id IN (
            SELECT id FROM message
            WHERE receiver = ?1 AND queue = ?2 AND leased_until_us IS NULL
            ORDER BY id LIMIT ?4) AND arrived_at_us < ?3",
    )?;
    let now = now_us();
    let mut left = BATCH;
    for _ in 0..PAIRS {
        let head = next
            .query_row(params![at.receiver, at.queue, now, i64::MAX], |row| {
                let pair: (u32, u32) = (row.get(0)?, row.get(1)?);
                Ok((pair, row.get::<_, i64>(2)?, row.get::<_, Option<i64>>(3)?))
            })
            .optional()?;
        let Some(((receiver, queue), arrived, before)) = head else {
            at.end(connection)?;
            return Ok(false);
        };
        if let Some(before) = before.filter(|before| arrived < *before) {
            left -= delete.execute(params![receiver, queue, before, left])? as u32;
            if left == 0 {
                *round = Some(at);
                return Ok(true);
            }
        }
        (at.receiver, at.queue) = (receiver, queue);
    }
    *round = Some(at);
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn round_of_several_steps_removes_expired_and_deleted_messages() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        let pairs = 2 * PAIRS + 1;
        let fill = format!(
            "INSERT INTO queue (id, creator, attempts_max, retention_us)
             VALUES (1, 0, 0, 1000000000), (2, 0, 0, NULL);
             INSERT INTO deleted_queue VALUES (3);
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {pairs})
             INSERT INTO message (queue, sender, receiver, arrived_at_us, content)
             SELECT q.id, 0, n, iif(n = {pairs}, 0, {}), 'x'
             FROM n, (SELECT 1 AS id UNION ALL SELECT 2 UNION ALL SELECT 3) q",
            now_us()
        );
        connection.execute_batch(&fill).unwrap();
        let count = |of: &str| -> u32 {
            let query = format!("SELECT count(*) FROM {of}");
            connection.query_row(&query, [], |row| row.get(0)).unwrap()
        };
        let mut round = None;
        sweep(&connection, &mut round).unwrap();
        let at = round.as_ref().unwrap();
        assert_eq!((at.receiver, at.queue), (PAIRS / 3 + 1, 1));
        assert_eq!(count("message"), 3 * pairs - PAIRS / 3);
        // A queue that is deleted during the round waits for the next one.
        connection.execute_batch("INSERT INTO deleted_queue VALUES (4)").unwrap();
        while round.is_some() {
            sweep(&connection, &mut round).unwrap();
        }
        assert_eq!(count("message WHERE queue = 1"), pairs - 1);
        assert_eq!(count("message WHERE queue = 2"), pairs);
        assert_eq!(count("message WHERE queue = 3"), 0);
        assert_eq!(count("deleted_queue WHERE id = 3"), 0);
        assert_eq!(count("deleted_queue WHERE id = 4"), 1);
    }
}
