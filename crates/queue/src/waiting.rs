//! Who waits for a message, and who is woken when one arrives: the first one that may have it, and
//! after whoever got one the next, so that a crowd is not woken for a single message.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// A queue that nobody waits in is not there.
    lines: HashMap<QueueId, Line>,
    count: usize,
    next: Ticket,
}

type Ticket = u64;

/// Those who wait in a queue, in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    waiters: BTreeMap<Ticket, Waiter>,
    /// Those who are not woken: the others are to look, and have not begun to.
    asleep: BTreeSet<Ticket>,
    /// The same by receiver, so that nobody has to be passed who waits for what others receive.
    asleep_of: BTreeSet<(ClientId, Ticket)>,
}

#[derive(Debug)]
struct Waiter {
    receiver: ClientId,
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
        let line = queues.lines.entry(queue).or_default();
        line.waiters.insert(ticket, Waiter { receiver, wakes: Arc::clone(&wakes) });
        line.sleeps(ticket);
        Ok(Place { waiting: Arc::clone(self), queue, ticket, wakes, looks: false })
    }

    /// Something has arrived.
    pub(crate) fn arrived(&self, arrival: Arrival) {
        self.lock().wake(arrival.queue, arrival.receiver);
    }

    /// Whatever may have arrived was not told of: the first of each queue and receiver look. It goes through all who
    /// wait, which is for who has lost the connection that listens, or has fallen behind by thousands of arrivals.
    pub(crate) fn wake_everywhere(&self) {
        for line in self.lock().lines.values_mut() {
            let mut seen = HashSet::new();
            let first = line.waiters.iter().filter(|(_, waiter)| seen.insert(waiter.receiver));
            let first: Vec<_> = first.map(|(&ticket, _)| ticket).collect();
            first.into_iter().for_each(|ticket| line.wake(ticket));
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
        let Some(line) = self.lines.get_mut(&queue) else { return };
        let first = if receiver == ANYBODY {
            line.asleep.first().copied()
        } else {
            let of = line.asleep_of.range((receiver, Ticket::MIN)..=(receiver, Ticket::MAX)).next();
            of.map(|&(_, ticket)| ticket)
        };
        if let Some(ticket) = first {
            line.wake(ticket);
        }
    }
}

impl Line {
    /// Whether it was woken.
    fn sleeps(&mut self, ticket: Ticket) -> bool {
        let Some(Waiter { receiver, .. }) = self.waiters.get(&ticket) else { return false };
        self.asleep_of.insert((*receiver, ticket));
        self.asleep.insert(ticket)
    }

    fn wake(&mut self, ticket: Ticket) {
        let Some(Waiter { receiver, wakes }) = self.waiters.get(&ticket) else { return };
        self.asleep_of.remove(&(*receiver, ticket));
        self.asleep.remove(&ticket);
        wakes.notify_one();
    }

