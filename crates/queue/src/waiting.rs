//! Who waits for a message, and who is woken when one arrives: the first one that may have it, and
//! after whoever got one the next, so that a crowd is not woken for a single message.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::database::Arrival;
use crate::operation::{ANYBODY, ClientId, QueueId};

/// All who wait at a middleware.
#[derive(Debug)]
pub(crate) struct Waiting {
    queues: Mutex<Queues>,
    waiters_max: usize,
}

#[derive(Debug, Default)]
struct Queues {
    /// In the order in which they came. A queue that nobody waits in is not there.
    waiters: HashMap<QueueId, BTreeMap<Ticket, Waiter>>,
    count: usize,
    next: Ticket,
}

type Ticket = u64;

#[derive(Debug)]
struct Waiter {
    receiver: ClientId,
    /// It is to look, and has not begun to.
    woken: bool,
    wakes: Arc<Notify>,
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    /// So many.
    pub(crate) waiters_max: usize,
}

impl Waiting {
    pub(crate) fn new(waiters_max: usize) -> Arc<Waiting> {
        Arc::new(Waiting { queues: Mutex::default(), waiters_max })
    }

    /// Waits for messages of a queue for a receiver from now on.
    pub(crate) fn enter(
        self: &Arc<Waiting>,
        queue: QueueId,
        receiver: ClientId,
    ) -> Result<Place, TooMany> {
        let mut queues = self.lock();
        if queues.count >= self.waiters_max {
            return Err(TooMany { waiters_max: self.waiters_max });
        }
        queues.count += 1;
        queues.next += 1;
        let (ticket, wakes) = (queues.next, Arc::<Notify>::default());
        let waiter = Waiter { receiver, woken: false, wakes: Arc::clone(&wakes) };
        queues.waiters.entry(queue).or_default().insert(ticket, waiter);
        Ok(Place { waiting: Arc::clone(self), queue, ticket, wakes, looks: false })
    }

    /// Something has arrived.
    pub(crate) fn arrived(&self, arrival: Arrival) {
        self.lock().wake(arrival.queue, arrival.receiver);
    }

    /// Whatever may have arrived was not told of: the first of each queue and receiver look.
    pub(crate) fn wake_everywhere(&self) {
        for waiters in self.lock().waiters.values_mut() {
            let mut seen = HashSet::new();
            let first = waiters.values_mut().filter(|waiter| seen.insert(waiter.receiver));
            first.for_each(Waiter::wake);
        }
    }

    /// Places are taken and left in one step each: what is behind the lock stays whole.
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// The first that may have a message for this receiver, and does not look for one anyway, looks.
    fn wake(&mut self, queue: QueueId, receiver: ClientId) {
        let Some(waiters) = self.waiters.get_mut(&queue) else { return };
        let may_have = |waiter: &&mut Waiter| {
            !waiter.woken && (receiver == ANYBODY || waiter.receiver == receiver)
        };
        if let Some(waiter) = waiters.values_mut().find(may_have) {
            waiter.wake();
        }
    }
}

impl Waiter {
    fn wake(&mut self) {
        self.woken = true;
        self.wakes.notify_one();
    }
}

/// A place among those who wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    queue: QueueId,
    ticket: Ticket,
    wakes: Arc<Notify>,
    /// Whether there may be something that it leaves to others.
    looks: bool,
}

impl Place {
    /// Waits until there may be something.
    pub(crate) async fn woken(&self) {
        // What woke it stays noted until it looks.
        self.wakes.notified().await;
    }

    /// It looks now, woken or not: whatever arrives from now on wakes it again.
    pub(crate) fn looks(&mut self) {
        let mut queues = self.waiting.lock();
        let waiter = queues.waiters.get_mut(&self.queue).and_then(|all| all.get_mut(&self.ticket));
        self.looks |= waiter.is_some_and(|waiter| std::mem::take(&mut waiter.woken));
    }

    /// There was nothing: nobody else need look.
    pub(crate) fn found_nothing(&mut self) {
        self.looks = false;
    }

    /// There was something, so there may be more; or the queue is gone. Others look as well once this
    /// one has left.
    pub(crate) fn found_something(&mut self) {
        self.looks = true;
    }
}

impl Drop for Place {
    /// What it did not look for though it was to, and what there may be behind what it found, is for
    /// the next ones: its receiver's, and anybody's.
    fn drop(&mut self) {
        let mut queues = self.waiting.lock();
        let queues = &mut *queues;
        let Some(waiters) = queues.waiters.get_mut(&self.queue) else { return };
        let Some(Waiter { receiver, woken, .. }) = waiters.remove(&self.ticket) else { return };
        queues.count -= 1;
        if waiters.is_empty() {
            queues.waiters.remove(&self.queue);
        } else if woken || self.looks {
            queues.wake(self.queue, receiver);
            queues.wake(self.queue, ANYBODY);
        }
    }
}
