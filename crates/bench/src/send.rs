//! A load generator that works as little as possible: it repeats a request, and counts replies by their length.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::{Duration, Instant};

use knee_random::Random;
use knee_reactor::{Close, ConnId, Handler, Io, Origin};

use crate::Moved;

/// The settings of a sender.
#[derive(Debug, Clone)]
pub struct Send {
    /// The server.
    pub server: SocketAddr,
    /// The number of connections.
    pub connections: usize,
    /// Requests in flight per connection. One write sends them, after the answers to all earlier ones.
    pub depth: NonZeroUsize,
    /// A complete request.
    pub request: Vec<u8>,
    /// The part of the request that is drawn anew each time, if any.
    pub draws: Option<Draws>,
    /// The exact length of every reply.
    pub reply_bytes: NonZeroUsize,
    /// The time to send for.
    pub time: Duration,
}

/// A number in a request, drawn anew for each request.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    /// The offset of the number's [`DIGITS`] digits in the request.
    pub at: usize,
    /// The exclusive upper bound.
    pub below: NonZeroU64,
}

/// The number of digits in knee-load's keys.
pub const DIGITS: usize = 10;

/// The sender on its thread.
pub struct SendHandler<F> {
    send: Send,
    /// `depth` requests.
    volley: Vec<u8>,
    random: Random,
    /// Reply bytes missing until the next volley, by [`ConnId::index`].
    missing: Vec<usize>,
    standing: usize,
    in_flight: usize,
    first: Option<Instant>,
    over: bool,
    sent: Moved,
    report: F,
}

impl<F: FnMut(Result<Moved, String>)> SendHandler<F> {
    /// A sender that calls `report` with its work at the end, or with the error.
    ///
    /// # Panics
    /// When the digits to draw are not within the request.
    pub fn new(send: Send, report: F) -> Self {
        assert!(send.draws.is_none_or(|draws| draws.at + DIGITS <= send.request.len()));
        SendHandler {
            volley: send.request.repeat(send.depth.get()),
            random: Random::stream(0, 0),
            missing: Vec::new(),
            standing: 0,
            in_flight: 0,
            first: None,
            over: false,
            sent: Moved::default(),
            send,
            report,
        }
    }

    fn fire(&mut self, io: &mut Io, conn: ConnId) {
        if let Some(draws) = self.send.draws {
            for request in self.volley.chunks_exact_mut(self.send.request.len()) {
                let mut rest = self.random.below(draws.below.get());
                for digit in request[draws.at..draws.at + DIGITS].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
        io.write(conn, &self.volley);
        self.missing[conn.index()] = self.send.depth.get() * self.send.reply_bytes.get();
        self.in_flight += 1;
    }

    fn fail(&mut self, io: &mut Io, message: String) {
        (self.report)(Err(message));
        io.stop();
    }
}

impl<F: FnMut(Result<Moved, String>)> Handler for SendHandler<F> {
    fn on_start(&mut self, io: &mut Io) {
        for _ in 0..self.send.connections {
            match io.connect(self.send.server, 0) {
                Ok(conn) => self.missing.resize(conn.index() + 1, 0),
                Err(error) => {
                    return self
                        .fail(io, format!("cannot connect to {}: {error}", self.send.server));
                }
            }
        }
    }

    fn on_open(&mut self, io: &mut Io, _conn: ConnId, _origin: Origin) {
        self.standing += 1;
        if self.standing == self.send.connections {
            self.first = Some(io.now());
            io.timer(io.now() + self.send.time, 0);
            let all: Vec<ConnId> = io.ids().map(|(conn, _)| conn).collect();
            for conn in all {
                self.fire(io, conn);
            }
        }
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let missing = &mut self.missing[conn.index()];
        let Some(rest) = missing.checked_sub(input.len()) else {
            self.fail(io, "a reply is longer than the size that was given".into());
            return input.len();
        };
        *missing = rest;
        if rest == 0 {
            self.in_flight -= 1;
            self.sent.requests += self.send.depth.get() as u64;
            if !self.over {
                self.fire(io, conn);
            } else if self.in_flight == 0 {
                io.stop();
            }
        }
        input.len()
    }

    fn on_timer(&mut self, _io: &mut Io, _key: u64) {
        self.over = true;
    }

    fn on_batch_end(&mut self, io: &mut Io) {
        if let Some(first) = self.first {
            self.sent.time = io.now() - first;
        }
    }

    fn on_end(&mut self, io: &mut Io, _conn: ConnId) {
        self.fail(io, "the server has closed a connection".into());
    }

    fn on_close(&mut self, io: &mut Io, _conn: ConnId, _origin: Origin, why: Close) {
        if !matches!(why, Close::Local) {
            self.fail(io, format!("lost a connection: {why:?}"));
        }
    }

    fn on_stop(&mut self, _io: &mut Io) {
        (self.report)(Ok(self.sent));
    }
}
