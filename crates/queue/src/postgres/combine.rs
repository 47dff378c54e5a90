//! Combines requests that wait for a connection into one call with one commit. Each request has its own answer. If the
//! database refuses the call, each request is repeated alone. So a bad request does not fail the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::calls::{self, Columns, Done, change, client_number, queue_number, sent, taken};
use super::pool::Held;
use super::shared::Shared;
use crate::database::{Failure, Stages};
use crate::operation::{Answer, Outgoing, Request};

/// Largest number of bytes of content in one call: a small request should not wait for the megabytes of others.
const BYTES_MAX: usize = 4 << 20;
/// Largest number of messages in one call, so that the call ends within its time limit.
const MESSAGES_MAX: usize = 1000;

/// Requests that wait for a connection, by kind.
#[derive(Debug)]
pub(super) struct Combiner {
    shared: Arc<Shared>,
    most: usize,
    sends: Mutex<Waiting>,
    removes: Mutex<Waiting>,
}

/// Waiting jobs by number, in the order of their arrival.
#[derive(Debug, Default)]
struct Waiting {
    jobs: BTreeMap<u64, Job>,
    next: u64,
}

#[derive(Debug)]
struct Job {
    request: Request,
    reply: oneshot::Sender<Reply>,
}

#[derive(Debug)]
struct Reply {
    answer: Result<Answer, Failure>,
    connected: Instant,
    answered: Instant,
}

pub(super) fn can_combine(request: &Request) -> bool {
    matches!(request, Request::Send { .. } | Request::Remove { count: 1, .. })
}

impl Combiner {
    pub(super) fn new(shared: Arc<Shared>, most: usize) -> Combiner {
        let (sends, removes) = Default::default();
        Combiner { shared, most, sends, removes }
    }

    /// Waits for a connection, or until an earlier request includes this one in its call.
    pub(super) async fn call(
        &self,
        request: Request,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let waiting = match request {
            Request::Send { .. } => &self.sends,
            _ => &self.removes,
        };
        let (reply, mut replied) = oneshot::channel();
        let claim = Claim::new(waiting, Job { request, reply });
        let held = tokio::select! {
            biased;
            reply = &mut replied => return finish(reply, stages),
            held = self.shared.pool.take() => held,
        };
        let held = match held {
            Ok(held) => held,
            Err(failed) => {
                if claim.withdraw().is_some() {
                    return Err(failed);
                }
                return finish(replied.await, stages);
            }
        };
        // Use a task: this future may be dropped, but the call has other clients' requests. The call may be empty: its
        // requests may all be in other calls already.
        tokio::spawn(answer(Arc::clone(&self.shared), held, claim.jobs(self.most)));
        finish(replied.await, stages)
    }
}

fn finish(
    reply: Result<Reply, oneshot::error::RecvError>,
    stages: &mut Stages,
) -> Result<Answer, Failure> {
    let reply = reply
        .map_err(|_| Failure::Unknown("a combined call ended without an answer".to_owned()))?;
    stages.connected = Some(reply.connected);
    stages.answered = Some(reply.answered);
    reply.answer
}

/// A job that waits, or that another call has included. Its owner waits for a connection, so each waiting job has
/// a future that will run it. The drop withdraws a waiting job.
#[derive(Debug)]
struct Claim<'w> {
    waiting: &'w Mutex<Waiting>,
    number: u64,
}

