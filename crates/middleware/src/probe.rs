//! Slow servers: a probe on a connection of its own tells a busy server from one that is gone.

use knee_proto::{Expect, Status, encode};
use knee_reactor::Io;

use crate::frame;
use crate::proxy::{Peer, Proxy};
use crate::route::Kind;
use crate::server::{ABANDONED, State};
use crate::source::Source;

impl Proxy {
    /// An answer is overdue: probes the server, and asks other servers for reads.
    pub(crate) fn suspect(&mut self, io: &mut Io, lane: u32, server: usize) {
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        upstream.state = State::Slow;
        // The connection is given up after the same time again.
        upstream.since = io.now();
        self.begin_probe(io, server);
        for place in 0..self.lanes[lane as usize].upstreams[server].expected.len() {
            let expected = self.lanes[lane as usize].upstreams[server].expected[place];
            let Some(id) = expected.awaited() else { continue };
            let flight = &self.flights[id];
            let tried = match flight.route.kind {
                _ if flight.route.changes => continue,
                Kind::Any | Kind::First => flight.tried,
                Kind::Shards => flight.parts[usize::from(expected.part)].tried,
                Kind::All | Kind::Gather | Kind::Cas => continue,
            };
            if self.untried(flight.lane, tried, 0).is_none() {
                continue;
            }
            self.lanes[lane as usize].upstreams[server].expected[place].flight = ABANDONED;
            self.retry(io, id, expected.part.into(), server);
        }
    }

    /// Asks another server for a read, if there is one. Returns whether it was asked.
    pub(crate) fn retry(&mut self, io: &mut Io, id: u32, part: usize, server: usize) -> bool {
        let is_asked = match self.flights[id].route.kind {
            Kind::Shards => self.ask_shard_elsewhere(io, id, part),
            _ => {
                // With a single server, the request was not kept, and there is no other server: this refuses the
                // flight.
                let request = std::mem::take(&mut self.flights[id].request);
                let is_asked = self.ask_one(io, id, Source::Canonical(&request));
                self.flights[id].request = request;
                is_asked
            }
        };
        if is_asked && let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].retries += 1;
        }
        is_asked
    }

    fn begin_probe(&mut self, io: &mut Io, server: usize) {
        let state = &self.servers[server];
        if let Some((_, since)) = state.probe
            && io.now().saturating_duration_since(since) < self.config.server_timeout
        {
            return;
        }
        self.end_probe(io, server);
        // Without a descriptor, the connection's own time decides.
        let Ok(conn) = io.connect(self.servers[server].address, 0) else { return };
        self.set_peer(conn, Peer::Probe(server as u16));
        self.servers[server].probe = Some((conn, io.now()));
        if let Some(output) = io.output(conn) {
            encode::version(output);
        }
        if let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].probes += 1;
        }
    }

    pub(crate) fn end_probe(&mut self, io: &mut Io, server: usize) {
        if let Some((conn, _)) = self.servers[server].probe.take() {
            self.set_peer(conn, Peer::Closed);
            io.close(conn);
        }
    }

    /// Takes the answer to a probe: the server works, and slow answers get more time.
    pub(crate) fn take_probe(&mut self, io: &mut Io, server: usize, input: &[u8]) -> usize {
        if !input.ends_with(b"\n") {
            return 0;
        }
        match frame::parse(input, Expect::Line).map(|response| response.status) {
            Some(Status::Version(_)) => {
                self.end_probe(io, server);
                let now = io.now();
                for lane in &mut self.lanes {
                    if lane.upstreams[server].state == State::Slow {
                        lane.upstreams[server].since = now;
                    }
                }
            }
            _ => self.probe_failed(io, server, "it does not answer a probe".to_owned()),
        }
        input.len()
    }

    pub(crate) fn probe_failed(&mut self, io: &mut Io, server: usize, trouble: String) {
        self.end_probe(io, server);
        if self.servers.len() > 1 {
            self.eject(io, server, trouble);
        }
    }
}
