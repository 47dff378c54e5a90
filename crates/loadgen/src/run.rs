//! One run: connect everything, start together, measure, sum up.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use knee_reactor::{Config, Group, process};
use knee_telemetry::{Load, LoadClosing, LoadGauges, Moment, Reporter};

use crate::bottleneck;
use crate::clients::Clients;
use crate::complaints::Complaints;
use crate::error::Error;
use crate::open_loop::Rate;
use crate::schedule::Think;
use crate::values::VALUE_BYTES_MAX;
use crate::workload::Workload;

/// How long connections may take to stand.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// By how much an agreed start may have passed when the connections stand.
const START_LATE_MAX: Duration = Duration::from_secs(1);

/// Descriptors besides the connections: standard streams, polls, timers, logs, admin.
const DESCRIPTORS_SPARE: u64 = 64;

/// When clients send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// When the last answer has come and they have thought for a while.
    Closed(Think),
    /// By a schedule.
    Open(Rate),
}

/// What a run is told to do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) clients: u64,
    pub(crate) threads: usize,
    /// Requests in flight per connection: always so many in a closed loop, at most in an open one.
    pub(crate) pipeline: usize,
    pub(crate) pace: Pace,
    pub(crate) length: Duration,
    /// When to start, in seconds of the Unix epoch; at once when `None`.
    pub(crate) start_at_unix_s: Option<f64>,
    pub(crate) workload: Workload,
    pub(crate) verify: bool,
}

impl Plan {
    /// The longest answer: a retrieval whose values are all as large as can be.
    pub(crate) fn response_bytes_max(&self) -> usize {
        self.workload.multiget as usize * (VALUE_BYTES_MAX as usize + 512) + 4096
    }
}

/// What the threads of a run share. Nothing of it is written per request.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// When to start, once it is known.
    pub(crate) start: OnceLock<Instant>,
    /// Each thread tells when its connections stand, or that one does not.
    pub(crate) standing: Sender<Result<(), Error>>,
    pub(crate) complaints: Complaints,
    pub(crate) told_wrong_value: AtomicBool,
    pub(crate) interrupted: AtomicBool,
    /// Requests that were due and never sent, because every connection was full to the end.
    pub(crate) unsent: AtomicU64,
    /// Sends that had an intended time; and those of them that went out late although there was
    /// room on a connection, which is nobody's fault but this process's.
    pub(crate) timed_sends: AtomicU64,
    pub(crate) own_late_sends: AtomicU64,
}

/// Makes signals, and the end of the parent process if that is given, begin the group's shutdown.
pub(crate) fn end_with(group: &Group, parent: Option<u32>) -> Result<(), Error> {
    process::shutdown_on_signals(group.shutdown()).map_err(Error::System)?;
    match parent {
        Some(parent) => process::tie_to_parent(parent).map_err(Error::System),
        None => Ok(()),
    }
}

/// Runs the plan to its end, or until a signal, and prints what came of it. `parent` is the process
/// to end with.
///
/// # Errors
/// When connections do not stand, the agreed start has passed, or the system refuses something.
pub(crate) fn run(
    plan: Plan,
    parent: Option<u32>,
    mut reporter: Reporter<Load>,
) -> Result<(), Error> {
    let open_files_max = process::raise_open_files_limit().map_err(Error::System)?;
    if plan.clients + DESCRIPTORS_SPARE > open_files_max {
        return Err(Error::TooManyClients { clients: plan.clients, open_files_max });
    }

    let config = Config {
        input_bytes_max: plan.response_bytes_max() + Config::default().read_bytes,
        ..Config::default()
    };
    let (standing, told) = channel();
    let run = Arc::new(Run {
        plan,
        start: OnceLock::new(),
        standing,
        complaints: Complaints::default(),
        told_wrong_value: AtomicBool::new(false),
        interrupted: AtomicBool::new(false),
        unsent: AtomicU64::new(0),
        timed_sends: AtomicU64::new(0),
        own_late_sends: AtomicU64::new(0),
    });

    let threads = run.plan.threads as u64;
    let clients = run.plan.clients;
    let now = Moment::now();
    let mut wakers = Vec::new();
    let group = Group::start("load", run.plan.threads, &config, None, |thread, all| {
        wakers = all.to_vec();
        let thread = thread as u64;
        let recorder = reporter.recorder(format!("load-{thread}"), LoadGauges::default(), now);
        let numbers = thread * clients / threads..(thread + 1) * clients / threads;
        Clients::new(Arc::clone(&run), recorder, numbers)
    })
    .map_err(Error::System)?;
    end_with(&group, parent)?;

    let start = wait_until_standing(&told, run.plan.threads)
        .and_then(|()| start_instant(run.plan.start_at_unix_s));
    let start = match start {
        Ok(start) => start,
        Err(error) => {
            group.shutdown().begin();
            group.join().map_err(Error::System)?;
            return Err(error);
        }
    };
    reporter.ready(None);
    let reporting = reporter.start().map_err(Error::System)?;
    // Set once, here.
    let _ = run.start.set(start);
    for waker in wakers {
        waker.wake();
    }
    group.join().map_err(Error::System)?;
    // A connection may be lost after all of them stood and before the start.
    told.try_iter().collect::<Result<(), Error>>()?;
    reporting.finish(|totals| LoadClosing {
        clients,
        bottleneck: bottleneck::find(totals, &run),
        interrupted: run.interrupted.load(Ordering::Relaxed),
        unsent: run.unsent.load(Ordering::Relaxed),
    });
    Ok(())
}

fn wait_until_standing(told: &Receiver<Result<(), Error>>, threads: usize) -> Result<(), Error> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    for _ in 0..threads {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(outcome) => outcome?,
            Err(RecvTimeoutError::Timeout) => return Err(Error::ConnectTimeout(CONNECT_TIMEOUT)),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Interrupted),
        }
    }
    Ok(())
}

/// The agreed start on the monotonic clock. It is converted once: a wall clock that is set later
/// does not move it.
fn start_instant(start_at_unix_s: Option<f64>) -> Result<Instant, Error> {
    let now = Moment::now();
    let Some(start_at_unix_s) = start_at_unix_s else { return Ok(now.mono) };
    let start = UNIX_EPOCH + Duration::from_secs_f64(start_at_unix_s);
    match start.duration_since(now.wall) {
        Ok(ahead) => Ok(now.mono + ahead),
        Err(passed) if passed.duration() <= START_LATE_MAX => Ok(now.mono),
        Err(passed) => Err(Error::StartPassed { by: passed.duration() }),
    }
}
