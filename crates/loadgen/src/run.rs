//! One run: connect everything, start together, measure, sum up.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use knee_reactor::process;
use knee_telemetry::{Load, LoadClosing, Moment, Reporter};

use crate::bottleneck;
use crate::complaints::Complaints;
use crate::error::{Error, Missing, Unusable};
use crate::open_loop::{Rate, server_of};
use crate::schedule::Think;

/// How long the opening of all connections may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// By how much the agreed start may have passed when the connections are open.
const START_LATE_MAX: Duration = Duration::from_secs(1);

/// Number of descriptors besides the connections: standard streams, polls, timers, logs, admin.
const DESCRIPTORS_SPARE: u64 = 64;

/// When clients send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Closed loop: a client sends its next request a think time after the last answer.
    Closed(Think),
    /// Open loop: a schedule determines when requests are due.
    Open(Rate),
}

/// A load that grows: every `every`, `clients` more clients begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ramp {
    pub(crate) clients: u64,
    pub(crate) every: Duration,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) clients: u64,
    pub(crate) threads: usize,
    /// Number of requests in flight per connection: exactly this number in a closed loop, at most this number in an
    /// open loop.
    pub(crate) pipeline: usize,
    pub(crate) pace: Pace,
    /// Closed loop: `None` if all clients begin at the start.
    pub(crate) ramp: Option<Ramp>,
    pub(crate) length: Duration,
    /// How long the run waits for outstanding answers after the end.
    pub(crate) drain: Duration,
    /// When to start, in seconds of the Unix epoch; `None`: at once.
    pub(crate) start_at_unix_s: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) verify: bool,
}

impl Plan {
    pub(crate) fn clients_of(&self, thread: usize) -> Range<u64> {
        let (thread, threads) = (thread as u64, self.threads as u64);
        thread * self.clients / threads..(thread + 1) * self.clients / threads
    }

    /// How long after the start a client begins. Each step of a ramp takes its clients from all threads.
    pub(crate) fn begins_after(&self, number: u64) -> Duration {
        let Some(ramp) = self.ramp else { return Duration::ZERO };
        let threads = self.threads as u64;
        let thread = ((number + 1) * threads - 1) / self.clients;
        let rank = (number - thread * self.clients / threads) * threads + thread;
        let step = rank.min(self.clients - 1) / ramp.clients;
        ramp.every.saturating_mul(u32::try_from(step).unwrap_or(u32::MAX))
    }
}

/// The state that the threads of a run share. Threads write to it at the start, at the end and on errors, not per
/// request.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// The time of the start; empty until all connections are open.
    pub(crate) start: OnceLock<Instant>,
    /// Each thread sends one message before the start: all its connections are open, or why a connection is not.
    pub(crate) ready: Sender<Result<(), Error>>,
    /// By server: connections that were opened before the start.
    opened: Vec<AtomicU64>,
    pub(crate) complaints: Complaints,
    pub(crate) interrupted: AtomicBool,
    /// Number of requests that were due but never sent, because every connection was full or lost until the end.
    pub(crate) unsent: AtomicU64,
    /// Number of requests without an answer when the drain time was over.
    pub(crate) unanswered: AtomicU64,
    /// Number of sends that had an intended time.
    pub(crate) timed_sends: AtomicU64,
    /// Those of `timed_sends` that were late although a connection had room. Only this process can have delayed them.
    pub(crate) own_late_sends: AtomicU64,
}

impl Run {
    pub(crate) fn new(plan: Plan, ready: Sender<Result<(), Error>>) -> Run {
        Run {
            opened: plan.servers.iter().map(|_| AtomicU64::default()).collect(),
            plan,
            start: OnceLock::new(),
            ready,
            complaints: Complaints::default(),
            interrupted: AtomicBool::new(false),
            unsent: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            timed_sends: AtomicU64::new(0),
            own_late_sends: AtomicU64::new(0),
        }
    }

    pub(crate) fn count_open(&self, server: usize) {
        self.opened[server].fetch_add(1, Ordering::Relaxed);
    }

