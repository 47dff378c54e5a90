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
use tokio::sync::OnceCell;

pub(crate) use backlog::{Backlog, backlog};
pub(crate) use content::CHARACTERS_MAX;
pub(crate) use talk::{Receivers, Round};

use self::call::Standing;
use crate::error::{Error, Unusable};
use crate::kv::grpc::start_threads;
use crate::run::{Driver, Driving, Run};

/// What all clients have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) round: Round,
    pub(crate) receivers: Receivers,
    pub(crate) characters: usize,
}

/// A client that was registered earlier, and the queue that counts as its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) client: u32,
    pub(crate) queue: u32,
}

/// Clients of a message queue, on a runtime for each thread.
#[derive(Debug)]
pub(crate) struct OverQueue {
    pub(crate) workload: Workload,
    /// Who the clients are, in turn; without any, each registers anew.
    pub(crate) registered: Vec<Identity>,
}

/// Who the clients of all threads are.
#[derive(Debug)]
struct Everybody {
    /// Those that were there before, whom clients take the parts of in turn.
    registered: Vec<Identity>,
    /// By server: whether it is known to know them.
    known: Vec<OnceCell<()>>,
    /// The numbers of those that have come: any of them may be sent to.
    present: Mutex<Vec<u32>>,
}

impl Everybody {
    /// Who the client with this number is, if it was registered earlier.
    fn earlier(&self, number: u64) -> Option<Identity> {
        let turn = number.checked_rem(self.registered.len() as u64)?;
        self.registered.get(turn as usize).copied()
    }

    /// Asks a server whether it knows those that were there before, unless somebody has done so already. That it knows
    /// the newest is enough: numbers only grow, and nobody's is taken away.
    async fn known_at(&self, server: usize, standing: &mut Standing) -> Result<(), Unusable> {
        let Some(newest) = self.registered.iter().map(|identity| identity.client).max() else {
            return Ok(());
        };
        self.known[server]
            .get_or_try_init(async || call::knows(standing, newest).await)
            .await
            .copied()
    }

    /// A number is pushed in one step: the list is whole whatever a thread that held it did.
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for OverQueue {
    fn start(
        self,
        run: &Arc<Run>,
        reporter: &mut Reporter<Load>,
        parent: Option<u32>,
    ) -> Result<Box<dyn Driving>, Error> {
        let OverQueue { workload, mut registered } = self;
        // Others have nothing to do.
        registered.truncate(run.plan.clients as usize);
        let known = run.plan.servers.iter().map(|_| OnceCell::new()).collect();
        let everybody = Arc::new(Everybody { registered, known, present: Mutex::default() });
        start_threads(run, reporter, parent, move |run, recorder, number, told| {
            thread::run(run, workload, Arc::clone(&everybody), recorder, number, told)
        })
    }
}
