//! The clients of one thread: their connections, their calls in flight, and their counts.
//!
//! A response time begins when the request is due, as on the event loop ([`crate::clients`]). It ends when the client
//! has the whole answer.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use knee_telemetry::{LATE_NS, Load, LoadTimes, Recorder, Sample, elapsed_ns};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::alarm::Alarms;
use super::calls::{Answered, Asked, Calls, Wrong};
use super::connection::Connection;
use super::status::Failure;
use crate::backoff::Backoff;
use crate::error::Unusable;
use crate::open_loop::Destination;
use crate::run::{CONNECT_TIMEOUT, Pace, Run};

pub(super) struct Link<C: Calls> {
    pub(super) stub: C::Stub,
    pub(super) connection: Connection,
    /// Whether the loss of the connection failed a call.
    lost_call: Rc<Cell<bool>>,
}

impl<C: Calls> Link<C> {
    /// Opens a connection, and waits until the server has answered.
    pub(super) async fn open(address: SocketAddr) -> Result<Link<C>, Unusable> {
        let (connection, origin) = Connection::open(address, &C::SERVICE).await?;
        let stub = C::stub(connection.clone(), origin);
        Ok(Link { stub, connection, lost_call: Rc::default() })
    }
}

impl<C: Calls> Clone for Link<C> {
    fn clone(&self) -> Link<C> {
        Link {
            stub: self.stub.clone(),
            connection: self.connection.clone(),
            lost_call: Rc::clone(&self.lost_call),
        }
    }
}

/// One client and its connection. In an open loop, the connection may carry other clients' requests.
pub(super) struct Member<C: Calls> {
    pub(super) server: usize,
    pub(super) address: SocketAddr,
    client: RefCell<C::Client>,
    /// `None` while the connection is known to be lost.
    link: RefCell<Option<Link<C>>>,
    seen: C::Seen,
    backoff: Backoff,
    pub(super) in_flight: Cell<usize>,
    /// Whether the connection was cut, and is not open again yet.
    is_missing: Cell<bool>,
}

