//! A discrete-event simulator of queueing networks.
//!
//! Open and closed classes of customers go their rounds through stations, some of them at several
//! stations at the same time; times have any of several distributions; queues may be finite. What
//! the solvers assume is not assumed here.
//!
//! * [`Model`]: what is simulated; [`Shape`]: how times scatter; [`Plan`]: for how long.
//!
//! * `Engine`: one replication. Every customer has at most one event ahead of it, in a heap
//!   (`Events`), so memory is bounded by how many are there at once.
//!
//! * [`Replication`]: what it observed, sums and counts that are exact whatever the estimators
//!   above make of them.

mod engine;
mod error;
mod events;
mod histogram;
mod model;
mod random;
mod shape;
mod tally;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

pub use error::Error;
pub use histogram::Histogram;
pub use model::{Class, Model, Route, Service, Source, Station, Time};
pub use shape::Shape;
pub use tally::{Replication, Rounds, Series, Visits};

use engine::Engine;
use random::Random;
use shape::is_time;

/// Customers and siblings that may be in a network at once: some 2 GB of them.
pub const CUSTOMERS_MAX: usize = 1 << 24;

/// Replications that one call may ask for.
pub const REPLICATIONS_MAX: u32 = 10_000;

/// How much is simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of all random numbers.
    pub seed: u64,
    /// The number of the first replication's stream; others follow it.
    pub first_stream: u64,
    /// How many replications, independent of each other.
    pub replications: u32,
    /// What is not observed.
    pub warmup: Length,
    /// What is observed thereafter.
    pub observed: Length,
    /// Whether response times are kept in their order.
    pub has_series: bool,
}

/// How long a part of a replication is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Until so many rounds are complete, of all classes together; not if a thousand times as many are
    /// lost, and more than a million.
    Rounds(u64),
    /// So much time.
    Time(f64),
}

/// Simulates a network several times over, on all processors. The answers are the same on any
/// number of them.
///
/// # Errors
///
/// What cannot be simulated, more requests at once or more events than are allowed, rounds of which
/// hardly any is completed, and the end before the end once `cancelled` is set.
pub fn simulate(
    model: &Model,
    plan: &Plan,
    cancelled: &AtomicBool,
) -> Result<Vec<Replication>, Error> {
    model.check()?;
    plan.check()?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let workers = processors.min(plan.replications as usize);
    let next = AtomicU32::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.replications {
                return Ok(done);
            }
            done.push((number, replicate(model, plan, number, cancelled)?));
        }
    };
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for worker in workers {
            // A panic goes on where it would have gone without threads.
            let others = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done = done.and_then(|mut done| {
                done.extend(others?);
                Ok(done)
            });
        }
        done
    });
    let mut numbered: Vec<(u32, Replication)> = done?;
    numbered.sort_unstable_by_key(|(number, _)| *number);
    Ok(numbered.into_iter().map(|(_, replication)| replication).collect())
}

fn replicate(
    model: &Model,
    plan: &Plan,
    number: u32,
    cancelled: &AtomicBool,
) -> Result<Replication, Error> {
    let random = Random::stream(plan.seed, plan.first_stream.wrapping_add(u64::from(number)));
    let mut engine = Engine::new(model, random, plan.has_series, cancelled)?;
    engine.run(plan.warmup)?;
    engine.begin();
    engine.run(plan.observed)?;
    Ok(engine.end())
}

impl Plan {
    fn check(&self) -> Result<(), Error> {
        if !(1..=REPLICATIONS_MAX).contains(&self.replications) {
            return Err(Error::Argument { name: "replications", problem: "expected 1 to 10,000" });
        }
        let is_right = |length| match length {
            Length::Rounds(_) => true,
            Length::Time(time) => is_time(time),
        };
        if !is_right(self.warmup) || !is_right(self.observed) {
            return Err(Error::Argument {
                name: "warmup, observed",
                problem: "expected finite times from 0",
            });
        }
        match self.observed {
            Length::Rounds(0) | Length::Time(0.0) => {
                Err(Error::Argument { name: "observed", problem: "expected more than nothing" })
            }
            _ => Ok(()),
        }
    }
}
