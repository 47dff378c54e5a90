//! Until there is a message: without a worker, and without a connection to the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tonic::Status;

use super::asking::{Asking, Unasked};
use super::meter::{Call, Doing};
use super::refusal::{crowded, ending, unanswered};
use crate::database::{Database, Failure, WATCHED};
use crate::operation::{Answer, ClientId, QueueId, Request};
use crate::waiting::{Place, Waiting};

/// Whoever waits looks so often, whatever he is told.
const LOOK_INTERVAL: Duration = Duration::from_millis(WATCHED.as_millis() as u64 / 2);

/// Who waits for messages of a database, and who tells them.
#[derive(Debug)]
pub(super) struct Awaiting<D> {
    asking: Arc<Asking<D>>,
    waiting: Arc<Waiting>,
    /// Hears of arrivals, since somebody waited for the first time.
    hearing: Mutex<Option<JoinHandle<()>>>,
    ending: watch::Receiver<bool>,
}

/// What is waited for.
pub(super) struct Wanted<F> {
    pub(super) queue: QueueId,
    pub(super) receiver: ClientId,
    pub(super) wait: Duration,
    /// The request for it, each time that it is made.
    pub(super) request: F,
}

impl<D: Database> Awaiting<D> {
    pub(super) fn new(
        asking: Arc<Asking<D>>,
        waiters_max: usize,
        ending: watch::Receiver<bool>,
    ) -> Awaiting<D> {
        let (waiting, hearing) = (Waiting::new(waiters_max), Mutex::default());
        Awaiting { asking, waiting, hearing, ending }
    }

    /// Asks for messages until there is one, or the time is over.
    pub(super) async fn ask(
        &self,
        call: &mut Call,
        wanted: Wanted<impl Fn() -> Request>,
    ) -> Result<Answer, Status> {
        let first = self.asking.ask(call, (wanted.request)()).await?;
        if wanted.wait.is_zero() || !is_empty(&first) {
            return Ok(first);
        }
        let meter = Arc::clone(&self.asking.meter);
        let until = Instant::now() + wanted.wait;
        let mut ends = self.ending.clone();
        let mut place = self.waiting.enter(wanted.queue, wanted.receiver).map_err(crowded)?;
        loop {
            // Whatever is sent after these two is told; what was sent before them is looked for.
            self.hear().await.map_err(unanswered)?;
            let looked = match self.asking.database.watch(wanted.queue).await {
                Ok(()) => self.look(call, &mut place, &wanted).await,
                Err(failure) => Err(Unasked::Failed(failure)),
            };
            match &looked {
                Ok(answer) if is_empty(answer) => place.found_nothing(),
                Ok(_) | Err(Unasked::Failed(Failure::NotThere(_))) => place.found_something(),
                Err(_) => {}
            }
            let answer = looked?;
            let left = until.saturating_duration_since(Instant::now());
            if !is_empty(&answer) || left.is_zero() {
                return Ok(answer);
            }
            let _awaiting = meter.does(Doing::Awaiting);
            tokio::select! {
                () = place.woken() => {}
                () = tokio::time::sleep(left.min(LOOK_INTERVAL)) => {}
                // An error says that nobody can be served any more.
                _ = ends.wait_for(|ends| *ends) => return Err(ending()),
            }
        }
    }

    /// Looks whether there is a message, for somebody who waits.
    async fn look(
        &self,
        call: &mut Call,
        place: &mut Place,
        wanted: &Wanted<impl Fn() -> Request>,
    ) -> Result<Answer, Unasked> {
        place.looks();
        self.asking.ask_since(call, Instant::now(), (wanted.request)()).await
    }

    /// From its answer on arrivals are heard of.
    async fn hear(&self) -> Result<(), Failure> {
        let mut hearing = self.hearing.lock().await;
        if hearing.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let mut arrivals = self.asking.database.arrivals().await?;
        let waiting = Arc::clone(&self.waiting);
        *hearing = Some(tokio::spawn(async move {
            loop {
                match arrivals.recv().await {
                    Ok(arrival) => waiting.arrived(arrival),
                    Err(RecvError::Lagged(_)) => waiting.wake_everywhere(),
                    Err(RecvError::Closed) => break,
                }
            }
            // All of them, so that one of each looks: the first who does so has it heard again.
            waiting.wake_everywhere();
        }));
        Ok(())
    }
}

fn is_empty(answer: &Answer) -> bool {
    match answer {
        Answer::Messages(messages) => messages.is_empty(),
        Answer::Leased(leases) => leases.is_empty(),
        _ => false,
    }
}
