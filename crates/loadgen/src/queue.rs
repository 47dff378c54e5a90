//! Load on a message queue, over gRPC.
//!
//! * `content`: what messages say, and whether one says what it must. `talk`: what one client asks
//!   next, and what it makes of the answers, without a connection or a clock.
//! * `call`: its requests as calls of `knee.queue.v1`. `thread`: the clients of one thread, from
//!   connecting to the last answer.
//! * `backlog`: the phase that only stores messages.

mod backlog;
mod call;
mod content;
mod talk;
mod thread;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use knee_telemetry::{Load, Reporter};

pub(crate) use backlog::{Backlog, backlog};
pub(crate) use content::CHARACTERS_MAX;
pub(crate) use talk::{Receivers, Round};

use crate::error::Error;
use crate::kv::grpc::start_threads;
use crate::run::{Driver, Driving, Run};

/// What all clients have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) round: Round,
    pub(crate) receivers: Receivers,
    pub(crate) characters: usize,
    /// Who every client is, who otherwise registers anew.
    pub(crate) identity: Option<Identity>,
}

/// A client that was registered earlier, and the queue that counts as its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) client: u32,
    pub(crate) queue: u32,
}

/// Clients of a message queue, on a runtime for each thread.
#[derive(Debug)]
pub(crate) struct OverQueue(pub(crate) Workload);

/// The clients of all threads: any of them may be sent to.
#[derive(Debug, Default)]
struct Everybody(Mutex<Vec<u32>>);

impl Everybody {
    /// A number is pushed in one step: the list is whole whatever a thread that held it did.
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for OverQueue {
    fn start(
        self,
        run: &Arc<Run>,
        reporter: &mut Reporter<Load>,
        parent: Option<u32>,
    ) -> Result<Box<dyn Driving>, Error> {
        let OverQueue(workload) = self;
        let everybody = Arc::<Everybody>::default();
        start_threads(run, reporter, parent, move |run, recorder, number, told| {
            thread::run(run, workload, Arc::clone(&everybody), recorder, number, told)
        })
    }
}
