//! A client of a database, with a short call for each request.

use std::time::Duration;

use knee_queue::database::{Database, Failure, Stages};
use knee_queue::operation::{
    Answer, ClientId, Counts, Lease, MessageId, Outgoing, QueueId, QueueSettings, Request, Stored,
};
use knee_queue::postgres::{Options, Postgres};

/// Longer than any lease that a test lets end by itself.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// How long a test waits before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A client of a database.
pub(crate) struct Desk<D>(pub(crate) D);

pub(crate) fn settings() -> QueueSettings {
    QueueSettings { dead_letters: None, attempts_max: 5, retention: None }
}

pub(crate) fn outgoing(receiver: ClientId, queue: QueueId, content: &str) -> Outgoing {
    Outgoing { receiver, queue, content: content.to_owned() }
}

pub(crate) fn contents(messages: &[Stored]) -> Vec<&str> {
    messages.iter().map(|message| message.content.as_str()).collect()
}

pub(crate) fn lease_of((message, attempt): &(Stored, u32)) -> Lease {
    Lease { message: message.id, attempt: *attempt }
}

impl Desk<Postgres> {
    pub(crate) async fn open(options: &Options) -> Desk<Postgres> {
        Desk(Postgres::open(options).await.unwrap())
    }
}

impl<D: Database> Desk<D> {
    /// Registers a client and creates its queue.
    pub(crate) async fn begin(&self) -> (ClientId, QueueId) {
        let client = self.client().await;
        (client, self.queue(client).await)
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        self.0.call(request, &mut Stages::default()).await
    }

    pub(crate) async fn client(&self) -> ClientId {
        match self.ask(Request::RegisterClient { middleware: 1 }).await {
            Ok(Answer::Id(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn queue(&self, creator: ClientId) -> QueueId {
        self.queue_with(creator, settings()).await
    }

    pub(crate) async fn queue_with(&self, creator: ClientId, settings: QueueSettings) -> QueueId {
        match self.ask(Request::CreateQueue { creator, settings }).await {
            Ok(Answer::Id(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn delete(&self, queue: QueueId) -> Result<Answer, Failure> {
        self.ask(Request::DeleteQueue { queue }).await
    }

    pub(crate) async fn send_all(
        &self,
        sender: ClientId,
        messages: Vec<Outgoing>,
    ) -> Result<Vec<MessageId>, Failure> {
        match self.ask(Request::Send { sender, messages }).await? {
            Answer::Sent(ids) => Ok(ids),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn send(
        &self,
        sender: ClientId,
        receiver: ClientId,
        queue: QueueId,
        content: &str,
    ) -> MessageId {
        let sent = self.send_all(sender, vec![outgoing(receiver, queue, content)]).await;
        sent.expect("a message that can be sent")[0]
    }

    pub(crate) async fn queues(&self, receiver: ClientId) -> Vec<QueueId> {
        match self.ask(Request::ListQueues { receiver }).await {
            Ok(Answer::Queues(queues)) => queues,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn read(
        &self,
        receiver: ClientId,
        queue: QueueId,
        after: MessageId,
        count: u32,
    ) -> Vec<Stored> {
        let request = Request::Read { receiver, queue, after, count, content_bytes_max: u64::MAX };
        self.messages(request).await
    }

    pub(crate) async fn messages(&self, request: Request) -> Vec<Stored> {
        match self.ask(request).await {
            Ok(Answer::Messages(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn remove(
        &self,
        receiver: ClientId,
        queue: QueueId,
        count: u32,
    ) -> Vec<Stored> {
        let request = Request::Remove { receiver, queue, count, content_bytes_max: u64::MAX };
        self.messages(request).await
    }

    pub(crate) async fn lease(
        &self,
        receiver: ClientId,
        queue: QueueId,
        count: u32,
        visibility: Duration,
    ) -> Vec<(Stored, u32)> {
        let request =
            Request::Lease { receiver, queue, count, content_bytes_max: u64::MAX, visibility };
        match self.ask(request).await {
            Ok(Answer::Leased(leased)) => leased,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a message, and leases it.
    pub(crate) async fn lease_at_last(
        &self,
        receiver: ClientId,
        queue: QueueId,
        visibility: Duration,
    ) -> (Stored, u32) {
        self.at_last(async || self.lease(receiver, queue, 1, visibility).await.pop()).await
    }

    /// Repeats a look until it finds something.
    pub(crate) async fn at_last<T>(&self, look: impl AsyncFn() -> Option<T>) -> T {
        let found = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("it comes at last")
    }

    pub(crate) async fn acknowledge(&self, leases: &[Lease]) -> Vec<Lease> {
        self.ended(Request::Acknowledge { leases: leases.to_vec() }).await
    }

    pub(crate) async fn release(&self, leases: &[Lease]) -> Vec<Lease> {
        self.ended(Request::Release { leases: leases.to_vec() }).await
    }

    pub(crate) async fn extend(&self, leases: &[Lease], visibility: Duration) -> Vec<Lease> {
        self.ended(Request::Extend { leases: leases.to_vec(), visibility }).await
    }

    async fn ended(&self, request: Request) -> Vec<Lease> {
        match self.ask(request).await {
            Ok(Answer::Ended(leases)) => leases,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn counts(&self) -> Counts {
        match self.ask(Request::Counts).await {
            Ok(Answer::Counts(counts)) => counts,
            other => panic!("{other:?}"),
        }
    }
}
