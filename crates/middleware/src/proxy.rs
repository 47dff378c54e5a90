//! A thread of the middleware: its tables, and the events of its loop.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use knee_reactor::{Close, ConnId, Handler, Io, Origin};
use knee_telemetry::{Middleware, Moment, Recorder};

use crate::client::{Client, Ending};
use crate::config::{Config, Mode};
use crate::flight::Flights;
use crate::health::Health;
use crate::ledger::Ledger;
use crate::near::Near;
use crate::queue::Shared;
use crate::server::{Lane, Server};

/// Keys of timers. `RETRY` plus a server's number is the key for the next attempt to connect to it.
const TICK: u64 = 0;
const WINDOW: u64 = 1;
const EXIT_IDLE: u64 = 2;
pub(crate) const RETRY: u64 = 16;

pub(crate) enum Peer {
    Closed,
    Client(Client),
    Server {
        lane: u32,
        server: u16,
    },
    /// A connection that only asks whether the server answers.
    Probe(u16),
    /// A connection over which nothing more is sent: the server may still execute writes of it.
    Lingering(u16),
}

/// The progress of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    Serving,
    /// No further request is taken; requests in flight are completed.
    Finishing,
    /// This thread's clients have their answers; its slots still serve other threads' jobs.
    Finished,
}

/// A thread of the middleware.
pub(crate) struct Proxy {
    pub(crate) config: Arc<Config>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) health: Arc<Health>,
    /// The near cache, if it is on.
    pub(crate) near: Option<Near>,
    pub(crate) thread: usize,
    /// Indexed by connection.
    pub(crate) peers: Vec<Peer>,
    pub(crate) flights: Flights,
    /// Number of flights that belong to other threads.
    pub(crate) guests: usize,
    pub(crate) servers: Vec<Server>,
    /// Connections to every server: a lane for each worker slot of this thread, or a single lane in pipelined mode.
    pub(crate) lanes: Vec<Lane>,
    /// Worker slots without a request.
    pub(crate) idle: Vec<u32>,
    /// The server at which this thread's last choice in turn began.
    pub(crate) turn: usize,
    /// Number of jobs of this thread in the queue or with other threads.
    pub(crate) away: usize,
    /// Whether this thread must ensure that a thread takes the queued jobs: this thread has queued some in this batch,
    /// or was woken to take some.
    pub(crate) must_drain_queue: bool,
    /// Clients held back because a server has too many requests.
    pub(crate) held: Vec<ConnId>,
    /// Flights sent in this batch; they get their time stamp when the batch has left.
    pub(crate) sent: Vec<u32>,
    pub(crate) ledger: Ledger,
    /// Number of meta commands so far.
    numbered: u32,
    /// Gets a message once all first connections to servers are open or have failed.
    starting: Option<Sender<()>>,
    drain: Drain,
}

impl Proxy {
    pub(crate) fn new(
        config: Arc<Config>,
        shared: Arc<Shared>,
        health: Arc<Health>,
        near: Option<Near>,
        thread: usize,
        recorder: Recorder<Middleware>,
        starting: Sender<()>,
    ) -> Proxy {
        let now = Instant::now();
        let lanes = lanes_of(&config, thread);
        let servers: Vec<Server> = (config.servers.iter())
            .map(|server| Server::new(server.name.clone(), server.address))
            .collect();
        Proxy {
            shared,
            health,
            near,
            thread,
            peers: Vec::new(),
            flights: Flights::default(),
            guests: 0,
            lanes: (0..lanes)
                .map(|_| Lane::new(servers.len(), config.reply_bytes_max, now))
                .collect(),
            idle: match config.mode {
                Mode::Workers(_) => (0..lanes as u32).collect(),
                Mode::Pipelined => Vec::new(),
            },
            servers,
            turn: 0,
            away: 0,
            must_drain_queue: false,
            held: Vec::new(),
            sent: Vec::new(),
            ledger: Ledger::new(recorder),
            numbered: 0,
            starting: Some(starting),
            drain: Drain::Serving,
            config,
        }
    }

