//! Merges the windows of all threads, second by second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::NS_PER_S;
use crate::op::Op;
use crate::pool::Pool;
use crate::requests::{OpWindow, OpWindows};
use crate::role::{Reading as _, Role};
use crate::window::{Window, add_ops};

/// How long a second waits for the threads that have not reported it.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// One second of the whole process.
#[derive(Debug)]
pub(crate) struct Second<R: Role> {
    /// The wall-clock second.
    pub(crate) second: u64,
    /// The beginning on the wall clock; later than `second` if the process started within the second.
    pub(crate) from_unix_ns: u64,
    /// The part of the second in which the process ran, in seconds.
    pub(crate) seconds: f64,
    pub(crate) ops: OpWindows,
    pub(crate) reading: R::Reading,
    pub(crate) connections: u64,
    /// CPU time of the threads that reported, by index.
    pub(crate) cpu: Vec<(usize, Duration)>,
}

/// Merges windows into seconds, and returns the seconds in ascending order.
///
/// A second is complete when every thread has reported it or a later second, or has ended. An incomplete second is
/// returned after [`GRACE`]. A window that arrives later counts in the earliest open second. So no request is lost or
/// counted twice.
#[derive(Debug)]
pub(crate) struct Collator<R: Role> {
    pool: Arc<Pool>,
    threads: Vec<Progress>,
    open: BTreeMap<u64, Open<R>>,
    /// The last returned second, and the wall-clock end of the returned seconds.
    given: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    reached: Option<u64>,
    ended: bool,
}

#[derive(Debug)]
struct Open<R: Role> {
    /// When its first window arrived; one second later for a late window.
    since: Instant,
    windows: BTreeMap<usize, Window<R>>,
}

impl<R: Role> Collator<R> {
    pub(crate) fn new(threads: usize, pool: Arc<Pool>) -> Collator<R> {
        Collator {
            pool,
            threads: vec![Progress::default(); threads],
            open: BTreeMap::new(),
            given: None,
        }
    }

    /// Takes in a window that arrived at `now`.
    pub(crate) fn push(&mut self, window: Window<R>, now: Instant) {
        let earliest = self.given.map_or(0, |(second, _)| second + 1);
        let second = window.second().max(earliest);
        let progress = &mut self.threads[window.thread];
        progress.reached = progress.reached.max(Some(second));
        progress.ended |= window.last;
        // A late window: wait for the windows that belong to this second.
        let since = if second > window.second() { now + Duration::from_secs(1) } else { now };
        let open =
            self.open.entry(second).or_insert_with(|| Open { since, windows: BTreeMap::new() });
        match open.windows.get_mut(&window.thread) {
            Some(earlier) => earlier.then(window, &self.pool),
            None => {
                open.windows.insert(window.thread, window);
            }
        }
    }

    /// When the earliest open second will have waited long enough.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let (_, open) = self.open.first_key_value()?;
        Some(open.since + GRACE)
    }

    /// The earliest open second, if it is complete or has waited long enough by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Second<R>> {
        let (&second, _) = self.open.first_key_value()?;
        let complete =
            self.threads.iter().all(|thread| thread.ended || thread.reached >= Some(second));
        (complete || self.deadline()? <= now).then(|| self.pop_first())?
    }

    /// The earliest open second, complete or not.
    pub(crate) fn pop_first(&mut self) -> Option<Second<R>> {
        let (second, open) = self.open.pop_first()?;
        let mut windows = open.windows.into_values();
        let first = windows.next()?;
        let mut from_unix_ns = first.from_unix_ns;
        let mut to_unix_ns = first.to_unix_ns;
        let mut merged = Second::<R> {
            second,
            from_unix_ns,
            seconds: 0.0,
            ops: first.ops,
            reading: first.reading,
            connections: first.connections,
            cpu: vec![(first.thread, first.cpu)],
        };
        for window in windows {
            from_unix_ns = from_unix_ns.min(window.from_unix_ns);
            to_unix_ns = to_unix_ns.max(window.to_unix_ns);
            add_ops(&mut merged.ops, window.ops, &self.pool);
            merged.reading.beside(&window.reading);
            merged.connections += window.connections;
            merged.cpu.push((window.thread, window.cpu));
        }
        // A late window covers seconds that were already returned: their time must not count twice. (This does not
        // apply if the wall clock was set back.)
        if let Some((_, reached_ns)) = self.given
            && (from_unix_ns..to_unix_ns).contains(&reached_ns)
        {
            from_unix_ns = reached_ns;
        }
        merged.from_unix_ns = from_unix_ns;
        merged.seconds = to_unix_ns.saturating_sub(from_unix_ns) as f64 / NS_PER_S as f64;
        self.given = Some((second, to_unix_ns));
        Some(merged)
    }
}

