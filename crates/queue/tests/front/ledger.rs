//! A database in memory that answers when and how a test wants: SQLite behind a gate.

use std::mem::{Discriminant, discriminant};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{ANYBODY, Answer, ClientId, QueueId, Request};
use knee_queue::sqlite::{Options, Sqlite};
use tokio::sync::{Semaphore, broadcast};

use crate::harness::no_log;

/// More answers than any test needs.
const MANY: usize = Semaphore::MAX_PERMITS;

/// A handle of the database.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<State>);

struct State {
    database: Sqlite,
    orders: Mutex<Orders>,
    arrivals: broadcast::Sender<Option<Arrival>>,
    /// Calls that may be answered.
    answers: Semaphore,
    /// Calls that wait for their answer.
    asked: AtomicUsize,
    /// All calls so far.
    ever: AtomicUsize,
}

#[derive(Default)]
struct Orders {
    /// The kind of the last request.
    request: Option<Discriminant<Request>>,
    fails: Option<Failure>,
    silent: bool,
}

impl Ledger {
    /// A database that answers at once.
    pub(crate) fn open() -> Ledger {
        Ledger::with(MANY)
    }

    /// A database that answers only as many calls as `answer` allows.
    pub(crate) fn held() -> Ledger {
        Ledger::with(0)
    }

    fn with(answers: usize) -> Ledger {
        let options = Options { file: None, durable: false, log: no_log() };
        let database = Sqlite::open(&options).unwrap();
        let (orders, asked, ever) = Default::default();
        let (answers, arrivals) = (Semaphore::new(answers), broadcast::Sender::new(4));
        Ledger(Arc::new(State { database, orders, arrivals, answers, asked, ever }))
    }

    /// Answers this many further calls.
    pub(crate) fn answer(&self, calls: usize) {
        self.0.answers.add_permits(calls);
    }

    /// Calls that wait for their answer.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// All calls so far.
    pub(crate) fn ever(&self) -> usize {
        self.0.ever.load(Ordering::SeqCst)
    }

    /// Whether the last request was of this kind.
    pub(crate) fn was_last_asked(&self, request: &Request) -> bool {
        self.orders(|orders| orders.request) == Some(discriminant(request))
    }

    /// Lets every call fail from now on.
    pub(crate) fn fail(&self, failure: Failure) {
        self.orders(|orders| orders.fails = Some(failure));
    }

    /// Announces no further arrivals.
    pub(crate) fn fall_silent(&self) {
        self.orders(|orders| orders.silent = true);
    }

    /// Announces an arrival, even without a message.
    pub(crate) fn tell(&self, queue: QueueId, receiver: ClientId) {
        let _ = self.0.arrivals.send(Some(Arrival { queue, receiver }));
    }

    /// Reports that arrivals were missed.
    pub(crate) fn miss_arrivals(&self) {
        let _ = self.0.arrivals.send(None);
    }

    fn orders<T>(&self, with: impl FnOnce(&mut Orders) -> T) -> T {
        with(&mut self.0.orders.lock().unwrap())
    }
}

/// A call that waits for its answer.
struct Asked<'a>(&'a AtomicUsize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Database for Ledger {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        // A starting server registers before the test allows any answer.
        if request == Request::RegisterMiddleware {
            return self.0.database.call(request, stages).await;
        }
        self.orders(|orders| orders.request = Some(discriminant(&request)));
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        self.0.ever.fetch_add(1, Ordering::SeqCst);
        let _asked = Asked(&self.0.asked);
        stages.connected = Some(Instant::now());
        self.0.answers.acquire().await.unwrap().forget();
        let arrivals: Vec<_> = match &request {
            Request::Send { messages, .. } => {
                messages.iter().map(|message| (message.queue, message.receiver)).collect()
            }
            Request::DeleteQueue { queue } => vec![(*queue, ANYBODY)],
            _ => Vec::new(),
        };
        let (fails, silent) = self.orders(|orders| (orders.fails.clone(), orders.silent));
        let mut answer = match fails {
            Some(failure) => Err(failure),
            None => self.0.database.call(request, stages).await,
        };
        if let Ok(Answer::Messages(messages)) = &mut answer {
            // So a page of short messages is short enough for one part of an answer.
            messages.iter_mut().for_each(|message| message.arrived_at_us = 0);
        }
        stages.answered = Some(Instant::now());
        for (queue, receiver) in arrivals.into_iter().filter(|_| answer.is_ok() && !silent) {
            self.tell(queue, receiver);
        }
        answer
    }

    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>> {
        self.0.arrivals.subscribe()
    }
}
