//! Maintains a store in the background: drops old versions, reclaims space, prepares segments, and writes to the
//! disk at intervals.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use knee_kv_cache::engine::Refused;

use super::pressure::Waiting;
use super::reclaim::ReclaimError;
use super::record::Sequence;
use super::store::Store;
use super::types::Durability;
use super::waiting::Keeping;
use crate::calendar;

/// Period of the keeper's rounds.
const TICK: Duration = Duration::from_millis(50);
/// Number of segments that the keeper reclaims before it turns to its other duties.
const RECLAIMED_AT_ONCE: usize = 8;
/// Shortest time between two sweeps for old versions.
const SWEEP_MIN: Duration = Duration::from_secs(1);
/// Time between two searches for expired keys.
const EXPIRED: Duration = Duration::from_secs(30);
/// Time between two writes of a store without durability to its files.
const LAZY: Duration = Duration::from_secs(1);

/// How long replaced versions are kept for readers of old versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Until a call of [`Store::compact`].
    All,
    /// This number of seconds, as long as there is space.
    Seconds(u32),
}

/// The background threads of a store; they end when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(store: Store, history: History) -> io::Result<Keeper> {
        let mut keeper = Keeper { over: Arc::default(), threads: Vec::new() };
        store.retain(0);
        // Prepare segments before the first write. Writers and readers report a failure.
        let _ = store.0.log.prepare();
        return_to_limit(&store, history);
        let write_every = match store.durability() {
            Some(Durability::Interval(ms)) => Some(Duration::from_millis(u64::from(ms))),
            Some(Durability::None) => Some(LAZY),
            Some(Durability::Always) | None => None,
        };
        // Writes have their own thread, because another duty may take longer than this interval.
        if let Some(every) = write_every {
            let (store, over) = (store.clone(), Arc::clone(&keeper.over));
            keeper.spawn("writer", move || write_out(&store, every, &over))?;
        }
        let over = Arc::clone(&keeper.over);
        // Writers may wait for the keeper from here on, even before its thread runs.
        let keeping = Keeping::begin(store.clone());
        keeper.spawn("keeper", move || {
            keeping.runs_here();
            keep(&store, history, &over);
        })?;
        Ok(keeper)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The thread panics only on a bug of the store, which the server's own threads meet as well.
            let _ = thread.join();
        }
    }
}

/// Each start makes a new segment, for which a full log has no space. So the keeper reclaims one segment before the
/// first write is refused.
fn return_to_limit(store: &Store, history: History) {
    let is_beyond = || store.0.log.is_beyond_limit(0, 0);
    if is_beyond() && history != History::All {
        store.retain(Sequence::MAX);
    }
    let _waiting = Waiting::begin(&store.0.pressure);
    for _ in 0..RECLAIMED_AT_ONCE {
        if !is_beyond() || !matches!(store.reclaim(), Ok(true) | Err(ReclaimError::Damage(_))) {
            break;
        }
    }
}

