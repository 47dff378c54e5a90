//! What has to be done though nobody asks for it: every middleware tries, one at a time does it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Inner;
use super::calls::{change, only, put_back, read};
use super::floors::Horizon;
use super::pool::Held;
use crate::database::Failure;

/// How often leases are looked after, and how often what is decided.
const TICK: Duration = Duration::from_millis(250);
/// Messages that are dealt with in one transaction, so that it is short.
const BATCH: i32 = 500;
/// How long retention and deleted queues may keep it busy before it looks after leases again.
const BUSY: Duration = Duration::from_millis(100);

/// Keeps as long as the database is open.
pub(super) async fn keep(database: Weak<Inner>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answers = 0;
    loop {
        ticks.tick().await;
        let Some(database) = database.upgrade() else { return };
        // What fails fails those who ask, too, who say so; here it is tried again.
        let _ = tick(&database, &mut answers).await;
    }
}

async fn tick(database: &Arc<Inner>, answers: &mut u64) -> Result<(), Failure> {
    let held = database.upkeep.take().await?;
    look(&held, database, answers).await?;
    end_leases(&held, database).await?;
    let begun = Instant::now();
    let functions = held.statements();
    let mut more = true;
    while more && begun.elapsed() < BUSY {
        let old = change(&held, &functions.remove_old, &[&BATCH]).await?;
        let left = change(&held, &functions.remove_left_behind, &[&BATCH]).await?;
        let full = |count: i64| count >= i64::from(BATCH);
        more = full(only(&old)?.get(0)) || full(only(&left)?.get(0));
    }
    Ok(())
}

/// Looks at the horizon where somebody has something of it.
async fn look(held: &Held, database: &Inner, answers: &mut u64) -> Result<(), Failure> {
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

async fn end_leases(held: &Held, database: &Inner) -> Result<(), Failure> {
    loop {
        let rows = change(held, &held.statements().end_leases, &[&BATCH]).await?;
        database.tell(put_back(&rows));
        if rows.len() < BATCH as usize {
            return Ok(());
        }
    }
}
