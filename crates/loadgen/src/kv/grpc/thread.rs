//! The clients of one thread: connecting, sending when it is time, counting what comes back.
//!
//! Times are measured as the clients of the event loop do ([`crate::clients`]): a request's begins
//! when it is due, and ends when its client has the answer, all of it for a scan. What a scan brings
//! is checked as it comes, so that nobody has to keep it: that is part of its time.

mod life;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_random::{GOLDEN, Random, mix};
use knee_rpc::kv::{Entry, RequestId};
use knee_telemetry::{LATE_NS, Load, LoadTimes, Op, Recorder, Sample, elapsed_ns};
use tokio::sync::Notify;
use tokio::task::spawn_local;

pub(super) use life::run;

use super::alarm::Alarms;
use super::link::{Client, Link, Standing, connect};
use super::message::{Answer, Failure, Message, Request};
use crate::complaints::WrongValue;
use crate::kv::draws::Draws;
use crate::kv::sightings::Asked;
use crate::kv::workload::Workload;
use crate::open_loop::{self, Destination};
use crate::run::{Pace, Run};
use crate::schedule::{self, Think};
use crate::traffic::Fault;

/// Why a connection is of no more use on which nothing was waited for.
const IDLE_LOSS: &str = "the server closed it";

/// The clients of one thread. What its tasks share is theirs alone: they take turns on the thread.
struct Thread {
    run: Arc<Run>,
    workload: Arc<Workload>,
    /// The numbers of its clients.
    numbers: Range<u64>,
    /// `None` once the last window was handed over.
    recorder: RefCell<Option<Recorder<Load>>>,
    alarms: Alarms,
    links: Vec<Link>,
    /// What each client asks for. In an open loop it may go out on another one's connection.
    asking: RefCell<Vec<Asking>>,
    /// By server; empty in a closed loop.
    destinations: RefCell<Vec<Destination>>,
    /// By server: something of a connection has become free.
    freed: Vec<Notify>,
    phase: Cell<Phase>,
    start: Cell<Instant>,
    /// Requests that are not answered, by their number.
    in_flight: RefCell<HashMap<u64, Sent>>,
    /// How many requests were sent.
    sent: Cell<u64>,
    /// After the end: the last request has its answer.
    drained: Notify,
    timed_sends: Cell<u64>,
    own_late_sends: Cell<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connections are opened, or stand and wait for the start.
    Waiting,
    Running,
    /// Nothing becomes due any more; answers are awaited.
    Draining,
}

/// One client's requests.
struct Asking {
    draws: Draws,
    /// As whom it writes, where writes have ids.
    writer: Option<u64>,
    writes: u64,
}

/// A request that is on its way.
struct Call {
    /// Its number among those in flight.
    number: u64,
    request: Request,
    message: Message,
    asked: Asked,
}

/// The connection was lost before the answer to this request had come.
struct Lost {
    request: Request,
    why: String,
}

/// What is counted of a request in flight.
struct Sent {
    due: Instant,
    op: Op,
    keys: u32,
    bytes: u64,
}

impl Thread {
    /// The clients of thread number `number`; made within its runtime.
    fn new(
        run: Arc<Run>,
        workload: Arc<Workload>,
        recorder: Recorder<Load>,
        number: usize,
        process: Option<u64>,
    ) -> std::io::Result<Thread> {
        let plan = &run.plan;
        let numbers = plan.clients_of(number);
        let servers = plan.servers.len();
        let links = numbers.clone().map(|number| {
            let server = open_loop::server_of(number, servers);
            Link::new(server, plan.servers[server])
        });
        let asking = numbers.clone().map(|number| Asking {
            draws: Draws::new(&workload, number, plan.clients),
            writer: process.map(|process| mix(process ^ number.wrapping_mul(GOLDEN))),
            writes: 0,
        });
        let destinations = match plan.pace {
            Pace::Closed(_) => Vec::new(),
            Pace::Open(rate) => {
                let numbers = numbers.clone();
                Destination::of_clients(
                    servers,
                    rate,
                    plan.length,
                    plan.seed,
                    numbers,
                    plan.clients,
                )
            }
        };
        Ok(Thread {
            alarms: Alarms::new()?,
            links: links.collect(),
            asking: RefCell::new(asking.collect()),
            destinations: RefCell::new(destinations),
            freed: (0..servers).map(|_| Notify::new()).collect(),
            numbers,
            recorder: RefCell::new(Some(recorder)),
            phase: Cell::new(Phase::Waiting),
            start: Cell::new(Instant::now()),
            in_flight: RefCell::default(),
            sent: Cell::default(),
            drained: Notify::new(),
            timed_sends: Cell::default(),
            own_late_sends: Cell::default(),
            run,
            workload,
        })
    }

