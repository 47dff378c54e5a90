//! The open loop: requests become due by a schedule, whether or not earlier requests have answers.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use knee_random::Random;

use crate::schedule::{Constant, Poisson, Schedule};

/// Streams of arrival times; the contents of requests are drawn from other streams.
const ARRIVAL_STREAMS: u64 = 1 << 63;

/// The rate at which requests become due, over all clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rate {
    /// Evenly spaced requests, in requests per second.
    Constant(f64),
    /// A Poisson process, in requests per second.
    Poisson(f64),
}

impl Rate {
    fn schedule(self, client: u64, clients: u64) -> Box<dyn Schedule> {
        match self {
            Rate::Constant(rate_hz) => Box::new(Constant::new(rate_hz, client, clients)),
            Rate::Poisson(rate_hz) => Box::new(Poisson::new(rate_hz, clients)),
        }
    }
}

/// The future requests of one server's clients, merged in the order in which they are due.
///
/// A backlog takes no memory: due requests stay in their schedules until they are sent.
pub(crate) struct Arrivals {
    streams: Vec<Stream>,
    /// The streams whose next request is due by `seen`, with its time.
    due: BinaryHeap<Reverse<(Duration, u32)>>,
    /// The same for the other streams.
    later: BinaryHeap<Reverse<(Duration, u32)>>,
    /// The latest `now` given to `due_by`.
    seen: Duration,
    /// No request is due from here on.
    end: Duration,
}

struct Stream {
    client: u32,
    random: Random,
    schedule: Box<dyn Schedule>,
}

impl Arrivals {
    /// Has no clients yet. No request is due at or after `end`, an offset from the start.
    pub(crate) fn new(end: Duration) -> Arrivals {
        let (due, later) = (BinaryHeap::new(), BinaryHeap::new());
        Arrivals { streams: Vec::new(), due, later, seen: Duration::ZERO, end }
    }

    /// Adds a client's requests: `client` in this thread, `number` of `clients` in the process.
    pub(crate) fn add(&mut self, client: u32, rate: Rate, seed: u64, number: u64, clients: u64) {
        let mut stream = Stream {
            client,
            random: Random::stream(seed, ARRIVAL_STREAMS | number),
            schedule: rate.schedule(number, clients),
        };
        let due = stream.schedule.next(&mut stream.random);
        let index = self.streams.len() as u32;
        self.streams.push(stream);
        self.put(due, index);
    }

    fn put(&mut self, due: Duration, index: u32) {
        if due < self.end {
            let heap = if due <= self.seen { &mut self.due } else { &mut self.later };
            heap.push(Reverse((due, index)));
        }
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.peek().or(self.later.peek()).map(|Reverse((due, _))| *due)
    }

    /// The number of clients with a request due by `now`, and when the next other client has one. Takes time in
    /// proportion to the clients whose requests became due since the last call.
    fn due_by(&mut self, now: Duration) -> (usize, Option<Duration>) {
        self.seen = self.seen.max(now);
        while let Some(next) = self.later.peek_mut().filter(|next| next.0.0 <= self.seen) {
            self.due.push(PeekMut::pop(next));
        }
        (self.due.len(), self.later.peek().map(|Reverse((due, _))| *due))
    }

    /// Takes the next request; returns when it is due, and its client.
    pub(crate) fn pop(&mut self) -> Option<(Duration, u32)> {
        let Reverse((due, index)) = self.due.pop().or_else(|| self.later.pop())?;
        let stream = &mut self.streams[index as usize];
        let (client, after) = (stream.client, stream.schedule.next(&mut stream.random));
        self.put(after, index);
        Some((due, client))
    }

    /// Moves the end to `end` if that is earlier, and drops the requests that would be due from then on.
    pub(crate) fn stop_at(&mut self, end: Duration) {
        self.end = self.end.min(end);
        for heap in [&mut self.due, &mut self.later] {
            heap.retain(|Reverse((due, _))| *due < end);
        }
    }

    /// Drops all remaining requests, and returns their number.
    pub(crate) fn abandon(&mut self) -> u64 {
        let mut left = 0;
        while self.pop().is_some() {
            left += 1;
        }
        left
    }
}

