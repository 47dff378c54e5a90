//! What waits for a connection, put together into one call: one exchange with the database and one
//! commit for all of it. Each request is answered by itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::Inner;
use super::calls::{self, Columns, Done, change, client_number, queue_number, sent, taken};
use super::pool::Held;
use crate::database::{Failure, Stages};
use crate::operation::{Answer, Outgoing, Request};

/// Requests that wait for a connection, by what they can be combined with.
#[derive(Debug)]
pub(super) struct Combiner {
    inner: Arc<Inner>,
    most: usize,
    sends: Mutex<Waiting>,
    removes: Mutex<Waiting>,
}

/// By number, in the order in which they came.
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
    pub(super) fn new(inner: Arc<Inner>, most: usize) -> Combiner {
        let (sends, removes) = Default::default();
        Combiner { inner, most, sends, removes }
    }

    /// Waits for a connection, or for somebody who had one earlier and took this request along.
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
            held = self.inner.pool.take() => held,
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
        // Not by this future, which may be dropped: others are in it, too. Where the request is taken
        // along in this moment, the call may have nothing to do.
        tokio::spawn(answer(Arc::clone(&self.inner), held, claim.jobs(self.most)));
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

/// A job that waits, or has been taken along. Whoever has one waits for a connection, too, so that no job
/// waits without; when this is dropped, the job is not done any more.
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

    /// The job, if nobody has taken it.
    fn withdraw(&self) -> Option<Job> {
        lock(self.waiting).jobs.remove(&self.number)
    }

    /// So many jobs at most, in their order: this one, whose turn is used up, and the first of the others.
    fn jobs(&self, most: usize) -> Vec<Job> {
        let mut waiting = lock(self.waiting);
        let mut taken: Vec<_> = waiting.jobs.remove_entry(&self.number).into_iter().collect();
        while taken.len() < most
            && let Some(job) = waiting.jobs.pop_first()
        {
            taken.push(job);
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

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(inner: Arc<Inner>, held: Held, jobs: Vec<Job>) {
    let connected = Instant::now();
    let mut done = match jobs.as_slice() {
        [] => return,
        [job] => vec![calls::answer(&held, &inner.floors, &job.request).await],
        [Job { request: Request::Send { .. }, .. }, ..] => send(&held, &jobs).await,
        _ => remove(&inner, &held, &jobs).await,
    };
    // Whoever waits for the connection may have it before the answers are read.
    drop(held);
    let answered = Instant::now();
    for (Job { reply, .. }, done) in jobs.into_iter().zip(done.drain(..)) {
        let answer = inner.told(done);
        // Whoever asked may have left.
        let _ = reply.send(Reply { answer, connected, answered });
    }
}

/// By call, the rows in the last column of which its number stands.
fn by_call(rows: &[Row]) -> HashMap<i32, Vec<&Row>> {
    let mut calls: HashMap<i32, Vec<&Row>> = HashMap::new();
    for row in rows {
        calls.entry(row.get(row.len() - 1)).or_default().push(row);
    }
    calls
}

async fn send(held: &Held, jobs: &[Job]) -> Vec<Result<Done, Failure>> {
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
    let rows = columns.send(held).await;
    let rows = match &rows {
        Ok(rows) => Ok(by_call(rows)),
        Err(failure) => Err(failure),
    };
    (1..)
        .zip(sends)
        .zip(added)
        .map(|((call, (_, messages)), added)| {
            added?;
            let rows = rows.as_ref().map_err(|&failure| failure.clone())?;
            sent(rows.get(&call).into_iter().flatten().copied(), messages)
        })
        .collect()
}

async fn remove(inner: &Inner, held: &Held, jobs: &[Job]) -> Vec<Result<Done, Failure>> {
    let wanted: Vec<(u32, u32)> = jobs
        .iter()
        .filter_map(|job| match job.request {
            Request::Remove { receiver, queue, .. } => Some((receiver, queue)),
            _ => None,
        })
        .collect();
    let (mut receivers, mut queues, mut leases) = (Vec::new(), Vec::new(), Vec::new());
    let (mut floors, mut floors_nobodys, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    // Each with the number of its call, and what it begins with; or why it is not made.
    let mut calls = Vec::with_capacity(wanted.len());
    for &(receiver, queue) in &wanted {
        let numbers = client_number(receiver).and_then(|r| Ok((r, queue_number(queue)?)));
        calls.push(numbers.map(|(receiver_number, queue_number)| {
            let begun = inner.floors.begin(queue, receiver);
            receivers.push(receiver_number);
            queues.push(queue_number);
            leases.push(None::<i64>);
            floors.push(begun.own.id);
            floors_nobodys.push(begun.nobodys.id);
            epochs.push(begun.epoch());
            (receivers.len() as i32, begun)
        }));
    }
    let rows = change(
        held,
        &held.statements().take_each,
        &[&receivers, &queues, &leases, &floors, &floors_nobodys, &epochs],
    )
    .await;
    let rows = match &rows {
        Ok(rows) => Ok(by_call(rows)),
        Err(failure) => Err(failure),
    };
    calls
        .into_iter()
        .zip(wanted)
        .map(|(call, (receiver, queue))| {
            let (call, begun) = call?;
            let rows = rows.as_ref().map_err(|&failure| failure.clone())?;
            let rows = rows.get(&call).into_iter().flatten().copied();
            let messages = taken(rows, &inner.floors, &begun, receiver, queue)?;
            let messages = messages.into_iter().map(|(message, _)| message).collect();
            Ok(Answer::Messages(messages).into())
        })
        .collect()
}
