//! One replication: customers, and the events that move them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::Error;
use super::events::Events;
use super::limits::{CUSTOMERS_MAX, EVENTS_MAX};
use super::model::{Model, Service, Source};
use super::plan::Length;
use super::random::Random;
use super::tally::{Replication, Rounds, Series, Visits};

/// No token.
const NONE: u32 = u32::MAX;

/// The number of events between checks of `cancelled`.
const EVENTS_BETWEEN_LOOKS: u32 = 4096;

/// The lost rounds that are allowed for each requested round. A network that loses more would run for hours.
const LOST_PER_ROUND: u64 = 1000;
/// The lost rounds that are always allowed, so that a slow start is no error.
const LOST_ANYWAY: u64 = 1_000_000;

/// A customer, one of the siblings into which a customer forked, or the source of an open class. Every token has at
/// most one future event.
#[derive(Clone, Debug)]
struct Token {
    whereabouts: Whereabouts,
    class: u32,
    /// The position on the route of the class.
    position: u32,
    /// The next token in the queue of a station, or in the list of free tokens.
    next: u32,
    /// The customer that waits for this sibling.
    parent: u32,
    /// The number of siblings that this customer waits for.
    pending: u32,
    /// Whether a station refused a sibling of this customer.
    is_lost: bool,
    /// When the token came to its station.
    came: f64,
    began: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Whereabouts {
    /// The token is unused.
    Free,
    /// The token's event is the next arrival.
    Source,
    Thinking,
    /// The customer waits outside for a place at a station.
    Blocked,
    /// The customer waits for its siblings.
    Forked,
    At(u32),
}

/// The customers at a station.
#[derive(Clone, Debug)]
struct Line {
    present: u32,
    /// The first customer of the queue. At varying speeds, this customer is in service.
    first: u32,
    /// The last customer of each level in the queue. Levels are in order, and each in the order of arrival.
    lasts: Vec<u32>,
    /// Customers that wait elsewhere for a place here, in their order.
    blocked: VecDeque<u32>,
    /// ∫ busy servers dt.
    busy: f64,
    /// The time up to which `busy`, `work` and `attained` are computed.
    changed: f64,
    /// At varying speeds: the remaining time of the current service, at speed 1.
    work: f64,
    /// With processor sharing: the service that a customer has got that was there since the station was last empty.
    /// All customers get equal service, so each leaves once `attained` is this at its arrival plus its service time.
    attained: f64,
    /// With processor sharing: the customers, by `attained` at their departure.
    sharing: Events,
    /// At varying speeds and with processor sharing: when the next service ends, if no customer arrives.
    done: f64,
}

/// The state of one replication.
pub(super) struct Engine<'a> {
    model: &'a Model,
    cancelled: &'a AtomicBool,
    random: Random,
    events: Events,
    now: f64,
    tokens: Vec<Token>,
    free: u32,
    lines: Vec<Line>,
    has_blocking: bool,
    /// Stations with varying speeds or processor sharing. Each arrival and departure moves their next event, so `lines`
    /// has this event, not `events`.
    moving: Vec<usize>,
    /// The next end of service at these stations, and its station.
    soonest: (f64, usize),
    rounds: Vec<Rounds>,
    visits: Vec<Visits>,
    began: f64,
    completed: u64,
    lost: u64,
    series: Option<Series>,
}