    /// What a client asks for next.
    fn next_request(&self, client: usize) -> Request {
        let Asking { draws, writer, writes } = &mut self.asking.borrow_mut()[client];
        let drawn = draws.next(&self.workload);
        *writes += 1;
        let id = writer.map(|client| RequestId { client, number: *writes });
        Request { drawn, id, again: false }
    }

    /// Closed loop: a client's requests, one after the other.
    async fn ask_in_turn(self: Rc<Self>, client: usize, think: Think) {
        let link = &self.links[client];
        let number = self.numbers.start + client as u64;
        let mut random = schedule::thinking(self.run.plan.seed, number);
        let mut due = self.start.get().max(Instant::now());
        let mut thought = think.remainder(&mut random);
        let mut again = None;
        let Some(mut standing) = link.standing.borrow().clone() else { return };
        loop {
            if !thought.is_zero() {
                due += thought;
                self.alarms.until(due).await;
                let late_ns = elapsed_ns(due, Instant::now());
                self.sent_late(late_ns, late_ns);
            }
            if !self.runs() {
                return;
            }
            // While nobody waited for an answer: what is due now waits until it stands again.
            if standing.is_lost() {
                self.lost(link, IDLE_LOSS);
                let stands = self.reconnect(link).await;
                // The end may come meanwhile.
                let Some(stands) = stands.filter(|_| self.runs()) else { return };
                standing = stands;
            }
            let request = again.take().unwrap_or_else(|| self.next_request(client));
            let call = self.call(link, request, due);
            let outcome = self.finish_call(link, &mut standing.client, call).await;
            due = Instant::now();
            match outcome {
                Ok(()) if !self.runs() => return,
                Ok(()) => thought = self.think(think, &mut random),
                Err(Lost { request, why }) => {
                    self.lost(link, &why);
                    let stands = self.reconnect(link).await;
                    let Some(stands) = stands.filter(|_| self.runs()) else { return };
                    standing = stands;
                    due = Instant::now();
                    thought = Duration::ZERO;
                    again = request.again();
                }
            }
        }
    }

    fn think(&self, think: Think, random: &mut Random) -> Duration {
        let time = think.next(random);
        if !time.is_zero() {
            self.record(|recorder| recorder.gauges.thought(time.as_nanos() as u64));
        }
        time
    }

