//! The clients of one thread: connecting, asking when it is time, counting what comes back.
//!
//! A request's time begins when it is due and ends when its client has the answer, all of it. A
//! request whose connection is lost is an error and not made again: nobody knows whether it was done.

mod life;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use knee_telemetry::{LATE_NS, Load, LoadTimes, Op, Recorder, Sample, elapsed_ns};
use tokio::sync::Notify;
use tokio::task::spawn_local;

pub(super) use life::run;

use super::call::{self, Answer, Failure, Standing, connect};
use super::talk::{Request, Talk};
use crate::backoff::Backoff;
use crate::kv::grpc::alarm::Alarms;
use crate::open_loop::Destination;
use crate::run::{Pace, Run};
use crate::schedule::{self, Think};

/// A client.
struct Speaker {
    server: usize,
    address: SocketAddr,
    talk: RefCell<Talk>,
    /// `None` while it is known to be lost.
    standing: RefCell<Option<Standing>>,
    backoff: Backoff,
    in_flight: Cell<usize>,
}

/// A request that has no answer yet.
struct Asked {
    op: Op,
    bytes: u64,
    due: Instant,
}

/// The clients of one thread. What its tasks share is theirs alone: they take turns on the thread.
struct Thread {
    run: Arc<Run>,
    /// The number of its first client.
    first: u64,
    /// `None` once the last window was handed over.
    recorder: RefCell<Option<Recorder<Load>>>,
    alarms: Alarms,
    speakers: Vec<Speaker>,
    everybody: Vec<u32>,
    /// By server; empty in a closed loop.
    destinations: RefCell<Vec<Destination>>,
    /// By server: something of a connection has become free.
    freed: Vec<Notify>,
    runs: Cell<bool>,
    start: Instant,
    /// What has no answer yet, by the number that it was asked with.
    in_flight: RefCell<HashMap<u64, Asked>>,
    asked: Cell<u64>,
    /// After the end: the last request has its answer.
    drained: Notify,
    timed_sends: Cell<u64>,
    own_late_sends: Cell<u64>,
}

impl Thread {
    fn new(
        run: Arc<Run>,
        speakers: Vec<Speaker>,
        everybody: Vec<u32>,
        recorder: Recorder<Load>,
        number: usize,
        start: Instant,
    ) -> std::io::Result<Thread> {
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
        Ok(Thread {
            alarms: Alarms::new()?,
            first,
            recorder: RefCell::new(Some(recorder)),
            speakers,
            everybody,
            destinations: RefCell::new(destinations),
            freed: (0..servers).map(|_| Notify::new()).collect(),
            runs: Cell::new(true),
            start,
            in_flight: RefCell::default(),
            asked: Cell::default(),
            drained: Notify::new(),
            timed_sends: Cell::default(),
            own_late_sends: Cell::default(),
            run,
        })
    }

    /// Closed loop: a client's requests, one after the other.
    async fn ask_in_turn(self: Rc<Self>, speaker: usize, think: Think) {
        let mut random = schedule::thinking(self.run.plan.seed, self.first + speaker as u64);
        let mut request = self.next(speaker);
        let mut due = self.start.max(Instant::now());
        let mut thought = think.remainder(&mut random);
        loop {
            if !thought.is_zero() {
                due += thought;
                self.alarms.until(due).await;
                let late_ns = elapsed_ns(due, Instant::now());
                self.sent_late(late_ns, late_ns);
            }
            // The end may come while the connection is opened again.
            if !self.runs.get() || !self.stands(speaker).await || !self.runs.get() {
                return;
            }
            let asked = self.asks(&request, due);
            self.ask(speaker, speaker, request, asked).await;
            due = Instant::now();
            // A long message takes its time to be made: a part of what is thought, or nobody's, but no
            // part of what the server takes.
            request = self.next(speaker);
            thought = think.next(&mut random);
            if thought.is_zero() {
                due = Instant::now();
            } else {
                self.record(|recorder| recorder.gauges.thought(thought.as_nanos() as u64));
            }
        }
    }

