//! A database of messages in memory that answers when and how a test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{
    ANYBODY, Answer, ClientId, Counts, Lease, MessageId, QueueId, Request, Stored,
};
use tokio::sync::{Semaphore, broadcast};

/// More answers than any test needs.
const MANY: usize = Semaphore::MAX_PERMITS;

/// A handle of the database.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<State>);

struct State {
    entries: Mutex<Entries>,
    arrivals: broadcast::Sender<Option<Arrival>>,
    /// Calls that may be answered.
    answers: Semaphore,
    /// Calls that wait for their answer.
    asked: AtomicUsize,
    /// All calls so far.
    ever: AtomicUsize,
}

#[derive(Default)]
struct Entries {
    numbers: u32,
    clients: BTreeSet<ClientId>,
    queues: BTreeSet<QueueId>,
    /// Each with whether it is leased.
    messages: BTreeMap<MessageId, (Stored, bool)>,
    last: MessageId,
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
        let (entries, asked, ever) = Default::default();
        let (answers, arrivals) = (Semaphore::new(answers), broadcast::Sender::new(4));
        Ledger(Arc::new(State { entries, arrivals, answers, asked, ever }))
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
        self.entries(|entries| entries.request) == Some(discriminant(request))
    }

    /// Lets every call fail from now on.
    pub(crate) fn fail(&self, failure: Failure) {
        self.entries(|entries| entries.fails = Some(failure));
    }

    /// Announces no further arrivals.
    pub(crate) fn fall_silent(&self) {
        self.entries(|entries| entries.silent = true);
    }

    /// Announces an arrival, even without a message.
    pub(crate) fn tell(&self, queue: QueueId, receiver: ClientId) {
        let _ = self.0.arrivals.send(Some(Arrival { queue, receiver }));
    }

    /// Reports that arrivals were missed.
    pub(crate) fn miss_arrivals(&self) {
        let _ = self.0.arrivals.send(None);
    }

    fn entries<T>(&self, with: impl FnOnce(&mut Entries) -> T) -> T {
        with(&mut self.0.entries.lock().unwrap())
    }
}

impl Entries {
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn check_queue(&self, queue: QueueId) -> Result<(), Failure> {
        let missing = || Failure::NotThere(format!("queue {queue} is not there"));
        self.queues.contains(&queue).then_some(()).ok_or_else(missing)
    }

    fn ready(&self, receiver: ClientId, queue: QueueId) -> std::vec::IntoIter<MessageId> {
        let is_for = move |message: &Stored| {
            message.queue == queue && [receiver, ANYBODY].contains(&message.receiver)
        };
        let all = self.messages.iter();
        let ready = all.filter(|(_, (message, leased))| !leased && is_for(message));
        ready.map(|(id, _)| *id).collect::<Vec<_>>().into_iter()
    }

    fn answer(&mut self, request: Request) -> Result<Answer, Failure> {
        if let Some(failure) = &self.fails {
            return Err(failure.clone());
        }
        match request {
            Request::RegisterMiddleware => Ok(Answer::Id(self.number())),
            Request::RegisterClient { .. } => {
                let client = self.number();
                self.clients.insert(client);
                Ok(Answer::Id(client))
            }
            Request::CreateQueue { .. } => {
                let queue = self.number();
                self.queues.insert(queue);
                Ok(Answer::Id(queue))
            }
            Request::DeleteQueue { queue } => {
                self.check_queue(queue)?;
                self.queues.remove(&queue);
                self.messages.retain(|_, (message, _)| message.queue != queue);
                Ok(Answer::Done)
            }
            Request::Send { sender, messages } => {
                messages.iter().try_for_each(|message| self.check_queue(message.queue))?;
                let ids = messages.into_iter().map(|message| {
                    self.last += 1;
                    let stored = Stored {
                        id: self.last,
                        sender,
                        receiver: message.receiver,
                        queue: message.queue,
                        arrived_at_us: 0,
                        content: message.content,
                    };
                    self.messages.insert(self.last, (stored, false));
                    self.last
                });
                Ok(Answer::Sent(ids.collect()))
            }
            Request::ListQueues { receiver } => {
                let queues = self.queues.iter().copied();
                let has = |queue: &QueueId| self.ready(receiver, *queue).next().is_some();
                Ok(Answer::Queues(queues.filter(has).collect()))
            }
            Request::Read { receiver, queue, after, count, content_bytes_max } => {
                self.check_queue(queue)?;
                let mut bytes = 0;
                let ids = self.ready(receiver, queue).filter(|id| *id > after);
                let messages = ids.take(count as usize).map(|id| self.messages[&id].0.clone());
                let fits = |message: &Stored| {
                    let fits = bytes < content_bytes_max;
                    bytes += message.content.len() as u64;
                    fits
                };
                Ok(Answer::Messages(messages.take_while(fits).collect()))
            }
            Request::ReadFrom { receiver, sender } => {
                let mut all = self.messages.values().map(|(message, _)| message);
                let is_it = |message: &&Stored| {
                    message.sender == sender && [receiver, ANYBODY].contains(&message.receiver)
                };
                Ok(Answer::Messages(all.find(is_it).cloned().into_iter().collect()))
            }
            Request::Remove { receiver, queue, count, .. } => {
                self.check_queue(queue)?;
                let ids = self.ready(receiver, queue).take(count as usize);
                let taken = ids.filter_map(|id| self.messages.remove(&id));
                Ok(Answer::Messages(taken.map(|(message, _)| message).collect()))
            }
            Request::Lease { receiver, queue, count, .. } => {
                self.check_queue(queue)?;
                let ids = self.ready(receiver, queue).take(count as usize);
                let leased = ids.map(|id| {
                    let (message, leased) = self.messages.get_mut(&id).unwrap();
                    *leased = true;
                    (message.clone(), 1)
                });
                Ok(Answer::Leased(leased.collect()))
            }
            Request::Acknowledge { leases } => {
                let gone = |lease: &Lease| self.messages.remove(&lease.message).is_none();
                Ok(Answer::Ended(leases.into_iter().filter(gone).collect()))
            }
            Request::Release { leases } => {
                let mut gone = Vec::new();
                for lease in leases {
                    match self.messages.get_mut(&lease.message) {
                        Some((_, leased)) => *leased = false,
                        None => gone.push(lease),
                    }
                }
                Ok(Answer::Ended(gone))
            }
            Request::Extend { leases, .. } => {
                let gone = |lease: &Lease| !self.messages.contains_key(&lease.message);
                Ok(Answer::Ended(leases.into_iter().filter(gone).collect()))
            }
            Request::Counts => Ok(Answer::Counts(Counts {
                messages: self.messages.len() as u64,
                clients: self.clients.len() as u64,
                queues: self.queues.len() as u64,
            })),
        }
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
            return self.entries(|entries| entries.answer(request));
        }
        self.entries(|entries| entries.request = Some(discriminant(&request)));
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
        let (answer, silent) = self.entries(|entries| (entries.answer(request), entries.silent));
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
