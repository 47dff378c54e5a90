//! Background jobs end leases, remove expired messages, clean up deleted queues and raise the floors (see `floors.rs`).
//! Every server attempts each job; a lock in the database lets one server at a time run it.
//!
//! A separate task ends leases, so that this does not wait for the other jobs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_postgres::types::ToSql;

use super::calls::{change, only, put_back, read};
use super::floors::Horizon;
use super::pool::Held;
use super::shared::Shared;
use crate::database::Failure;
use crate::upkeep::Job;

/// The interval of each job.
const TICK: Duration = Duration::from_millis(250);
/// Messages of one transaction; a small number keeps it short.
const BATCH: i32 = 500;
/// Removing expired messages delays the next horizon by at most this.
const BUSY: Duration = Duration::from_millis(100);
/// Time per tick to search for expired messages: a small part of a tick, because rounds never pause.
const LOOKING: Duration = Duration::from_millis(10);

/// A walk over the pairs of receiver and queue that have ready messages, some of them in each tick.
#[derive(Debug)]
struct Round {
    /// The last finished pair.
    receiver: i32,
    queue: i32,
    /// Deleted queues. The end of the round forgets them, unless the round skipped some of their messages.
    gone: Vec<i32>,
    passed_over: bool,
}

fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Ends expired leases, in an endless loop.
pub(super) async fn end_leases(database: Arc<Shared>) {
    let mut ticks = ticks();
    let mut more = false;
    loop {
        if !more {
            ticks.tick().await;
        }
        let ended = end_some(&database).await;
        more = ended == Ok(true);
        database.report.after(Job::EndLeases, ended.map(drop));
    }
}

/// Ends a batch of leases; returns whether there may be more.
async fn end_some(database: &Shared) -> Result<bool, Failure> {
    let held = database.upkeep.take().await?;
    let rows = change(&held, &held.statements().end_leases, &[&BATCH]).await?;
    database.notifier.arrived(&put_back(&rows));
    Ok(rows.len() >= BATCH as usize)
}

/// Reads the horizon and removes expired messages, in an endless loop.
pub(super) async fn keep(database: Arc<Shared>) {
    let mut ticks = ticks();
    let mut answers = 0;
    let mut round = None;
    loop {
        ticks.tick().await;
        let report = &database.report;
        match database.upkeep.take().await {
            Ok(held) => {
                report.after(Job::RaiseFloors, look(&held, &database, &mut answers).await);
                report.after(Job::RemoveExpired, sweep(&held, &mut round).await);
            }
            // The same failure prevents the removal of expired messages.
            Err(failed) => report.after(Job::RaiseFloors, Err(failed)),
        }
    }
}

/// Continues the round, or begins one. A failure ends the round; the next round begins at the first pair.
async fn sweep(held: &Held, round: &mut Option<Round>) -> Result<(), Failure> {
    let functions = held.statements();
    let mut at = match round.take() {
        Some(round) => round,
        None => match begin_round(held).await? {
            Some(round) => round,
            None => return Ok(()),
        },
    };
    let begun = Instant::now();
    let looking = i64::try_from(LOOKING.as_micros()).unwrap_or(i64::MAX);
    loop {
        let values: &[&(dyn ToSql + Sync)] = &[&at.receiver, &at.queue, &BATCH, &looking];
        let rows = change(held, &functions.sweep, values).await?;
        let row = only(&rows)?;
        at.passed_over |= row.get::<_, bool>(3);
        let (Some(receiver), Some(queue)) = (row.get(0), row.get(1)) else {
            if !at.passed_over && !at.gone.is_empty() {
                change(held, &functions.end_round, &[&at.gone]).await?;
            }
            return Ok(());
        };
        (at.receiver, at.queue) = (receiver, queue);
        if row.get::<_, i32>(2) < BATCH || begun.elapsed() >= BUSY {
            *round = Some(at);
            return Ok(());
        }
    }
}

async fn begin_round(held: &Held) -> Result<Option<Round>, Failure> {
    let rows = change(held, &held.statements().begin_round, &[]).await?;
    let row = only(&rows)?;
    let (needed, gone) = (row.get::<_, bool>(0), row.get(1));
    Ok(needed.then_some(Round { receiver: 0, queue: 0, gone, passed_over: false }))
}

/// Reads the horizon if that can raise a floor.
async fn look(held: &Held, database: &Shared, answers: &mut u64) -> Result<(), Failure> {
    let seen = database.floors.answers();
    if seen == *answers {
        return Ok(());
    }
    let losses = database.floors.losses();
    let rows = read(held, &held.statements().horizon, &[]).await?;
    let row = only(&rows)?;
    let number = |column: usize| row.get::<_, i64>(column);
    let horizon = Horizon {
        settled: number(0),
        flushed: number(1),
        last: number(2),
        next: number(3),
        logged: number(4),
    };
    database.floors.learn(horizon, losses);
    *answers = seen;
    Ok(())
}
