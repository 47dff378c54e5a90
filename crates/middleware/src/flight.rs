//! A request on its way through one thread, and the table of these requests.

use std::time::Instant;

use knee_proto::Request;
use knee_reactor::ConnId;

use crate::cas::Condition;
use crate::opaque::Opaque;
use crate::route::{Kind, Route};
use crate::source::Source;
use crate::trail::Trail;
use crate::verdict::Verdict;

/// A larger buffer is freed after its request, and not kept for the next one.
const KEPT_BYTES_MAX: usize = 8 * 1024;

/// The receiver of a flight's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// A client of this thread.
    Client(ConnId),
    /// A client that has left: the answer is thrown away.
    Gone,
    /// A flight of another thread; this thread's worker slot serves it.
    Thread { thread: u32, flight: u32 },
}

/// The round of a conditional write over several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Round {
    /// All servers are asked for their tokens.
    Asking,
    /// The first server decides. The tokens of all servers.
    Deciding(Vec<u64>),
    /// The first server has stored the value; the others follow.
    Following,
}

/// The answer of one server, or its part of the answer.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The answer. For a shard of a multi-get without an answer yet, the request.
    pub(crate) bytes: Vec<u8>,
    pub(crate) here: bool,
    /// Bit set of the servers asked for this part.
    pub(crate) tried: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) hits: u32,
    pub(crate) error: bool,
    /// Whether the client asked not to get this answer.
    pub(crate) silent: bool,
}

/// One request, from its receipt to its reply.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) home: Home,
    pub(crate) route: Route,
    pub(crate) opaque: Opaque,
    /// For a conditional write over several servers.
    pub(crate) condition: Condition,
    pub(crate) lane: Option<u32>,
    /// Whether the answer is complete, but waits for the answer to an earlier request of the same client.
    pub(crate) done: bool,
    /// Whether the flight does not count as a request: it was answered here, or no client sent it.
    pub(crate) local: bool,
    /// Number of answers that are still missing.
    pub(crate) missing: u32,
    /// Bit set of the servers asked.
    pub(crate) tried: u64,
    /// For a request to all servers: the bit sets of the servers that were in, of those that get a deletion instead,
    /// and of those that were lost before their answer.
    pub(crate) members: u64,
    pub(crate) clearing: u64,
    pub(crate) lost: u64,
    /// Number of acknowledgements that are still missing for a success.
    pub(crate) needed: u32,
    pub(crate) received: Instant,
    pub(crate) dequeued: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    pub(crate) bytes_in: u32,
    pub(crate) outcome: Outcome,
    pub(crate) verdict: Verdict,
    pub(crate) round: Round,
    /// The request in canonical form, if it may be needed again; of a write that is not kept, the first line.
    pub(crate) request: Vec<u8>,
    /// The answer, if it cannot be relayed at once.
    pub(crate) reply: Vec<u8>,
    /// One part for each server or shard, if the kind needs parts.
    pub(crate) parts: Vec<Part>,
    /// Of the near cache; `None` again once the flight is complete.
    pub(crate) trail: Trail,
}

impl Flight {
    fn new(home: Home, route: Route, received: Instant) -> Flight {
        Flight {
            home,
            route,
            opaque: Opaque::NONE,
            condition: Condition::default(),
            lane: None,
            done: false,
            local: false,
            missing: 0,
            tried: 0,
            members: 0,
            clearing: 0,
            lost: 0,
            needed: 0,
            received,
            dequeued: received,
            sent: received,
            answered: received,
            bytes_in: 0,
            outcome: Outcome::default(),
            verdict: Verdict::default(),
            round: Round::Asking,
            request: Vec::new(),
            reply: Vec::new(),
            parts: Vec::new(),
            trail: Trail::None,
        }
    }

    /// Writes the request's canonical form to the flight's buffer, and takes the buffer out. Notes where a conditional
    /// write has its token.
    pub(crate) fn keep(&mut self, request: &Request<'_>, source: Source<'_>) -> Vec<u8> {
        let mut canonical = std::mem::take(&mut self.request);
        canonical.clear();
        source.write(&mut canonical);
        if self.route.kind == Kind::Cas {
            self.condition = Condition::new(request, &canonical).unwrap_or_default();
        }
        canonical
    }