impl<'a> Engine<'a> {
    /// The network at time 0: closed customers think, and all stations are empty.
    pub(super) fn new(
        model: &'a Model,
        random: Random,
        has_series: bool,
        cancelled: &'a AtomicBool,
    ) -> Result<Engine<'a>, Error> {
        let line = Line {
            present: 0,
            first: NONE,
            lasts: vec![NONE],
            blocked: VecDeque::new(),
            busy: 0.0,
            changed: 0.0,
            work: 0.0,
            attained: 0.0,
            sharing: Events::default(),
            done: f64::INFINITY,
        };
        let is_moving = |&station: &usize| {
            matches!(model.stations[station].service, Service::Varying(_) | Service::Sharing(_))
        };
        let mut engine = Engine {
            model,
            cancelled,
            random,
            events: Events::default(),
            now: 0.0,
            tokens: Vec::new(),
            free: NONE,
            lines: vec![line; model.stations.len()],
            has_blocking: model.stations.iter().any(|station| station.is_blocking),
            moving: (0..model.stations.len()).filter(is_moving).collect(),
            soonest: (f64::INFINITY, 0),
            rounds: vec![Rounds::default(); model.classes.len()],
            visits: vec![Visits::default(); model.stations.len() * model.classes.len()],
            began: 0.0,
            completed: 0,
            lost: 0,
            series: has_series.then(Series::new),
        };
        for (line, station) in engine.lines.iter_mut().zip(&model.stations) {
            let most = station.levels.iter().max().map_or(0, |&level| level as usize);
            line.lasts = vec![NONE; most + 1];
        }
        for (class, customers) in model.classes.iter().enumerate() {
            let (count, whereabouts, time) = match &customers.source {
                Source::Closed { population, think } => (*population, Whereabouts::Thinking, think),
                Source::Open { between } => (1, Whereabouts::Source, between),
            };
            for _ in 0..count {
                let token = engine.new_token(class as u32, whereabouts)?;
                let at = time.draw_rest(&mut engine.random);
                engine.events.push(at, token);
            }
        }
        Ok(engine)
    }

    pub(super) fn run(&mut self, length: Length) -> Result<(), Error> {
        match length {
            Length::Rounds(rounds) => {
                let enough = self.completed.saturating_add(rounds);
                let lost_max = rounds.saturating_mul(LOST_PER_ROUND).max(LOST_ANYWAY);
                self.run_while(|engine| engine.completed < enough, lost_max)
            }
            Length::Time(time) => {
                let until = self.now + time;
                self.run_while(|engine| engine.next_time() <= until, u64::MAX)?;
                self.now = until;
                Ok(())
            }
        }
    }

    fn run_while(&mut self, goes_on: impl Fn(&Self) -> bool, lost_max: u64) -> Result<(), Error> {
        let (completed_before, lost_before) = (self.completed, self.lost);
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if self.events.scheduled() > EVENTS_MAX {
                return Err(Error::Endless);
            }
            let lost = self.lost - lost_before;
            if lost > lost_max {
                return Err(Error::Lost { lost, completed: self.completed - completed_before });
            }
            for _ in 0..EVENTS_BETWEEN_LOOKS {
                if !goes_on(self) {
                    return Ok(());
                }
                self.step()?;
            }
        }
    }

    /// Ends the warm-up: drops all observations.
    pub(super) fn begin(&mut self) {
        self.began = self.now;
        self.rounds.fill(Rounds::default());
        for visits in &mut self.visits {
            visits.begin(self.now);
        }
        for station in 0..self.lines.len() {
            self.settle(station);
            self.lines[station].busy = 0.0;
        }
    }

    /// The observations since `begin`.
    pub(super) fn end(mut self) -> Replication {
        for station in 0..self.lines.len() {
            self.settle(station);
        }
        for visits in &mut self.visits {
            visits.settle(self.now);
        }
        Replication {
            duration: self.now - self.began,
            rounds: self.rounds,
            visits: self.visits,
            busy: self.lines.into_iter().map(|line| line.busy).collect(),
            series: self.series,
        }
    }

    #[inline]
    fn next_time(&self) -> f64 {
        self.events.next_time().min(self.soonest.0)
    }

    /// Simulates the next event.
    #[inline]
    fn step(&mut self) -> Result<(), Error> {
        if self.soonest.0 <= self.events.next_time() && self.soonest.0 < f64::INFINITY {
            let (time, station) = self.soonest;
            self.now = time;
            let line = &mut self.lines[station];
            let token = line.sharing.pop().map_or(line.first, |(_, token)| token);
            return self.leave(station, token);
        }
        let Some((time, token)) = self.events.pop() else {
            return Err(Error::Argument {
                name: "classes",
                problem: "expected customers, or arrivals",
            });
        };
        self.now = time;
        match self.tokens[token as usize].whereabouts {
            Whereabouts::At(station) => self.leave(station as usize, token),
            Whereabouts::Source => self.arrive(token),
            Whereabouts::Thinking => self.begin_round(token),
            Whereabouts::Free | Whereabouts::Forked | Whereabouts::Blocked => {
                unreachable!("such a token has no event")
            }
        }
    }

    /// A new customer of an open class arrives.
    fn arrive(&mut self, source: u32) -> Result<(), Error> {
        let class = self.tokens[source as usize].class;
        if let Source::Open { between } = &self.model.classes[class as usize].source {
            let next = self.now + between.draw(&mut self.random);
            self.events.push(next, source);
        }
        let customer = self.new_token(class, Whereabouts::Thinking)?;
        self.begin_round(customer)
    }

    fn begin_round(&mut self, customer: u32) -> Result<(), Error> {
        let token = &mut self.tokens[customer as usize];
        token.began = self.now;
        self.rounds[token.class as usize].begun += 1;
        self.go_on(customer)
    }

    /// The customer goes to the next step of its round, or completes the round.
    fn go_on(&mut self, customer: u32) -> Result<(), Error> {
        let stations = self.next_stations(customer);
        self.go_to(stations, customer)
    }

    /// The stations of the next step; none if the round is complete.
    #[inline]
    fn next_stations(&mut self, customer: u32) -> &'a [usize] {
        let model = self.model;
        let token = &mut self.tokens[customer as usize];
        let route = &model.classes[token.class as usize].route;
        loop {
            token.position = route.next(token.position, &mut self.random);
            if token.position == 0 {
                return &[];
            }
            let stations = model.steps[route.step(token.position)].as_slice();
            if !stations.is_empty() {
                return stations;
            }
        }
    }

    fn go_to(&mut self, stations: &[usize], customer: u32) -> Result<(), Error> {
        let has_place = match stations {
            [] => {
                self.complete(customer);
                return Ok(());
            }
            &[station] if self.blocks(station) => {
                self.tokens[customer as usize].whereabouts = Whereabouts::Blocked;
                self.lines[station].blocked.push_back(customer);
                return Ok(());
            }
            &[station] => self.enter(station, customer),
            stations => self.fork(stations, customer)?,
        };
        if !has_place {
            self.lose(customer);
        }
        Ok(())
    }

    /// Sends a sibling to each of these stations. Returns false if all stations refuse. If only some refuse, the other
    /// siblings are served, and then the round is lost.
    fn fork(&mut self, stations: &[usize], customer: u32) -> Result<bool, Error> {
        let class = self.tokens[customer as usize].class;
        let (mut pending, mut is_lost) = (0, false);
        for &station in stations {
            let sibling = self.new_token(class, Whereabouts::Free)?;
            if self.enter(station, sibling) {
                self.tokens[sibling as usize].parent = customer;
                pending += 1;
            } else {
                self.release(sibling);
                is_lost = true;
            }
        }
        let token = &mut self.tokens[customer as usize];
        (token.whereabouts, token.pending, token.is_lost) = (Whereabouts::Forked, pending, is_lost);
        Ok(pending > 0)
    }

    /// A sibling is done. After the last sibling, the customer continues.
    fn join(&mut self, sibling: u32) -> Result<(), Error> {
        let customer = self.tokens[sibling as usize].parent;
        self.release(sibling);
        let token = &mut self.tokens[customer as usize];
        token.pending -= 1;
        if token.pending > 0 {
            return Ok(());
        }
        if token.is_lost {
            self.lose(customer);
            return Ok(());
        }
        self.go_on(customer)
    }

    fn complete(&mut self, customer: u32) {
        let token = &self.tokens[customer as usize];
        let response = self.now - token.began;
        let rounds = &mut self.rounds[token.class as usize];
        rounds.completed += 1;
        rounds.response += response;
        rounds.histogram.record(response);
        self.completed += 1;
        if let Some(series) = &mut self.series {
            series.record(self.now, response);
        }
        self.go_out(customer);
    }

    fn lose(&mut self, customer: u32) {
        let class = self.tokens[customer as usize].class;
        self.rounds[class as usize].lost += 1;
        self.lost += 1;
        self.go_out(customer);
    }

    /// After a round, a customer of a closed class thinks, and one of an open class leaves.
    fn go_out(&mut self, customer: u32) {
        let token = &mut self.tokens[customer as usize];
        let Source::Closed { think, .. } = &self.model.classes[token.class as usize].source else {
            return self.release(customer);
        };
        (token.whereabouts, token.position) = (Whereabouts::Thinking, 0);
        let until = self.now + think.draw(&mut self.random);
        self.events.push(until, customer);
    }

    /// A customer comes to a station. Returns false if the station refuses it.
    #[inline]
    fn enter(&mut self, station: usize, customer: u32) -> bool {
        let place = &self.model.stations[station];
        let token = &mut self.tokens[customer as usize];
        let visits = &mut self.visits[station * self.model.classes.len() + token.class as usize];
        if self.lines[station].present >= place.places {
            visits.refused += 1;
            return false;
        }
        visits.settle(self.now);
        visits.came += 1;
        visits.present += 1;
        token.came = self.now;
        token.whereabouts = Whereabouts::At(station as u32);

        self.settle(station);
        self.lines[station].present += 1;
        match place.service {
            Service::Delay => self.serve(station, customer),
            Service::Servers(servers) if self.lines[station].present <= servers => {
                self.serve(station, customer);
            }
            Service::Servers(_) => self.queue(station, customer),
            Service::Sharing(_) => {
                let service = self.service_time(station, customer);
                let line = &mut self.lines[station];
                line.sharing.push(line.attained + service, customer);
                self.set_clock(station);
            }
            Service::Varying(_) => {
                self.queue(station, customer);
                if self.lines[station].first == customer {
                    self.lines[station].work = self.service_time(station, customer);
                }
                self.set_clock(station);
            }
        }
        true
    }

    #[inline]
    fn leave(&mut self, station: usize, customer: u32) -> Result<(), Error> {
        if self.has_blocking {
            return self.leave_for_a_place(station, customer);
        }
        let parent = self.tokens[customer as usize].parent;
        self.depart(station, customer);
        if parent == NONE { self.go_on(customer) } else { self.join(customer) }
    }

    /// A customer leaves a station, and the next customer's service begins.
    #[inline]
    fn depart(&mut self, station: usize, customer: u32) {
        let token = &self.tokens[customer as usize];
        let stay = self.now - token.came;
        let visits = &mut self.visits[station * self.model.classes.len() + token.class as usize];
        visits.settle(self.now);
        visits.went += 1;
        visits.present -= 1;
        visits.stay += stay;

        self.settle(station);
        self.lines[station].present -= 1;
        match self.model.stations[station].service {
            Service::Delay => {}
            Service::Servers(_) => {
                if self.lines[station].first != NONE {
                    let next = self.unqueue(station);
                    self.serve(station, next);
                }
            }
            Service::Sharing(_) => {
                if self.lines[station].present == 0 {
                    self.lines[station].attained = 0.0;
                }
                self.set_clock(station);
            }
            Service::Varying(_) => {
                self.unqueue(station);
                let next = self.lines[station].first;
                if next != NONE {
                    self.lines[station].work = self.service_time(station, next);
                }
                self.set_clock(station);
            }
        }
    }

    #[inline]
    fn service_time(&mut self, station: usize, customer: u32) -> f64 {
        let class = self.tokens[customer as usize].class as usize;
        self.model.classes[class].service[station].draw(&mut self.random)
    }

    #[inline]
    fn serve(&mut self, station: usize, customer: u32) {
        let until = self.now + self.service_time(station, customer);
        self.events.push(until, customer);
    }

    /// Adds a customer to the queue, after the customers of its level.
    #[inline]
    fn queue(&mut self, station: usize, customer: u32) {
        let level = self.model.stations[station].level(self.tokens[customer as usize].class);
        let line = &mut self.lines[station];
        let before = line.lasts[..=level].iter().rev().find(|&&last| last != NONE).copied();
        line.lasts[level] = customer;
        let place = match before {
            Some(before) => &mut self.tokens[before as usize].next,
            None => &mut line.first,
        };
        self.tokens[customer as usize].next = std::mem::replace(place, customer);
    }

    #[inline]
    fn unqueue(&mut self, station: usize) -> u32 {
        let line = &mut self.lines[station];
        let first = line.first;
        let token = &self.tokens[first as usize];
        line.first = token.next;
        let last = &mut line.lasts[self.model.stations[station].level(token.class)];
        if *last == first {
            *last = NONE;
        }
        first
    }

    /// Updates `busy`, `work` and `attained` of a station up to now.
    #[inline]
    fn settle(&mut self, station: usize) {
        let line = &mut self.lines[station];
        let passed = self.now - line.changed;
        line.changed = self.now;
        match &self.model.stations[station].service {
            Service::Delay => {}
            Service::Servers(servers) => {
                line.busy += f64::from(line.present.min(*servers)) * passed
            }
            Service::Varying(_) | Service::Sharing(_) if line.present == 0 => {}
            Service::Sharing(servers) => {
                let busy = f64::from(line.present.min(*servers)) * passed;
                line.busy += busy;
                line.attained += busy / f64::from(line.present);
            }
            Service::Varying(speeds) => {
                line.busy += passed;
                line.work -= passed * speed(speeds, line.present);
            }
        }
    }

    /// Computes the end of the next service anew, after a change of the speed.
    fn set_clock(&mut self, station: usize) {
        let line = &mut self.lines[station];
        line.done = match &self.model.stations[station].service {
            Service::Varying(speeds) if line.present > 0 => {
                self.now + line.work.max(0.0) / speed(speeds, line.present)
            }
            Service::Sharing(servers) if line.present > 0 => {
                let share = f64::from(line.present.min(*servers)) / f64::from(line.present);
                self.now + (line.sharing.next_time() - line.attained).max(0.0) / share
            }
            _ => f64::INFINITY,
        };
        self.soonest = (f64::INFINITY, 0);
        for &station in &self.moving {
            if self.lines[station].done < self.soonest.0 {
                self.soonest = (self.lines[station].done, station);
            }
        }
    }

    fn new_token(&mut self, class: u32, whereabouts: Whereabouts) -> Result<u32, Error> {
        let token = Token {
            whereabouts,
            class,
            position: 0,
            next: NONE,
            parent: NONE,
            pending: 0,
            is_lost: false,
            came: self.now,
            began: self.now,
        };
        if self.free != NONE {
            let reused = self.free;
            let place = &mut self.tokens[reused as usize];
            self.free = place.next;
            *place = token;
            return Ok(reused);
        }
        if self.tokens.len() == CUSTOMERS_MAX {
            return Err(Error::Crowded);
        }
        self.tokens.push(token);
        Ok(self.tokens.len() as u32 - 1)
    }

    fn release(&mut self, token: u32) {
        let place = &mut self.tokens[token as usize];
        (place.whereabouts, place.next) = (Whereabouts::Free, self.free);
        self.free = token;
    }
}

/// The speed with this number of present customers, 1 or more.
fn speed(speeds: &[f64], present: u32) -> f64 {
    speeds[(present as usize).min(speeds.len()) - 1]
}

mod blocking;
#[cfg(test)]
mod tests;
