//! A simulator of layered networks. A request holds a slot while threads behind it work. The threads of a host share
//! its cores.
//!
//! A customer thinks and passes the outside stage. It waits for a slot of its pool, and holds it through the inside
//! stage. A stage is work at the threads of some tiers, in order, and then a pause. A thread serves first come, first
//! served. The active threads of a host share its cores equally, each at most one core.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::Error;
use super::events::Events;
use super::histogram::Histogram;
use super::limits::{CUSTOMERS_MAX, EVENTS_MAX, REPLICATIONS_MAX};
use super::model::Time;
use super::random::Random;
use super::replicated;
use super::shape::Shape;

/// The largest number of threads in a tier, and of slots in all pools.
const THREADS_MAX: usize = 1 << 20;
/// Number of events between two looks at `cancelled`.
const LOOK_EVERY: u64 = 1 << 16;

/// Equal threads that share the requests.
#[derive(Clone, Debug)]
pub struct Tier {
    /// The host of its threads.
    pub host: usize,
    /// Their number.
    pub threads: usize,
    /// The mean processor time of a request.
    pub work: f64,
    /// The additional time if the thread was asleep.
    pub wakeup: f64,
    /// Whether each slot has its own thread.
    pub by_slot: bool,
}

/// A part of a request's way.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The pause after the work. `stretch` − 1 times the residence at the threads is added to it.
    pub delay: f64,
    /// The stage's time without `delay`, divided by its residence at the threads.
    pub stretch: f64,
    /// By tier: the share of `work` and `wakeup` that the stage needs.
    pub shares: Vec<f64>,
}

/// A layered network.
#[derive(Clone, Debug)]
pub struct Layered {
    /// The cores of each host.
    pub cores: Vec<f64>,
    /// The tiers.
    pub tiers: Vec<Tier>,
    /// The stage without a slot.
    pub outside: Stage,
    /// The stage with a slot.
    pub inside: Stage,
    /// Think times.
    pub think: Time,
    /// The distribution of all processor times.
    pub work: Shape,
    /// The number of customers.
    pub customers: usize,
    /// The number of pools, which share the customers.
    pub pools: usize,
    /// The slots of each pool; 0 if requests need none.
    pub slots: usize,
}

/// The observations of one replication after its warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The observed time.
    pub duration: f64,
    /// Number of requests that were answered.
    pub completed: u64,
    /// Σ of their response times.
    pub response: f64,
    /// Σ of their waits for a slot.
    pub waiting: f64,
    /// Σ of the times with a slot.
    pub inside: f64,
    /// By tier: ∫ active threads dt.
    pub active: Vec<f64>,
    /// By host: ∫ busy cores dt.
    pub cores: Vec<f64>,
    /// The response times.
    pub histogram: Histogram,
}

impl Layered {
    fn check(&self) -> Result<(), Error> {
        let time = |time: f64| time.is_finite() && time >= 0.0;
        let stage = |stage: &Stage| {
            let shares = stage.shares.len() == self.tiers.len();
            shares
                && time(stage.delay)
                && time(stage.stretch)
                && stage.shares.iter().all(|&s| time(s))
        };
        let tier = |tier: &Tier| {
            let threads = if tier.by_slot { self.pools * self.slots } else { tier.threads };
            tier.host < self.cores.len()
                && (1..=THREADS_MAX).contains(&threads)
                && (tier.work > 0.0 && time(tier.work) && time(tier.wakeup))
        };
        let problem = if !self.cores.iter().all(|&cores| cores > 0.0 && cores.is_finite()) {
            ("cores", "expected numbers above 0")
        } else if !(1..=CUSTOMERS_MAX).contains(&self.customers) {
            ("customers", "out of range")
        } else if self.pools == 0 || self.pools.saturating_mul(self.slots) > THREADS_MAX {
            ("slots", "out of range")
        } else if self.tiers.is_empty() || !self.tiers.iter().all(tier) {
            ("tiers", "out of range")
        } else if !stage(&self.outside) || !stage(&self.inside) || !time(self.think.mean) {
            ("stages", "out of range")
        } else {
            self.think.shape.check()?;
            return self.work.check();
        };
        Err(Error::Argument { name: problem.0, problem: problem.1 })
    }
}

/// Simulates a layered network several times, on all processors.
///
/// # Errors
///
/// When the network is invalid, a replication takes too many events, or `cancelled` is set.
pub fn simulate_layered(
    network: &Layered,
    seed: u64,
    replications: u32,
    warmup: u64,
    rounds: u64,
    cancelled: &AtomicBool,
) -> Result<Vec<Observed>, Error> {
    network.check()?;
    if !(1..=REPLICATIONS_MAX).contains(&replications) || rounds == 0 {
        return Err(Error::Argument { name: "replications, rounds", problem: "out of range" });
    }
    replicated(replications, |number| {
        let random = Random::stream(seed, u64::from(number));
        let mut simulation = Simulation::new(network, random, cancelled);
        simulation.run(warmup)?;
        simulation.begin();
        simulation.run(rounds)?;
        Ok(simulation.end())
    })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Its share of a tier's work.
    Work {
        tier: usize,
        share: f64,
    },
    /// The pause at the end of a stage.
    Pause {
        delay: f64,
        more: f64,
    },
    Take,
    Give,
}