    /// Open loop: asks one server what is due, when it is due or there is room.
    async fn ask_on_schedule(self: Rc<Self>, server: usize) {
        while let Some(due) = self.next_due(server) {
            self.alarms.until(due).await;
            // At the end nothing is due that was not before.
            if self.next_due(server) != Some(due) {
                continue;
            }
            let via = self.room(server);
            let mut later = None;
            if via.is_none_or(|via| self.speakers[via].in_flight.get() > 0) {
                later = self.open_wanted(server);
            }
            let Some(via) = via else {
                // The next answer makes room, or a connection that stands again.
                match later {
                    None => self.freed[server].notified().await,
                    Some(later) => tokio::select! {
                        () = self.freed[server].notified() => {}
                        () = self.alarms.until(later) => {}
                    },
                }
                continue;
            };
            let (speaker, room_since) = {
                let destination = &mut self.destinations.borrow_mut()[server];
                let Some((_, speaker)) = destination.arrivals.pop() else { return };
                (speaker as usize, destination.room_since.unwrap_or(due))
            };
            let request = self.next(speaker);
            let now = Instant::now();
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due.max(room_since), now));
            let thread = Rc::clone(&self);
            let in_flight = &self.speakers[via].in_flight;
            in_flight.set(in_flight.get() + 1);
            let asked = self.asks(&request, due);
            spawn_local(async move {
                thread.ask(via, speaker, request, asked).await;
                let in_flight = &thread.speakers[via].in_flight;
                in_flight.set(in_flight.get() - 1);
                thread.is_answered(via);
            });
        }
    }

    fn next_due(&self, server: usize) -> Option<Instant> {
        let next = self.destinations.borrow()[server].arrivals.next_due();
        next.map(|due| self.start + due)
    }

    /// Open loop: the connection for the next request to a server. Those that were lost while nobody waited for
    /// an answer are found out.
    fn room(&self, server: usize) -> Option<usize> {
        loop {
            let via = self.room_unless_lost(server)?;
            if !self.leaves_lost(via) {
                return Some(via);
            }
        }
    }

    fn room_unless_lost(&self, server: usize) -> Option<usize> {
        let pipeline = self.run.plan.pipeline;
        let room = |connection: u32, below: usize| {
            let speaker = &self.speakers[connection as usize];
            speaker.in_flight.get() < below && speaker.standing.borrow().is_some()
        };
        let destination = &mut self.destinations.borrow_mut()[server];
        let via = destination.room.take(|via| room(via, 1), |via| room(via, pipeline));
        if via.is_none() {
            destination.room_since = None;
        }
        via.map(|via| via as usize)
    }

    /// Open loop: something was answered on a connection, or will not be.
    fn is_answered(&self, via: usize) {
        let speaker = &self.speakers[via];
        if self.leaves_lost(via) {
            // What waits for room may want it opened again.
            self.freed[speaker.server].notify_one();
        } else if speaker.standing.borrow().is_some() {
            self.has_room(via, Instant::now());
        }
    }

    /// Open loop: something of a connection has become free, or it stands again.
    fn has_room(&self, via: usize, now: Instant) {
        let speaker = &self.speakers[via];
        let destination = &mut self.destinations.borrow_mut()[speaker.server];
        if speaker.in_flight.get() == 0 {
            destination.room.is_idle(via as u32);
        }
        if destination.room_since.is_none() {
            destination.room_since = Some(now);
            self.freed[speaker.server].notify_one();
        }
    }

    /// Closed loop: whether a connection stands; one that was lost is opened again first, unless nothing
    /// is left to be asked.
    async fn stands(&self, via: usize) -> bool {
        if self.loses(via) {
            self.reconnect(&self.speakers[via]).await;
        }
        self.speakers[via].standing.borrow().is_some()
    }

    /// Whether a connection is lost, which was not known before.
    fn loses(&self, via: usize) -> bool {
        let speaker = &self.speakers[via];
        let is_lost = speaker.standing.borrow_mut().as_mut().is_some_and(Standing::is_lost);
        if is_lost {
            *speaker.standing.borrow_mut() = None;
            self.record(|recorder| {
                recorder.connections -= 1;
                recorder.gauges.losses += 1;
            });
            let address = speaker.address;
            self.run.complaints.tell(format!("lost a connection to {address}"));
        }
        is_lost
    }

    /// Open loop: whether a connection is lost, which was not known before; it is left so until it is wanted.
    fn leaves_lost(&self, via: usize) -> bool {
        let is_lost = self.loses(via);
        if is_lost {
            let server = self.speakers[via].server;
            self.destinations.borrow_mut()[server].lost.push_back(via as u32);
        }
        is_lost
    }

    /// Open loop: opens lost connections for what is due and has none; when more may be wanted.
    fn open_wanted(self: &Rc<Self>, server: usize) -> Option<Instant> {
        let now = Instant::now().saturating_duration_since(self.start);
        let (wanted, later) = self.destinations.borrow_mut()[server].open_again(now);
        for via in wanted {
            let thread = Rc::clone(self);
            spawn_local(async move { thread.open_again(via as usize).await });
        }
        later.map(|later| self.start + later)
    }

    /// Open loop: opens a connection that was lost, unless nothing is left to be asked.
    async fn open_again(&self, via: usize) {
        let speaker = &self.speakers[via];
        self.reconnect(speaker).await;
        self.destinations.borrow_mut()[speaker.server].opening -= 1;
        if speaker.standing.borrow().is_some() {
            self.has_room(via, Instant::now());
        }
    }

    /// Whether anything may still be asked of a server, also after the end.
    fn is_wanted(&self, server: usize) -> bool {
        let is_due = |server: &Destination| server.arrivals.next_due().is_some();
        self.runs.get() || self.destinations.borrow().get(server).is_some_and(is_due)
    }

    async fn reconnect(&self, speaker: &Speaker) {
        while self.is_wanted(speaker.server) {
            self.alarms.until(speaker.backoff.next()).await;
            let address = speaker.address;
            let connected = connect(address).await;
            speaker.backoff.tried(Instant::now());
            match connected {
                Ok(standing) => {
                    *speaker.standing.borrow_mut() = Some(standing);
                    return self.record(|recorder| {
                        recorder.connections += 1;
                        recorder.gauges.reconnects += 1;
                    });
                }
                Err(why) => self.run.complaints.tell(why.again_of(address)),
            }
        }
    }

    /// What a client asks next.
    fn next(&self, speaker: usize) -> Request {
        self.speakers[speaker].talk.borrow_mut().next(&self.everybody)
    }

    /// A request is on its way from now on; its number.
    fn asks(&self, request: &Request, due: Instant) -> u64 {
        let number = self.asked.get();
        self.asked.set(number + 1);
        let asked = Asked { op: request.op(), bytes: call::bytes(request), due };
        self.in_flight.borrow_mut().insert(number, asked);
        number
    }

    /// Asks on the connection of `via` what `speaker` wants to know, and counts what comes of it.
    async fn ask(&self, via: usize, speaker: usize, request: Request, number: u64) {
        let standing = self.speakers[via].standing.borrow().clone();
        let outcome = match standing {
            Some(mut standing) => call::ask(&mut standing.client, request.clone()).await,
            None => Err(Failure::Lost("its connection was lost before".into())),
        };
        let now = Instant::now();
        // Where it was given up, it is counted.
        let Some(asked) = self.in_flight.borrow_mut().remove(&number) else { return };
        match outcome {
            Ok(answer) => {
                self.speakers[via].backoff.answered();
                self.record_answer(&asked, now, Some(&answer));
                self.heard(via, speaker, &request, &answer);
            }
            Err(failure) => {
                self.record_answer(&asked, now, None);
                let (address, op) = (self.speakers[via].address, asked.op.name());
                let matter = format!("{address} {}", failure.kind_of(op));
                let message = format!("{address} {}", failure.of(op));
                self.run.complaints.tell_of(matter, &message);
            }
        }
        if !self.runs.get() && self.is_drained() {
            self.drained.notify_one();
        }
    }

    /// What a client makes of an answer.
    fn heard(&self, via: usize, speaker: usize, request: &Request, answer: &Answer) {
        let talk = &mut *self.speakers[speaker].talk.borrow_mut();
        if request.op() == Op::ListQueues {
            talk.listed(&answer.queues);
        }
        // Answers of an open loop need not come in the order in which they were asked for.
        if self.run.plan.verify
            && let Some(fault) = talk.fault(request, &answer.messages, self.is_closed())
        {
            self.record(|recorder| recorder.gauges.wrong_values += 1);
            let (address, op) = (self.speakers[via].address, request.op().name());
            let message = format!("{address} answered a {op} wrongly: {fault}");
            self.run.complaints.tell_of(message.clone(), &message);
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.run.plan.pace, Pace::Closed(_))
    }

    fn record(&self, record: impl FnOnce(&mut Recorder<Load>)) {
        if let Some(recorder) = &mut *self.recorder.borrow_mut() {
            record(recorder);
        }
    }

    /// An answer came, or none does.
    fn record_answer(&self, asked: &Asked, now: Instant, answer: Option<&Answer>) {
        let Asked { op, bytes, due } = *asked;
        let messages = answer.map_or(0, |answer| answer.messages.len() as u32);
        let looks = matches!(op, Op::ReadAll | Op::Remove) && answer.is_some();
        let sample = Sample {
            times: LoadTimes { response_ns: elapsed_ns(due, now) },
            items: if op == Op::Send { 1 } else { messages },
            hits: u32::from(looks && messages > 0),
            misses: u32::from(looks && messages == 0),
            bytes_in: answer.map_or(0, |answer| answer.bytes),
            bytes_out: bytes,
            error: answer.is_none(),
        };
        self.record(|recorder| recorder.record(op, &sample));
    }

    /// Counts a send that had an intended time: how late it was, and how much of that was this
    /// process's own fault.
    fn sent_late(&self, late_ns: u64, own_late_ns: u64) {
        self.timed_sends.set(self.timed_sends.get() + 1);
        let own = u64::from(own_late_ns > LATE_NS);
        self.own_late_sends.set(self.own_late_sends.get() + own);
        self.record(|recorder| recorder.gauges.sent(late_ns));
    }

    fn is_drained(&self) -> bool {
        let nothing_due = |server: &Destination| server.arrivals.next_due().is_none();
        self.in_flight.borrow().is_empty() && self.destinations.borrow().iter().all(nothing_due)
    }
}

#[cfg(test)]
mod tests;
