//! The request queue of the worker slots: one FIFO for all threads.
//!
//! A thread serves its own clients' requests with its own idle slots as long as no request waits.
//! Otherwise a request is put into the queue, with a copy of its bytes, and whichever thread has an
//! idle slot next takes it; the answer returns to the client's thread through its mailbox.
//!
//! No wake-up is lost (Dekker's argument): a thread *puts, then looks for idle slots*; another
//! *publishes its idle slots, then looks into the queue*. Both sides are sequentially consistent, so
//! at least one of them sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use knee_reactor::Waker;

use crate::cas::Condition;
use crate::flight::Outcome;
use crate::opaque::Opaque;
use crate::route::Route;

/// A request that waits for a worker slot.
#[derive(Debug)]
pub(crate) struct Job {
    /// The thread of its client, and its flight there.
    pub(crate) thread: u32,
    pub(crate) flight: u32,
    pub(crate) route: Route,
    pub(crate) opaque: Opaque,
    pub(crate) condition: Condition,
    pub(crate) request: Vec<u8>,
}

/// Another thread's job with its reply.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) flight: u32,
    pub(crate) reply: Vec<u8>,
    /// The job's buffer, on its way back to be used again.
    pub(crate) request: Vec<u8>,
    pub(crate) outcome: Outcome,
    pub(crate) dequeued: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    /// Servers asked, a bit each.
    pub(crate) tried: u64,
}

#[derive(Debug)]
struct Seat {
    waker: Waker,
    /// Idle slots, as of when the thread last looked into the queue.
    idle: AtomicUsize,
    /// Woken and not yet up.
    called: AtomicBool,
    mailbox: ArrayQueue<Served>,
}

/// What the threads of a middleware share.
#[derive(Debug)]
pub(crate) struct Shared {
    jobs: ArrayQueue<Job>,
    seats: Vec<Seat>,
    /// Threads with requests of their own clients still under way after a shutdown has begun.
    undrained: AtomicUsize,
    /// When the middleware was made, and how many milliseconds later the last requests came (0: none yet).
    made: Instant,
    last_request_ms: AtomicU64,
    /// A server has answered what was not asked.
    mismatch_seen: AtomicBool,
}

impl Shared {
    /// For threads with these wakers. A thread may have at most `jobs_max` jobs in the queue or
    /// with others at a time: so many answers fit into its mailbox.
    pub(crate) fn new(wakers: &[Waker], jobs_max: usize) -> Arc<Shared> {
        let answers_max = if wakers.len() > 1 { jobs_max } else { 1 };
        Arc::new(Shared {
            jobs: ArrayQueue::new(jobs_max * wakers.len()),
            seats: wakers
                .iter()
                .map(|waker| Seat {
                    waker: waker.clone(),
                    idle: AtomicUsize::new(0),
                    called: AtomicBool::new(false),
                    mailbox: ArrayQueue::new(answers_max),
                })
                .collect(),
            undrained: AtomicUsize::new(wakers.len()),
            made: Instant::now(),
            last_request_ms: AtomicU64::new(0),
            mismatch_seen: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Puts a job at the end of the queue.
    pub(crate) fn put(&self, job: Job) {
        let full = self.jobs.push(job).is_err();
        assert!(!full, "a thread has more jobs away than the queue has room for");
    }

    /// Takes the job that has waited longest.
    pub(crate) fn take(&self) -> Option<Job> {
        self.jobs.pop()
    }

    /// Tells the others how many idle slots `thread` has; to be followed by a look into the queue.
    pub(crate) fn publish_idle(&self, thread: usize, idle: usize) {
        if self.seats.len() > 1 {
            self.seats[thread].idle.store(idle, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Wakes as many threads with idle slots as the queue has work for; to be preceded by puts.
    pub(crate) fn call_idle(&self, thread: usize) {
        if self.seats.len() == 1 {
            return;
        }
        fence(Ordering::SeqCst);
        let mut waiting = self.jobs.len();
        for (other, seat) in self.seats.iter().enumerate() {
            if waiting == 0 {
                break;
            }
            let idle = seat.idle.load(Ordering::SeqCst);
            if other != thread && idle > 0 {
                self.call(other);
                waiting = waiting.saturating_sub(idle);
            }
        }
    }

    /// Wakes a thread, unless another has already.
    fn call(&self, thread: usize) {
        if !self.seats[thread].called.swap(true, Ordering::SeqCst) {
            self.seats[thread].waker.wake();
        }
    }

    /// The thread is up and about to look into mailbox and queue.
    pub(crate) fn awake(&self, thread: usize) {
        self.seats[thread].called.store(false, Ordering::SeqCst);
    }

    /// Sends an answer to the thread whose client waits for it.
    pub(crate) fn post(&self, thread: usize, served: Served) {
        let full = self.seats[thread].mailbox.push(served).is_err();
        assert!(!full, "a thread has more jobs away than its mailbox holds answers");
        self.call(thread);
    }

    pub(crate) fn answers(&self, thread: usize) -> impl Iterator<Item = Served> + '_ {
        std::iter::from_fn(move || self.seats[thread].mailbox.pop())
    }

    /// A thread's clients have all their answers. Wakes all when that was the last thread.
    pub(crate) fn drained(&self) {
        if self.undrained.fetch_sub(1, Ordering::SeqCst) == 1 {
            for seat in &self.seats {
                seat.waker.wake();
            }
        }
    }

    /// Whether no thread's client waits for an answer any more.
    pub(crate) fn all_drained(&self) -> bool {
        self.undrained.load(Ordering::SeqCst) == 0
    }

    /// Requests have come at `now`.
    pub(crate) fn heard(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.made).as_millis() as u64;
        self.last_request_ms.store(ms.max(1), Ordering::Relaxed);
    }

    /// Whether this is the first answer that does not fit its request: only that one is reported.
    pub(crate) fn is_first_mismatch(&self) -> bool {
        !self.mismatch_seen.swap(true, Ordering::Relaxed)
    }

    /// How long no request has come; `None` before the first.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Duration> {
        let last = self.last_request_ms.load(Ordering::Relaxed);
        let last_at = self.made + Duration::from_millis(last);
        (last > 0).then(|| now.saturating_duration_since(last_at))
    }
}