    pub(crate) fn clear_parts(&mut self, count: usize) {
        self.parts.resize_with(count, Part::default);
        for part in &mut self.parts {
            part.bytes.clear();
            part.here = false;
            part.tried = 0;
        }
    }

    /// Whether a request in flight may change data. The first round of a conditional write only asks.
    pub(crate) fn round_writes(&self) -> bool {
        self.route.changes && !(self.route.kind == Kind::Cas && self.round == Round::Asking)
    }

    /// Whether an item that exists refuses the write.
    pub(crate) fn adds(&self) -> bool {
        let line = self.request.split(|&byte| byte == b'\r').next().unwrap_or_default();
        line.starts_with(b"add ")
            || line.starts_with(b"ms ")
                && line.split(|&byte| byte == b' ').any(|word| word == b"ME")
    }

    /// Whether the quorum can be reached without a server.
    pub(crate) fn may_lose(&self, server: usize) -> bool {
        (self.members & !(1 << server)).count_ones() >= self.needed
    }

    /// Whether a server keeps its value of the key, old or new, if all servers are lost during a write: otherwise the key
    /// would be deleted everywhere. Concurrent writes choose the same server.
    pub(crate) fn may_keep(&self, server: usize) -> bool {
        matches!(self.route.kind, Kind::All | Kind::Gather)
            && self.members.trailing_zeros() as usize == server
    }

    /// Bit set of the servers whose answers are here.
    pub(crate) fn answered(&self) -> u64 {
        let here = self.parts.iter().enumerate().filter(|(_, part)| part.here);
        here.fold(0, |set, (server, _)| set | 1 << server)
    }

    /// The answers received so far, in order.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().filter(|part| part.here).map(|part| part.bytes.as_slice())
    }

    /// The request that a server got for one part of the answer, if it was kept.
    #[inline]
    pub(crate) fn request_of(&self, part: u16) -> &[u8] {
        match self.route.kind {
            Kind::Shards => &self.parts[usize::from(part)].bytes,
            _ => &self.request,
        }
    }

    /// Whether the canonical form is needed beyond one copy to each server.
    pub(crate) fn keeps_request(&self, servers: usize) -> bool {
        match self.route.kind {
            Kind::Any | Kind::First => {
                servers > 1 || !self.route.changes || self.route.form.needs_request()
            }
            Kind::Shards | Kind::Gather | Kind::Cas => true,
            Kind::All => false,
        }
    }
}

/// Flights by number. A freed place keeps its buffers for the next flight.
///
/// A flight is freed once, after its complete answer was passed on. Until then, its client's order has its number, or
/// [`Home::Thread`] of another thread does.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    table: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    pub(crate) fn insert(&mut self, home: Home, route: Route, received: Instant) -> u32 {
        let Some(index) = self.free.pop() else {
            self.table.push(Flight::new(home, route, received));
            return (self.table.len() - 1) as u32;
        };
        let flight = &mut self.table[index as usize];
        flight.home = home;
        flight.route = route;
        flight.opaque = Opaque::NONE;
        flight.lane = None;
        flight.done = false;
        flight.local = false;
        flight.tried = 0;
        flight.clearing = 0;
        flight.lost = 0;
        flight.received = received;
        flight.dequeued = received;
        flight.sent = received;
        flight.outcome = Outcome::default();
        flight.verdict = Verdict::default();
        index
    }

    pub(crate) fn free(&mut self, index: u32) {
        let flight = &mut self.table[index as usize];
        recycle(&mut flight.request);
        recycle(&mut flight.reply);
        for part in &mut flight.parts {
            recycle(&mut part.bytes);
        }
        self.free.push(index);
    }

    /// Flights in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }
}

/// Empties a buffer, and frees it if it is large.
pub(crate) fn recycle(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}

impl std::ops::Index<u32> for Flights {
    type Output = Flight;

    fn index(&self, index: u32) -> &Flight {
        &self.table[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Flights {
    fn index_mut(&mut self, index: u32) -> &mut Flight {
        &mut self.table[index as usize]
    }
}
