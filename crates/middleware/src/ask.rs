//! Sends a flight's request to the servers.

use memchr::memchr;

use knee_proto::MetaVerb;
use knee_reactor::Io;

use crate::flight::Round;
use crate::form::Form;
use crate::proxy::Proxy;
use crate::route::Kind;
use crate::server::{Expected, State};
use crate::shard;
use crate::source::Source;

impl Proxy {
    pub(crate) fn dispatch(&mut self, io: &mut Io, id: u32, lane: u32, request: Source<'_>) {
        let now = io.now();
        let slots = self.config.mode != crate::config::Mode::Pipelined;
        if slots && let Some(recorder) = self.recorder() {
            recorder.gauges.busy.add(now, 1);
        }
        if self.stamps_sends() {
            self.sent.push(id);
        }
        let flight = &mut self.flights[id];
        flight.lane = Some(lane);
        flight.dequeued = now;
        flight.sent = now;
        match (flight.route.kind, request) {
            (Kind::Any | Kind::First, _) => {
                self.ask_one(io, id, request);
            }
            (Kind::Shards, Source::Canonical(request)) => self.ask_shards(io, id, request),
            (Kind::Cas, Source::Canonical(request)) => self.ask_tokens(io, id, request),
            (Kind::All | Kind::Gather, _) => self.ask_all(io, id, request),
            (Kind::Shards | Kind::Cas, Source::Parsed(..)) => {
                unreachable!("their canonical form is kept")
            }
        }
    }

    /// Asks the next server that is in and was not yet asked. Returns whether there was one.
    pub(crate) fn ask_one(&mut self, io: &mut Io, id: u32, request: Source<'_>) -> bool {
        let flight = &self.flights[id];
        let start = if flight.route.kind == Kind::First { 0 } else { self.next_turn() };
        let flight = &self.flights[id];
        let Some(server) = self.untried(flight.lane, flight.tried, start) else {
            self.refuse_all_down(io, id);
            return false;
        };
        self.ask(io, id, server, 0, |out| request.write(out));
        true
    }

    /// The next server in turn. Each thread counts for itself.
    fn next_turn(&mut self) -> usize {
        self.turn += 1;
        if self.turn >= self.servers.len() {
            self.turn = 0;
        }
        self.turn
    }

    /// The first server from `start` on that is in and not in `tried`. A slow one comes last.
    pub(crate) fn untried(&self, lane: Option<u32>, tried: u64, start: usize) -> Option<usize> {
        let upstreams = &self.lanes[lane? as usize].upstreams;
        let (count, candidates) = (self.servers.len(), self.health.usable() & !tried);
        let first = |state| {
            (start..count)
                .chain(0..start)
                .find(|&server| candidates >> server & 1 == 1 && upstreams[server].state == state)
        };
        first(State::Up).or_else(|| first(State::Slow))
    }

    /// Sends one request of a flight to a server.
    pub(crate) fn ask(
        &mut self,
        io: &mut Io,
        id: u32,
        server: usize,
        part: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let flight = &mut self.flights[id];
        let Some(lane) = flight.lane else { return };
        flight.tried |= 1 << server;
        let (form, number) = (flight.route.form, flight.opaque.number);
        let expected = Expected { flight: id, part: part as u16, form, number };
        self.send(io, lane, server, expected, write);
    }

    fn ask_shards(&mut self, io: &mut Io, id: u32, request: &[u8]) {
        let lane = self.flights[id].lane.unwrap_or_default();
        let usable = self.lanes[lane as usize].up() & self.health.usable();
        let keys = self.flights[id].route.items as usize;
        let parts = (usable.count_ones() as usize).min(keys);
        if parts == 0 {
            return self.refuse_all_down(io, id);
        }
        let flight = &mut self.flights[id];
        flight.missing = parts as u32;
        flight.clear_parts(parts);
        shard::split(request, keys, parts, |part, shard| {
            shard.encode(&mut flight.parts[part].bytes);
        });
        // Start at the next server in turn, so that no server always gets the longer shards.
        let mut server = self.next_turn();
        for part in 0..parts {
            while usable >> server & 1 == 0 {
                server = (server + 1) % self.servers.len();
            }
            self.ask_shard(io, id, part, server);
            server = (server + 1) % self.servers.len();
        }
    }

