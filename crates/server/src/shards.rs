//! The recorders of a server, one for each worker. The thread that ends a call records it.
//!
//! All threads besides the workers share one recorder. Each recorder has a lock, which is nearly always free. Once a
//! second, a task closes the windows of all recorders.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knee_telemetry::{CpuClock, Moment, Recorder, Reporter, Role};
use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// The index of the thread's recorder. Threads besides the workers use the last recorder.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The recorders of a server: one for each worker, and one for all other threads. `gauges` takes a recorder's index.
pub fn recorders<R: Role>(
    reporter: &mut Reporter<R>,
    workers: usize,
    gauges: impl Fn(usize) -> R::Gauges,
) -> Vec<Recorder<R>> {
    let now = Moment::now();
    let names = (0..workers).map(|worker| format!("grpc-{worker}"));
    let names = names.chain(["grpc-beside".to_owned()]).enumerate();
    names.map(|(index, name)| reporter.recorder(name, gauges(index), now)).collect()
}

/// The recorders of a server.
#[derive(Debug)]
pub struct Shards<R: Role> {
    /// One shard for each worker, and one for all other threads.
    shards: Box<[Shard<R>]>,
    /// The number of the runtime's threads that have begun; the workers are the first.
    threads: AtomicUsize,
    /// Connections that are open.
    pub connections: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Shard<R: Role> {
    /// `None` without a report, and after the end.
    recorder: Mutex<Option<Recorder<R>>>,
    cpu: Mutex<Cpu>,
}

/// The CPU time of the threads that share a recorder.
#[derive(Debug, Default)]
struct Cpu {
    living: Vec<CpuClock>,
    /// The CPU time of threads that have ended.
    ended: Duration,
}

impl Cpu {
    fn used(&self) -> Duration {
        self.ended + self.living.iter().filter_map(|clock| clock.read()).sum::<Duration>()
    }
}

impl<R: Role> Shards<R> {
    /// Takes the recorders that [`recorders`] made for the same number of workers, or none.
    pub fn new(workers: usize, recorders: Vec<Recorder<R>>) -> Shards<R> {
        let mut recorders = recorders.into_iter();
        let shard = |_| Shard { recorder: Mutex::new(recorders.next()), cpu: Mutex::default() };
        Shards {
            shards: (0..=workers).map(shard).collect(),
            threads: AtomicUsize::new(0),
            connections: Arc::default(),
        }
    }

    fn workers(&self) -> usize {
        self.shards.len() - 1
    }

    fn shard(&self) -> &Shard<R> {
        &self.shards[SHARD.get().min(self.workers())]
    }

    /// Calls `record` with this thread's recorder, if there is a report.
    pub fn record(&self, record: impl FnOnce(&mut Recorder<R>)) {
        if let Some(recorder) = &mut *lock(&self.shard().recorder) {
            record(recorder);
        }
    }

    /// Notes that this thread begins. Returns whether it is a worker.
    pub fn thread_begins(&self) -> bool {
        let index = self.threads.fetch_add(1, Ordering::Relaxed);
        SHARD.set(index);
        lock(&self.shard().cpu).living.push(CpuClock::of_this_thread());
        index < self.workers()
    }

    /// Notes that this thread ends.
    pub fn thread_ends(&self) {
        let clock = CpuClock::of_this_thread();
        let mut cpu = lock(&self.shard().cpu);
        cpu.living.retain(|living| *living != clock);
        cpu.ended += clock.read().unwrap_or_default();
    }

    /// Closes the windows of all recorders every second.
    pub async fn cut_every_second(self: Arc<Self>) {
        loop {
            tokio::time::sleep_until(Moment::now().next_second().into()).await;
            let now = Moment::now();
            for (index, shard) in self.shards.iter().enumerate() {
                let cpu = lock(&shard.cpu).used();
                if let Some(recorder) = &mut *lock(&shard.recorder) {
                    recorder.connections = self.connections_of(index);
                    recorder.cut_with(now, cpu);
                }
            }
        }
    }

    /// Closes the last windows. Must be called after the runtime's threads have ended.
    pub fn finish(&self) {
        let now = Moment::now();
        for shard in &self.shards {
            let cpu = lock(&shard.cpu).used();
            if let Some(mut recorder) = lock(&shard.recorder).take() {
                recorder.connections = 0;
                recorder.finish_with(now, cpu);
            }
        }
    }

    /// The last recorder counts all connections.
    fn connections_of(&self, shard: usize) -> u64 {
        if shard == self.workers() { self.connections.load(Ordering::Relaxed) } else { 0 }
    }
}

/// A runtime whose threads have shards. `with` sets further options.
///
/// # Errors
/// When the system refuses a thread.
pub fn runtime<R: Role>(
    shards: &Arc<Shards<R>>,
    with: impl FnOnce(&mut Builder) -> &mut Builder,
) -> io::Result<Runtime> {
    // All workers begin before any task runs, so that threads with higher numbers are not workers.
    let begun = Arc::new(Barrier::new(shards.workers() + 1));
    let (begins, ends, begins_too) = (Arc::clone(shards), Arc::clone(shards), Arc::clone(&begun));
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(shards.workers())
        .thread_name("grpc")
        .on_thread_start(move || {
            if begins.thread_begins() {
                begins_too.wait();
            }
        })
        .on_thread_stop(move || ends.thread_ends())
        .enable_all();
    let runtime = with(&mut builder).build()?;
    begun.wait();
    Ok(runtime)
}

/// Locks even after a panic: records are plain sums, so they stay usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
