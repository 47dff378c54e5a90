//! One run: connect everything, start together, measure, sum up.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use knee_reactor::process;
use knee_telemetry::{Load, LoadClosing, Moment, Reporter};

use crate::bottleneck;
use crate::complaints::Complaints;
use crate::error::{Error, Missing, Unusable};
use crate::open_loop::{Rate, server_of};
use crate::schedule::Think;

/// How long connections may take to stand.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a thread may take to tell that its connections stand, once they do.
const TELLING_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// How long answers that are outstanding at the end are waited for.
    pub(crate) drain: Duration,
    /// When to start, in seconds of the Unix epoch; at once when `None`.
    pub(crate) start_at_unix_s: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) verify: bool,
}

impl Plan {
    /// The numbers of the clients that a thread has.
    pub(crate) fn clients_of(&self, thread: usize) -> Range<u64> {
        let (thread, threads) = (thread as u64, self.threads as u64);
        thread * self.clients / threads..(thread + 1) * self.clients / threads
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
    /// By server: connections that stood before the start.
    stood: Vec<AtomicU64>,
    pub(crate) complaints: Complaints,
    pub(crate) interrupted: AtomicBool,
    /// Requests that were due and never sent, because every connection was full to the end.
    pub(crate) unsent: AtomicU64,
    /// Requests that had no answer when the time for that was over.
    pub(crate) unanswered: AtomicU64,
    /// Sends that had an intended time; and those of them that went out late although there was
    /// room on a connection, which is nobody's fault but this process's.
    pub(crate) timed_sends: AtomicU64,
    pub(crate) own_late_sends: AtomicU64,
}

impl Run {
    pub(crate) fn new(plan: Plan, standing: Sender<Result<(), Error>>) -> Run {
        Run {
            stood: plan.servers.iter().map(|_| AtomicU64::default()).collect(),
            plan,
            start: OnceLock::new(),
            standing,
            complaints: Complaints::default(),
            interrupted: AtomicBool::new(false),
            unsent: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            timed_sends: AtomicU64::new(0),
            own_late_sends: AtomicU64::new(0),
        }
    }

    /// Another connection to this server stands, before the start.
    pub(crate) fn stands(&self, server: usize) {
        self.stood[server].fetch_add(1, Ordering::Relaxed);
    }

    /// What is told when the time is over in which connections may come to stand, unless all do.
    fn timeout(&self) -> Option<Error> {
        let missing = self.missing();
        (!missing.is_empty()).then_some(Error::ConnectTimeout { time: CONNECT_TIMEOUT, missing })
    }

    /// The servers to which connections do not stand yet.
    fn missing(&self) -> Vec<Missing> {
        let servers = self.plan.servers.len();
        let mut wanted = vec![0; servers];
        for number in 0..self.plan.clients {
            wanted[server_of(number, servers)] += 1;
        }
        let servers = self.plan.servers.iter().zip(&self.stood).zip(wanted);
        let servers = servers.map(|((server, stood), wanted)| {
            let missing = wanted - stood.load(Ordering::Relaxed);
            Missing { server: *server, missing, wanted }
        });
        servers.filter(|server| server.missing > 0).collect()
    }

    /// Tells how many requests had no answer when the time for that was over, if there are any.
    fn complain_of_unanswered(&self) {
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        if unanswered > 0 {
            self.complaints.tell(format!(
                "{unanswered} requests were not answered within {} s after the end: they count as \
                 errors",
                self.plan.drain.as_secs_f64()
            ));
        }
    }
}

/// The threads that put a run's load on.
pub(crate) trait Driver: Sized {
    /// Starts the threads that have the plan's clients. Each tells `run.standing` when their
    /// connections stand, and begins when the run's start is known. `parent` is the process to end
    /// with.
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

/// Threads that put load on.
pub(crate) trait Driving {
    /// The run's start is known.
    fn start_is_known(&self);

    /// Ends them before their time.
    fn end(&self);