    /// Its receiver, and whether it was woken.
    fn leaves(&mut self, ticket: Ticket) -> Option<(ClientId, bool)> {
        let Waiter { receiver, .. } = self.waiters.remove(&ticket)?;
        self.asleep_of.remove(&(receiver, ticket));
        Some((receiver, !self.asleep.remove(&ticket)))
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
        let line = queues.lines.get_mut(&self.queue);
        self.looks |= line.is_some_and(|line| line.sleeps(self.ticket));
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
        let Some(line) = queues.lines.get_mut(&self.queue) else { return };
        let Some((receiver, woken)) = line.leaves(self.ticket) else { return };
        queues.count -= 1;
        if line.waiters.is_empty() {
            queues.lines.remove(&self.queue);
        } else if woken || self.looks {
            queues.wake(self.queue, receiver);
            queues.wake(self.queue, ANYBODY);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use knee_random::Random;

    use super::*;

    /// One who waits, as whoever goes through all of them sees it.
    #[derive(Debug)]
    struct Seen {
        place: Place,
        receiver: ClientId,
        is_woken: bool,
        looks: bool,
    }

    /// In the order in which they came.
    #[derive(Debug, Default)]
    struct All(Vec<Seen>);

    impl All {
        fn wake(&mut self, queue: QueueId, receiver: ClientId) {
            let may_have = |seen: &&mut Seen| {
                let is_for = receiver == ANYBODY || seen.receiver == receiver;
                seen.place.queue == queue && !seen.is_woken && is_for
            };
            if let Some(first) = self.0.iter_mut().find(may_have) {
                first.is_woken = true;
            }
        }

        fn wake_everywhere(&mut self) {
            let mut known = HashSet::new();
            let first = self.0.iter_mut();
            first
                .filter(|seen| known.insert((seen.place.queue, seen.receiver)))
                .for_each(|seen| seen.is_woken = true);
        }

        fn leaves(&mut self, place: usize) {
            let Seen { place, receiver, is_woken, looks } = self.0.remove(place);
            if is_woken || looks {
                self.wake(place.queue, receiver);
                self.wake(place.queue, ANYBODY);
            }
        }
    }

    /// Whether somebody is to look, as those who are asleep tell it.
    fn is_woken(queues: &Queues, seen: &Seen) -> bool {
        let (line, ticket) = (&queues.lines[&seen.place.queue], seen.place.ticket);
        let is_asleep = line.asleep.contains(&ticket);
        assert_eq!(line.asleep_of.contains(&(seen.receiver, ticket)), is_asleep, "{seen:?}");
        !is_asleep
    }

    #[test]
    fn who_is_woken_is_the_first_of_all_who_may_have_it() {
        for seed in 0..50 {
            let mut random = Random::stream(seed, 0);
            let (waiting, mut all) = (Waiting::new(20), All::default());
            for _ in 0..400 {
                let queue = random.below(2) as QueueId;
                let (place, receiver) = (random.below(20) as usize, random.below(4) as ClientId);
                match random.below(8) {
                    0..=2 => {
                        let receiver = receiver.max(1);
                        let place = waiting.enter(queue, receiver);
                        assert_eq!(place.is_err(), all.0.len() == 20);
                        let seen = |place| Seen { place, receiver, is_woken: false, looks: false };
                        all.0.extend(place.ok().map(seen));
                    }
                    3 | 4 => {
                        waiting.arrived(Arrival { queue, receiver });
                        all.wake(queue, receiver);
                    }
                    5 if place < all.0.len() => {
                        let seen = &mut all.0[place];
                        seen.place.looks();
                        seen.looks |= std::mem::take(&mut seen.is_woken);
                        seen.looks = match receiver {
                            0 => {
                                seen.place.found_nothing();
                                false
                            }
                            1 => {
                                seen.place.found_something();
                                true
                            }
                            _ => seen.looks,
                        };
                    }
                    6 if place < all.0.len() => all.leaves(place),
                    7 if receiver == 0 => {
                        waiting.wake_everywhere();
                        all.wake_everywhere();
                    }
                    _ => {}
                }
                let queues = waiting.lock();
                assert_eq!(queues.count, all.0.len());
                for seen in &all.0 {
                    assert_eq!(is_woken(&queues, seen), seen.is_woken, "{seed}: {seen:?}");
                }
                let asleep = all.0.iter().filter(|seen| !seen.is_woken).count();
                let lines = queues.lines.values();
                assert_eq!(lines.map(|line| line.asleep_of.len()).sum::<usize>(), asleep);
            }
        }
    }

    #[tokio::test]
    async fn who_is_woken_learns_it() {
        let waiting = Waiting::new(2);
        let places = [1, 2].map(|receiver| waiting.enter(7, receiver).unwrap());
        waiting.arrived(Arrival { queue: 7, receiver: 2 });
        places[1].woken().await;
        waiting.arrived(Arrival { queue: 7, receiver: ANYBODY });
        places[0].woken().await;
    }
}