    fn timeout(&self) -> Error {
        Error::ConnectTimeout { time: CONNECT_TIMEOUT, missing: self.missing() }
    }

    /// The servers to which some connections are not open.
    fn missing(&self) -> Vec<Missing> {
        let servers = self.plan.servers.len();
        let mut wanted = vec![0; servers];
        for number in 0..self.plan.clients {
            wanted[server_of(number, servers)] += 1;
        }
        let servers = self.plan.servers.iter().zip(&self.opened).zip(wanted);
        let servers = servers.map(|((server, opened), wanted)| {
            let missing = wanted - opened.load(Ordering::Relaxed);
            Missing { server: *server, missing, wanted }
        });
        servers.filter(|server| server.missing > 0).collect()
    }

    /// Prints how many requests had no answer when the drain time was over.
    fn report_unanswered(&self) {
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        if unanswered > 0 {
            self.complaints.tell(format!(
                "{unanswered} requests were not answered within {} s after the end; they count as \
                 errors",
                self.plan.drain.as_secs_f64()
            ));
        }
    }
}

/// Starts the threads that send a run's requests.
pub(crate) trait Driver: Sized {
    /// Starts the threads of the plan's clients. Each thread sends to `run.ready` when its connections are open, and
    /// begins when the run's start is known. If the process `parent` ends, the threads end.
    ///
    /// # Errors
    /// When the system refuses something.
    fn start(
        self,
        run: &Arc<Run>,
        reporter: &mut Reporter<Load>,
        parent: Option<u32>,
    ) -> Result<Box<dyn Driving>, Error>;
}

/// The threads of a run.
pub(crate) trait Driving {
    /// Notifies the threads that the run's start is known.
    fn start_is_known(&self);

    /// Ends the threads before the end of the run.
    fn end(&self);

    /// Waits until the threads have ended.
    ///
    /// # Errors
    /// When a thread failed.
    fn join(self: Box<Self>) -> Result<(), Error>;
}

/// Calls `end` at a signal. If the process `parent` ends, this process gets such a signal.
pub(crate) fn end_with(parent: Option<u32>, end: impl Fn() + Send + 'static) -> Result<(), Error> {
    process::on_signals(end).map_err(Error::System)?;
    match parent {
        Some(parent) => process::tie_to_parent(parent).map_err(Error::System),
        None => Ok(()),
    }
}

/// Runs the plan to its end, or until a signal or the end of `parent`, and prints its measurements.
///
/// # Errors
/// When a connection cannot be opened, the agreed start has passed, or the system refuses something.
pub(crate) fn run(
    plan: Plan,
    driver: impl Driver,
    parent: Option<u32>,
    mut reporter: Reporter<Load>,
) -> Result<(), Error> {
    let open_files_max = process::raise_open_files_limit().map_err(Error::System)?;
    if plan.clients + DESCRIPTORS_SPARE > open_files_max {
        return Err(Error::TooManyClients { clients: plan.clients, open_files_max });
    }

    let (sender, ready) = channel();
    let run = Arc::new(Run::new(plan, sender));
    let driving = driver.start(&run, &mut reporter, parent)?;
    let opened = wait_until_open(&ready, &run, Instant::now() + CONNECT_TIMEOUT);
    let start = opened.and_then(|()| start_instant(run.plan.start_at_unix_s));
    let start = match start {
        Ok(start) => start,
        Err(error) => {
            driving.end();
            driving.join()?;
            return Err(error);
        }
    };
    reporter.ready(None);
    let reporting = reporter.start().map_err(Error::System)?;
    // This is the only place that sets it, so it cannot fail.
    let _ = run.start.set(start);
    driving.start_is_known();
    driving.join()?;
    run.report_unanswered();
    // A thread reports a connection that is lost between the last opening and the start.
    ready.try_iter().collect::<Result<(), Error>>()?;
    reporting.finish(|totals| LoadClosing {
        clients: run.plan.clients,
        bottleneck: bottleneck::find(
            totals,
            run.timed_sends.load(Ordering::Relaxed),
            run.own_late_sends.load(Ordering::Relaxed),
        ),
        interrupted: run.interrupted.load(Ordering::Relaxed),
        unsent: run.unsent.load(Ordering::Relaxed),
    });
    Ok(())
}