    /// Waits until they have ended.
    ///
    /// # Errors
    /// What ended one of them that should not have.
    fn join(self: Box<Self>) -> Result<(), Error>;
}

/// Makes signals, and the end of the parent process if that is given, call `end`.
pub(crate) fn end_with(parent: Option<u32>, end: impl Fn() + Send + 'static) -> Result<(), Error> {
    process::on_signals(end).map_err(Error::System)?;
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
    driver: impl Driver,
    parent: Option<u32>,
    mut reporter: Reporter<Load>,
) -> Result<(), Error> {
    let open_files_max = process::raise_open_files_limit().map_err(Error::System)?;
    if plan.clients + DESCRIPTORS_SPARE > open_files_max {
        return Err(Error::TooManyClients { clients: plan.clients, open_files_max });
    }

    let (standing, told) = channel();
    let run = Arc::new(Run::new(plan, standing));
    let driving = driver.start(&run, &mut reporter, parent)?;
    let connected = Instant::now() + CONNECT_TIMEOUT;
    let stand = wait_until_standing(&told, &run, connected, connected + TELLING_TIMEOUT);
    let start = stand.and_then(|()| start_instant(run.plan.start_at_unix_s));
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
    // Set once, here.
    let _ = run.start.set(start);
    driving.start_is_known();
    driving.join()?;
    run.complain_of_unanswered();
    // A connection may be lost after all of them stood and before the start.
    told.try_iter().collect::<Result<(), Error>>()?;
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

/// Waits until all threads have told that their connections stand: these have to until `connected`, and
/// that has to be told until `told_of`.
fn wait_until_standing(
    told: &Receiver<Result<(), Error>>,
    run: &Run,
    connected: Instant,
    told_of: Instant,
) -> Result<(), Error> {
    let hear = |until: Instant| told.recv_timeout(until.saturating_duration_since(Instant::now()));
    for _ in 0..run.plan.threads {
        let outcome = match hear(connected) {
            Ok(Err(error @ Error::Connect { why: Unusable::Silent(_), .. })) => {
                // Its time is over when that of all others is: none of them is left out.
                return Err(run.timeout().unwrap_or(error));
            }
            Ok(outcome) => outcome,
            Err(_) => match run.timeout() {
                Some(timeout) => return Err(timeout),
                // The last ones stand by now: their threads are about to tell, unless one has died.
                None => hear(told_of).unwrap_or(Err(Error::Untold { time: TELLING_TIMEOUT })),
            },
        };
        outcome?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn who_stands_at_the_last_moment_is_waited_for_until_that_is_told() {
        let (standing, told) = channel();
        let run = Run::new(plan(), standing.clone());
        let over = Instant::now();
        let long = over + Duration::from_secs(3600);
        let server = run.plan.servers[0];
        let both = [Missing { server, missing: 2, wanted: 2 }];
        assert_eq!(missing(wait_until_standing(&told, &run, over, long)), both);
        run.stands(0);
        let one = [Missing { server, missing: 1, wanted: 2 }];
        assert_eq!(missing(wait_until_standing(&told, &run, over, long)), one);
        run.stands(0);
        let telling = std::thread::spawn(move || {
            std::thread::yield_now();
            standing.send(Ok(())).unwrap();
        });
        wait_until_standing(&told, &run, over, long).unwrap();
        telling.join().unwrap();
    }

    #[test]
    fn who_never_tells_that_all_stand_is_not_waited_for() {
        let (standing, told) = channel();
        let run = Run::new(plan(), standing);
        run.stands(0);
        run.stands(0);
        let over = Instant::now();
        let outcome = wait_until_standing(&told, &run, over, over);
        assert!(matches!(outcome, Err(Error::Untold { .. })), "{outcome:?}");
    }

    #[test]
    fn whichever_silent_server_is_told_of_first_all_are_named() {
        let (standing, told) = channel();
        let servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let servers = servers.map(|server| server.parse().unwrap());
        let plan = Plan { servers: servers.to_vec(), clients: 5, threads: 3, ..plan() };
        let run = Run::new(plan, standing.clone());
        run.stands(1);
        run.stands(0);
        run.stands(1);
        let silent = |server| {
            let why = Unusable::Silent(CONNECT_TIMEOUT);
            standing.send(Err(Error::Connect { server, why })).unwrap();
        };
        silent(servers[2]);
        silent(servers[0]);
        let long = Instant::now() + Duration::from_secs(3600);
        let expected = [
            Missing { server: servers[0], missing: 1, wanted: 2 },
            Missing { server: servers[2], missing: 1, wanted: 1 },
        ];
        assert_eq!(missing(wait_until_standing(&told, &run, long, long)), expected);
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
            length: Duration::ZERO,
            drain: Duration::ZERO,
            start_at_unix_s: None,
            seed: 1,
            verify: false,
        }
    }
}
