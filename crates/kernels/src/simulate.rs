//! A discrete-event simulator of queueing networks.
//!
//! Customers of open and closed classes visit stations, or several stations in parallel. Times have one of several
//! distributions; queues may be finite. The simulator needs none of the solvers' assumptions.
//!
//! * [`Model`]: the network. [`Shape`]: the distribution of a time. [`Plan`]: the length of a simulation.
//!
//! * [`Layered`]: a network of slots, threads and cores, with its own simulation.
//!
//! * `Engine`: one replication. Every customer has at most one future event, in a heap (`Events`). So the number of
//!   present customers bounds the memory.
//!
//! * [`Replication`]: its observations, as exact sums and counts.

mod engine;
mod error;
mod events;
mod histogram;
mod layered;
mod limits;
mod model;
mod plan;
mod random;
mod shape;
mod tally;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

pub use error::Error;
pub use histogram::Histogram;
pub use layered::{Layered, Observed, Stage, Tier, simulate_layered};
pub use limits::{CUSTOMERS_MAX, REPLICATIONS_MAX};
pub use model::{Class, Model, Route, Service, Source, Station, Time};
pub use plan::{Length, Plan};
pub use shape::Shape;
pub use tally::{Replication, Rounds, Series, Visits};

use engine::Engine;
use random::Random;

/// Simulates a network several times, on all processors. The number of processors does not change the result.
///
/// # Errors
///
/// When the model or the plan is invalid, or requests or events exceed their limits. Also when nearly all rounds are
/// lost, or `cancelled` is set.
pub fn simulate(
    model: &Model,
    plan: &Plan,
    cancelled: &AtomicBool,
) -> Result<Vec<Replication>, Error> {
    model.check()?;
    plan.check()?;
    replicated(plan.replications, |number| replicate(model, plan, number, cancelled))
}

/// The results of all replications, in order, computed on all processors.
fn replicated<T: Send>(
    replications: u32,
    replicate: impl Fn(u32) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let workers = processors.min(replications as usize);
    let next = AtomicU32::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= replications {
                return Ok(done);
            }
            done.push((number, replicate(number)?));
        }
    };
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for worker in workers {
            // A panic of a thread becomes a panic of the caller.
            let others = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done = done.and_then(|mut done| {
                done.extend(others?);
                Ok(done)
            });
        }
        done
    });
    let mut numbered: Vec<(u32, T)> = done?;
    numbered.sort_unstable_by_key(|(number, _)| *number);
    Ok(numbered.into_iter().map(|(_, result)| result).collect())
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
