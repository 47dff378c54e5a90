//! Opens, tests, closes and reopens connections to servers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use knee_proto::{Response, ResponseDecoder, Status, encode};
use knee_reactor::{ConnId, Io};
use knee_telemetry::tell;

use crate::form::Form;
use crate::proxy::{Peer, Proxy, RETRY};
use crate::returning::DELETING_LANE;
use crate::server::{Expected, Lane, State, TRIAL};

impl Proxy {
    /// Tries a server with one connection. The other connections follow after its answer.
    pub(crate) fn try_server(&mut self, io: &mut Io, server: usize) {
        let down = |lane: &Lane| lane.upstreams[server].state == State::Down;
        match self.lanes.iter().position(down) {
            Some(lane) => self.connect(io, lane as u32, server),
            // A thread without slots needs no server.
            None => {
                self.servers[server].settled = true;
                self.complete_if_up(io, server);
            }
        }
    }

    fn connect(&mut self, io: &mut Io, lane: u32, server: usize) {
        // `Peer` identifies the connection, so it needs no tag.
        let conn = match io.connect(self.servers[server].address, 0) {
            Ok(conn) => conn,
            Err(error) => return self.lose(io, lane, server, error.to_string()),
        };
        self.set_peer(conn, Peer::Server { lane, server: server as u16 });
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        upstream.conn = Some(conn);
        upstream.state = State::Trying;
        upstream.since = io.now();
        let (form, number) = (Form::Version, 0);
        upstream.expected.push_back(Expected { flight: TRIAL, part: 0, form, number });
        if let Some(output) = io.output(conn) {
            encode::version(output);
        }
    }

    /// Takes the answer to the test request of a new connection.
    pub(crate) fn stands(
        &mut self,
        io: &mut Io,
        lane: u32,
        server: usize,
        response: &Response<'_>,
    ) {
        if !matches!(response.status, Status::Version(_)) {
            let words = String::from_utf8_lossy(response.raw).trim_end().to_owned();
            return self.lose(io, lane, server, format!("it said {words:?}"));
        }
        self.lanes[lane as usize].upstreams[server].state = State::Up;
        if self.health.answered(server, self.servers[server].term) {
            // Other threads need not wait for their next attempt.
            self.shared.wake_all();
        }
        for other in 0..self.lanes.len() {
            if self.lanes[other].upstreams[server].state == State::Down {
                self.connect(io, other as u32, server);
            }
        }
        self.complete_if_up(io, server);
    }

    /// Notes if all connections of this thread to a server are open.
    pub(crate) fn complete_if_up(&mut self, io: &mut Io, server: usize) {
        if self.servers[server].complete || !self.lanes.iter().all(|lane| lane.is_up(server)) {
            return;
        }
        self.servers[server].complete = true;
        self.servers[server].settled = true;
        self.health.set_complete(server, true);
        self.continue_return(io, server);
        self.tell_started();
    }

