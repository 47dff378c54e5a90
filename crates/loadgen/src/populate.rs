//! The phase that fills memcached servers: it sets the first keys, in order, on every server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use knee_proto::{Decoded, Expect, ResponseDecoder, Status};
use knee_reactor::{Close, Config, ConnId, Group, Handler, Io, Origin};
use knee_telemetry::tell;
use serde::Serialize;

use crate::error::Error;
use crate::items::Items;
use crate::run::{CONNECT_TIMEOUT, end_with};

/// Sets in flight on each server's connection: enough to keep the server busy, and few enough for other clients.
const IN_FLIGHT_MAX: usize = 64;

/// With more unsent bytes on a connection, no further set is written.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The length of the longest answer to a set.
const RESPONSE_BYTES_MAX: usize = 4096;

/// How often progress is printed.
pub(crate) const PROGRESS: Duration = Duration::from_secs(1);

/// How long an answer may take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timer keys.
const CONNECT_OVER: u64 = 0;
const TELL: u64 = 1;

/// Sets the first `share` of the keys on each of `servers`, and returns a summary as a line of JSON.
///
/// # Errors
/// When anything is not stored, with the server's answer; when interrupted.
pub(crate) fn populate(
    servers: &[SocketAddr],
    items: Items,
    share: f64,
    parent: Option<u32>,
) -> Result<String, Error> {
    let total = items.keys.count();
    let keys = share_of(total, share);
    if keys > 0 {
        let (outcome, outcomes) = channel();
        let mut filling = Some(Filling {
            items,
            keys,
            connections: servers.iter().map(|server| Connection::new(*server)).collect(),
            outcome,
        });
        let group = Group::start("populate", 1, &Config::default(), None, |_, _| {
            filling.take().expect("there is one thread")
        })
        .map_err(Error::System)?;
        let shutdown = group.shutdown();
        end_with(parent, move || shutdown.begin())?;
        let outcome = outcomes.recv().unwrap_or(Err(Error::Interrupted));
        group.join().map_err(Error::System)?;
        outcome?;
    }
    Ok(summary(servers, total, share, keys))
}

/// The number of keys in this share of `total`.
pub(crate) fn share_of(total: u64, share: f64) -> u64 {
    (total as f64 * share).round() as u64
}

