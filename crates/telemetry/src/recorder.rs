//! The hot path: one recorder per event-loop thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::clock::{Moment, NS_PER_S, second_begun_ns, thread_cpu};
use crate::histogram;
use crate::op::Op;
use crate::pool::Pool;
use crate::requests::OpWindows;
use crate::role::{Gauges as _, Role};
use crate::stage::{Times, elapsed_ns};
use crate::window::Window;

/// If the clocks drift further apart than this within a window, the wall clock was set.
const CLOCK_STEP_NS: u64 = 500_000_000;

/// Largest number of windows of one thread that wait for the reporter. The reporter may itself wait for the reader of
/// standard output.
/// Beyond this, the current window continues until there is space: no request is lost, and memory is bounded.
const WAITING_MAX: usize = 8;

/// One completed request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample<T> {
    /// The times of its stages, for example [`MiddlewareTimes`](crate::MiddlewareTimes).
    pub times: T,
    /// Requested keys: 1, except for multi-gets.
    pub items: u32,
    /// Keys found.
    pub hits: u32,
    /// Keys not found.
    pub misses: u32,
    /// Bytes read: of the request at a server, of the answer at a client.
    pub bytes_in: u64,
    /// Bytes written: of the answer at a server, of the request at a client.
    pub bytes_out: u64,
    /// Whether the answer was an error. A miss is not an error.
    pub error: bool,
}

/// Records the requests of one thread: plain memory, no lock, no atomics, no clock reads.
///
/// [`Reporter::recorder`](crate::Reporter::recorder) makes a recorder, which then stays on its thread. It measures the
/// CPU time of the thread that cuts it, since the thread's start or since [`Recorder::begin`]. If a thread cannot cut
/// its own windows, another thread does so with [`Recorder::cut_with`].
#[derive(Debug)]
pub struct Recorder<R: Role> {
    thread: usize,
    sender: Sender<Window<R>>,
    pool: Arc<Pool>,
    /// Open connections of clients (at a load generator: its own connections).
    pub connections: u64,
    /// Further gauges and counters of the role. Levels are set when they change; a cut resets the counters to 0.
    pub gauges: R::Gauges,
    ops: OpWindows,
    from_unix_ns: u64,
    from: Instant,
    /// The thread's CPU time at the last cut.
    cpu: Duration,
    /// The number of this thread's windows that wait for the reporter.
    waiting: Arc<AtomicUsize>,
}

impl<R: Role> Recorder<R> {
    pub(crate) fn new(
        thread: usize,
        sender: Sender<Window<R>>,
        pool: Arc<Pool>,
        gauges: R::Gauges,
        now: Moment,
    ) -> Recorder<R> {
        Recorder {
            thread,
            sender,
            pool,
            connections: 0,
            gauges,
            ops: OpWindows::default(),
            from_unix_ns: now.unix_ns,
            from: now.mono,
            cpu: Duration::ZERO,
            waiting: Arc::default(),
        }
    }

    /// Drops all records so far: the first window begins at `now`.
    ///
    /// For a load generator that opens its connections before it starts. Call this on the recording thread, before the
    /// first cut.
    pub fn begin(&mut self, now: Moment) {
        self.take(now, now.unix_ns, thread_cpu(), false);
    }

    /// Counts one completed request.
    ///
    /// This allocates memory only for the first request of a type.
    #[inline]
    pub fn record(&mut self, op: Op, sample: &Sample<R::Times>) {
        let Some(window) = &mut self.ops[op as usize] else {
            return self.record_first(op, sample);
        };
        let counts = &mut window.counts;
        counts.count += 1;
        counts.errors += u64::from(sample.error);
        counts.items += u64::from(sample.items);
        counts.hits += u64::from(sample.hits);
        counts.misses += u64::from(sample.misses);
        counts.bytes_in += sample.bytes_in;
        counts.bytes_out += sample.bytes_out;
        let stages_ns = sample.times.stages_ns();
        for ((histogram, sum), ns) in
            window.histograms.iter_mut().zip(&mut window.sums_ns).zip(stages_ns)
        {
            *sum += ns;
            histogram::record(histogram, ns);
        }
    }