fn wait_until_open(
    ready: &Receiver<Result<(), Error>>,
    run: &Run,
    until: Instant,
) -> Result<(), Error> {
    for _ in 0..run.plan.threads {
        match ready.recv_timeout(until.saturating_duration_since(Instant::now())) {
            // A timeout names all servers without an answer, not only the first.
            Ok(Err(Error::Connect { why: Unusable::Silent(_), .. })) | Err(_) => {
                return Err(run.timeout());
            }
            Ok(outcome) => outcome?,
        }
    }
    Ok(())
}

/// The agreed start on the monotonic clock, so that a later change of the wall clock does not move it.
fn start_instant(start_at_unix_s: Option<f64>) -> Result<Instant, Error> {
    let now = Moment::now();
    let Some(start_at_unix_s) = start_at_unix_s else { return Ok(now.mono) };
    let (start, now_at) =
        (Duration::from_secs_f64(start_at_unix_s), Duration::from_nanos(now.unix_ns));
    match now_at.checked_sub(start) {
        None => Ok(now.mono + (start - now_at)),
        Some(passed) if passed <= START_LATE_MAX => Ok(now.mono),
        Some(by) => Err(Error::StartPassed { by }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn timeout_of_one_server_names_all_silent_servers() {
        let (sender, ready) = channel();
        let servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let servers = servers.map(|server| server.parse().unwrap());
        let plan = Plan { servers: servers.to_vec(), clients: 5, threads: 3, ..plan() };
        let run = Run::new(plan, sender.clone());
        run.count_open(1);
        run.count_open(0);
        run.count_open(1);
        let silent = |server| {
            let why = Unusable::Silent(CONNECT_TIMEOUT);
            sender.send(Err(Error::Connect { server, why })).unwrap();
        };
        silent(servers[2]);
        silent(servers[0]);
        let long = Instant::now() + Duration::from_secs(3600);
        let expected = [
            Missing { server: servers[0], missing: 1, wanted: 2 },
            Missing { server: servers[2], missing: 1, wanted: 1 },
        ];
        assert_eq!(missing(wait_until_open(&ready, &run, long)), expected);
    }

    #[test]
    fn timeout_without_silent_server_names_the_thread() {
        let (sender, ready) = channel();
        let run = Run::new(plan(), sender);
        run.count_open(0);
        run.count_open(0);
        let error = wait_until_open(&ready, &run, Instant::now()).unwrap_err();
        let expected = "all connections are open, but a load thread was not ready within 10 s";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn ramp_steps_have_equal_clients_of_every_thread() {
        let ramp = Ramp { clients: 4, every: Duration::from_secs(30) };
        for threads in 1..=4 {
            let plan = Plan { clients: 12, threads, ramp: Some(ramp), ..plan() };
            for step in 0..3 {
                let begin = |number: &u64| plan.begins_after(*number) == ramp.every * step;
                assert_eq!((0..12).filter(begin).count(), 4, "{threads} threads, step {step}");
                if threads != 3 {
                    let first = plan.clients_of(0).filter(begin).count();
                    assert_eq!(first, 4 / threads, "{threads} threads, step {step}");
                }
            }
        }
        assert_eq!(plan().begins_after(1), Duration::ZERO);
    }

    fn missing(outcome: Result<(), Error>) -> Vec<Missing> {
        match outcome {
            Err(Error::ConnectTimeout { missing, .. }) => missing,
            other => panic!("{other:?}"),
        }
    }

    fn plan() -> Plan {
        Plan {
            servers: vec!["127.0.0.1:1".parse().unwrap()],
            clients: 2,
            threads: 1,
            pipeline: 1,
            pace: Pace::Closed(Think::Never),
            ramp: None,
            length: Duration::ZERO,
            drain: Duration::ZERO,
            start_at_unix_s: None,
            seed: 1,
            verify: false,
        }
    }
}