fn keep(store: &Store, history: History, over: &AtomicBool) {
    let mut past = VecDeque::new();
    let mut swept = Instant::now();
    let mut expired = Instant::now().checked_sub(EXPIRED);
    let mut expired_from = (0, 0);
    let sweep_every = match history {
        History::Seconds(seconds) => SWEEP_MIN.max(Duration::from_secs(u64::from(seconds)) / 10),
        History::All => Duration::MAX,
    };
    let pressure = &store.0.pressure;
    let mut swept_to = 0;
    while !over.load(Ordering::Acquire) {
        // A round searches the whole log only if it began while a writer waited. Only such a round can report that no
        // space is left.
        let waited_for = pressure.is_felt().then(|| (store.0.log.end(), pressure.freed()));
        if let History::Seconds(seconds) = history {
            let since = Duration::from_secs(u64::from(seconds));
            let from = retained(&mut past, since, store.last(), Instant::now());
            store.retain(if store.is_tight() { Sequence::MAX } else { from });
        }
        if swept.elapsed() >= sweep_every {
            swept_to = store.sweep();
            swept = Instant::now();
        }
        let now = calendar::now();
        let cleared = store.clear_before_write(now).map_err(Refused::from);
        let finished = store.finish_clearing(now, over);
        let mut is_refused =
            [cleared, finished].into_iter().any(|done| done.is_err_and(Refused::is_full));
        if expired.is_none_or(|at| at.elapsed() >= EXPIRED) {
            // If the deletes find no space, reclaim some first, and resume afterwards.
            let deleted = store.delete_expired(&mut expired_from, now, over);
            let is_later = deleted.is_err_and(|why| why.is_full() || why == Refused::Failed);
            expired = (!is_later).then(Instant::now);
            is_refused |= is_later;
        }
        // Then the keeper itself counts as a waiting writer.
        let waits = is_refused.then(|| Waiting::begin(pressure));
        // Writers and readers report a full disk or a damaged segment; the keeper tries again.
        if store.0.log.prepare() == Ok(true) {
            pressure.note_freed();
        }
        let goes_on = || {
            let is_over = over.load(Ordering::Acquire);
            // A damaged segment is not tried again.
            !is_over && matches!(store.reclaim(), Ok(true) | Err(ReclaimError::Damage(_)))
        };
        // The other duties get their turn even if there is always a segment to reclaim.
        if (0..RECLAIMED_AT_ONCE).all(|_| goes_on()) {
            continue;
        }
        if waits.is_some() && waited_for.is_none() {
            let _ = store.write_out();
        }
        if let Some((end, freed)) = waited_for {
            // Old versions may be dropped early. Only segments on the disk are reclaimed, so write first. The next
            // write reports a disk failure.
            let _ = store.write_out();
            if store.is_to_sweep(swept_to) {
                swept_to = store.sweep();
                swept = Instant::now();
            }
            if goes_on() {
                continue;
            }
            // A reader that must start again costs less than a refused write.
            if store.let_snapshots_go() {
                swept_to = store.sweep();
                swept = Instant::now();
                if goes_on() {
                    continue;
                }
            }
            pressure.note_fruitless(end, freed);
        } else {
            // Records may have died without a call of `note_freed`.
            pressure.note_freed();
        }
        store.0.log.write_keys();
        drop(waits);
        thread::park_timeout(TICK);
    }
    let _ = store.write_out();
}

/// Writes to the disk at intervals. The next write reports a failure.
fn write_out(store: &Store, every: Duration, over: &AtomicBool) {
    let every = every.max(Duration::from_millis(1));
    let mut due = Instant::now() + every;
    while !over.load(Ordering::Acquire) {
        thread::park_timeout(due.saturating_duration_since(Instant::now()));
        if Instant::now() >= due {
            due = Instant::now() + every;
            let _ = store.write_out();
        }
    }
}

/// The last commit made `since` ago or before; versions replaced later are kept. `past` has samples of the last
/// commit and their times.
fn retained(
    past: &mut VecDeque<(Instant, Sequence)>,
    since: Duration,
    last: Sequence,
    now: Instant,
) -> Sequence {
    if since.is_zero() {
        return Sequence::MAX;
    }
    // A hundred samples are precise enough.
    if past.back().is_none_or(|(at, _)| now.duration_since(*at) >= since / 100) {
        past.push_back((now, last));
    }
    while past.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= since) {
        past.pop_front();
    }
    match past.front() {
        Some((at, sequence)) if now.duration_since(*at) >= since => *sequence,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_kept_for_the_given_time() {
        let (mut past, start) = (VecDeque::new(), Instant::now());
        let since = Duration::from_secs(10);
        for second in 0..100_u64 {
            let now = start + Duration::from_secs(second);
            let kept = retained(&mut past, since, second * 5, now);
            assert_eq!(kept, if second < 10 { 0 } else { (second - 10) * 5 });
        }
        assert!(past.len() < 110);
        assert_eq!(retained(&mut past, Duration::ZERO, 7, start), Sequence::MAX);
    }
}