impl Claim<'_> {
    fn new(waiting: &Mutex<Waiting>, job: Job) -> Claim<'_> {
        let mut jobs = lock(waiting);
        let number = jobs.next;
        jobs.next += 1;
        jobs.jobs.insert(number, job);
        Claim { waiting, number }
    }

    /// Withdraws the job, unless another call has included it.
    fn withdraw(&self) -> Option<Job> {
        lock(self.waiting).jobs.remove(&self.number)
    }

    /// At most `most` jobs in order: this one, and the first of the others that fit into the same call.
    fn jobs(&self, most: usize) -> Vec<Job> {
        let mut waiting = lock(self.waiting);
        let mut taken: Vec<_> = waiting.jobs.remove_entry(&self.number).into_iter().collect();
        let (mut messages, mut bytes) = taken.first().map_or((0, 0), |(_, job)| size(&job.request));
        while taken.len() < most
            && let Some(next) = waiting.jobs.first_entry()
        {
            let (more_messages, more_bytes) = size(&next.get().request);
            (messages, bytes) = (messages + more_messages, bytes + more_bytes);
            if messages > MESSAGES_MAX || bytes > BYTES_MAX {
                break;
            }
            taken.push(next.remove_entry());
        }
        taken.sort_unstable_by_key(|&(number, _)| number);
        taken.into_iter().map(|(_, job)| job).collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Messages, and bytes of content.
fn size(request: &Request) -> (usize, usize) {
    match request {
        Request::Send { messages, .. } => {
            (messages.len(), messages.iter().map(|message| message.content.len()).sum())
        }
        _ => (1, 0),
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(shared: Arc<Shared>, held: Held, jobs: Vec<Job>) {
    let connected = held.since();
    let mut done = match jobs.as_slice() {
        [] => return,
        [_] => alone(&shared, &held, &jobs).await,
        [Job { request: Request::Send { .. }, .. }, ..] => match send(&held, &jobs).await {
            Err(Failure::Invalid(_) | Failure::Broken(_)) => alone(&shared, &held, &jobs).await,
            done => each(done, jobs.len()),
        },
        _ => match remove(&shared, &held, &jobs).await {
            Err(Failure::Invalid(_) | Failure::Broken(_)) => alone(&shared, &held, &jobs).await,
            done => each(done, jobs.len()),
        },
    };
    let answered = Instant::now();
    // The next request may have the connection before the answers are read.
    drop(held);
    for (Job { reply, .. }, done) in jobs.into_iter().zip(done.drain(..)) {
        let answer = shared.announced(done);
        // The send fails if the client has left.
        let _ = reply.send(Reply { answer, connected, answered });
    }
}

/// The outcome of each request.
type Each = Vec<Result<Done, Failure>>;

fn each(done: Result<Each, Failure>, jobs: usize) -> Each {
    done.unwrap_or_else(|failure| (0..jobs).map(|_| Err(failure.clone())).collect())
}

async fn alone(shared: &Shared, held: &Held, jobs: &[Job]) -> Each {
    let mut done = Vec::with_capacity(jobs.len());
    for job in jobs {
        done.push(calls::answer(held, &shared.floors, &job.request).await);
    }
    done
}

/// Rows by the number of their call, which is in the last column.
fn by_call(rows: &[Row]) -> HashMap<i32, Vec<&Row>> {
    let mut calls: HashMap<i32, Vec<&Row>> = HashMap::new();
    for row in rows {
        calls.entry(row.get(row.len() - 1)).or_default().push(row);
    }
    calls
}

async fn send(held: &Held, jobs: &[Job]) -> Result<Each, Failure> {
    let sends: Vec<(u32, &[Outgoing])> = jobs
        .iter()
        .filter_map(|job| match &job.request {
            Request::Send { sender, messages } => Some((*sender, messages.as_slice())),
            _ => None,
        })
        .collect();
    let mut columns = Columns::default();
    let added: Vec<_> = (1..)
        .zip(&sends)
        .map(|(call, (sender, messages))| columns.add(call, *sender, messages))
        .collect();
    let rows = columns.send(held).await?;
    let rows = by_call(&rows);
    let done = (1..).zip(sends).zip(added).map(|((call, (_, messages)), added)| {
        added?;
        sent(rows.get(&call).into_iter().flatten().copied(), messages)
    });
    Ok(done.collect())
}

async fn remove(shared: &Shared, held: &Held, jobs: &[Job]) -> Result<Each, Failure> {
    let wanted: Vec<(u32, u32)> = jobs
        .iter()
        .filter_map(|job| match job.request {
            Request::Remove { receiver, queue, .. } => Some((receiver, queue)),
            _ => None,
        })
        .collect();
    let (mut receivers, mut queues, mut leases) = (Vec::new(), Vec::new(), Vec::new());
    let (mut floors, mut floors_anybodys, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    // The number of each call and its floors, or the reason why it is not made.
    let mut calls = Vec::with_capacity(wanted.len());
    for &(receiver, queue) in &wanted {
        let numbers = client_number(receiver).and_then(|r| Ok((r, queue_number(queue)?)));
        calls.push(numbers.map(|(receiver_number, queue_number)| {
            let begun = shared.floors.begin(queue, receiver);
            receivers.push(receiver_number);
            queues.push(queue_number);
            leases.push(None::<i64>);
            floors.push(begun.own.id);
            floors_anybodys.push(begun.anybodys.id);
            epochs.push(begun.epoch());
            (receivers.len() as i32, begun)
        }));
    }
    let rows = change(
        held,
        &held.statements().take_each,
        &[&receivers, &queues, &leases, &floors, &floors_anybodys, &epochs],
    )
    .await?;
    let rows = by_call(&rows);
    let done = calls.into_iter().zip(wanted).map(|(call, (receiver, queue))| {
        let (call, begun) = call?;
        let rows = rows.get(&call).into_iter().flatten().copied();
        let messages = taken(rows, &shared.floors, &begun, receiver, queue)?;
        let messages = messages.into_iter().map(|(message, _)| message).collect();
        Ok(Answer::Messages(messages).into())
    });
    Ok(done.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Number of sends, given as `(messages, bytes)`, that fit into one call with the first one.
    fn taken(sends: &[(usize, usize)]) -> usize {
        let waiting = Mutex::default();
        let claims: Vec<_> = sends
            .iter()
            .map(|&(messages, bytes)| {
                let message = Outgoing { receiver: 1, queue: 1, content: "x".repeat(bytes) };
                let messages = vec![message; messages];
                let (reply, _) = oneshot::channel();
                Claim::new(&waiting, Job { request: Request::Send { sender: 1, messages }, reply })
            })
            .collect();
        claims[0].jobs(4).len()
    }

    #[test]
    fn combined_call_is_limited() {
        assert_eq!(taken(&[(1, 1); 3]), 3);
        assert_eq!(taken(&[(1, 1); 5]), 4);
        assert_eq!(taken(&[(500, 1); 3]), 2);
        assert_eq!(taken(&[(1, BYTES_MAX / 2); 3]), 2);
        // A large send gets a separate call.
        assert_eq!(taken(&[(1, BYTES_MAX + 1), (1, 1)]), 1);
        assert_eq!(taken(&[(1001, 1), (1, 1)]), 1);
        // A later send does not overtake an earlier one.
        assert_eq!(taken(&[(1, 1), (1001, 1), (1, 1)]), 1);
    }
}
