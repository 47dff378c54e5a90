//! The only thread that writes. It commits waiting requests as one transaction. A failing request undoes only its own
//! part.

use std::iter;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{broadcast, oneshot};

use super::failure::failure;
use super::{changes, keeping};
use crate::database::{Arrival, Failure, Stages};
use crate::operation::{Answer, Request};
use crate::upkeep::{self, Report};

/// Largest number of requests of one transaction.
const GROUP_MAX: usize = 256;
/// The interval of background jobs.
const KEEPING: Duration = Duration::from_millis(100);

/// The writing thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Ignore a panic: its jobs have failed already.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Job {
    request: Slot,
    reply: oneshot::Sender<Reply>,
}

/// A request, until the thread takes it or its client leaves.
type Slot = Arc<Mutex<Option<Request>>>;

fn take(slot: &Slot) -> Option<Request> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Takes a request back when its client leaves. This frees its memory at once, although the thread may be busy for
/// seconds.
struct Waits(Slot);

impl Drop for Waits {
    fn drop(&mut self) {
        take(&self.0);
    }
}

#[derive(Debug)]
struct Reply {
    answer: Result<Answer, Failure>,
    begun: Instant,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        arrivals: broadcast::Sender<Option<Arrival>>,
        report: Report,
    ) -> Result<Writer, Failure> {
        let (jobs, waiting) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || run(connection, &waiting, &arrivals, &report))
            .map_err(|error| Failure::Unavailable(format!("cannot start a thread: {error}")))?;
        Ok(Writer { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) async fn call(
        &self,
        request: Request,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let reply = self.reply(request).await?;
        stages.connected = Some(reply.begun);
        stages.answered = Some(Instant::now());
        reply.answer
    }

    async fn reply(&self, request: Request) -> Result<Reply, Failure> {
        let (reply, answered) = oneshot::channel();
        // A thread that has panicked drops its jobs.
        let ended = || Failure::Unknown("the thread that writes to SQLite has ended".to_owned());
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        let request = Arc::new(Mutex::new(Some(request)));
        let _waits = Waits(Arc::clone(&request));
        jobs.send(Job { request, reply }).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())
    }
}

fn run(
    mut connection: Connection,
    jobs: &Receiver<Job>,
    arrivals: &broadcast::Sender<Option<Arrival>>,
    report: &Report,
) {
    let mut keep_at = Instant::now();
    let mut round = None;
    loop {
        match jobs.recv_timeout(keep_at.saturating_duration_since(Instant::now())) {
            Ok(first) => group(&mut connection, first, jobs, arrivals),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if Instant::now() >= keep_at {
            // Each job has its own transaction, so its failure does not undo the other job. If the file is busy, skip
            // the second job: requests would wait for the file twice.
            let leases = end_leases(&mut connection, arrivals);
            let rounds = match &leases {
                Err(failure @ Failure::Unavailable(_)) => Err(failure.clone()),
                _ => sweep(&mut connection, &mut round),
            };
            let more = leases == Ok(true) || rounds == Ok(true);
            report.after(upkeep::Job::EndLeases, leases.map(drop));
            report.after(upkeep::Job::RemoveExpired, rounds.map(drop));
            keep_at = Instant::now() + if more { Duration::ZERO } else { KEEPING };
        }
    }
}

fn end_leases(
    connection: &mut Connection,
    arrivals: &broadcast::Sender<Option<Arrival>>,
) -> Result<bool, Failure> {
    let (arrived, more) = in_transaction(connection, keeping::end_leases)?;
    announce(arrivals, arrived);
    Ok(more)
}

fn sweep(connection: &mut Connection, round: &mut Option<keeping::Round>) -> Result<bool, Failure> {
    let swept = in_transaction(connection, |connection| keeping::sweep(connection, round));
    if swept.is_err() {
        *round = None;
    }
    swept
}

fn in_transaction<T>(
    connection: &mut Connection,
    act: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, Failure> {
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failure)?;
    let done = act(&transaction).map_err(failure)?;
    transaction.commit().map_err(failure)?;
    Ok(done)
}

/// Answers a job and the jobs that wait after it, in one transaction.
fn group(
    connection: &mut Connection,
    first: Job,
    jobs: &Receiver<Job>,
    arrivals: &broadcast::Sender<Option<Arrival>>,
) {
    let mut replies = Vec::new();
    let mut arrived = Vec::new();
    let committed = transact(connection, first, jobs, &mut arrived, &mut replies);
    if committed.is_ok() {
        announce(arrivals, arrived);
    }
    for (reply, mut answer) in replies {
        if let Err(failed) = &committed {
            answer.answer = Err(failed.clone());
        }
        // The client may have left.
        let _ = reply.send(answer);
    }
}

type Replies = Vec<(oneshot::Sender<Reply>, Reply)>;

fn transact(
    connection: &mut Connection,
    first: Job,
    jobs: &Receiver<Job>,
    arrived: &mut Vec<Arrival>,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let mut transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate)
    {
        Ok(transaction) => transaction,
        Err(error) => {
            let failed = failure(error);
            // Fail all waiting jobs: each would wait as long again for the file.
            let begun = Instant::now();
            let refused = |Job { reply, .. }| (reply, Reply { answer: Err(failed.clone()), begun });
            replies.extend(iter::once(first).chain(jobs.try_iter()).map(refused));
            return Err(failed);
        }
    };
    let mut next = Some(first);
    let mut taken = 0;
    while let Some(Job { request, reply }) = next {
        let begun = Instant::now();
        // Skip a request whose client has left.
        if let Some(request) = take(&request) {
            let answer = alone(&mut transaction, &request, arrived);
            let failed = answer.as_ref().err().cloned();
            replies.push((reply, Reply { answer, begun }));
            // After some errors, such as a full disk, SQLite rolls back everything.
            if let Some(failed) = failed.filter(|_| transaction.is_autocommit()) {
                return Err(failed);
            }
        }
        taken += 1;
        next = if taken < GROUP_MAX { jobs.try_recv().ok() } else { None };
    }
    transaction.commit().map_err(|error| match failure(error) {
        // The commit may be on the disk, although a write or sync failed.
        Failure::Unavailable(text) => Failure::Unknown(text),
        other => other,
    })
}