/// The choice of a connection to one server.
///
/// The next request goes to the connection that has been idle longest. If none is idle, busy connections take turns.
#[derive(Debug, Default)]
pub(crate) struct ConnectionChoice {
    connections: Vec<u32>,
    /// Connections in the order in which they became idle. Some may be busy again.
    idle: VecDeque<u32>,
    turn: usize,
}

impl ConnectionChoice {
    /// Adds a connection. It counts as busy until a call of `add_idle`.
    pub(crate) fn add(&mut self, connection: u32) {
        self.connections.push(connection);
    }

    /// Notes that `connection` has no request in flight.
    #[inline]
    pub(crate) fn add_idle(&mut self, connection: u32) {
        self.idle.push_back(connection);
    }

    /// The connection for the next request; `None` if no connection is idle or has room.
    #[inline]
    pub(crate) fn take(
        &mut self,
        is_idle: impl Fn(u32) -> bool,
        has_room: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        while let Some(connection) = self.idle.pop_front() {
            if is_idle(connection) {
                return Some(connection);
            }
        }
        for _ in 0..self.connections.len() {
            let connection = self.connections[self.turn];
            self.turn = (self.turn + 1) % self.connections.len();
            if has_room(connection) {
                return Some(connection);
            }
        }
        None
    }
}

/// The part of one server in an open loop, in one thread.
pub(crate) struct Destination {
    pub(crate) arrivals: Arrivals,
    pub(crate) choice: ConnectionChoice,
    /// When the timer for the next arrival fires, if one is set.
    pub(crate) armed: Option<Instant>,
    /// The time since which a connection has room; `None` while every connection is full or lost.
    pub(crate) room_since: Option<Instant>,
    /// Lost connections, to be opened again when requests need them.
    pub(crate) lost: VecDeque<u32>,
    /// The number of connections that are being opened.
    pub(crate) opening: usize,
}

pub(crate) fn server_of(client: u64, servers: usize) -> usize {
    (client % servers as u64) as usize
}

impl Destination {
    /// The destinations of a thread with these `numbers` of all `clients`. Within the thread, its clients count from 0.
    pub(crate) fn of_clients(
        servers: usize,
        rate: Rate,
        length: Duration,
        seed: u64,
        numbers: Range<u64>,
        clients: u64,
    ) -> Vec<Destination> {
        let mut destinations = Vec::new();
        destinations.resize_with(servers, || Destination {
            arrivals: Arrivals::new(length),
            choice: ConnectionChoice::default(),
            armed: None,
            room_since: None,
            lost: VecDeque::new(),
            opening: 0,
        });
        for (client, number) in (0..).zip(numbers) {
            let Destination { arrivals, choice, .. } =
                &mut destinations[server_of(number, servers)];
            arrivals.add(client, rate, seed, number, clients);
            choice.add(client);
        }
        destinations
    }