    pub(crate) fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        match self.peers.get_mut(conn.index()) {
            Some(Peer::Client(client)) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn set_peer(&mut self, conn: ConnId, peer: Peer) {
        if self.peers.len() <= conn.index() {
            self.peers.resize_with(conn.index() + 1, || Peer::Closed);
        }
        self.peers[conn.index()] = peer;
    }

    /// A number that no other meta command in flight has, in any thread.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.numbered = self.numbered.wrapping_add(1);
        self.numbered.wrapping_mul(self.config.threads as u32).wrapping_add(self.thread as u32)
    }

    pub(crate) fn recorder(&mut self) -> Option<&mut Recorder<Middleware>> {
        self.ledger.recorder()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain != Drain::Serving
    }

    /// Whether some thread has yet to try a server. Clients' requests wait until every thread has tried every server.
    pub(crate) fn is_starting(&self) -> bool {
        self.shared.is_starting()
    }

    /// Whether sends get a time stamp. In pipelined mode, the send ends the queueing time.
    pub(crate) fn stamps_sends(&self) -> bool {
        self.config.mode == Mode::Pipelined || self.config.trace
    }

    /// Notifies `Running::wait_for_servers` once every server has been tried.
    pub(crate) fn tell_started(&mut self) {
        if self.servers.iter().all(|server| server.settled)
            && let Some(starting) = self.starting.take()
        {
            self.shared.started();
            // If the start failed, there is no receiver.
            let _ = starting.send(());
        }
    }

    /// Stamps the requests that left at the end of the batch that began at `begun`.
    fn stamp_sent(&mut self, begun: Instant, now: Instant) {
        let pipelined = self.config.mode == Mode::Pipelined;
        for id in self.sent.drain(..) {
            let flight = &mut self.flights[id];
            if flight.sent > begun {
                // It left before the end of the batch.
                continue;
            }
            flight.sent = now;
            if pipelined {
                flight.dequeued = now;
            }
        }
    }

    fn cut_window(&mut self, io: &mut Io) {
        let clients = self.peers.iter().filter(|peer| matches!(peer, Peer::Client(_))).count();
        let now = Moment::now();
        self.read_health();
        if let Some(recorder) = self.recorder() {
            recorder.connections = clients as u64;
            recorder.cut(now);
        }
        io.timer(now.next_second(), WINDOW);
    }

    /// Records which servers are in use.
    fn read_health(&mut self) {
        let usable = self.health.usable();
        let Some(recorder) = self.ledger.recorder() else { return };
        for (number, (server, counts)) in
            self.servers.iter().zip(&mut recorder.gauges.servers).enumerate()
        {
            counts.up = server.complete && usable >> number & 1 == 1;
        }
    }

    /// The interval of checks for overdue servers. A time-out is late by this at most.
    fn tick(&self) -> Duration {
        (self.config.server_timeout / 4).clamp(Duration::from_millis(5), Duration::from_millis(250))
    }

    fn end_if_drained(&mut self, io: &mut Io) {
        if self.drain == Drain::Finishing && self.flights.len() == self.guests {
            self.drain = Drain::Finished;
            self.shared.drained();
        }
        if self.drain == Drain::Finished && self.shared.all_drained() {
            let unsent = io
                .ids()
                .any(|(conn, origin)| origin == Origin::Accepted && io.output_len(conn) > 0);
            if !unsent {
                io.stop();
            }
        }
    }
}

/// The number of a thread's lanes. Worker slots are distributed evenly.
pub(crate) fn lanes_of(config: &Config, thread: usize) -> usize {
    match config.mode {
        Mode::Pipelined => 1,
        Mode::Workers(workers) => {
            workers / config.threads + usize::from(thread < workers % config.threads)
        }
    }
}

impl Handler for Proxy {
    fn on_start(&mut self, io: &mut Io) {
        for server in 0..self.servers.len() {
            self.try_server(io, server);
        }
        self.tell_started();
        io.timer(io.now() + self.tick(), TICK);
        io.timer(Moment::now().next_second(), WINDOW);
        if self.thread == 0
            && let Some(idle) = self.config.exit_idle
        {
            io.timer(io.now() + idle, EXIT_IDLE);
        }
    }

    fn on_open(&mut self, _io: &mut Io, conn: ConnId, origin: Origin) {
        if origin == Origin::Accepted {
            let client = Client::new(self.config.limits);
            self.set_peer(conn, Peer::Client(client));
        }
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        match self.peers.get(conn.index()) {
            Some(Peer::Client(_)) => self.take_requests(io, conn, input),
            Some(&Peer::Server { lane, server }) => {
                self.take_answers(io, conn, lane, server.into(), input)
            }
            Some(&Peer::Probe(server)) => self.take_probe(io, server.into(), input),
            _ => input.len(),
        }
    }

