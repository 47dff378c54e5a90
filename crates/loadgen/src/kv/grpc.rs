//! The operations as calls of `knee.kv.v1`.
//!
//! Each thread has a runtime of its own and the connections of its clients, one each; nothing of a
//! request crosses threads.
//!
//! * `thread`: the clients of one thread, from connecting to the last answer. `link`: one client's
//!   connection, now and after a loss. `connection`: HTTP/2 on it. `wanted`: what may be found where a
//!   server ought to be. `alarm`: timers as exact as the event loop's.
//! * `message`: an operation as a call, and what its answer says.
//! * `populate`: the phase that only fills the stores. `init`: the one in which they load a file.

pub(crate) mod alarm;
pub(crate) mod connection;
mod init;
pub(crate) mod link;
mod message;
mod populate;
mod thread;
pub(crate) mod wanted;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread::JoinHandle;

use knee_telemetry::{Load, LoadGauges, Moment, Recorder, Reporter};
use tokio::sync::watch;

pub(crate) use init::init;
pub(crate) use populate::populate;

use super::workload::Workload;
use crate::error::Error;
use crate::run::{Driver, Driving, Run, end_with};

/// The longest answer: lists with some ten million elements.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Clients that speak gRPC, on a runtime for each thread.
#[derive(Debug)]
pub(crate) struct OverGrpc {
    pub(crate) workload: Workload,
    /// Writes have an id, by which the server tells one that comes again.
    pub(crate) request_ids: bool,
}

/// What the threads are told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// The run's start is known.
    pub(crate) starts: bool,
    /// It ends before its time.
    pub(crate) ends: bool,
}

struct Threads {
    told: watch::Sender<Told>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

impl Driver for OverGrpc {
    fn start(
        self,
        run: &Arc<Run>,
        reporter: &mut Reporter<Load>,
        parent: Option<u32>,
    ) -> Result<Box<dyn Driving>, Error> {
        let OverGrpc { workload, request_ids } = self;
        let workload = Arc::new(workload);
        // A second run of a seed does not repeat the requests of the first: their ids must differ.
        let process = request_ids.then(|| RandomState::new().hash_one(std::process::id()));
        start_threads(run, reporter, parent, move |run, recorder, number, told| {
            thread::run(run, Arc::clone(&workload), recorder, number, process, told)
        })
    }
}

/// Starts the plan's threads: each is `live`, with its recorder and its number.
pub(crate) fn start_threads(
    run: &Arc<Run>,
    reporter: &mut Reporter<Load>,
    parent: Option<u32>,
    live: impl Fn(Arc<Run>, Recorder<Load>, usize, watch::Receiver<Told>) -> Result<(), Error>
    + Clone
    + Send
    + 'static,
) -> Result<Box<dyn Driving>, Error> {
    let (told, telling) = watch::channel(Told::default());
    let now = Moment::now();
    let mut threads = Vec::new();
    for number in 0..run.plan.threads {
        let name = format!("load-{number}");
        let recorder = reporter.recorder(name.as_str(), LoadGauges::default(), now);
        let (run, live, telling) = (Arc::clone(run), live.clone(), telling.clone());
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || live(run, recorder, number, telling))
            .map_err(Error::System)?;
        threads.push(thread);
    }
    let end = told.clone();
    end_with(parent, move || end.send_modify(|told| told.ends = true))?;
    Ok(Box::new(Threads { told, threads }))
}

impl Driving for Threads {
    fn start_is_known(&self) {
        self.told.send_modify(|told| told.starts = true);
    }

    fn end(&self) {
        self.told.send_modify(|told| told.ends = true);
    }

    fn join(self: Box<Self>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(ended) => outcome = outcome.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    }
}