/// The summary, as a line of JSON, when every server has `stored` of `keys` keys.
pub(crate) fn summary(servers: &[SocketAddr], keys: u64, share: f64, stored: u64) -> String {
    let servers = servers.iter().map(|address| Populated { address: *address, stored });
    let populate = Populate { keys, share, servers: servers.collect() };
    let summary = Summary { r#type: "summary", role: "load", populate };
    serde_json::to_string(&summary).expect("plain data is always JSON")
}

pub(crate) fn tell_progress(stored: u64, wanted: u64) {
    let percent = stored * 100 / wanted;
    tell("knee-load", format_args!("stored {stored} of {wanted} values ({percent} %)"));
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    role: &'static str,
    populate: Populate,
}

#[derive(Serialize)]
struct Populate {
    /// The number of keys in the key space.
    keys: u64,
    share: f64,
    servers: Vec<Populated>,
}

#[derive(Serialize)]
struct Populated {
    address: SocketAddr,
    stored: u64,
}

/// The handler that fills all servers, on one thread.
struct Filling {
    items: Items,
    /// The number of keys that every server gets.
    keys: u64,
    connections: Vec<Connection>,
    outcome: Sender<Result<(), Error>>,
}

struct Connection {
    server: SocketAddr,
    id: Option<ConnId>,
    /// The keys in flight, in order.
    in_flight: VecDeque<u32>,
    /// When the last answer came, or the connection opened.
    since: Instant,
    next: u64,
    stored: u64,
    decoder: ResponseDecoder,
}

impl Connection {
    fn new(server: SocketAddr) -> Connection {
        Connection {
            server,
            id: None,
            in_flight: VecDeque::with_capacity(IN_FLIGHT_MAX),
            since: Instant::now(),
            next: 0,
            stored: 0,
            decoder: ResponseDecoder::new(RESPONSE_BYTES_MAX),
        }
    }

    fn fill(&mut self, io: &mut Io, items: &Items, keys: u64) {
        let Some(id) = self.id else { return };
        while self.next < keys
            && self.in_flight.len() < IN_FLIGHT_MAX
            && io.output_len(id) < OUTPUT_BYTES_MAX
        {
            let Some(output) = io.output(id) else { return };
            let key = self.next as u32;
            items.append_store("set", key, output);
            self.in_flight.push_back(key);
            self.next += 1;
        }
    }
}

impl Filling {
    fn fail(&self, io: &mut Io, server: SocketAddr, why: String) {
        // The receiver takes only the first failure.
        let _ = self.outcome.send(Err(Error::Populate { server, why }));
        io.stop();
    }

    fn key_name(&self, key: u32) -> String {
        let mut name = Vec::new();
        self.items.keys.append(key, &mut name);
        String::from_utf8_lossy(&name).into_owned()
    }

    fn stored(&self) -> u64 {
        self.connections.iter().map(|connection| connection.stored).sum()
    }

    fn wanted(&self) -> u64 {
        self.keys * self.connections.len() as u64
    }

    fn tell(&self) {
        tell_progress(self.stored(), self.wanted());
    }

    fn connection_of(origin: Origin) -> usize {
        match origin {
            Origin::Connected(tag) => tag as usize,
            Origin::Accepted => unreachable!("nothing listens"),
        }
    }

    fn index_of(&self, conn: ConnId) -> Option<usize> {
        self.connections.iter().position(|connection| connection.id == Some(conn))
    }
}

impl Handler for Filling {
    fn on_start(&mut self, io: &mut Io) {
        let now = Instant::now();
        io.timer(now + CONNECT_TIMEOUT, CONNECT_OVER);
        io.timer(now + PROGRESS, TELL);
        for index in 0..self.connections.len() {
            let server = self.connections[index].server;
            if let Err(error) = io.connect(server, index as u64) {
                self.fail(io, server, error.to_string());
            }
        }
    }

    fn on_open(&mut self, io: &mut Io, conn: ConnId, origin: Origin) {
        let connection = &mut self.connections[Filling::connection_of(origin)];
        connection.id = Some(conn);
        connection.since = io.now();
        connection.fill(io, &self.items, self.keys);
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let Some(index) = self.index_of(conn) else { return input.len() };
        let mut start = 0;
        while start < input.len() {
            let connection = &mut self.connections[index];
            match connection.decoder.decode(&input[start..], Expect::Line) {
                Decoded::Complete { consumed, item } => {
                    start += consumed;
                    connection.since = io.now();
                    let key = connection.in_flight.pop_front();
                    match (key, item.status) {
                        (Some(_), Status::Stored) => connection.stored += 1,
                        (key, _) => {
                            let server = connection.server;
                            let what = key.map_or("it sent without a request:".into(), |key| {
                                format!("it answered the set of {} with", self.key_name(key))
                            });
                            let answer = item.raw.trim_ascii_end().escape_ascii();
                            self.fail(io, server, format!("{what} {answer}"));
                            return input.len();
                        }
                    }
                }
                Decoded::Incomplete { consumed, .. } => {
                    start += consumed;
                    break;
                }
                Decoded::Invalid { error, .. } => {
                    let server = connection.server;
                    self.fail(io, server, error.to_string());
                    return input.len();
                }
            }
        }
        self.connections[index].fill(io, &self.items, self.keys);
        if self.stored() == self.wanted() {
            self.tell();
            let _ = self.outcome.send(Ok(()));
            io.stop();
        }
        start
    }

    fn on_end(&mut self, io: &mut Io, conn: ConnId) {
        if let Some(index) = self.index_of(conn) {
            let connection = &self.connections[index];
            let why = format!("it closed the connection after {} keys", connection.stored);
            self.fail(io, connection.server, why);
        }
    }

    fn on_close(&mut self, io: &mut Io, _conn: ConnId, origin: Origin, why: Close) {
        if let Close::Refused(error) | Close::Failed(error) = why {
            let server = self.connections[Filling::connection_of(origin)].server;
            self.fail(io, server, error.to_string());
        }
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        match key {
            CONNECT_OVER => {
                let late = self.connections.iter().find(|connection| connection.id.is_none());
                if let Some(connection) = late {
                    let why = format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
                    self.fail(io, connection.server, why);
                }
            }
            TELL => {
                self.tell();
                let silent = self.connections.iter().find(|connection| {
                    let waited = io.now().saturating_duration_since(connection.since);
                    !connection.in_flight.is_empty() && waited > ANSWER_TIMEOUT
                });
                if let Some(connection) = silent {
                    let why = format!("no answer for {} s", ANSWER_TIMEOUT.as_secs());
                    self.fail(io, connection.server, why);
                }
                io.timer(Instant::now() + PROGRESS, TELL);
            }
            _ => unreachable!("no such timer is set"),
        }
    }
}
