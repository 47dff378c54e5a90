//! No database: every request is answered at once, to measure the middleware alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::broadcast;

use crate::database::{Arrival, Database, Failure, Stages};
use crate::operation::{Answer, Counts, QueueId, Request};

/// Answers as if everything was done and nothing was there.
#[derive(Debug)]
pub struct Null {
    /// The next message's, client's or queue's number.
    next: AtomicU64,
    arrivals: broadcast::Sender<Arrival>,
}

impl Default for Null {
    fn default() -> Null {
        Null { next: AtomicU64::new(1), arrivals: broadcast::Sender::new(1) }
    }
}

impl Null {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn answer(&self, request: Request) -> Answer {
        match request {
            Request::RegisterMiddleware
            | Request::RegisterClient { .. }
            | Request::CreateQueue { .. } => {
                // Wraps after four thousand million: nobody looks them up.
                Answer::Id(self.number() as u32)
            }
            Request::DeleteQueue { .. } => Answer::Done,
            Request::Send { messages, .. } => {
                Answer::Sent(messages.iter().map(|_| self.number()).collect())
            }
            Request::ListQueues { .. } => Answer::Queues(Vec::new()),
            Request::Read { .. } | Request::ReadFrom { .. } | Request::Remove { .. } => {
                Answer::Messages(Vec::new())
            }
            Request::Lease { .. } => Answer::Leased(Vec::new()),
            Request::Acknowledge { .. } | Request::Release { .. } | Request::Extend { .. } => {
                Answer::Ended(Vec::new())
            }
            Request::Counts => Answer::Counts(Counts { messages: 0, clients: 0, queues: 0 }),
        }
    }
}

impl Database for Null {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        stages.connected = Some(Instant::now());
        let answer = self.answer(request);
        stages.answered = Some(Instant::now());
        Ok(answer)
    }

    async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        Ok(self.arrivals.subscribe())
    }

    async fn watch(&self, _queue: QueueId) -> Result<(), Failure> {
        Ok(())
    }
}