/// Runs a request in a savepoint, so that a failing request changes nothing.
fn alone(
    transaction: &mut rusqlite::Transaction<'_>,
    request: &Request,
    arrived: &mut Vec<Arrival>,
) -> Result<Answer, Failure> {
    let savepoint = transaction.savepoint().map_err(failure)?;
    let before = arrived.len();
    match changes::answer(&savepoint, request, arrived) {
        Ok(answer) => {
            savepoint.commit().map_err(failure)?;
            Ok(answer)
        }
        // The savepoint is rolled back when it is dropped.
        Err(failed) => {
            arrived.truncate(before);
            Err(failed)
        }
    }
}

fn announce(arrivals: &broadcast::Sender<Option<Arrival>>, arrived: Vec<Arrival>) {
    for arrival in arrived {
        // There may be no subscriber.
        let _ = arrivals.send(Some(arrival));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use rusqlite::OpenFlags;

    use super::*;
    use crate::operation::{ANYBODY, Outgoing, QueueSettings};

    fn job(request: Request) -> (Job, oneshot::Receiver<Reply>) {
        let (reply, replied) = oneshot::channel();
        let request = Arc::new(Mutex::new(Some(request)));
        (Job { request, reply }, replied)
    }

    fn answer(connection: &mut Connection, request: Request) -> Result<Answer, Failure> {
        let (job, mut replied) = job(request);
        let (_jobs, waiting) = mpsc::channel();
        group(connection, job, &waiting, &broadcast::Sender::new(1));
        replied.try_recv().unwrap().answer
    }

    #[test]
    fn client_that_leaves_takes_its_request_back() {
        let (jobs, waiting) = mpsc::channel();
        let writer = Writer { jobs: Some(jobs), thread: None };
        {
            let mut stages = Stages::default();
            let mut call = pin!(writer.call(Request::Counts, &mut stages));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let job = waiting.try_recv().unwrap();
        assert!(take(&job.request).is_none());
    }

    #[test]
    fn busy_file_fails_all_waiting_requests_at_once() {
        let place = std::env::temp_dir().join(format!("knee-writer-{}.db", std::process::id()));
        let other = Connection::open(&place).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let mut connection = Connection::open(&place).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        let (jobs, waiting) = mpsc::channel();
        let (first, mut first_replied) = job(Request::Counts);
        let (second, mut second_replied) = job(Request::Counts);
        jobs.send(second).unwrap();
        group(&mut connection, first, &waiting, &broadcast::Sender::new(1));
        for replied in [&mut first_replied, &mut second_replied] {
            let answer = replied.try_recv().unwrap().answer;
            assert!(matches!(&answer, Err(Failure::Unavailable(_))), "{answer:?}");
        }
        std::fs::remove_file(&place).unwrap();
    }

    #[test]
    fn full_or_read_only_file_refuses_and_loses_nothing() {
        let place = std::env::temp_dir().join(format!("knee-full-{}.db", std::process::id()));
        let mut connection = Connection::open(&place).unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        let settings = QueueSettings { dead_letters: None, attempts_max: 5, retention: None };
        let create = Request::CreateQueue { creator: 0, settings };
        let Ok(Answer::Id(queue)) = answer(&mut connection, create) else { panic!("no queue") };
        let send = |bytes| {
            let message = Outgoing { receiver: ANYBODY, queue, content: "x".repeat(bytes) };
            Request::Send { sender: 0, messages: vec![message] }
        };
        answer(&mut connection, send(10)).unwrap();
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        for (pages_max, fits) in [(pages + 1, false), (pages + 1000, true)] {
            let set = format!("PRAGMA max_page_count = {pages_max}");
            connection.query_row(&set, [], |_| Ok(())).unwrap();
            let sent = answer(&mut connection, send(100_000));
            assert!(
                if fits { sent.is_ok() } else { matches!(sent, Err(Failure::Full(_))) },
                "{sent:?}"
            );
        }
        let mut read_only =
            Connection::open_with_flags(&place, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let sent = answer(&mut read_only, send(10));
        let Err(Failure::Unavailable(text)) = &sent else { panic!("{sent:?}") };
        assert!(text.contains("readonly"), "{text}");
        let messages = "SELECT count(*) FROM message";
        let messages: i64 = connection.query_row(messages, [], |row| row.get(0)).unwrap();
        assert_eq!(messages, 2);
        std::fs::remove_file(&place).unwrap();
    }
}
