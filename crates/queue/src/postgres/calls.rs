//! Calls stored functions for requests, and converts their rows to answers.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::failure;
use super::floors::{Begun, Floors};
use super::pool::Held;
use crate::database::{Arrival, Failure};
use crate::operation::{
    ANYBODY, Answer, ClientId, Counts, Lease, MessageId, Outgoing, QueueId, QueueSettings, Request,
    Stored,
};

/// An answer, and the messages that the call made ready.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) arrivals: Vec<Arrival>,
}

impl From<Answer> for Done {
    fn from(answer: Answer) -> Done {
        Done { answer, arrivals: Vec::new() }
    }
}

pub(super) async fn answer(
    held: &Held,
    floors: &Floors,
    request: &Request,
) -> Result<Done, Failure> {
    let functions = held.statements();
    match request {
        Request::RegisterMiddleware => {
            let row = change(held, &functions.register_middleware, &[]).await?;
            Ok(Answer::Id(id(&only(&row)?.get::<_, i32>(0))).into())
        }
        Request::RegisterClient { middleware } => {
            let middleware = middleware.cast_signed();
            let row = change(held, &functions.register_client, &[&middleware]).await?;
            Ok(Answer::Id(id(&only(&row)?.get::<_, i32>(0))).into())
        }
        Request::CreateQueue { creator, settings } => create(held, *creator, settings).await,
        Request::DeleteQueue { queue } => {
            let rows = change(held, &functions.delete_queue, &[&queue_number(*queue)?]).await?;
            there(only(&rows)?)?;
            // Wakes the calls that wait for messages of the queue: they end.
            let arrivals = vec![Arrival { queue: *queue, receiver: ANYBODY }];
            Ok(Done { answer: Answer::Done, arrivals })
        }
        Request::Send { sender, messages } => send(held, *sender, messages).await,
        Request::ListQueues { receiver } => {
            let receiver = client_number(*receiver)?;
            let rows = read(held, &functions.list_queues, &[&receiver]).await?;
            there(first(&rows)?)?;
            let queues = rows.iter().filter_map(|row| row.get::<_, Option<i32>>(2));
            Ok(Answer::Queues(queues.map(|queue| id(&queue)).collect()).into())
        }
        &Request::Read { receiver, queue, after, count, content_bytes_max } => {
            let begun = floors.begin(queue, receiver);
            let rows = read(
                held,
                &functions.read,
                &[
                    &client_number(receiver)?,
                    &queue_number(queue)?,
                    &i64::try_from(after).unwrap_or(i64::MAX),
                    &i32::try_from(count).unwrap_or(i32::MAX),
                    &i64::try_from(content_bytes_max).unwrap_or(i64::MAX),
                    &begun.own.id,
                    &begun.anybodys.id,
                    &begun.epoch(),
                ],
            )
            .await?;
            there(first(&rows)?)?;
            Ok(Answer::Messages(stored(&rows, 2, |_| queue)).into())
        }
        Request::ReadFrom { receiver, sender } => {
            let whose = [client_number(*receiver)?, client_number(*sender)?];
            let rows = read(held, &functions.read_from, &[&whose[0], &whose[1]]).await?;
            there(first(&rows)?)?;
            let queue = |row: &Row| id(&row.get::<_, i32>(7));
            Ok(Answer::Messages(stored(&rows, 2, queue)).into())
        }
        &Request::Remove { receiver, queue, count, content_bytes_max } => {
            let taken = take(held, floors, receiver, queue, count, content_bytes_max, None).await?;
            Ok(Answer::Messages(taken.into_iter().map(|(message, _)| message).collect()).into())
        }
        &Request::Lease { receiver, queue, count, content_bytes_max, visibility } => {
            let lease = Some(visibility);
            take(held, floors, receiver, queue, count, content_bytes_max, lease)
                .await
                .map(|leased| Answer::Leased(leased).into())
        }
        Request::Acknowledge { leases } => {
            let (messages, attempts) = numbers(leases);
            let rows = change(held, &functions.acknowledge, &[&messages, &attempts]).await?;
            Ok(Answer::Ended(ended(leases, &rows)).into())
        }
        Request::Extend { leases, visibility } => {
            let (messages, attempts) = numbers(leases);
            let until = micros(*visibility);
            let rows = change(held, &functions.extend, &[&messages, &attempts, &until]).await?;
            Ok(Answer::Ended(ended(leases, &rows)).into())
        }
        Request::Release { leases } => {
            let (messages, attempts) = numbers(leases);
            let rows = change(held, &functions.release, &[&messages, &attempts]).await?;
            Ok(Done { answer: Answer::Ended(ended(leases, &rows)), arrivals: put_back(&rows) })
        }
        Request::Counts => {
            let rows = read(held, &functions.counts, &[]).await?;
            let row = only(&rows)?;
            let number = |column| row.get::<_, i64>(column).unsigned_abs();
            let (messages, clients, queues) = (number(0), number(1), number(2));
            Ok(Answer::Counts(Counts { messages, clients, queues }).into())
        }
    }
}

