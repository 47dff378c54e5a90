//! Opens, tests, closes and reopens connections to servers.

use std::collections::VecDeque;
use std::time::Duration;

use knee_proto::{Response, ResponseDecoder, Status, encode};
use knee_reactor::{ConnId, Io};
use knee_telemetry::tell;

use crate::form::Form;
use crate::proxy::{Peer, Proxy, RETRY};
use crate::server::{Expected, State};

/// The flight number of the test request on a new connection.
pub(crate) const TRIAL: u32 = u32::MAX;

impl Proxy {
    /// Tries a server with one connection. The other connections follow after its answer.
    pub(crate) fn try_server(&mut self, io: &mut Io, server: usize) {
        let down = |lane: &crate::server::Lane| lane.upstreams[server].state == State::Down;
        match self.lanes.iter().position(down) {
            Some(lane) => self.connect(io, lane as u32, server),
            // A thread without slots needs no server.
            None => self.servers[server].settled = true,
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
        for other in 0..self.lanes.len() {
            if self.lanes[other].upstreams[server].state == State::Down {
                self.connect(io, other as u32, server);
            }
        }
        if self.lanes.iter().all(|lane| lane.is_up(server)) {
            self.servers[server].settled = true;
            self.tell_started();
            if let Some(recorder) = self.recorder() {
                recorder.gauges.servers[server].up = true;
            }
        }
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
        self.lose(io, lane, server, cause.to_owned());
    }

    /// Closes a connection to a server. Its requests go to another server or get an error. The server is tried again
    /// later.
    pub(crate) fn lose(&mut self, io: &mut Io, lane: u32, server: usize, trouble: String) {
        let was_up = self.lanes[lane as usize].is_up(server);
        let asked = self.hang_up(io, lane, server);
        let state = &mut self.servers[server];
        state.trouble = trouble;
        state.settled = true;
        // If many connections are lost together, the server has failed once: only the first sets the timer.
        if !state.retry_set {
            // A server may close an idle connection: this is not a failure.
            let was_idle = was_up && asked.is_empty() && state.is_sound();
            let wait = if was_idle { Duration::ZERO } else { state.next_backoff() };
            state.retry_set = true;
            io.timer(io.now() + wait, RETRY + server as u64);
        }
        if let Some(recorder) = self.recorder() {
            let counts = &mut recorder.gauges.servers[server];
            counts.ejected += u64::from(counts.up && was_up);
            counts.up = false;
            counts.errors +=
                asked.iter().filter(|expected| expected.flight != TRIAL).count() as u64;
        }
        for expected in asked {
            if expected.flight != TRIAL {
                self.lost(io, expected.flight, expected.part, server);
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
            match expected.flight {
                TRIAL => {}
                id if is_up && !self.flights[id].route.changes => {
                    let request = self.flights[id].request_of(expected.part).to_vec();
                    self.send(io, lane, server, expected, |out| out.extend_from_slice(&request));
                }
                id => self.lost(io, id, expected.part, server),
            }
        }
    }

    /// Closes a connection. Returns the answers that the connection waited for.
    fn hang_up(&mut self, io: &mut Io, lane: u32, server: usize) -> VecDeque<Expected> {
        let upstream = &mut self.lanes[lane as usize].upstreams[server];
        upstream.state = State::Down;
        upstream.decoder = ResponseDecoder::new(self.config.reply_bytes_max);
        if let Some(conn) = upstream.conn.take() {
            if let Some(peer @ Peer::Server { .. }) = self.peers.get_mut(conn.index()) {
                *peer = Peer::Closed;
            }
            io.close(conn);
        }
        std::mem::take(&mut upstream.expected)
    }

    /// Takes out servers that delay an answer or a connection for too long.
    pub(crate) fn lose_overdue(&mut self, io: &mut Io) {
        let (now, patience) = (io.now(), self.config.server_timeout);
        for lane in 0..self.lanes.len() {
            for server in 0..self.servers.len() {
                if self.lanes[lane].upstreams[server].overdue(now, patience) {
                    let trouble = format!("no answer within {} ms", patience.as_millis());
                    self.lose(io, lane as u32, server, trouble);
                }
            }
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
        debug_assert_eq!(upstream.state, State::Up);
        if upstream.expected.is_empty() {
            upstream.since = now;
        }
        upstream.expected.push_back(expected);
        let conn: Option<ConnId> = upstream.conn;
        // A connection that failed in this batch closes at the end of the batch, and `lose` handles the request.
        if let Some(output) = conn.and_then(|conn| io.output(conn)) {
            write(output);
        }
        if let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].requests += 1;
        }
    }
}