    fn ask_shard(&mut self, io: &mut Io, id: u32, part: usize, server: usize) {
        let asked = &mut self.flights[id].parts[part];
        asked.tried |= 1 << server;
        let request = std::mem::take(&mut asked.bytes);
        self.ask(io, id, server, part, |out| out.extend_from_slice(&request));
        self.flights[id].parts[part].bytes = request;
    }

    /// Asks another server for a shard; `false` when there is none left.
    pub(crate) fn ask_shard_elsewhere(&mut self, io: &mut Io, id: u32, part: usize) -> bool {
        let flight = &self.flights[id];
        let (lane, tried) = (flight.lane, flight.parts[part].tried);
        let start = self.next_turn();
        let server = self.untried(lane, tried, start);
        if let Some(server) = server {
            self.ask_shard(io, id, part, server);
        }
        server.is_some()
    }

    /// Bit set of all servers.
    pub(crate) fn all(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - self.servers.len())
    }

    /// The servers to ask, if the request goes to all servers: those that are in. If they are too few, refuses the flight
    /// and returns `None`.
    fn members(&mut self, io: &mut Io, id: u32) -> Option<u64> {
        let count = self.servers.len();
        let flight = &mut self.flights[id];
        let members = self.lanes[flight.lane? as usize].up() & self.health.usable();
        flight.members = members;
        flight.needed = if flight.route.changes { self.config.write_quorum.of(count) } else { 1 };
        if members.count_ones() >= flight.needed {
            return Some(members);
        }
        // Nothing was sent: the middleware does not begin a write that cannot be acknowledged.
        match (0..count).find(|server| members >> server & 1 == 0) {
            Some(server) if members > 0 => self.refuse_down(io, id, server),
            _ => self.refuse_all_down(io, id),
        }
        None
    }

    /// Asks all servers that are in, without waiting for answers in between.
    fn ask_all(&mut self, io: &mut Io, id: u32, request: Source<'_>) {
        let Some(members) = self.members(io, id) else { return };
        let servers = self.servers.len();
        let flight = &mut self.flights[id];
        flight.missing = members.count_ones();
        if flight.route.kind == Kind::Gather {
            flight.clear_parts(servers);
        }
        // If a server does not answer, the key is needed: keep the first line.
        let keeps_line = matches!(request, Source::Parsed(..)) && servers > 1;
        let mut line = std::mem::take(&mut flight.request);
        let absent = self.all() & !members;
        for server in (0..servers).filter(|server| members >> server & 1 == 1) {
            self.ask(io, id, server, server, |out| {
                let start = out.len();
                request.write(out);
                if keeps_line && server == members.trailing_zeros() as usize {
                    keep_line(&out[start..], &mut line);
                }
            });
        }
        if absent != 0 && self.flights[id].route.changes {
            let canonical = if let Source::Canonical(request) = request { request } else { &line };
            self.delete_instead(io, id, absent, canonical);
        }
        self.flights[id].request = line;
    }

    /// Begins a conditional write: asks all servers that are in for their present tokens.
    fn ask_tokens(&mut self, io: &mut Io, id: u32, request: &[u8]) {
        let Some(members) = self.members(io, id) else { return };
        let condition = self.flights[id].condition;
        let servers = self.servers.len();
        let flight = &mut self.flights[id];
        flight.round = Round::Asking;
        flight.missing = members.count_ones();
        flight.clear_parts(servers);
        // The request itself follows on the same connection, with another number.
        let (form, number) = (Form::Meta(MetaVerb::Get), self.next_number());
        for server in (0..servers).filter(|server| members >> server & 1 == 1) {
            let flight = &mut self.flights[id];
            flight.tried |= 1 << server;
            let Some(lane) = flight.lane else { return };
            let expected = Expected { flight: id, part: server as u16, form, number };
            self.send(io, lane, server, expected, |out| condition.ask(request, number, out));
        }
    }
}

fn keep_line(request: &[u8], line: &mut Vec<u8>) {
    let end = memchr(b'\n', request).map_or(request.len(), |at| at + 1);
    line.clear();
    line.extend_from_slice(&request[..end]);
}