/// There was no answer for twice the time after which the database undoes a call.
const SILENT: &str = "the database does not answer";

type Values<'v> = &'v [&'v (dyn ToSql + Sync)];

/// Calls a function that writes.
pub(super) async fn change(
    held: &Held,
    function: &Statement,
    values: Values<'_>,
) -> Result<Vec<Row>, Failure> {
    let rows = held.rows(function, values).await;
    let rows = rows.map_err(|_| Failure::Unknown(SILENT.to_owned()))?;
    rows.map_err(|error| failure::calling(&error))
}

/// Calls a function that only reads. A call without an answer has changed nothing.
pub(super) async fn read(
    held: &Held,
    function: &Statement,
    values: Values<'_>,
) -> Result<Vec<Row>, Failure> {
    let rows = held.rows(function, values).await;
    let rows = rows.map_err(|_| Failure::Unavailable(SILENT.to_owned()))?;
    rows.map_err(|error| failure::calling(&error))
}

pub(super) fn only(rows: &[Row]) -> Result<&Row, Failure> {
    match rows {
        [row] => Ok(row),
        _ => Err(Failure::Broken(format!("{} rows where one is expected", rows.len()))),
    }
}

fn first(rows: &[Row]) -> Result<&Row, Failure> {
    rows.first().ok_or_else(|| Failure::Broken("no row where one is expected".to_owned()))
}

/// Fails if a row, which begins with `problem` and `about`, names a missing client or queue.
pub(super) fn there(row: &Row) -> Result<(), Failure> {
    match row.get(0) {
        0 => Ok(()),
        1 => Err(Failure::no_client(id(&row.get::<_, i32>(1)))),
        2 => Err(Failure::no_queue(id(&row.get::<_, i32>(1)))),
        other => Err(Failure::Broken(format!("unknown problem {other}"))),
    }
}

fn id(number: &i32) -> u32 {
    number.cast_unsigned()
}

pub(super) fn client_number(client: ClientId) -> Result<i32, Failure> {
    i32::try_from(client).map_err(|_| Failure::no_client(client))
}

pub(super) fn queue_number(queue: QueueId) -> Result<i32, Failure> {
    i32::try_from(queue).map_err(|_| Failure::no_queue(queue))
}

fn micros(duration: Duration) -> i64 {
    /// About a hundred years, well within the range of timestamps.
    const MAX: i64 = 100 * 366 * 24 * 3600 * 1_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(MAX).min(MAX)
}

async fn create(held: &Held, creator: ClientId, settings: &QueueSettings) -> Result<Done, Failure> {
    let dead_letters = settings.dead_letters.map(queue_number).transpose()?;
    let attempts_max = i32::try_from(settings.attempts_max).unwrap_or(i32::MAX);
    let retention = settings.retention.map(micros);
    let rows = change(
        held,
        &held.statements().create_queue,
        &[&client_number(creator)?, &dead_letters, &attempts_max, &retention],
    )
    .await?;
    let row = only(&rows)?;
    there(row)?;
    Ok(Answer::Id(id(&row.get::<_, i32>(2))).into())
}

async fn send(held: &Held, sender: ClientId, messages: &[Outgoing]) -> Result<Done, Failure> {
    if let [message] = messages {
        let rows = change(
            held,
            &held.statements().send,
            &[
                &client_number(sender)?,
                &client_number(message.receiver)?,
                &queue_number(message.queue)?,
                &message.content,
            ],
        )
        .await?;
        return sent(&rows, messages);
    }
    let mut columns = Columns::default();
    columns.add(0, sender, messages)?;
    let rows = columns.send(held).await?;
    sent(&rows, messages)
}

/// The messages of several calls, as arguments of `send_all`.
#[derive(Debug, Default)]
pub(super) struct Columns<'c> {
    calls: Vec<i32>,
    senders: Vec<i32>,
    receivers: Vec<i32>,
    queues: Vec<i32>,
    contents: Vec<&'c str>,
}

impl<'c> Columns<'c> {
    /// Adds the messages of a call, all or none.
    pub(super) fn add(
        &mut self,
        call: i32,
        sender: ClientId,
        messages: &'c [Outgoing],
    ) -> Result<(), Failure> {
        let sender = client_number(sender)?;
        for message in messages {
            client_number(message.receiver)?;
            queue_number(message.queue)?;
        }
        for Outgoing { receiver, queue, content } in messages {
            self.calls.push(call);
            self.senders.push(sender);
            self.receivers.push(receiver.cast_signed());
            self.queues.push(queue.cast_signed());
            self.contents.push(content);
        }
        Ok(())
    }

    pub(super) async fn send(&self, held: &Held) -> Result<Vec<Row>, Failure> {
        let Columns { calls, senders, receivers, queues, contents } = self;
        let values: Values<'_> = &[calls, senders, receivers, queues, contents];
        change(held, &held.statements().send_all, values).await
    }
}

