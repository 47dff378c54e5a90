//! Calls that wait for a message, without a worker and without a connection to the database.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tonic::Status;

use super::asking::{Asking, Unasked};
use super::meter::{Call, Doing};
use super::refusal::{crowded, ending};
use crate::database::{Database, Failure};
use crate::operation::{Answer, ClientId, QueueId, Request};
use crate::waiters::{Place, Waiters};

/// The waiting calls of a server, and the database that they ask.
#[derive(Debug)]
pub(super) struct Awaiting<D> {
    asking: Arc<Asking<D>>,
    waiters: Arc<Waiters>,
    ending: watch::Receiver<bool>,
}

/// The messages that a call waits for.
pub(super) struct Wanted<F> {
    pub(super) queue: QueueId,
    pub(super) receiver: ClientId,
    pub(super) wait: Duration,
    /// Makes the request, once for each time that the call asks.
    pub(super) request: F,
}

impl<D: Database> Awaiting<D> {
    /// Spawns a task on `runtime` that passes the database's arrivals to the waiting calls.
    pub(super) fn new(
        runtime: &Runtime,
        asking: Arc<Asking<D>>,
        waiters: Arc<Waiters>,
        ending: watch::Receiver<bool>,
    ) -> Awaiting<D> {
        let mut arrivals = asking.database.arrivals();
        let waking = Arc::clone(&waiters);
        runtime.spawn(async move {
            loop {
                match arrivals.recv().await {
                    Ok(Some(arrival)) => waking.arrived(arrival),
                    Ok(None) | Err(RecvError::Lagged(_)) => waking.missed_arrivals(),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Awaiting { asking, waiters, ending }
    }

    /// Asks until there is a message, or until the time is over.
    pub(super) async fn ask(
        &self,
        call: &mut Call,
        wanted: Wanted<impl Fn() -> Request>,
    ) -> Result<Answer, Status> {
        let Wanted { queue, receiver, wait, request } = wanted;
        if wait.is_zero() {
            return self.asking.ask(call, request()).await;
        }
        match self.waiters.enter(queue, receiver) {
            Ok(place) => self.ask_until(call, &place, Instant::now() + wait, request).await,
            Err(full) => {
                let answer = self.asking.ask(call, request()).await?;
                if is_empty(&answer) { Err(crowded(full)) } else { Ok(answer) }
            }
        }
    }

    async fn ask_until(
        &self,
        call: &mut Call,
        place: &Place,
        until: Instant,
        request: impl Fn() -> Request,
    ) -> Result<Answer, Status> {
        let mut ends = self.ending.clone();
        // Declared before both notifications, so dropped after them: it does not wake this call itself.
        let mut baton = Baton { place, own: false, anybody: false };
        // Enable both notifications before asking: a later arrival then wakes the call again. Dropping a notification
        // that the call has not consumed passes it to the next call.
        let (mut own, mut anybody) = (pin!(place.own.notified()), pin!(place.anybody.notified()));
        own.as_mut().enable();
        anybody.as_mut().enable();
        let mut answer = self.asking.ask(call, request()).await?;
        while is_empty(&answer) {
            {
                let _awaiting = self.asking.meter.does(Doing::Awaiting);
                let left = until.saturating_duration_since(Instant::now());
                let interval = self.waiters.poll_interval();
                tokio::select! {
                    () = own.as_mut() => {
                        baton.own = true;
                        own.set(place.own.notified());
                        own.as_mut().enable();
                    }
                    () = anybody.as_mut() => {
                        baton.anybody = true;
                        anybody.set(place.anybody.notified());
                        anybody.as_mut().enable();
                    }
                    () = sleep(interval), if interval < left => {}
                    () = sleep(left), if left <= interval => return Ok(answer),
                    // An error means that the server is gone.
                    _ = ends.wait_for(|ends| *ends) => return Err(ending()),
                }
            }
            let since = Instant::now();
            // Only the wait for a worker can end early. The request itself is not cancelled: its answer may have
            // messages.
            let worker = tokio::select! {
                biased;
                worker = self.asking.worker() => match worker {
                    Ok(worker) => worker,
                    // Too many requests wait for a worker: ask again later.
                    Err(_) => continue,
                },
                () = sleep_until(until.into()) => return Ok(answer),
                _ = ends.wait_for(|ends| *ends) => return Err(ending()),
            };
            let looked = self.asking.ask_by(worker, call, since, request()).await;
            match &looked {
                Ok(answer) if is_empty(answer) => (baton.own, baton.anybody) = (false, false),
                // The queue was deleted. Wake the next call that waits in it, so that it ends as well.
                Err(Unasked::Failed(Failure::NotThere(_))) => baton.anybody = true,
                _ => {}
            }
            answer = looked?;
        }
        Ok(answer)
    }
}

/// The wake-ups that a call has consumed. They go to the next call, unless the database had no message after them:
/// there may be more messages.
struct Baton<'p> {
    place: &'p Place,
    own: bool,
    anybody: bool,
}

impl Drop for Baton<'_> {
    fn drop(&mut self) {
        if self.own {
            self.place.own.notify_one();
        }
        if self.anybody {
            self.place.anybody.notify_one();
        }
    }
}

fn is_empty(answer: &Answer) -> bool {
    match answer {
        Answer::Messages(messages) => messages.is_empty(),
        Answer::Leased(leases) => leases.is_empty(),
        _ => false,
    }
}
