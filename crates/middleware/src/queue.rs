//! The request queue of the worker slots: one FIFO for all threads.
//!
//! While no request waits, a thread serves its own clients' requests with its own idle slots. Otherwise it puts a
//! request into the queue, with a copy of its bytes. The next thread with an idle slot takes the request. The answer
//! returns to the client's thread through its mailbox.
//!
//! No wake-up is lost (Dekker's argument). A thread with a job *queues it, then looks for idle slots*. A thread with
//! idle slots *publishes them, then looks into the queue*. Both sides are sequentially consistent, so at least one of
//! the threads sees the other.

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
    /// The client's thread, and the flight there.
    pub(crate) thread: u32,
    pub(crate) flight: u32,
    pub(crate) route: Route,
    pub(crate) opaque: Opaque,
    pub(crate) condition: Condition,
    pub(crate) request: Vec<u8>,
}

/// A served job with its reply, for the client's thread.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) flight: u32,
    pub(crate) reply: Vec<u8>,
    /// The job's buffer, returned for reuse.
    pub(crate) request: Vec<u8>,
    pub(crate) outcome: Outcome,
    pub(crate) dequeued: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    /// Bit set of the servers asked.
    pub(crate) tried: u64,
}

#[derive(Debug)]
struct Seat {
    waker: Waker,
    /// Idle slots when the thread last looked into the queue.
    idle: AtomicUsize,
    /// Whether the thread was woken, but does not run yet.
    called: AtomicBool,
    mailbox: ArrayQueue<Served>,
}

/// The state that the threads of a middleware share.
#[derive(Debug)]
pub(crate) struct Shared {
    jobs: ArrayQueue<Job>,
    seats: Vec<Seat>,
    /// Number of threads that have not tried every server yet.
    starting: AtomicUsize,
    /// Number of threads with clients that still wait for answers after a shutdown has begun.
    undrained: AtomicUsize,
    /// The creation of this state, and the milliseconds from then to the last request (0: none yet).
    made: Instant,
    last_request_ms: AtomicU64,
    /// Whether a server has sent an answer that fits no request.
    mismatch_seen: AtomicBool,
}

impl Shared {
    /// The state for threads with these wakers. A thread may have at most `jobs_max` jobs in the queue or at other
    /// threads, because its mailbox has room for only `jobs_max` answers.
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
            starting: AtomicUsize::new(wakers.len()),
            undrained: AtomicUsize::new(wakers.len()),
            made: Instant::now(),
            last_request_ms: AtomicU64::new(0),
            mismatch_seen: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn put(&self, job: Job) {
        let full = self.jobs.push(job).is_err();
        assert!(!full, "the queue has no room for a thread's job");
    }

    pub(crate) fn take(&self) -> Option<Job> {
        self.jobs.pop()
    }

    /// Publishes the number of idle slots of `thread`. Look into the queue afterwards.
    pub(crate) fn publish_idle(&self, thread: usize, idle: usize) {
        if self.seats.len() > 1 {
            self.seats[thread].idle.store(idle, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Wakes as many threads with idle slots as the queue has work for. Queue the jobs before.
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

    /// Wakes a thread, unless another thread has done so.
    fn call(&self, thread: usize) {
        if !self.seats[thread].called.swap(true, Ordering::SeqCst) {
            self.seats[thread].waker.wake();
        }
    }

    /// Notes that the thread runs, and is about to look into its mailbox and the queue.
    pub(crate) fn awake(&self, thread: usize) {
        self.seats[thread].called.store(false, Ordering::SeqCst);
    }

    /// Sends an answer to the client's thread.
    pub(crate) fn post(&self, thread: usize, served: Served) {
        let full = self.seats[thread].mailbox.push(served).is_err();
        assert!(!full, "the mailbox has no room for a thread's answer");
        self.call(thread);
    }

    pub(crate) fn answers(&self, thread: usize) -> impl Iterator<Item = Served> + '_ {
        std::iter::from_fn(move || self.seats[thread].mailbox.pop())
    }

    /// Notes that a thread has tried every server. After the last thread, wakes all threads.
    pub(crate) fn started(&self) {
        if self.starting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_all();
        }
    }

    pub(crate) fn is_starting(&self) -> bool {
        self.starting.load(Ordering::Acquire) > 0
    }

    pub(crate) fn wake_all(&self) {
        for seat in &self.seats {
            seat.waker.wake();
        }
    }

    /// Notes that a thread's clients have all their answers. After the last thread, wakes all threads.
    pub(crate) fn drained(&self) {
        if self.undrained.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_all();
        }
    }

    /// Whether the clients of all threads have their answers.
    pub(crate) fn all_drained(&self) -> bool {
        self.undrained.load(Ordering::SeqCst) == 0
    }

    /// Notes that requests came at `now`.
    pub(crate) fn heard(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.made).as_millis() as u64;
        self.last_request_ms.store(ms.max(1), Ordering::Relaxed);
    }

    /// Whether this is the first answer that does not fit its request. Only the first one is reported.
    pub(crate) fn is_first_mismatch(&self) -> bool {
        !self.mismatch_seen.swap(true, Ordering::Relaxed)
    }

    /// The time since the last request; `None` before the first request.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Duration> {
        let last = self.last_request_ms.load(Ordering::Relaxed);
        let last_at = self.made + Duration::from_millis(last);
        (last > 0).then(|| now.saturating_duration_since(last_at))
    }
}