impl<R: Role> Second<R> {
    /// Returns the memory of a printed second to the pool.
    pub(crate) fn recycle(self, pool: &Pool) {
        for window in self.ops.into_iter().flatten() {
            pool.give(window);
        }
    }

    /// The types of request that occurred, in printing order.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (Op, &OpWindow)> {
        Op::ALL.into_iter().zip(&self.ops).filter_map(|(op, window)| Some((op, window.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};

    use super::*;
    use crate::clock::Moment;
    use crate::recorder::{Recorder, Sample};
    use crate::roles::{Store, StoreGauges};
    use crate::stage::StoreTimes;

    /// Threads whose clocks the test moves.
    struct Bench {
        start: Instant,
        windows: Receiver<Window<Store>>,
        recorders: Vec<Recorder<Store>>,
        collator: Collator<Store>,
    }

    impl Bench {
        /// `threads` threads that all begin at 100.0 s.
        fn new(threads: usize) -> Bench {
            let start = Instant::now();
            let (sender, windows) = mpsc::channel();
            let pool = Arc::new(Pool::new(1));
            let recorder = |thread| {
                Recorder::new(
                    thread,
                    sender.clone(),
                    Arc::clone(&pool),
                    StoreGauges::default(),
                    at(start, 100.0),
                )
            };
            Bench {
                start,
                windows,
                recorders: (0..threads).map(recorder).collect(),
                collator: Collator::new(threads, Arc::clone(&pool)),
            }
        }

        /// Thread `thread` completes `count` requests and cuts at `unix_s`.
        fn cut(&mut self, thread: usize, count: u64, unix_s: f64) {
            let recorder = &mut self.recorders[thread];
            for _ in 0..count {
                recorder.record(Op::Get, &sample());
            }
            recorder.cut(at(self.start, unix_s));
            self.arrive(unix_s);
        }

        /// The last thread ends at `unix_s`, after `count` more requests.
        fn finish_last(&mut self, count: u64, unix_s: f64) {
            let mut recorder = self.recorders.pop().expect("a thread");
            for _ in 0..count {
                recorder.record(Op::Get, &sample());
            }
            recorder.finish(at(self.start, unix_s));
            self.arrive(unix_s);
        }

        fn arrive(&mut self, unix_s: f64) {
            let window = self.windows.try_recv().expect("a window was sent");
            self.collator.push(window, at(self.start, unix_s).mono);
        }

        /// Seconds given out by `unix_s`: (second, seconds, requests, threads).
        fn pop(&mut self, unix_s: f64) -> Vec<(u64, f64, u64, usize)> {
            let now = at(self.start, unix_s).mono;
            std::iter::from_fn(|| self.collator.pop(now)).map(|second| facts(&second)).collect()
        }
    }

    fn facts(second: &Second<Store>) -> (u64, f64, u64, usize) {
        let requests = second.ops().map(|(_, window)| window.counts.count).sum();
        (second.second, second.seconds, requests, second.cpu.len())
    }

    fn at(start: Instant, unix_s: f64) -> Moment {
        Moment {
            unix_ns: (unix_s * 1e9) as u64,
            mono: start + Duration::from_secs_f64(unix_s - 100.0),
        }
    }

    fn sample() -> Sample<StoreTimes> {
        Sample { items: 1, hits: 1, ..Sample::default() }
    }

    #[test]
    fn second_comes_out_after_every_thread_reported() {
        let mut bench = Bench::new(2);
        bench.cut(0, 3, 101.0);
        assert_eq!(bench.pop(101.01), []);
        bench.cut(1, 4, 101.02);
        assert_eq!(bench.pop(101.02), [(100, 1.0, 7, 2)]);
    }

    #[test]
    fn later_second_completes_an_earlier_one() {
        let mut bench = Bench::new(2);
        bench.cut(0, 1, 101.0);
        bench.cut(1, 1, 101.0);
        assert_eq!(bench.pop(101.0).len(), 1);
        bench.cut(0, 1, 102.0);
        // Thread 1 slept through 102.0: its window covers two seconds and is labelled 101.
        bench.cut(1, 5, 103.0);
        assert_eq!(bench.pop(103.0), [(101, 2.0, 6, 2)]);
        bench.cut(0, 2, 103.0);
        bench.cut(1, 2, 104.0);
        bench.cut(0, 2, 104.0);
        let seconds = bench.pop(104.0);
        assert_eq!(seconds.iter().map(|s| (s.0, s.2)).collect::<Vec<_>>(), [(102, 2), (103, 4)]);
    }

    #[test]
    fn late_thread_delays_a_second_by_the_grace_only() {
        let mut bench = Bench::new(2);
        bench.cut(0, 10, 101.0);
        assert_eq!(bench.pop(101.49), []);
        assert_eq!(bench.pop(101.51), [(100, 1.0, 10, 1)]);
        bench.cut(1, 20, 101.6);
        // That second was returned already. So the requests count in the next second, whose length does not change.
        bench.cut(0, 1, 102.0);
        bench.cut(1, 2, 102.0);
        assert_eq!(bench.pop(102.0), [(101, 1.0, 23, 2)]);
    }

    #[test]
    fn late_window_joins_the_open_second() {
        let mut bench = Bench::new(2);
        bench.cut(0, 10, 101.0);
        assert_eq!(bench.pop(101.51).len(), 1);
        bench.cut(1, 20, 101.52);
        // The other windows are late as well, by less than the grace.
        assert_eq!(bench.pop(102.03), []);
        bench.cut(0, 1, 102.04);
        bench.cut(1, 2, 102.05);
        assert_eq!(bench.pop(102.05), [(101, 1.0, 23, 2)]);
    }

    #[test]
    fn ended_thread_is_not_waited_for() {
        let mut bench = Bench::new(2);
        bench.finish_last(5, 100.25);
        assert_eq!(bench.pop(100.25), []);
        bench.cut(0, 1, 101.0);
        bench.cut(0, 1, 102.0);
        assert_eq!(bench.pop(102.0), [(100, 1.0, 6, 2), (101, 1.0, 1, 1)]);
        bench.finish_last(2, 102.5);
        assert_eq!(bench.pop(102.5), [(102, 0.5, 2, 1)]);
    }

    #[test]
    fn clock_set_back_keeps_lengths_and_counts() {
        let mut bench = Bench::new(1);
        bench.cut(0, 1, 101.0);
        assert_eq!(bench.pop(101.0), [(100, 1.0, 1, 1)]);
        // The labels keep rising, so that a reader can distinguish the seconds.
        for (unix_s, set_back_s, expected) in [(102, 50, 101), (103, 51, 102)] {
            let now = Moment {
                unix_ns: set_back_s * NS_PER_S,
                mono: at(bench.start, f64::from(unix_s)).mono,
            };
            bench.recorders[0].record(Op::Get, &sample());
            bench.recorders[0].cut(now);
            bench.arrive(f64::from(unix_s));
            assert_eq!(bench.pop(f64::from(unix_s)), [(expected, 1.0, 1, 1)]);
        }
    }

    #[test]
    fn rest_at_the_end_comes_out_in_order() {
        let mut bench = Bench::new(2);
        bench.cut(0, 1, 101.0);
        bench.cut(0, 2, 102.0);
        let left: Vec<_> =
            std::iter::from_fn(|| bench.collator.pop_first()).map(|s| facts(&s)).collect();
        assert_eq!(left, [(100, 1.0, 1, 1), (101, 1.0, 2, 1)]);
    }
}