#[derive(Clone, Debug, Default)]
struct Customer {
    step: usize,
    began: f64,
    /// When its present stage began.
    entered: f64,
    waited: f64,
    held: f64,
    slot: usize,
    /// Whether it has its slot straight from another customer, so that the slot's thread is awake.
    is_next: bool,
    /// The processor time that it needs from its thread.
    amount: f64,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    free: Vec<usize>,
    queue: VecDeque<u32>,
}

/// The cores of a host. `served` is the processor time that each active thread has had since the beginning.
#[derive(Clone, Debug)]
struct Host {
    cores: f64,
    served: f64,
    at: f64,
    active: usize,
    busy: f64,
    /// When the first request of each active thread is done, on the scale of `served`.
    done: Events,
}

impl Host {
    fn rate(&self) -> f64 {
        (self.cores / self.active as f64).min(1.0)
    }

    fn next_time(&self) -> f64 {
        let next = self.done.next_time();
        if next.is_finite() { self.at + (next - self.served).max(0.0) / self.rate() } else { next }
    }

    fn advance(&mut self, now: f64) {
        if self.active > 0 {
            let passed = now - self.at;
            self.served += passed * self.rate();
            self.busy += passed * self.cores.min(self.active as f64);
        }
        self.at = now;
    }
}

struct Simulation<'a> {
    network: &'a Layered,
    steps: Vec<Step>,
    random: Random,
    cancelled: &'a AtomicBool,
    now: f64,
    events: u64,
    customers: Vec<Customer>,
    pools: Vec<Pool>,
    hosts: Vec<Host>,
    /// The first thread of each tier, and the tier of each thread.
    first: Vec<usize>,
    tier_of: Vec<usize>,
    queues: Vec<VecDeque<u32>>,
    /// By tier: active threads, and the time up to which their integral is computed.
    active: Vec<(usize, f64)>,
    /// Ends of think times and pauses.
    timers: Events,
    began: f64,
    observed: Observed,
}

