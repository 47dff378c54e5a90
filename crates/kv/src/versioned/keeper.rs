//! The thread that keeps a store in shape: space had back, segments made before they are needed,
//! what is retained moved on, and where it was asked for, the disk written now and then.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::log::Durability;
use super::record::Sequence;
use super::store::Store;

/// How often it looks.
const TICK: Duration = Duration::from_millis(50);
/// How often a store writes to its files that nobody waits for.
const LAZY: Duration = Duration::from_secs(1);

/// How long what was replaced is kept for those who ask for old versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Until [`Store::compact`].
    All,
    /// So many seconds.
    Seconds(u32),
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to keep a store.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(store: Store, history: History) -> io::Result<Keeper> {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        store.retain(0);
        let thread = thread::Builder::new()
            .name("keeper".into())
            .spawn(move || keep(&store, history, &ends))?;
        Ok(Keeper { over, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It only panics where the store is wrong, and then whoever serves it does as well.
            let _ = thread.join();
        }
    }
}

fn keep(store: &Store, history: History, over: &AtomicBool) {
    let write_every = match store.durability() {
        Some(Durability::Interval(ms)) => Some(Duration::from_millis(u64::from(ms))),
        Some(Durability::None) => Some(LAZY),
        Some(Durability::Always) | None => None,
    };
    let mut past = VecDeque::new();
    let mut written = Instant::now();
    let tick = write_every.map_or(TICK, |every| every.clamp(Duration::from_millis(1), TICK));
    while !over.load(Ordering::Acquire) {
        if let History::Seconds(seconds) = history {
            let since = Duration::from_secs(u64::from(seconds));
            store.retain(retained(&mut past, since, store.last(), Instant::now()));
        }
        // A full disk or a damaged segment is told to whoever meets it; here it is tried again.
        let _ = store.prepare();
        while !over.load(Ordering::Acquire) && store.reclaim() == Ok(true) {}
        if write_every.is_some_and(|every| written.elapsed() >= every) {
            let _ = store.write_out();
            written = Instant::now();
        }
        thread::park_timeout(tick);
    }
    let _ = store.write_out();
}

/// The last commit that was made `since` ago or before: what was replaced later is kept. `past`
/// has some of the commits in between and when they were the last.
fn retained(
    past: &mut VecDeque<(Instant, Sequence)>,
    since: Duration,
    last: Sequence,
    now: Instant,
) -> Sequence {
    if since.is_zero() {
        return Sequence::MAX;
    }
    // A hundred marks are exact enough.
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
    fn what_was_replaced_is_kept_for_as_long_as_was_asked() {
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