    /// Open loop: sends to one server what is due, when it is due or there is room.
    async fn ask_on_schedule(self: Rc<Self>, server: usize) {
        while let Some(due) = self.next_due(server) {
            self.alarms.until(due).await;
            // At the end nothing is due that was not before.
            if self.next_due(server) != Some(due) {
                continue;
            }
            let Some(via) = self.room(server) else {
                // The next answer makes room.
                self.freed[server].notified().await;
                continue;
            };
            if self.links[via].standing.borrow_mut().as_mut().is_some_and(Standing::is_lost) {
                let thread = Rc::clone(&self);
                self.lost(&self.links[via], IDLE_LOSS);
                spawn_local(async move { thread.open_again(via).await });
                continue;
            }
            let (client, room_since) = {
                let destination = &mut self.destinations.borrow_mut()[server];
                let Some((_, client)) = destination.arrivals.pop() else { return };
                (client, destination.room_since.unwrap_or(due))
            };
            let now = Instant::now();
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due.max(room_since), now));
            let request = self.next_request(client as usize);
            self.ask_once(via, request, due);
        }
    }

    fn next_due(&self, server: usize) -> Option<Instant> {
        let next = self.destinations.borrow()[server].arrivals.next_due();
        next.map(|due| self.start.get() + due)
    }

    /// Open loop: the connection for the next request to a server.
    fn room(&self, server: usize) -> Option<usize> {
        let pipeline = self.run.plan.pipeline;
        let stands = |link: &Link| link.standing.borrow().is_some();
        let idle = |client: u32| {
            let link = &self.links[client as usize];
            link.in_flight.get() == 0 && stands(link)
        };
        let has_room = |client: u32| {
            let link = &self.links[client as usize];
            link.in_flight.get() < pipeline && stands(link)
        };
        let destination = &mut self.destinations.borrow_mut()[server];
        let via = destination.room.take(idle, has_room);
        if via.is_none() {
            destination.room_since = None;
        }
        via.map(|via| via as usize)
    }

    /// Open loop: something of a connection has become free, or it stands again.
    fn has_room(&self, via: usize, now: Instant) {
        let link = &self.links[via];
        let destination = &mut self.destinations.borrow_mut()[link.server];
        if link.in_flight.get() == 0 {
            destination.room.is_idle(via as u32);
        }
        if destination.room_since.is_none() {
            destination.room_since = Some(now);
            self.freed[link.server].notify_one();
        }
    }

    /// Open loop: one request on the connection of `via`.
    fn ask_once(self: &Rc<Self>, via: usize, request: Request, due: Instant) {
        let (thread, link) = (Rc::clone(self), &self.links[via]);
        let Some(Standing { mut client, .. }) = link.standing.borrow().clone() else { return };
        let losses = link.losses.get();
        let call = self.call(link, request, due);
        spawn_local(async move {
            let link = &thread.links[via];
            match thread.finish_call(link, &mut client, call).await {
                Ok(()) => thread.has_room(via, Instant::now()),
                Err(Lost { request, why }) => {
                    let again = request.again();
                    if link.standing.borrow().is_some() && link.losses.get() != losses {
                        // It stands again already.
                        let now = Instant::now();
                        match again.filter(|_| thread.runs()) {
                            Some(request) => thread.ask_once(via, request, now),
                            None => thread.has_room(via, now),
                        }
                        return;
                    }
                    link.again.borrow_mut().extend(again);
                    // The first to find out opens it again.
                    if link.losses.get() == losses {
                        thread.lost(link, &why);
                        thread.open_again(via).await;
                    }
                }
            }
        });
    }

    /// Open loop: opens a connection that was lost, and sends again what was on its way, but not after the end.
    async fn open_again(self: &Rc<Self>, via: usize) {
        let link = &self.links[via];
        if self.reconnect(link).await.is_some() {
            let now = Instant::now();
            let again = link.again.take();
            for request in again.into_iter().filter(|_| self.runs()) {
                self.ask_once(via, request, now);
            }
            self.has_room(via, now);
        }
    }

    fn runs(&self) -> bool {
        self.phase.get() == Phase::Running
    }

    /// Whether anything may still be asked of a server, also after the end.
    fn is_wanted(&self, server: usize) -> bool {
        let is_due = |server: &Destination| server.arrivals.next_due().is_some();
        self.runs() || self.destinations.borrow().get(server).is_some_and(is_due)
    }

    /// Makes a request a call that is in flight.
    fn call(&self, link: &Link, request: Request, due: Instant) -> Call {
        let message = request.message(&self.workload);
        let number = self.sent.get();
        self.sent.set(number + 1);
        let (op, keys, bytes) = (request.drawn.op, request.keys(), message.bytes());
        self.in_flight.borrow_mut().insert(number, Sent { due, op, keys, bytes });
        link.in_flight.set(link.in_flight.get() + 1);
        Call { number, request, message, asked: link.sightings.borrow().ask() }
    }

    /// Waits for what comes of a call, and counts it.
    async fn finish_call(&self, link: &Link, client: &mut Client, call: Call) -> Result<(), Lost> {
        let Call { number, request, message, asked } = call;
        let verify = self.run.plan.verify;
        let show = |entry: &Entry| {
            if verify {
                self.verify(link, &request, entry, asked);
            }
        };
        let outcome = message.send(client, &self.workload, show).await;
        let now = Instant::now();
        link.in_flight.set(link.in_flight.get() - 1);
        // Otherwise it was given up.
        let Some(sent) = self.in_flight.borrow_mut().remove(&number) else { return Ok(()) };
        let outcome = match outcome {
            Ok(answer) => {
                link.backoff.answered();
                self.answered(&sent, &answer, now);
                if verify {
                    // It is in nobody's time.
                    if let Some(entry) = &answer.found {
                        self.verify(link, &request, entry, asked);
                    }
                    self.verify_version(link, &request, answer.version, asked);
                }
                Ok(())
            }
            Err(failure) => {
                self.failed(&sent, now);
                match failure {
                    Failure::Lost(why) => Err(Lost { request, why }),
                    Failure::Refused { code, said } => {
                        // What was said names the key: of one kind, one is told.
                        let matter = format!("{} answered a {}", link.address, sent.op.name());
                        let message = format!("{matter} with {said}");
                        self.run.complaints.tell_of(format!("{matter} with {code}"), &message);
                        Ok(())
                    }
                }
            }
        };
        if self.phase.get() == Phase::Draining && self.is_drained() {
            self.drained.notify_one();
        }
        outcome
    }

    fn record(&self, record: impl FnOnce(&mut Recorder<Load>)) {
        if let Some(recorder) = &mut *self.recorder.borrow_mut() {
            record(recorder);
        }
    }

    fn answered(&self, sent: &Sent, answer: &Answer, now: Instant) {
        let items = match sent.op {
            Op::Scan | Op::AtomicScan => answer.hits,
            _ => sent.keys,
        };
        let sample = Sample {
            times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
            items,
            hits: answer.hits,
            misses: answer.misses,
            bytes_in: answer.bytes,
            bytes_out: sent.bytes,
            error: false,
        };
        self.record(|recorder| recorder.record(answer.op, &sample));
    }

    fn failed(&self, sent: &Sent, now: Instant) {
        let sample = Sample {
            times: LoadTimes { response_ns: elapsed_ns(sent.due, now) },
            items: sent.keys,
            hits: 0,
            misses: 0,
            bytes_in: 0,
            bytes_out: sent.bytes,
            error: true,
        };
        self.record(|recorder| recorder.record(sent.op, &sample));
    }

    /// Checks a key that came back: that it was asked for, its value, and its version.
    fn verify(&self, link: &Link, request: &Request, entry: &Entry, asked: Asked) {
        let items = &self.workload.items;
        let fault = match items.keys.number(&entry.key) {
            None => Some(Fault::ForeignKey),
            Some(key) if request.drawn.op == Op::Read && key != request.drawn.key => {
                Some(Fault::NotAsked)
            }
            Some(key) => {
                let differs = self.workload.differs(key, entry.flags, &entry.value);
                let went_back = link.sightings.borrow_mut().read(key, entry.version, asked);
                differs.map(Fault::Differs).or(went_back)
            }
        };
        if let Some(fault) = fault {
            self.wrong(link, &entry.key, entry.flags, &entry.value, fault);
        }
    }

    /// Checks the version that a write made. One of a request that was sent again may have been made
    /// the first time; that of a bulk put need not be each key's.
    fn verify_version(&self, link: &Link, request: &Request, version: u64, asked: Asked) {
        if version == 0 || request.again || request.drawn.op == Op::BulkPut {
            return;
        }
        let fault = link.sightings.borrow_mut().wrote(request.drawn.key, version, asked);
        if let Some(fault) = fault {
            let mut name = Vec::new();
            self.workload.items.keys.append(request.drawn.key, &mut name);
            self.wrong(link, &name, 0, b"", fault);
        }
    }

    #[cold]
    fn wrong(&self, link: &Link, key: &[u8], flags: u32, value: &[u8], fault: Fault) {
        self.record(|recorder| recorder.gauges.wrong_values += 1);
        let server = link.address;
        self.run.complaints.wrong_value(&WrongValue { server, key, flags, value, fault });
    }

    /// Counts a send that had an intended time: how late it was, and how much of that was this
    /// process's own fault.
    fn sent_late(&self, late_ns: u64, own_late_ns: u64) {
        self.timed_sends.set(self.timed_sends.get() + 1);
        let own = u64::from(own_late_ns > LATE_NS);
        self.own_late_sends.set(self.own_late_sends.get() + own);
        self.record(|recorder| recorder.gauges.sent(late_ns));
    }

    /// A connection is of no more use.
    fn lost(&self, link: &Link, why: &str) {
        *link.standing.borrow_mut() = None;
        link.losses.set(link.losses.get() + 1);
        self.record(|recorder| {
            recorder.connections -= 1;
            recorder.gauges.losses += 1;
        });
        let server = link.address;
        self.run.complaints.tell(format!("lost a connection to {server}: {why}"));
    }

    /// Opens a connection again; `None` when nothing is left to be asked before it stands.
    async fn reconnect(&self, link: &Link) -> Option<Standing> {
        while self.is_wanted(link.server) {
            self.alarms.until(link.backoff.next()).await;
            let connected = connect(link.address).await;
            link.backoff.tried(Instant::now());
            match connected {
                Ok(standing) => {
                    *link.standing.borrow_mut() = Some(standing.clone());
                    self.record(|recorder| {
                        recorder.connections += 1;
                        recorder.gauges.reconnects += 1;
                    });
                    return Some(standing);
                }
                Err(why) => self.run.complaints.tell(why.again_of(link.address)),
            }
        }
        None
    }

    fn is_drained(&self) -> bool {
        let nothing_due = |server: &Destination| server.arrivals.next_due().is_none();
        self.in_flight.borrow().is_empty() && self.destinations.borrow().iter().all(nothing_due)
    }
}