impl<'a> Simulation<'a> {
    fn new(network: &'a Layered, random: Random, cancelled: &'a AtomicBool) -> Simulation<'a> {
        let (mut first, mut tier_of) = (Vec::new(), Vec::new());
        for (number, tier) in network.tiers.iter().enumerate() {
            let threads = if tier.by_slot { network.pools * network.slots } else { tier.threads };
            first.push(tier_of.len());
            tier_of.resize(tier_of.len() + threads, number);
        }
        let host = |&cores: &f64| Host {
            cores,
            served: 0.0,
            at: 0.0,
            active: 0,
            busy: 0.0,
            done: Events::default(),
        };
        let pool = Pool { free: (0..network.slots).collect(), queue: VecDeque::new() };
        let mut simulation = Simulation {
            network,
            steps: steps(network),
            random,
            cancelled,
            now: 0.0,
            events: 0,
            customers: vec![Customer::default(); network.customers],
            pools: vec![pool; network.pools],
            hosts: network.cores.iter().map(host).collect(),
            queues: vec![VecDeque::new(); tier_of.len()],
            first,
            tier_of,
            active: vec![(0, 0.0); network.tiers.len()],
            timers: Events::default(),
            began: 0.0,
            observed: Observed::default(),
        };
        for customer in 0..network.customers {
            simulation.think(customer as u32);
        }
        simulation
    }

    fn think(&mut self, customer: u32) {
        let time = self.network.think.mean * self.network.think.shape.draw(&mut self.random);
        self.customers[customer as usize] =
            Customer { began: self.now + time, entered: self.now + time, ..Customer::default() };
        self.timers.push(self.now + time, customer);
    }

    /// Runs until this number of requests is complete.
    fn run(&mut self, rounds: u64) -> Result<(), Error> {
        let target = self.observed.completed + rounds;
        while self.observed.completed < target {
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(Error::Endless);
            }
            if self.events.is_multiple_of(LOOK_EVERY) && self.cancelled.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let (mut next, mut host) = (self.timers.next_time(), None);
            for (number, each) in self.hosts.iter().enumerate() {
                let time = each.next_time();
                if time < next {
                    (next, host) = (time, Some(number));
                }
            }
            self.now = self.now.max(next);
            match host {
                Some(host) => self.complete(host),
                None => {
                    if let Some((_, customer)) = self.timers.pop() {
                        self.proceed(customer);
                    }
                }
            }
        }
        Ok(())
    }

    /// The thread of a host that finishes first passes its request on. It then serves its next request.
    fn complete(&mut self, host: usize) {
        self.hosts[host].advance(self.now);
        let Some((_, thread)) = self.hosts[host].done.pop() else { return };
        let thread = thread as usize;
        let customer = self.queues[thread].pop_front();
        match self.queues[thread].front() {
            Some(&next) => self.serve(host, thread, next),
            None => self.switch(host, self.tier_of[thread], false),
        }
        if let Some(customer) = customer {
            self.proceed(customer);
        }
    }

    fn serve(&mut self, host: usize, thread: usize, customer: u32) {
        let host = &mut self.hosts[host];
        host.done.push(host.served + self.customers[customer as usize].amount, thread as u32);
    }

    /// A thread of a tier becomes active or falls asleep.
    fn switch(&mut self, host: usize, tier: usize, on: bool) {
        let (active, since) = &mut self.active[tier];
        self.observed.active.resize(self.network.tiers.len(), 0.0);
        self.observed.active[tier] += *active as f64 * (self.now - *since);
        *since = self.now;
        let change = |count: usize| if on { count + 1 } else { count - 1 };
        *active = change(*active);
        self.hosts[host].active = change(self.hosts[host].active);
    }

    /// A customer takes its next steps, until it has to wait.
    fn proceed(&mut self, number: u32) {
        loop {
            let customer = &mut self.customers[number as usize];
            let Some(&step) = self.steps.get(customer.step) else { break };
            customer.step += 1;
            match step {
                Step::Work { tier, share } => return self.work(number, tier, share),
                Step::Pause { delay, more } => {
                    let pause = delay + more * (self.now - customer.entered);
                    if pause > 0.0 {
                        return self.timers.push(self.now + pause, number);
                    }
                }
                Step::Take => {
                    customer.entered = self.now;
                    let pool = &mut self.pools[number as usize % self.network.pools];
                    match pool.free.pop() {
                        Some(slot) => customer.slot = slot,
                        None if self.network.slots > 0 => return pool.queue.push_back(number),
                        None => {}
                    }
                }
                Step::Give => {
                    customer.held = self.now - customer.entered;
                    let slot = customer.slot;
                    let pool = &mut self.pools[number as usize % self.network.pools];
                    if let Some(next) = pool.queue.pop_front() {
                        let taker = &mut self.customers[next as usize];
                        taker.slot = slot;
                        taker.is_next = true;
                        taker.waited = self.now - taker.entered;
                        taker.entered = self.now;
                        self.timers.push(self.now, next);
                    } else if self.network.slots > 0 {
                        pool.free.push(slot);
                    }
                }
            }
        }
        let customer = &self.customers[number as usize];
        self.observed.completed += 1;
        self.observed.response += self.now - customer.began;
        self.observed.waiting += customer.waited;
        self.observed.inside += customer.held;
        self.observed.histogram.record(self.now - customer.began);
        self.think(number);
    }

    fn work(&mut self, number: u32, tier: usize, share: f64) {
        let network = self.network;
        let own = &network.tiers[tier];
        let customer = number as usize;
        let index = if own.by_slot {
            customer % network.pools * network.slots + self.customers[customer].slot
        } else if network.outside.shares[tier] > 0.0 {
            customer % own.threads
        } else {
            self.random.below(own.threads)
        };
        let thread = self.first[tier] + index;
        let idle = self.queues[thread].is_empty();
        let asleep = idle && !(own.by_slot && self.customers[customer].is_next);
        let mean = share * (own.work + if asleep { own.wakeup } else { 0.0 });
        self.customers[customer].amount = mean * network.work.draw(&mut self.random);
        self.queues[thread].push_back(number);
        if idle {
            self.hosts[own.host].advance(self.now);
            self.switch(own.host, tier, true);
            self.serve(own.host, thread, number);
        }
    }

    /// Ends the warm-up.
    fn begin(&mut self) {
        self.settle();
        self.observed =
            Observed { active: vec![0.0; self.network.tiers.len()], ..Observed::default() };
        self.hosts.iter_mut().for_each(|host| host.busy = 0.0);
        self.began = self.now;
    }

    fn end(mut self) -> Observed {
        self.settle();
        self.observed.duration = self.now - self.began;
        self.observed.cores = self.hosts.iter().map(|host| host.busy).collect();
        self.observed
    }

    /// Brings all integrals up to now.
    fn settle(&mut self) {
        self.observed.active.resize(self.network.tiers.len(), 0.0);
        for ((active, since), sum) in self.active.iter_mut().zip(&mut self.observed.active) {
            *sum += *active as f64 * (self.now - *since);
            *since = self.now;
        }
        self.hosts.iter_mut().for_each(|host| host.advance(self.now));
    }
}

