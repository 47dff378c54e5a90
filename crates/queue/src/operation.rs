//! Requests of clients to a database of messages, and its answers.

use std::time::Duration;

/// A registered client; 0 is [`ANYBODY`].
pub type ClientId = u32;
/// A registered middleware.
pub type MiddlewareId = u32;
/// A queue. Numbers are never used twice.
pub type QueueId = u32;
/// A message. Numbers are never used twice. Within a queue and receiver, they grow in the order of arrival. If a send
/// was answered before another send began, its message has the lower number.
pub type MessageId = u64;

/// The receiver of messages that any client may take.
pub const ANYBODY: ClientId = 0;

/// The settings of a new queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// The queue for messages without attempts left; without such a queue, attempts are unlimited.
    pub dead_letters: Option<QueueId>,
    /// Largest number of leases of a message that may end without an acknowledgement, at least 1.
    pub attempts_max: u32,
    /// The age at which messages are removed.
    pub retention: Option<Duration>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// A client, or [`ANYBODY`].
    pub receiver: ClientId,
    /// The destination.
    pub queue: QueueId,
    /// Any text without U+0000.
    pub content: String,
}

/// A message in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub id: MessageId,
    /// The sender.
    pub sender: ClientId,
    /// A client, or [`ANYBODY`].
    pub receiver: ClientId,
    /// The queue that has it now; after its last attempt, the queue of dead letters.
    pub queue: QueueId,
    /// The time of arrival in microseconds since 1970, by the database's clock.
    pub arrived_at_us: i64,
    /// The content, as sent.
    pub content: String,
}

/// A lease: a message in one of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The message.
    pub message: MessageId,
    /// The number of the attempt, counted from 1.
    pub attempt: u32,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Registers a middleware.
    RegisterMiddleware,
    /// Registers a client of a middleware.
    RegisterClient {
        /// The middleware.
        middleware: MiddlewareId,
    },
    /// Creates a queue.
    CreateQueue {
        /// The creator.
        creator: ClientId,
        /// Its settings.
        settings: QueueSettings,
    },
    /// Deletes a queue and its messages.
    DeleteQueue {
        /// The queue.
        queue: QueueId,
    },
    /// Sends messages, all or none.
    Send {
        /// The sender.
        sender: ClientId,
        /// The messages, in the order of arrival.
        messages: Vec<Outgoing>,
    },
    /// Lists the queues with messages for a client.
    ListQueues {
        /// The client.
        receiver: ClientId,
    },
    /// Reads some messages of a queue for a client, oldest first.
    Read {
        /// The client.
        receiver: ClientId,
        /// The queue.
        queue: QueueId,
        /// Only messages with higher numbers are read.
        after: MessageId,
        /// Largest number of messages in the answer.
        count: u32,
        /// The answer ends with the message that reaches this many bytes of content.
        content_bytes_max: u64,
    },
    /// Reads the oldest message from a sender to a client, in any queue.
    ReadFrom {
        /// The client.
        receiver: ClientId,
        /// The sender.
        sender: ClientId,
    },
    /// Removes the oldest messages of a queue for a client.
    Remove {
        /// The client.
        receiver: ClientId,
        /// The queue.
        queue: QueueId,
        /// Largest number of messages in the answer.
        count: u32,
        /// The answer ends with the message that reaches this many bytes of content.
        content_bytes_max: u64,
    },
    /// Hides the oldest messages of a queue for a client for a time.
    Lease {
        /// The client.
        receiver: ClientId,
        /// The queue.
        queue: QueueId,
        /// Largest number of messages in the answer.
        count: u32,
        /// The answer ends with the message that reaches this many bytes of content.
        content_bytes_max: u64,
        /// The duration of the leases.
        visibility: Duration,
    },
    /// Ends leases, and removes their messages.
    Acknowledge {
        /// The leases.
        leases: Vec<Lease>,
    },
    /// Ends leases, and puts their messages back.
    Release {
        /// The leases.
        leases: Vec<Lease>,
    },
    /// Extends leases.
    Extend {
        /// The leases.
        leases: Vec<Lease>,
        /// The new duration, from now.
        visibility: Duration,
    },
    /// Counts messages, clients and queues.
    Counts,
}

impl Request {
    /// Whether the request changes nothing. It can then be repeated after a lost answer.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(
            self,
            Request::ListQueues { .. }
                | Request::Read { .. }
                | Request::ReadFrom { .. }
                | Request::Counts
        )
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The number of the new client, middleware or queue.
    Id(u32),
    /// The request is done.
    Done,
    /// The numbers of the messages sent.
    Sent(Vec<MessageId>),
    /// Queues, in ascending order.
    Queues(Vec<QueueId>),
    /// Messages, oldest first.
    Messages(Vec<Stored>),
    /// Leased messages, oldest first, each with its attempt.
    Leased(Vec<(Stored, u32)>),
    /// The leases that had already ended.
    Ended(Vec<Lease>),
    /// Counts of the database.
    Counts(Counts),
}

/// Counts of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Messages, also leased ones.
    pub messages: u64,
    /// Registered clients.
    pub clients: u64,
    /// Queues.
    pub queues: u64,
}