    fn on_end(&mut self, io: &mut Io, conn: ConnId) {
        match self.peers.get_mut(conn.index()) {
            Some(Peer::Client(client)) => {
                client.ending = Ending::Answering;
                self.close_if_answered(io, conn);
            }
            _ => {
                io.close(conn);
                self.on_close(io, conn, Origin::Connected(0), Close::Idle);
            }
        }
    }

    fn on_close(&mut self, io: &mut Io, conn: ConnId, _origin: Origin, why: Close) {
        let peer = match self.peers.get_mut(conn.index()) {
            Some(peer) => std::mem::replace(peer, Peer::Closed),
            None => return,
        };
        if let (Close::Still, Some(recorder)) = (&why, self.recorder()) {
            recorder.gauges.still_clients += 1;
        }
        let trouble = match why {
            // For a server's connection: the loop has ended, and no server has failed. If the middleware closes a lost
            // connection, `hang_up` removes the peer before.
            Close::Local => None,
            Close::Refused(error) | Close::Failed(error) => Some(error.to_string()),
            _ => Some("it closed the connection".to_owned()),
        };
        match (peer, trouble) {
            (Peer::Client(client), _) => self.forget_client(client),
            (Peer::Server { lane, server }, Some(trouble)) => {
                self.lose(io, lane, server.into(), trouble);
            }
            (Peer::Probe(server), Some(trouble)) => self.probe_failed(io, server.into(), trouble),
            (Peer::Lingering(server), Some(_)) => {
                self.health.set_lingering(server.into(), false);
                self.continue_return(io, server.into());
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        match key {
            TICK => {
                self.lose_overdue(io);
                for server in 0..self.servers.len() {
                    self.continue_return(io, server);
                }
                io.timer(io.now() + self.tick(), TICK);
            }
            WINDOW => self.cut_window(io),
            EXIT_IDLE => {
                let Some(idle) = self.config.exit_idle else { return };
                // A client that waits for an answer is not idle.
                let awaited = self.flights.len() > 0 || !self.shared.is_empty();
                match self.shared.silent_for(io.now()) {
                    Some(silent) if silent >= idle && awaited => {
                        io.timer(io.now() + self.tick(), EXIT_IDLE);
                    }
                    Some(silent) if silent >= idle => io.stop(),
                    Some(silent) => io.timer(io.now() + (idle - silent), EXIT_IDLE),
                    None => io.timer(io.now() + idle, EXIT_IDLE),
                }
            }
            key => {
                let server = (key - RETRY) as usize;
                let retry_at = &mut self.servers[server].retry_at;
                // An earlier attempt may have replaced this timer's time.
                if retry_at.take_if(|at| *at <= io.now()).is_some() {
                    self.try_server(io, server);
                }
            }
        }
    }

    fn on_wake(&mut self, io: &mut Io) {
        self.shared.awake(self.thread);
        self.must_drain_queue = true;
        self.take_back(io);
        self.heed_others(io);
    }

    fn on_batch_end(&mut self, io: &mut Io) {
        self.release_held(io);
        if self.config.mode != Mode::Pipelined {
            self.serve_queue(io);
        }
        if self.config.batch_max.is_some() {
            // The end of the batch sends the remaining requests.
            self.lanes.iter_mut().flat_map(|lane| &mut lane.upstreams).for_each(|it| it.unsent = 0);
        }
    }

    fn on_batch_sent(&mut self, io: &mut Io) {
        if !(self.sent.is_empty() && self.ledger.is_empty()) {
            let now = Instant::now();
            self.stamp_sent(io.now(), now);
            self.ledger.record(now);
        }
        if self.is_draining() {
            self.end_if_drained(io);
        }
    }

    fn on_shutdown(&mut self, _io: &mut Io) {
        self.drain = Drain::Finishing;
    }

    fn on_stop(&mut self, _io: &mut Io) {
        if self.drain != Drain::Finished {
            // Even after a failure, other threads must not wait for this thread.
            self.drain = Drain::Finished;
            self.shared.drained();
        }
        self.read_health();
        self.ledger.finish();
    }
}