    #[cold]
    fn record_first(&mut self, op: Op, sample: &Sample<R::Times>) {
        self.ops[op as usize] = Some(self.pool.take());
        self.record(op, sample);
    }

    /// Ends the window at `now` and hands it to the reporter.
    ///
    /// Call this from a timer set to [`Moment::next_second`]. A late call makes the window longer, and loses nothing.
    pub fn cut(&mut self, now: Moment) {
        self.cut_with(now, thread_cpu());
    }

    /// Like [`Recorder::cut`], for another thread that has used `cpu` since its start.
    pub fn cut_with(&mut self, now: Moment, cpu: Duration) {
        if self.waiting.load(Ordering::Relaxed) < WAITING_MAX {
            let window = self.take(now, now.second_begun_ns(), cpu, false);
            self.send(window);
        }
    }

    /// Ends the last window at `now` and hands it to the reporter: the thread records no more.
    pub fn finish(self, now: Moment) {
        self.finish_with(now, thread_cpu());
    }

    /// Like [`Recorder::finish`], for another thread that has used `cpu` since its start.
    pub fn finish_with(mut self, now: Moment, cpu: Duration) {
        let window = self.take(now, now.unix_ns, cpu, true);
        self.send(window);
    }

    fn send(&self, window: Window<R>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The reporter may have ended early.
        let _ = self.sender.send(window);
    }

    /// The window up to `now`, with the label `to_unix_ns` for its end.
    fn take(&mut self, now: Moment, to_unix_ns: u64, cpu: Duration, last: bool) -> Window<R> {
        let elapsed = elapsed_ns(self.from, now.mono);
        let labelled = to_unix_ns.saturating_sub(self.from_unix_ns);
        let stepped = labelled.abs_diff(elapsed) > CLOCK_STEP_NS || to_unix_ns < self.from_unix_ns;
        let window = Window {
            thread: self.thread,
            from_unix_ns: self.from_unix_ns,
            // If the wall clock was set, the monotonic clock has the window's length.
            to_unix_ns: if stepped { self.from_unix_ns + elapsed } else { to_unix_ns },
            cpu: cpu.saturating_sub(self.cpu),
            connections: self.connections,
            ops: self.take_ops(),
            reading: self.gauges.read(now.mono),
            last,
            waiting: Arc::clone(&self.waiting),
        };
        self.from_unix_ns = to_unix_ns;
        self.from = now.mono;
        self.cpu = cpu;
        window
    }

    /// Takes the types that occurred, and replaces each by an empty window. So the type's next request allocates no
    /// memory.
    fn take_ops(&mut self) -> OpWindows {
        let mut taken = OpWindows::default();
        for (op, taken) in self.ops.iter_mut().zip(&mut taken) {
            if let Some(window) = op.as_mut().filter(|window| window.counts.count > 0) {
                *taken = Some(std::mem::replace(window, self.pool.take()));
            }
        }
        taken
    }
}