    /// Closes a connection with an answer that fits no request: further answers could not be assigned to requests.
    pub(crate) fn mistrust(&mut self, io: &mut Io, lane: u32, server: usize, cause: &str) {
        if let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].mismatches += 1;
        }
        if self.shared.is_first_mismatch() {
            let name = &self.servers[server].name;
            let message = format_args!(
                "connection to server {name} closed: {cause}; update the server \
                 (knee_server_mismatches_total counts further cases)"
            );
            tell("knee-proxy", message);
        }
        self.close_one(io, lane, server, cause.to_owned());
    }

    /// Handles a failed connection to a server. Takes the server out, unless an idle connection was closed.
    pub(crate) fn lose(&mut self, io: &mut Io, lane: u32, server: usize, trouble: String) {
        let upstream = &self.lanes[lane as usize].upstreams[server];
        // A server may close an idle connection: this is not a failure.
        let rested = upstream.is_silent(io.now(), self.config.server_timeout);
        let was_idle = self.lanes[lane as usize].is_up(server)
            && upstream.expected.is_empty()
            && (rested || self.servers[server].is_sound());
        if was_idle {
            let asked = self.hang_up(io, lane, server);
            self.give_up(io, server, asked, trouble, rested);
        } else if self.servers.len() == 1 {
            self.close_one(io, lane, server, trouble);
        } else {
            self.eject(io, server, trouble);
        }
    }

    /// Closes one connection to a server. Its requests go to another server or get an error.
    fn close_one(&mut self, io: &mut Io, lane: u32, server: usize, trouble: String) {
        let was_complete = self.servers[server].complete;
        let asked = self.hang_up(io, lane, server);
        if was_complete && let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].ejected += 1;
        }
        self.give_up(io, server, asked, trouble, false);
    }

    /// Takes a server out for all threads, and closes all connections of this thread to it.
    pub(crate) fn eject(&mut self, io: &mut Io, server: usize, trouble: String) {
        let ejection = self.health.eject(server, self.servers[server].term);
        if ejection.is_new {
            let name = &self.servers[server].name;
            let message =
                format_args!("server {name} is out: {trouble}; it returns once it answers again");
            tell("knee-proxy", message);
        }
        if ejection.counts
            && let Some(recorder) = self.recorder()
        {
            recorder.gauges.servers[server].ejected += 1;
        }
        self.leave(io, server, trouble);
        if ejection.spreads {
            self.shared.wake_all();
        }
    }

    /// Follows what other threads have found out about the servers.
    pub(crate) fn heed_others(&mut self, io: &mut Io) {
        for server in 0..self.servers.len() {
            if self.health.term(server) != self.servers[server].term {
                self.leave(io, server, "another thread lost it".to_owned());
            }
            let trying = |lane: &Lane| lane.upstreams[server].state != State::Down;
            if !self.lanes.iter().any(trying) && self.health.answers(server) {
                self.try_server(io, server);
            }
        }
    }

    /// Closes all connections of this thread to a server.
    fn leave(&mut self, io: &mut Io, server: usize, trouble: String) {
        self.servers[server].term = self.health.term(server);
        let mut asked = VecDeque::new();
        for lane in 0..self.lanes.len() {
            asked.append(&mut self.hang_up(io, lane as u32, server));
        }
        self.end_probe(io, server);
        self.give_up(io, server, asked, trouble, false);
    }

    /// Sets the next attempt to connect to a server. Passes requests that it has not answered to other servers, or ends
    /// them.
    fn give_up(
        &mut self,
        io: &mut Io,
        server: usize,
        asked: VecDeque<Expected>,
        trouble: String,
        at_once: bool,
    ) {
        let state = &mut self.servers[server];
        state.trouble = trouble;
        state.settled = true;
        // If many connections are lost together, the server has failed once: only the first sets the timer.
        if at_once || state.retry_at.is_none() {
            let wait = if at_once { Duration::ZERO } else { state.next_backoff() };
            state.retry_at = Some(io.now() + wait);
            io.timer(io.now() + wait, RETRY + server as u64);
        }
        let lost = asked.iter().filter(|expected| expected.awaited().is_some()).count() as u64;
        if let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].errors += lost;
        }
        for expected in asked {
            if let Some(id) = expected.awaited() {
                self.lost(io, id, expected.part, server);
            }
        }
        self.tell_started();
    }

    /// A sound server has begun too long an answer. A new connection replaces the old one at once, and gets the other
    /// waiting reads. The outcome of waiting writes is unknown.
    pub(crate) fn replace(&mut self, io: &mut Io, lane: u32, server: usize, trouble: &str) {
        let asked = self.hang_up(io, lane, server);
        trouble.clone_into(&mut self.servers[server].trouble);
        self.connect(io, lane, server);
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        // Requests may follow the first question before its answer.
        if upstream.state == State::Trying {
            upstream.state = State::Up;
        }
        for expected in asked {
            let is_up = self.lanes[lane as usize].is_up(server);
            match expected.awaited() {
                None => {}
                Some(id) if is_up && !self.flights[id].route.changes => {
                    let request = self.flights[id].request_of(expected.part).to_vec();
                    self.send(io, lane, server, expected, |out| out.extend_from_slice(&request));
                }
                Some(id) => self.lost(io, id, expected.part, server),
            }
        }
        self.complete_if_up(io, server);
    }

    /// Closes a connection. Returns the answers that the connection waited for.
    ///
    /// The server may still execute requests that it has not answered. If they are writes, the connection lingers: the
    /// middleware ends its output, and the server does not return before it has closed its end.
    fn hang_up(&mut self, io: &mut Io, lane: u32, server: usize) -> VecDeque<Expected> {
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        upstream.state = State::Down;
        upstream.decoder = ResponseDecoder::new(self.config.reply_bytes_max);
        let asked = std::mem::take(&mut upstream.expected);
        if let Some(conn) = upstream.conn.take()
            && let Some(peer @ Peer::Server { .. }) = self.peers.get_mut(conn.index())
        {
            let writes = asked.iter().filter_map(Expected::awaited);
            let lingers = self.servers.len() > 1
                && { writes }.any(|id| self.flights[id].round_writes())
                && io.end_output(conn);
            if lingers {
                *peer = Peer::Lingering(server as u16);
                self.health.set_lingering(server, true);
            } else {
                *peer = Peer::Closed;
                io.close(conn);
            }
        }
        if std::mem::take(&mut self.servers[server].complete) {
            self.health.set_complete(server, false);
        }
        if lane == DELETING_LANE {
            self.servers[server].deleting = 0;
            self.health.give_back(server, self.thread);
        }
        asked
    }

    /// Probes servers that delay an answer for too long; takes out those that delay one again, or a connection.
    pub(crate) fn lose_overdue(&mut self, io: &mut Io) {
        let (now, patience) = (io.now(), self.config.server_timeout);
        for lane in 0..self.lanes.len() {
            for server in 0..self.servers.len() {
                let upstream = &self.lanes[lane].upstreams[server];
                match upstream.state {
                    _ if !upstream.overdue(now, patience) => {}
                    State::Up => self.suspect(io, lane as u32, server),
                    _ => {
                        let trouble = format!("no answer within {} ms", patience.as_millis());
                        self.lose(io, lane as u32, server, trouble);
                    }
                }
            }
        }
    }

    /// Passes the requests to the kernel once there are `most` of them. If the server's socket is full, they wait, and
    /// leave together.
    fn limit_batch(&mut self, io: &mut Io, lane: u32, server: usize, conn: ConnId, most: u32) {
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        upstream.unsent += 1;
        if upstream.unsent < most {
            return;
        }
        let newest =
            upstream.expected.iter().rev().take(std::mem::take(&mut upstream.unsent) as usize);
        io.send_now(conn);
        let now = Instant::now();
        for id in newest.filter_map(Expected::awaited) {
            let flight = &mut self.flights[id];
            (flight.sent, flight.dequeued) = (now, now);
        }
    }

    /// Sends a request to a server, which will answer as `expected`.
    pub(crate) fn send(
        &mut self,
        io: &mut Io,
        lane: u32,
        server: usize,
        expected: Expected,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let now = io.now();
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        debug_assert!(matches!(upstream.state, State::Up | State::Slow));
        if upstream.expected.is_empty() {
            upstream.since = now;
        }
        upstream.expected.push_back(expected);
        let conn: Option<ConnId> = upstream.conn;
        // A connection that failed in this batch closes at the end of the batch, and `lose` handles the request.
        let mut bytes = 0;
        if let Some(output) = conn.and_then(|conn| io.output(conn)) {
            let before = output.len();
            write(output);
            bytes = output.len() - before;
        }
        if let (Some(most), Some(conn)) = (self.config.batch_max, conn) {
            self.limit_batch(io, lane, server, conn, most);
        }
        if let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].requests += 1;
            recorder.gauges.servers[server].bytes += bytes as u64;
        }
    }
}