impl<C: Calls> Member<C> {
    pub(super) fn new(
        server: usize,
        address: SocketAddr,
        link: Link<C>,
        client: C::Client,
    ) -> Member<C> {
        Member {
            server,
            address,
            client: RefCell::new(client),
            link: RefCell::new(Some(link)),
            seen: C::Seen::default(),
            backoff: Backoff::new(Instant::now()),
            in_flight: Cell::default(),
            is_missing: Cell::default(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.link.borrow().is_some()
    }
}

pub(super) struct Again<C: Calls> {
    pub(super) client: usize,
    pub(super) request: C::Request,
}

/// The measurement of a request in flight.
pub(super) struct Sent {
    asked: Asked,
    due: Instant,
}

pub(super) struct Call<C: Calls> {
    number: u64,
    /// The client whose connection carries the call.
    pub(super) via: usize,
    /// The client whose request it is.
    client: usize,
    request: C::Request,
    link: Link<C>,
}

pub(super) enum Outcome<C: Calls> {
    Answered,
    /// The connection was lost. Holds the request if it may be sent again.
    Lost(Option<Again<C>>),
}

/// The clients of one thread, whose tasks share it.
pub(super) struct Thread<C: Calls> {
    pub(super) run: Arc<Run>,
    calls: Arc<C>,
    /// The number of the thread's first client.
    pub(super) first: u64,
    /// `None` after the last window was recorded.
    pub(super) recorder: RefCell<Option<Recorder<Load>>>,
    pub(super) alarms: Alarms,
    pub(super) members: Vec<Member<C>>,
    /// By server; empty in a closed loop.
    pub(super) destinations: RefCell<Vec<Destination>>,
    /// By server: writes of an open loop to be sent again, as their connections were lost.
    pub(super) again: RefCell<Vec<VecDeque<Again<C>>>>,
    /// By server: notified when a request may find a connection.
    pub(super) freed: Vec<Notify>,
    /// Whether requests become due: after the start, and before the end.
    pub(super) runs: Cell<bool>,
    pub(super) start: Cell<Instant>,
    /// Requests without an answer, by number.
    pub(super) in_flight: RefCell<HashMap<u64, Sent>>,
    /// The number of the next request.
    numbers: Cell<u64>,
    /// Notified after the end, when the last request has its answer.
    pub(super) drained: Notify,
    pub(super) timed_sends: Cell<u64>,
    pub(super) own_late_sends: Cell<u64>,
    missing: Cell<u64>,
}

impl<C: Calls> Thread<C> {
    /// The clients of thread number `number`. Must be called within the thread's runtime.
    pub(super) fn new(
        run: Arc<Run>,
        calls: Arc<C>,
        members: Vec<Member<C>>,
        mut recorder: Recorder<Load>,
        number: usize,
    ) -> std::io::Result<Thread<C>> {
        let plan = &run.plan;
        let (numbers, servers) = (plan.clients_of(number), plan.servers.len());
        let first = numbers.start;
        let destinations = match plan.pace {
            Pace::Closed(_) => Vec::new(),
            Pace::Open(rate) => {
                let (length, seed) = (plan.length, plan.seed);
                Destination::of_clients(servers, rate, length, seed, numbers, plan.clients)
            }
        };
        recorder.connections = members.len() as u64;
        Ok(Thread {
            alarms: Alarms::new()?,
            calls,
            first,
            recorder: RefCell::new(Some(recorder)),
            members,
            destinations: RefCell::new(destinations),
            again: RefCell::new((0..servers).map(|_| VecDeque::new()).collect()),
            freed: (0..servers).map(|_| Notify::new()).collect(),
            runs: Cell::new(false),
            start: Cell::new(Instant::now()),
            in_flight: RefCell::default(),
            numbers: Cell::default(),
            drained: Notify::new(),
            timed_sends: Cell::default(),
            own_late_sends: Cell::default(),
            missing: Cell::default(),
            run,
        })
    }

    pub(super) fn next(&self, client: usize) -> C::Request {
        self.calls.next(&mut self.members[client].client.borrow_mut())
    }

    /// Counts a request of `client` as in flight on the connection of `via`. Returns `None` if that connection is lost.
    pub(super) fn call(
        &self,
        via: usize,
        client: usize,
        request: C::Request,
        due: Instant,
    ) -> Option<Call<C>> {
        let link = self.members[via].link.borrow().clone()?;
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        let sent = Sent { asked: self.calls.asked(&request), due };
        self.in_flight.borrow_mut().insert(number, sent);
        let in_flight = &self.members[via].in_flight;
        in_flight.set(in_flight.get() + 1);
        Some(Call { number, via, client, request, link })
    }

    /// Waits for the answer to a call, and counts it.
    pub(super) async fn finish_call(&self, call: Call<C>) -> Outcome<C> {
        let Call { number, via, client, mut request, mut link } = call;
        let (connection, asks) = (&self.members[via], &self.members[client].client);
        let wrong = |what: &dyn Display| self.wrong(connection.address, what);
        let wrong: Option<&Wrong<'_>> = self.run.plan.verify.then_some(&wrong);
        let outcome = self.calls.ask(&mut link.stub, &connection.seen, &mut request, wrong).await;
        let now = Instant::now();
        connection.in_flight.set(connection.in_flight.get() - 1);
        // A request that had no answer at the end of the drain time is counted already.
        let Some(sent) = self.in_flight.borrow_mut().remove(&number) else {
            return Outcome::Answered;
        };
        let outcome = match outcome {
            Ok(answer) => {
                connection.backoff.answered();
                self.record_answer(&sent, now, self.calls.answered(&answer));
                let client = &mut *asks.borrow_mut();
                // In an open loop, answers need not come in the order of the requests.
                let in_turn = matches!(self.run.plan.pace, Pace::Closed(_));
                self.calls.take(client, &connection.seen, &request, &answer, in_turn, wrong);
                Outcome::Answered
            }
            Err(failure) => {
                self.record_failure(&sent, now);
                let (address, op) = (connection.address, sent.asked.op.name());
                let kind = format!("{address} {}", failure.kind(op));
                self.run.complaints.tell_of(kind, &format!("{address} {}", failure.of(op)));
                if let Failure::Lost(_) = failure {
                    link.lost_call.set(true);
                    self.record(|recorder| recorder.gauges.unanswered += 1);
                    let again = self.calls.again(request);
                    Outcome::Lost(again.map(|request| Again { client, request }))
                } else {
                    Outcome::Answered
                }
            }
        };
        if !self.runs.get() && self.is_drained() {
            self.drained.notify_one();
        }
        outcome
    }

    /// Whether a connection was lost since the last call of this function. Counts and reports the loss.
    pub(super) fn loses(&self, via: usize) -> bool {
        let member = &self.members[via];
        let lost = member.link.borrow_mut().take_if(|link| link.connection.is_lost());
        if let Some(link) = &lost {
            self.record(|recorder| {
                recorder.connections -= 1;
                recorder.gauges.losses += 1;
            });
            self.run.complaints.tell(format!("lost a connection to {}", member.address));
            if link.lost_call.get() {
                self.is_cut(member);
            }
        }
        lost.is_some()
    }

    /// Counts a connection as cut: its loss failed a request, or it could not be opened again at once.
    fn is_cut(&self, member: &Member<C>) {
        if !member.is_missing.replace(true) {
            self.missing.set(self.missing.get() + 1);
            self.record(|recorder| recorder.gauges.cut += 1);
        }
    }

    /// Whether a server may get further requests. After the end, this holds while due requests are left.
    fn is_wanted(&self, server: usize) -> bool {
        let is_due = |server: &Destination| server.arrivals.next_due().is_some();
        self.runs.get() || self.destinations.borrow().get(server).is_some_and(is_due)
    }

    /// Opens a lost connection again, unless its server gets no further requests.
    pub(super) async fn reconnect(&self, via: usize) {
        let member = &self.members[via];
        while self.is_wanted(member.server) {
            self.alarms.until(member.backoff.next()).await;
            let opened = timeout(CONNECT_TIMEOUT, Link::open(member.address)).await;
            member.backoff.tried(Instant::now());
            match opened.unwrap_or(Err(Unusable::Silent(CONNECT_TIMEOUT))) {
                Ok(link) => {
                    *member.link.borrow_mut() = Some(link);
                    if member.is_missing.take() {
                        self.missing.set(self.missing.get() - 1);
                    }
                    return self.record(|recorder| {
                        recorder.connections += 1;
                        recorder.gauges.reconnects += 1;
                    });
                }
                Err(why) => {
                    self.is_cut(member);
                    self.run.complaints.tell(why.of(member.address));
                }
            }
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        let nothing_due = |server: &Destination| server.arrivals.next_due().is_none();
        self.in_flight.borrow().is_empty() && self.destinations.borrow().iter().all(nothing_due)
    }

    pub(super) fn record(&self, record: impl FnOnce(&mut Recorder<Load>)) {
        if let Some(recorder) = &mut *self.recorder.borrow_mut() {
            record(recorder);
        }
    }

    /// Updates the gauges of current levels.
    pub(super) fn gauge(&self) {
        self.record(|recorder| {
            recorder.gauges.in_flight = self.in_flight.borrow().len() as u64;
            recorder.gauges.missing = self.missing.get();
        });
    }

    fn record_answer(&self, sent: &Sent, now: Instant, answered: Answered) {
        let Answered { op, items, hits, misses, bytes } = answered;
        let sample = Sample {
            times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
            items,
            hits,
            misses,
            bytes_in: bytes,
            bytes_out: sent.asked.bytes,
            error: false,
        };
        self.record(|recorder| recorder.record(op, &sample));
    }

    pub(super) fn record_failure(&self, sent: &Sent, now: Instant) {
        let Asked { op, items, bytes } = sent.asked;
        let sample = Sample {
            times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
            items,
            bytes_out: bytes,
            error: true,
            ..Sample::default()
        };
        self.record(|recorder| recorder.record(op, &sample));
    }

    #[cold]
    fn wrong(&self, server: SocketAddr, what: &dyn Display) {
        self.record(|recorder| recorder.gauges.wrong_values += 1);
        self.run.complaints.wrong_value(server, what);
    }

    /// Counts a send that had an intended time. `late_ns` is its delay. `own_late_ns` is the part of the delay during
    /// which a connection had room. Only this process can have caused that part.
    pub(super) fn sent_late(&self, late_ns: u64, own_late_ns: u64) {
        self.timed_sends.set(self.timed_sends.get() + 1);
        let own = u64::from(own_late_ns > LATE_NS);
        self.own_late_sends.set(self.own_late_sends.get() + own);
        self.record(|recorder| recorder.gauges.sent(late_ns));
    }
}