fn steps(network: &Layered) -> Vec<Step> {
    let stage = |stage: &Stage| {
        let shares = stage.shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
        let work = shares.map(|(tier, &share)| Step::Work { tier, share });
        let pause = Step::Pause { delay: stage.delay, more: stage.stretch - 1.0 };
        work.chain([pause]).collect::<Vec<_>>()
    };
    let mut steps = stage(&network.outside);
    steps.push(Step::Take);
    steps.extend(stage(&network.inside));
    steps.push(Step::Give);
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network() -> impl Strategy<Value = Layered> {
        let tier = (0..2_usize, 1..4_usize, 0.01..1.0_f64, 0.0..0.5_f64);
        let stage = || (0.0..1.0_f64, 0.5..2.0_f64, prop::collection::vec(0.0..1.0_f64, 2));
        let slots = (1..3_usize, 0..3_usize, any::<bool>());
        let sizes = (prop::collection::vec(0.5..3.0_f64, 2), 1..20_usize, 0.0..5.0_f64);
        (prop::collection::vec(tier, 2), stage(), stage(), slots, sizes).prop_map(
            |(tiers, outside, inside, (pools, slots, by_slot), (cores, customers, think))| {
                let stage = |(delay, stretch, shares)| Stage { delay, stretch, shares };
                let mut tiers: Vec<_> = tiers
                    .into_iter()
                    .map(|(host, threads, work, wakeup)| Tier {
                        host,
                        threads,
                        work,
                        wakeup,
                        by_slot: false,
                    })
                    .collect();
                tiers[1].by_slot = by_slot && slots > 0;
                let (mut outside, inside) = (stage(outside), stage(inside));
                if tiers[1].by_slot {
                    outside.shares[1] = 0.0;
                }
                let think = Time { mean: think, shape: Shape::Exponential };
                let work = Shape::Exponential;
                Layered { cores, tiers, outside, inside, think, work, customers, pools, slots }
            },
        )
    }

    #[test]
    fn thread_of_a_slot_stays_awake_while_requests_wait() {
        let stage = |share| Stage { delay: 0.0, stretch: 1.0, shares: vec![share] };
        let mut network = Layered {
            cores: vec![1.0],
            tiers: vec![Tier { host: 0, threads: 1, work: 1.0, wakeup: 0.5, by_slot: true }],
            outside: stage(0.0),
            inside: stage(1.0),
            think: Time { mean: 0.0, shape: Shape::Exponential },
            work: Shape::Deterministic,
            customers: 3,
            pools: 1,
            slots: 1,
        };
        let rate = |network: &Layered| {
            let found = simulate_layered(network, 1, 1, 10, 1000, &AtomicBool::new(false))
                .expect("a right network");
            found[0].completed as f64 / found[0].duration
        };
        assert!((rate(&network) - 1.0).abs() < 1e-9);
        network.customers = 1;
        assert!((rate(&network) - 1.0 / 1.5).abs() < 1e-9);
    }

    proptest! {
        /// Little's law for the slots, and threads and cores that do no more than they can.
        #[test]
        fn counts_agree_in_any_network(network in network(), seed: u64) {
            let found = simulate_layered(&network, seed, 2, 50, 500, &AtomicBool::new(false));
            for observed in found.expect("a right network") {
                prop_assert_eq!(observed.completed, 500);
                let counted: f64 = observed.histogram.buckets().map(|[_, _, count]| count).sum();
                prop_assert_eq!(counted, 500.0);
                prop_assert!(observed.waiting + observed.inside <= observed.response * (1.0 + 1e-9));
                for (tier, active) in network.tiers.iter().zip(&observed.active) {
                    let threads = if tier.by_slot { network.pools * network.slots } else { tier.threads };
                    prop_assert!(*active <= threads as f64 * observed.duration * (1.0 + 1e-9));
                }
                for (host, (cores, busy)) in network.cores.iter().zip(&observed.cores).enumerate() {
                    let active: f64 = network
                        .tiers
                        .iter()
                        .zip(&observed.active)
                        .filter(|(tier, _)| tier.host == host)
                        .map(|(_, active)| active)
                        .sum();
                    prop_assert!(*busy <= active.min(cores * observed.duration) * (1.0 + 1e-9) + 1e-9);
                }
                // A request in progress at the beginning counts with its whole time, and at the end not
                // at all.
                if network.slots > 0 {
                    let slots = (network.pools * network.slots) as f64;
                    let first = network.customers as f64 * observed.inside / 500.0;
                    prop_assert!(observed.inside <= slots * observed.duration + 20.0 * first + 1e-9);
                }
            }
        }
    }
}