    /// The lost connections to reopen now, and when more may be needed. `again` is the number of requests to be sent
    /// again. No more connections are being opened than there are clients with due requests plus `again`.
    pub(crate) fn open_again(
        &mut self,
        now: Duration,
        again: usize,
    ) -> (Vec<u32>, Option<Duration>) {
        if self.lost.is_empty() {
            return (Vec::new(), None);
        }
        let (due, later) = self.arrivals.due_by(now);
        let wanted = (due + again).saturating_sub(self.opening).min(self.lost.len());
        self.opening += wanted;
        let reopened = self.lost.drain(..wanted).collect();
        (reopened, later.filter(|_| !self.lost.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn arrivals(rate: Rate, clients: std::ops::Range<u64>, of: u64, end_s: u64) -> Arrivals {
        let mut arrivals = Arrivals::new(Duration::from_secs(end_s));
        for number in clients {
            arrivals.add(number as u32, rate, 1, number, of);
        }
        arrivals
    }

    fn all(mut arrivals: Arrivals) -> Vec<(Duration, u32)> {
        std::iter::from_fn(|| arrivals.pop()).collect()
    }

    #[test]
    fn constant_rate_gives_exactly_its_count_in_order() {
        let due = all(arrivals(Rate::Constant(1000.0), 0..7, 7, 3));
        assert_eq!(due.len(), 3000);
        assert!(due.is_sorted());
        let count_of_client_3 = due.iter().filter(|(_, client)| *client == 3).count();
        assert!((428..=429).contains(&count_of_client_3));
    }

    #[test]
    fn poisson_rate_gives_about_its_count() {
        let due = all(arrivals(Rate::Poisson(2000.0), 0..10, 10, 10));
        assert!(due.is_sorted());
        // Mean 20,000 and standard deviation 141; the tolerance is four standard deviations.
        assert!((19_434..20_566).contains(&due.len()), "{}", due.len());
    }

    #[test]
    fn arrivals_do_not_depend_on_threads() {
        let together = all(arrivals(Rate::Poisson(500.0), 0..6, 6, 5));
        let mut apart = all(arrivals(Rate::Poisson(500.0), 0..2, 6, 5));
        apart.extend(all(arrivals(Rate::Poisson(500.0), 2..6, 6, 5)));
        apart.sort();
        assert_eq!(together, apart);
    }

    #[test]
    fn stop_keeps_requests_due_before() {
        let mut stopped = arrivals(Rate::Constant(100.0), 0..4, 4, 10);
        for _ in 0..30 {
            stopped.pop();
        }
        stopped.stop_at(Duration::from_secs(2));
        assert_eq!(stopped.abandon(), 170);
        assert_eq!(stopped.next_due(), None);
    }

    #[test]
    fn due_requests_count_by_client_and_come_in_order() {
        let length = Duration::from_secs(10);
        let mut every = all(arrivals(Rate::Poisson(50.0), 0..20, 20, 10)).into_iter().peekable();
        let mut arrivals = arrivals(Rate::Poisson(50.0), 0..20, 20, 10);
        for number in 0..50 {
            let now = length * number / 100;
            let left: Vec<_> = every.clone().collect();
            let due = left.iter().filter(|(due, _)| *due <= now);
            let clients: BTreeSet<_> = due.map(|(_, client)| *client).collect();
            let of_another =
                left.iter().find(|(due, client)| *due > now && !clients.contains(client));
            let later = of_another.map(|(due, _)| *due);
            assert_eq!(arrivals.due_by(now), (clients.len(), later), "after {now:?}");
            // In some rounds due requests stay; in others, requests are taken before they are due.
            for _ in 0..number % 11 {
                assert_eq!(arrivals.next_due(), every.peek().map(|(due, _)| *due));
                assert_eq!(arrivals.pop(), every.next());
            }
        }
        let end = length * 3 / 4;
        arrivals.stop_at(end);
        assert_eq!(arrivals.abandon(), every.filter(|(due, _)| *due < end).count() as u64);
    }

    #[test]
    fn due_requests_limit_reopened_connections() {
        // One request is due each second, each from another client.
        let (rate, length) = (Rate::Constant(1.0), Duration::from_secs(10));
        let mut server = Destination::of_clients(1, rate, length, 1, 0..4, 4).remove(0);
        assert_eq!(server.open_again(length, 0), (vec![], None));
        server.lost.extend(0..4);
        let first = server.arrivals.next_due().unwrap();
        let second = first + Duration::from_secs(1);
        assert_eq!(server.open_again(first, 0), (vec![0], Some(second)));
        assert_eq!(server.open_again(first, 0), (vec![], Some(second)));
        assert_eq!(server.open_again(second, 0), (vec![1], Some(second + Duration::from_secs(1))));
        server.opening -= 1;
        assert_eq!(server.open_again(second, 1), (vec![2, 3], None));
    }

    #[test]
    fn idle_connections_come_before_busy_ones_in_turn() {
        let mut choice = ConnectionChoice::default();
        for connection in 0..3 {
            choice.add(connection);
        }
        choice.add_idle(2);
        choice.add_idle(0);
        assert_eq!(choice.take(|_| true, |_| true), Some(2));
        // Connection 0 was lost, or carried another request, since it was idle.
        assert_eq!(choice.take(|connection| connection != 0, |_| true), Some(0));
        assert_eq!(choice.take(|_| true, |_| true), Some(1));
        assert_eq!(choice.take(|_| true, |connection| connection != 2), Some(0));
        assert_eq!(choice.take(|_| true, |_| false), None);
    }
}