impl<R: Role> Window<R> {
    /// The window's wall-clock second: the second in which it began, or the next second if it began just before.
    pub fn second(&self) -> u64 {
        second_begun_ns(self.from_unix_ns) / NS_PER_S
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use proptest::prelude::*;

    use super::*;
    use crate::roles::{Load, LoadGauges, Middleware, MiddlewareGauges};
    use crate::stage::{LoadTimes, MiddlewareTimes, Stage};
    use crate::totals::Totals;

    /// The thread and the second of a record, and its type and sample.
    fn placed() -> impl Strategy<Value = (usize, u64, Op, Sample<MiddlewareTimes>)> {
        let times = (0..1_000_000_u64, 0..100_000_000_000_u64, any::<u32>());
        (0..3_usize, 0..4_u64, 0..Op::COUNT, times, 1..20_u32, any::<u32>(), any::<bool>())
            .prop_map(|(thread, second, op, times, items, hits, error)| {
                let hits = hits % (items + 1);
                let sample = Sample {
                    times: MiddlewareTimes {
                        queueing_ns: times.0,
                        service_ns: times.1,
                        response_ns: u64::from(times.2),
                    },
                    items,
                    hits,
                    misses: items - hits,
                    bytes_in: u64::from(items) * 30,
                    bytes_out: u64::from(hits) * 4096,
                    error,
                };
                (thread, second, Op::ALL[op], sample)
            })
    }

    proptest! {
        // A case touches megabytes of counters, which is slow without optimisation.
        #![proptest_config(ProptestConfig::with_cases(10))]

        /// The distribution of requests over threads and windows does not change the totals.
        #[test]
        fn windows_of_any_partition_add_up_to_one(
            mut requests in prop::collection::vec(placed(), 0..100),
        ) {
            let start = Instant::now();
            let at = |s| Moment {
                unix_ns: (100 + s) * NS_PER_S,
                mono: start + Duration::from_secs(s),
            };
            let (sender, windows) = mpsc::channel();
            let pool = Arc::new(Pool::new(3));
            let gauges = || MiddlewareGauges::new(start, 1, &[]);
            let new = |thread| Recorder::<Middleware>::new(thread, sender.clone(), Arc::clone(&pool), gauges(), at(0));

            let mut alone = new(0);
            for (_, _, op, sample) in &requests {
                alone.record(*op, sample);
            }
            alone.finish(at(4));
            let mut expected = Totals::new(vec!["alone".to_owned()]);
            expected.add(&windows.recv().expect("one window"));

            let mut threads: Vec<_> = (0..3).map(new).collect();
            requests.sort_by_key(|(_, second, _, _)| *second);
            let mut requests = requests.iter().peekable();
            for second in 0..4 {
                while let Some((thread, _, op, sample)) = requests.next_if(|r| r.1 == second) {
                    threads[*thread].record(*op, sample);
                }
                for thread in &mut threads {
                    thread.cut(at(second + 1));
                }
            }
            let names = (0..3).map(|thread| thread.to_string()).collect();
            let mut totals = Totals::new(names);
            for window in windows.try_iter() {
                totals.add(&window);
            }
            for op in Op::ALL {
                prop_assert_eq!(totals.counts(op), expected.counts(op));
                for stage in [Stage::Queueing, Stage::Service, Stage::Response] {
                    prop_assert_eq!(totals.histogram(op, stage), expected.histogram(op, stage));
                }
            }
            let sums = |totals: &Totals<Middleware>| {
                totals.ops().map(|(op, total)| (op, total.sums_ns)).collect::<Vec<_>>()
            };
            prop_assert_eq!(sums(&totals), sums(&expected));
            prop_assert_eq!(totals.seconds(), 4.0);
        }
    }

    #[test]
    fn begin_drops_earlier_records() {
        let (sender, windows) = mpsc::channel();
        let start = Moment::now();
        let later = Moment {
            unix_ns: start.unix_ns + 5 * NS_PER_S,
            mono: start.mono + Duration::from_secs(5),
        };
        let mut recorder =
            Recorder::<Load>::new(0, sender, Arc::new(Pool::new(1)), LoadGauges::default(), start);
        let sample = Sample { times: LoadTimes { response_ns: 5 }, ..Sample::default() };
        recorder.record(Op::Set, &sample);
        recorder.gauges.sent(7_000_000);
        recorder.gauges.in_flight = 3;
        recorder.begin(later);
        recorder.record(Op::Get, &sample);
        recorder.finish(later);
        let window = windows.recv().expect("one window");
        assert!(window.ops[Op::Set as usize].is_none());
        assert!(window.ops[Op::Get as usize].is_some());
        assert_eq!(window.reading, LoadGauges { in_flight: 3, ..LoadGauges::default() });
        assert_eq!(window.from_unix_ns, later.unix_ns);
    }
}
