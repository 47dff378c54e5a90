//! Until there is a message: without a worker, and without a connection to the database.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tonic::Status;

use super::asking::{Asking, Unasked};
use super::meter::{Call, Doing};
use super::refusal::{crowded, ending};
use crate::database::{Database, Failure, WATCHED};
use crate::operation::{Answer, ClientId, QueueId, Request};
use crate::waiting::Waiting;
use crate::workers::Worker;

/// Whoever waits looks so often, whatever he is told.
const LOOK_INTERVAL: Duration = Duration::from_millis(WATCHED.as_millis() as u64 / 2);

/// Who waits for messages of a database, and who tells them.
#[derive(Debug)]
pub(super) struct Awaiting<D> {
    asking: Arc<Asking<D>>,
    waiting: Arc<Waiting>,
    /// Since somebody waited for the first time.
    hearing: Mutex<Option<Hearing>>,
    ending: watch::Receiver<bool>,
}

/// Whether a task hears of arrivals yet, or why it cannot. It has ended when its sender is gone.
type Hearing = watch::Receiver<Result<bool, Failure>>;

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
            // Nothing is lost where that is given up. What is asked for then is not: it may be messages.
            let turn = tokio::select! {
                biased;
                turn = self.turn(wanted.queue) => turn,
                () = sleep_until(until.into()) => return Ok(first),
                // An error says that nobody can be served any more.
                _ = ends.wait_for(|ends| *ends) => return Err(ending()),
            };
            let looked = match turn {
                Ok((since, worker)) => {
                    place.looks();
                    self.asking.ask_by(worker, call, since, (wanted.request)()).await
                }
                Err(unasked) => Err(unasked),
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
                () = sleep(left.min(LOOK_INTERVAL)) => {}
                _ = ends.wait_for(|ends| *ends) => return Err(ending()),
            }
        }
    }

    /// A worker, wanted since then, to look whether there is a message: whatever is sent from now on is
    /// told, and what was sent before is there.
    async fn turn(&self, queue: QueueId) -> Result<(Instant, Worker), Unasked> {
        self.hear().await.map_err(Unasked::Failed)?;
        self.asking.database.watch(queue).await.map_err(Unasked::Failed)?;
        let since = Instant::now();
        Ok((since, self.asking.worker().await?))
    }

    /// From its answer on arrivals are heard of. All who ask meanwhile have the same answer.
    async fn hear(&self) -> Result<(), Failure> {
        let mut hearing = {
            let mut hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner);
            let goes_on = |hearing: &Hearing| hearing.has_changed().is_ok();
            match hearing.take().filter(goes_on) {
                Some(goes_on) => hearing.insert(goes_on).clone(),
                None => hearing.insert(self.begin_to_hear()).clone(),
            }
        };
        match hearing.wait_for(|hears| *hears != Ok(false)).await {
            Ok(hears) => hears.clone().map(|_| ()),
            Err(_) => Err(Failure::Unavailable("arrivals are not heard of".to_owned())),
        }
    }

    /// In a task: others go on waiting for it though whoever was the first has left.
    fn begin_to_hear(&self) -> Hearing {
        let (told, hearing) = watch::channel(Ok(false));
        let (database, waiting) = (Arc::clone(&self.asking.database), Arc::clone(&self.waiting));
        tokio::spawn(async move {
            let heard = database.arrivals().await;
            drop(database);
            let mut arrivals = match heard {
                Ok(arrivals) => arrivals,
                Err(failure) => return told.send_modify(|hears| *hears = Err(failure)),
            };
            told.send_modify(|hears| *hears = Ok(true));
            loop {
                match arrivals.recv().await {
                    Ok(arrival) => waiting.arrived(arrival),
                    Err(RecvError::Lagged(_)) => waiting.wake_everywhere(),
                    Err(RecvError::Closed) => break,
                }
            }
            // All of them, so that one of each looks: the first who does so has it heard again.
            drop(told);
            waiting.wake_everywhere();
        });
        hearing
    }
}

fn is_empty(answer: &Answer) -> bool {
    match answer {
        Answer::Messages(messages) => messages.is_empty(),
        Answer::Leased(leases) => leases.is_empty(),
        _ => false,
    }
}
