//! Sends a flight's request to the servers.

use knee_proto::MetaVerb;
use knee_reactor::Io;

use crate::flight::Round;
use crate::form::Form;
use crate::proxy::Proxy;
use crate::route::Kind;
use crate::server::Expected;
use crate::shard;
use crate::source::Source;

impl Proxy {
    /// Sends a flight's request over `lane`.
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
            (Kind::Any | Kind::First, _) => self.ask_one(io, id, request),
            (Kind::Shards, Source::Canonical(request)) => self.ask_shards(io, id, request),
            (Kind::Cas, Source::Canonical(request)) => self.ask_tokens(io, id, request),
            (Kind::All | Kind::Gather, _) => self.ask_all(io, id, request),
            (Kind::Shards | Kind::Cas, Source::Parsed(..)) => {
                unreachable!("their canonical form is kept")
            }
        }
    }

    /// Asks the next server that is up and was not yet asked.
    pub(crate) fn ask_one(&mut self, io: &mut Io, id: u32, request: Source<'_>) {
        let flight = &self.flights[id];
        let start = if flight.route.kind == Kind::First { 0 } else { self.next_turn() };
        let flight = &self.flights[id];
        let Some(server) = self.untried(flight.lane, flight.tried, start) else {
            return self.refuse_all_down(io, id);
        };
        self.ask(io, id, server, 0, |out| request.write(out));
    }

    /// The next server in turn. Each thread counts for itself.
    fn next_turn(&mut self) -> usize {
        self.turn += 1;
        if self.turn >= self.servers.len() {
            self.turn = 0;
        }
        self.turn
    }

    /// The first server from `start` on that is up and not in `tried`.
    fn untried(&self, lane: Option<u32>, tried: u64, start: usize) -> Option<usize> {
        let lane = &self.lanes[lane? as usize];
        let count = self.servers.len();
        (start..count)
            .chain(0..start)
            .find(|&server| tried >> server & 1 == 0 && lane.is_up(server))
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
        let up = (0..self.servers.len()).filter(|&s| self.lanes[lane as usize].is_up(s)).count();
        let keys = self.flights[id].route.items as usize;
        let parts = up.min(keys);
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
            let lane = self.flights[id].lane;
            let taken = self.flights[id].tried;
            if let Some(next) = self.untried(lane, taken, server) {
                server = next;
                self.ask_shard(io, id, part, server);
            }
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

    /// The servers to ask, if the request goes to all servers. If all servers are down, or one is down for a write,
    /// refuses the flight and returns `None`.
    fn all_servers(&mut self, io: &mut Io, id: u32) -> Option<u64> {
        let flight = &self.flights[id];
        let lane = &self.lanes[flight.lane? as usize];
        let up = (0..self.servers.len()).filter(|&s| lane.is_up(s)).fold(0, |set, s| set | 1 << s);
        let down = (0..self.servers.len()).find(|&server| !lane.is_up(server));
        match down {
            // Nothing was sent: the middleware does not begin a write that cannot be complete.
            Some(server) if flight.route.changes => {
                self.refuse_down(io, id, server);
                None
            }
            _ if up == 0 => {
                self.refuse_all_down(io, id);
                None
            }
            _ => Some(up),
        }
    }

    /// Asks all servers, without waiting for answers in between.
    fn ask_all(&mut self, io: &mut Io, id: u32, request: Source<'_>) {
        let Some(up) = self.all_servers(io, id) else { return };
        let servers = self.servers.len();
        let flight = &mut self.flights[id];
        flight.missing = up.count_ones();
        if flight.route.kind == Kind::Gather {
            flight.clear_parts(servers);
        }
        for server in (0..servers).filter(|server| up >> server & 1 == 1) {
            self.ask(io, id, server, server, |out| request.write(out));
        }
    }

    /// Begins a conditional write: asks all servers for their present tokens.
    fn ask_tokens(&mut self, io: &mut Io, id: u32, request: &[u8]) {
        if self.all_servers(io, id).is_none() {
            return;
        }
        let condition = self.flights[id].condition;
        let servers = self.servers.len();
        let flight = &mut self.flights[id];
        flight.round = Round::Asking;
        flight.missing = servers as u32;
        flight.clear_parts(servers);
        // The request itself follows on the same connection, with another number.
        let (form, number) = (Form::Meta(MetaVerb::Get), self.next_number());
        for server in 0..servers {
            let flight = &mut self.flights[id];
            flight.tried |= 1 << server;
            let Some(lane) = flight.lane else { return };
            let expected = Expected { flight: id, part: server as u16, form, number };
            self.send(io, lane, server, expected, |out| condition.ask(request, number, out));
        }
    }
}