/// Reads the rows of a send: `problem`, `about`, `id`.
pub(super) fn sent<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    messages: &[Outgoing],
) -> Result<Done, Failure> {
    let mut ids = Vec::with_capacity(messages.len());
    for row in rows {
        there(row)?;
        ids.push(row.get::<_, i64>(2).unsigned_abs());
    }
    if ids.len() != messages.len() {
        let text = format!("{} numbers for {} messages", ids.len(), messages.len());
        return Err(Failure::Broken(text));
    }
    // Numbers grow in the order of the messages.
    ids.sort_unstable();
    let arrival = |&Outgoing { queue, receiver, .. }: &Outgoing| Arrival { queue, receiver };
    let arrivals = messages.iter().map(arrival).collect();
    Ok(Done { answer: Answer::Sent(ids), arrivals })
}

async fn take(
    held: &Held,
    floors: &Floors,
    receiver: ClientId,
    queue: QueueId,
    count: u32,
    content_bytes_max: u64,
    lease: Option<Duration>,
) -> Result<Vec<(Stored, u32)>, Failure> {
    let begun = floors.begin(queue, receiver);
    let rows = change(
        held,
        &held.statements().take,
        &[
            &client_number(receiver)?,
            &queue_number(queue)?,
            &i32::try_from(count).unwrap_or(i32::MAX),
            &i64::try_from(content_bytes_max).unwrap_or(i64::MAX),
            &lease.map(micros),
            &begun.own.id,
            &begun.anybodys.id,
            &begun.epoch(),
        ],
    )
    .await?;
    taken(&rows, floors, &begun, receiver, queue)
}

/// Reads the rows of `take`.
pub(super) fn taken<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    floors: &Floors,
    begun: &Begun,
    receiver: ClientId,
    queue: QueueId,
) -> Result<Vec<(Stored, u32)>, Failure> {
    let mut messages = Vec::new();
    let mut seen = None;
    for row in rows {
        there(row)?;
        seen = Some((row.get(2), row.get(3), row.get(4)));
        if let Some(message) = one(row, 5, queue) {
            messages.push((message, id(&row.get::<_, i32>(9))));
        }
    }
    let (epoch, first, first_anybodys) =
        seen.ok_or_else(|| Failure::Broken("no row where one is expected".to_owned()))?;
    floors.raise(queue, receiver, begun, epoch, first, first_anybodys);
    messages.sort_unstable_by_key(|(message, _)| message.id);
    Ok(messages)
}

/// The messages in rows with the columns `id, sender, receiver, arrived_at, content` from `at` on.
fn stored(rows: &[Row], at: usize, queue: impl Fn(&Row) -> QueueId) -> Vec<Stored> {
    let there = rows.iter().filter(|row| row.get::<_, Option<i64>>(at).is_some());
    there.filter_map(|row| message(row, at, at + 4, queue(row))).collect()
}

/// The message in a row of `take`; such a row has the attempt before the content.
fn one(row: &Row, at: usize, queue: QueueId) -> Option<Stored> {
    message(row, at, at + 5, queue)
}

fn message(row: &Row, at: usize, content: usize, queue: QueueId) -> Option<Stored> {
    let number: i64 = row.get::<_, Option<i64>>(at)?;
    let arrived: SystemTime = row.get(at + 3);
    let since = arrived.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Stored {
        id: number.unsigned_abs(),
        sender: id(&row.get::<_, i32>(at + 1)),
        receiver: id(&row.get::<_, i32>(at + 2)),
        queue,
        arrived_at_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        content: row.get(content),
    })
}

/// Leases as arguments, in any order: calls with common leases cannot deadlock. The index scan of `acknowledge` and
/// `extend` locks messages in the order of their numbers, and `release` sorts them.
fn numbers(leases: &[Lease]) -> (Vec<i64>, Vec<i32>) {
    leases
        .iter()
        .filter_map(|lease| {
            Some((i64::try_from(lease.message).ok()?, i32::try_from(lease.attempt).ok()?))
        })
        .unzip()
}

/// The leases without a row. A row begins with message and attempt.
fn ended(leases: &[Lease], rows: &[Row]) -> Vec<Lease> {
    let found: HashSet<(MessageId, u32)> = rows
        .iter()
        .map(|row| (row.get::<_, i64>(0).unsigned_abs(), id(&row.get::<_, i32>(1))))
        .collect();
    let missing = |lease: &&Lease| !found.contains(&(lease.message, lease.attempt));
    leases.iter().filter(missing).copied().collect()
}

/// The arrivals in the rows of `put_back`. Messages of a deleted queue do not arrive.
pub(super) fn put_back(rows: &[Row]) -> Vec<Arrival> {
    rows.iter()
        .filter_map(|row| {
            let (queue, receiver) = (id(&row.get::<_, Option<i32>>(2)?), id(&row.get::<_, i32>(3)));
            Some(Arrival { queue, receiver })
        })
        .collect()
}
