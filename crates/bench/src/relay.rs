//! The least work of a proxy that shares one connection among its clients, and answers each client in order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Instant;

use knee_reactor::{Close, ConnId, Handler, Io, Origin};

use crate::Moved;

/// The settings of a relay.
#[derive(Debug, Clone, clap::Args)]
pub struct Relay {
    /// A server, which gets one connection; repeat the flag for several servers, which take turns.
    #[arg(long = "server", required = true)]
    pub servers: Vec<SocketAddr>,
    /// The exact length of every request.
    #[arg(long)]
    pub request_bytes: NonZeroUsize,
    /// The exact length of every reply.
    #[arg(long)]
    pub reply_bytes: NonZeroUsize,
    /// Send each request to every server, and reply when the last server has answered.
    #[arg(long)]
    pub replicate: bool,
}

/// Requests of one client that were forwarded together and are not all answered yet.
struct Batch {
    client: ConnId,
    requests: usize,
}

struct Server {
    conn: ConnId,
    answered: u64,
}

/// Servers that get the same requests: all servers if the relay replicates, otherwise a single server.
struct Lane {
    servers: Vec<Server>,
    waiting: VecDeque<Batch>,
    /// Requests that every server of the lane has answered.
    complete: u64,
}

/// The kind of a connection, by [`ConnId::index`].
#[derive(Clone, Copy, Default)]
enum Peer {
    #[default]
    Unknown,
    /// A client with `outstanding` unanswered requests, all on `lane`. Until they are answered, further requests take
    /// the same lane, so that the replies stay in order.
    Client {
        lane: usize,
        outstanding: usize,
    },
    Server {
        lane: usize,
        place: usize,
    },
}

/// The relay on its thread.
pub struct RelayHandler<F> {
    relay: Relay,
    lanes: Vec<Lane>,
    next_lane: usize,
    peers: Vec<Peer>,
    first: Option<Instant>,
    moved: Moved,
    report: F,
}

impl<F: FnMut(Result<Moved, String>)> RelayHandler<F> {
    /// A relay that calls `report` with its work at the end, or with the error.
    pub fn new(relay: Relay, report: F) -> Self {
        RelayHandler {
            relay,
            lanes: Vec::new(),
            next_lane: 0,
            peers: Vec::new(),
            first: None,
            moved: Moved::default(),
            report,
        }
    }

    fn note(&mut self, conn: ConnId, peer: Peer) {
        if self.peers.len() <= conn.index() {
            self.peers.resize(conn.index() + 1, Peer::Unknown);
        }
        self.peers[conn.index()] = peer;
    }

    fn forward(&mut self, io: &mut Io, client: ConnId, input: &[u8]) -> usize {
        let size = self.relay.request_bytes.get();
        let requests = input.len() / size;
        let Peer::Client { lane, outstanding } = &mut self.peers[client.index()] else { return 0 };
        if requests == 0 {
            return 0;
        }
        if *outstanding == 0 {
            *lane = self.next_lane;
            self.next_lane = (self.next_lane + 1) % self.lanes.len();
        }
        *outstanding += requests;
        let lane = &mut self.lanes[*lane];
        let whole = requests * size;
        for server in &lane.servers {
            io.write(server.conn, &input[..whole]);
        }
        lane.waiting.push_back(Batch { client, requests });
        self.first.get_or_insert_with(|| io.now());
        whole
    }

    /// Takes answers of a server. Replies with them to the requests that this server was the last to answer.
    fn reply(&mut self, io: &mut Io, lane: usize, place: usize, input: &[u8]) -> usize {
        let size = self.relay.reply_bytes.get();
        let lane = &mut self.lanes[lane];
        let answered = input.len() / size;
        lane.servers[place].answered += answered as u64;
        let complete = lane.servers.iter().map(|server| server.answered).min().unwrap_or_default();
        let mut ready = (complete - lane.complete) as usize;
        lane.complete = complete;
        self.moved.requests += ready as u64;
        let mut rest = input;
        while ready > 0 {
            let Some(batch) = lane.waiting.front_mut() else {
                (self.report)(Err("a server sent more than it was asked for".into()));
                io.stop();
                break;
            };
            let now = ready.min(batch.requests);
            let (replies, behind) = rest.split_at(now * size);
            io.write(batch.client, replies);
            rest = behind;
            ready -= now;
            batch.requests -= now;
            if let Peer::Client { outstanding, .. } = &mut self.peers[batch.client.index()]
                && io.is_open(batch.client)
            {
                *outstanding -= now;
            }
            if batch.requests == 0 {
                lane.waiting.pop_front();
            }
        }
        if let Some(first) = self.first {
            self.moved.time = io.now() - first;
        }
        answered * size
    }
}

impl<F: FnMut(Result<Moved, String>)> Handler for RelayHandler<F> {
    fn on_start(&mut self, io: &mut Io) {
        let servers = self.relay.servers.clone();
        for address in servers {
            let conn = match io.connect(address, 0) {
                Ok(conn) => conn,
                Err(error) => {
                    (self.report)(Err(format!("cannot connect to {address}: {error}")));
                    return io.stop();
                }
            };
            if self.lanes.is_empty() || !self.relay.replicate {
                self.lanes.push(Lane {
                    servers: Vec::new(),
                    waiting: VecDeque::new(),
                    complete: 0,
                });
            }
            let lane = self.lanes.len() - 1;
            let place = self.lanes[lane].servers.len();
            self.lanes[lane].servers.push(Server { conn, answered: 0 });
            self.note(conn, Peer::Server { lane, place });
        }
    }

    fn on_open(&mut self, _io: &mut Io, conn: ConnId, origin: Origin) {
        if origin == Origin::Accepted {
            self.note(conn, Peer::Client { lane: 0, outstanding: 0 });
        }
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        match self.peers[conn.index()] {
            Peer::Client { .. } => self.forward(io, conn, input),
            Peer::Server { lane, place } => self.reply(io, lane, place, input),
            Peer::Unknown => 0,
        }
    }

    fn on_end(&mut self, io: &mut Io, conn: ConnId) {
        if matches!(self.peers[conn.index()], Peer::Server { .. }) {
            (self.report)(Err("lost a server: it has closed the connection".into()));
            io.stop();
        } else {
            io.close_when_sent(conn);
        }
    }

    fn on_close(&mut self, io: &mut Io, conn: ConnId, origin: Origin, why: Close) {
        if matches!(origin, Origin::Connected(_)) && !matches!(why, Close::Local) {
            (self.report)(Err(format!("lost a server: {why:?}")));
            io.stop();
        }
        self.peers[conn.index()] = Peer::Unknown;
    }

    fn on_stop(&mut self, _io: &mut Io) {
        (self.report)(Ok(self.moved));
    }
}
