//! No database: every request is answered at once, to measure the middleware alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;

use crate::database::{Arrival, Database, Failure, Stages};
use crate::operation::{Answer, ClientId, Counts, MessageId, Outgoing, QueueId, Request, Stored};

/// Answers every request as done, and stores only the last message. Every read, remove and lease returns this message
/// with a new number, addressed to the client. So answers have the length that a database with a message for each
/// client would return. No request looks anything up, or waits for a connection.
#[derive(Debug)]
pub struct Null {
    /// The next message's, client's or queue's number.
    next: AtomicU64,
    last: Mutex<Option<Arc<Last>>>,
    arrivals: broadcast::Sender<Option<Arrival>>,
}

#[derive(Debug)]
struct Last {
    sender: ClientId,
    queue: QueueId,
    arrived_at_us: i64,
    content: String,
}

impl Default for Null {
    fn default() -> Null {
        let (next, last) = (AtomicU64::new(1), Mutex::default());
        Null { next, last, arrivals: broadcast::Sender::new(1) }
    }
}

impl Null {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Last>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> Option<Arc<Last>> {
        self.lock().clone()
    }

    fn send(&self, sender: ClientId, messages: Vec<Outgoing>) -> Vec<MessageId> {
        let numbers = messages.iter().map(|_| self.number()).collect();
        if let Some(Outgoing { queue, content, .. }) = messages.into_iter().next_back() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let arrived_at_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
            let last = Arc::new(Last { sender, queue, arrived_at_us, content });
            // The previous message is freed after the lock is released.
            let _before = self.lock().replace(last);
        }
        numbers
    }

    fn message(&self, last: &Last, receiver: ClientId, queue: QueueId) -> Stored {
        let &Last { sender, arrived_at_us, ref content, .. } = last;
        let (id, content) = (self.number(), content.clone());
        Stored { id, sender, receiver, queue, arrived_at_us, content }
    }

    fn answer(&self, request: Request) -> Answer {
        match request {
            Request::RegisterMiddleware
            | Request::RegisterClient { .. }
            | Request::CreateQueue { .. } => {
                // The number may wrap: no request looks it up.
                Answer::Id(self.number() as u32)
            }
            Request::DeleteQueue { .. } => Answer::Done,
            Request::Send { sender, messages } => Answer::Sent(self.send(sender, messages)),
            Request::ListQueues { .. } => {
                Answer::Queues(self.last().iter().map(|last| last.queue).collect())
            }
            // No message follows the only one.
            Request::Read { after: 1.., .. } => Answer::Messages(Vec::new()),
            Request::Read { receiver, queue, .. } | Request::Remove { receiver, queue, .. } => {
                let last = self.last();
                let message = last.iter().map(|last| self.message(last, receiver, queue));
                Answer::Messages(message.collect())
            }
            Request::ReadFrom { receiver, sender } => {
                let last = self.last().filter(|last| last.sender == sender);
                let message = last.iter().map(|last| self.message(last, receiver, last.queue));
                Answer::Messages(message.collect())
            }
            Request::Lease { receiver, queue, .. } => {
                let last = self.last();
                let leased = last.iter().map(|last| (self.message(last, receiver, queue), 1));
                Answer::Leased(leased.collect())
            }
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

    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>> {
        self.arrivals.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_the_last_message_and_leaves_it() {
        let null = Null::default();
        let (receiver, content_bytes_max, count) = (8, 1, 9);
        let read = |queue, after| {
            let read = Request::Read { receiver, queue, after, count, content_bytes_max };
            match null.answer(read) {
                Answer::Messages(messages) => messages,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(null.answer(Request::ListQueues { receiver }), Answer::Queues(Vec::new()));
        assert_eq!(read(3, 0), []);
        let message = |content: &str| Outgoing { receiver: 1, queue: 3, content: content.into() };
        let messages = vec![message("first"), message("last")];
        assert_eq!(null.answer(Request::Send { sender: 7, messages }), Answer::Sent(vec![1, 2]));
        assert_eq!(null.answer(Request::ListQueues { receiver }), Answer::Queues(vec![3]));
        let mut before = 2;
        // The message's own queue, and another one.
        for queue in [3, 4] {
            let remove = Request::Remove { receiver, queue, count, content_bytes_max };
            let Answer::Messages(removed) = null.answer(remove) else { panic!("not messages") };
            for message in read(queue, 0).iter().chain(&removed) {
                let Stored { id, sender, .. } = *message;
                assert_eq!((sender, message.receiver, message.queue), (7, receiver, queue));
                assert_eq!((message.content.as_str(), id > before), ("last", true));
                assert_eq!(read(queue, id), []);
            }
            before = read(queue, 0)[0].id;
        }
        for (sender, found) in [(7, 1), (8, 0)] {
            let answer = null.answer(Request::ReadFrom { receiver, sender });
            assert!(
                matches!(&answer, Answer::Messages(messages) if messages.len() == found),
                "{answer:?}"
            );
        }
    }
}
