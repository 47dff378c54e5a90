//! A server as its clients have it: in this process, or at the other end of a connection.

use std::future::Future;
use std::time::Duration;

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{ANYBODY, Answer, ClientId, QueueId, Request};
use knee_queue::postgres::Postgres;
use knee_queue::sqlite::Sqlite;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

/// One of those that serve a database.
pub(crate) trait Server: Database {
    /// Removes or leases, as soon as there is something; nothing, when the time is over.
    fn wait(
        &self,
        request: Request,
        wait: Duration,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send {
        look_when_told(self, request, wait)
    }

    /// Its client is gone, without a word: his connection is lost.
    fn hang_up(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

impl Server for Postgres {}

impl Server for Sqlite {}

/// As a middleware does, but for looking again though nothing was told.
async fn look_when_told(
    database: &(impl Database + ?Sized),
    request: Request,
    wait: Duration,
) -> Result<Answer, Failure> {
    let (Request::Remove { receiver, queue, .. } | Request::Lease { receiver, queue, .. }) =
        request
    else {
        panic!("nobody waits for {request:?}");
    };
    let until = Instant::now() + wait;
    let mut arrivals = None;
    loop {
        let answer = database.call(request.clone(), &mut Stages::default()).await?;
        if wait.is_zero() || !is_empty(&answer) {
            return Ok(answer);
        }
        // Nothing is lost where that is given up.
        let told = timeout_at(until, async {
            match &mut arrivals {
                None => {
                    arrivals = Some(database.arrivals().await?);
                    database.watch(queue).await
                }
                Some(heard) => {
                    if !is_told(heard, queue, receiver).await {
                        arrivals = None;
                    }
                    Ok(())
                }
            }
        });
        match told.await {
            Ok(Ok(())) => {}
            // It has taken nothing, and was answered so.
            Ok(Err(failure)) => return Err(Failure::TooLate(failure.to_string())),
            Err(_) => return Ok(answer),
        }
    }
}

/// Returns when there may be something; answers whether there will be more to be heard.
async fn is_told(arrivals: &mut Receiver<Arrival>, queue: QueueId, receiver: ClientId) -> bool {
    loop {
        match arrivals.recv().await {
            Ok(arrival)
                if arrival.queue == queue && [receiver, ANYBODY].contains(&arrival.receiver) =>
            {
                return true;
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}

fn is_empty(answer: &Answer) -> bool {
    match answer {
        Answer::Messages(messages) => messages.is_empty(),
        Answer::Leased(leased) => leased.is_empty(),
        other => panic!("{other:?}"),
    }
}
