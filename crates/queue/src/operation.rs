//! Requests of clients to a database of messages, and its answers.

use std::time::Duration;

/// A registered client; 0 is [`ANYBODY`].
pub type ClientId = u32;
/// A registered middleware.
pub type MiddlewareId = u32;
/// A queue. Numbers are never used twice.
pub type QueueId = u32;
/// A message. Numbers are never used twice; of one queue and receiver they grow in the order of
/// arrival: a message whose send was answered before another's began has the lower one.
pub type MessageId = u64;

/// The receiver of messages that any client may take.
pub const ANYBODY: ClientId = 0;

/// What a queue is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Where messages go whose attempts are used up; without it, they are leased for ever.
    pub dead_letters: Option<QueueId>,
    /// Leases of a message that may end without an acknowledgement, at least 1.
    pub attempts_max: u32,
    /// Older messages are removed.
    pub retention: Option<Duration>,
}

/// A message as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// A client, or [`ANYBODY`].
    pub receiver: ClientId,
    /// Its destination.
    pub queue: QueueId,
    /// Any text without U+0000.
    pub content: String,
}

/// A message as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub id: MessageId,
    /// Who sent it.
    pub sender: ClientId,
    /// A client, or [`ANYBODY`].
    pub receiver: ClientId,
    /// Where it is now: after its last attempt, in the dead letters.
    pub queue: QueueId,
    /// Microseconds since 1970, by the database's clock.
    pub arrived_at_us: i64,
    /// As it was sent.
    pub content: String,
}

/// A message in one of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The message.
    pub message: MessageId,
    /// Counted from 1.
    pub attempt: u32,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A number for a middleware.
    RegisterMiddleware,
    /// A number for a client of a middleware.
    RegisterClient {
        /// The middleware it asked.
        middleware: MiddlewareId,
    },
    /// A new queue.
    CreateQueue {
        /// Who wants it.
        creator: ClientId,
        /// How it is to be.
        settings: QueueSettings,
    },
    /// Makes a queue and what is in it go away.
    DeleteQueue {
        /// Which.
        queue: QueueId,
    },
    /// Sends messages, all or none.
    Send {
        /// Who sends.
        sender: ClientId,
        /// In the order in which they arrive.
        messages: Vec<Outgoing>,
    },
    /// The queues with messages for a client.
    ListQueues {
        /// The client.
        receiver: ClientId,
    },
    /// Some messages of a queue for a client, oldest first.
    Read {
        /// The client.
        receiver: ClientId,
        /// The queue.
        queue: QueueId,
        /// Only those with higher numbers.
        after: MessageId,
        /// How many at most.
        count: u32,
        /// No further one once those before it have so many bytes of content.
        content_bytes_max: u64,
    },
    /// The oldest message from a sender to a client, of any queue.
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
        /// How many at most.
        count: u32,
        /// No further one once those before it have so many bytes of content.
        content_bytes_max: u64,
    },
    /// Hides the oldest messages of a queue for a client for a time.
    Lease {
        /// The client.
        receiver: ClientId,
        /// The queue.
        queue: QueueId,
        /// How many at most.
        count: u32,
        /// No further one once those before it have so many bytes of content.
        content_bytes_max: u64,
        /// For how long.
        visibility: Duration,
    },
    /// Ends leases, and removes their messages.
    Acknowledge {
        /// Which.
        leases: Vec<Lease>,
    },
    /// Ends leases, and puts their messages back.
    Release {
        /// Which.
        leases: Vec<Lease>,
    },
    /// Lets leases end later.
    Extend {
        /// Which.
        leases: Vec<Lease>,
        /// Counted from now.
        visibility: Duration,
    },
    /// How many messages, clients and queues there are.
    Counts,
}

impl Request {
    /// Whether it alters nothing, so that it may be made again when its answer is lost.
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

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The number of what was registered or made.
    Id(u32),
    /// It is done.
    Done,
    /// The numbers of the messages sent.
    Sent(Vec<MessageId>),
    /// Queues, in ascending order.
    Queues(Vec<QueueId>),
    /// Messages, oldest first.
    Messages(Vec<Stored>),
    /// Leased messages, oldest first, each with its attempt.
    Leased(Vec<(Stored, u32)>),
    /// Leases that had ended already.
    Ended(Vec<Lease>),
    /// How many there are.
    Counts(Counts),
}

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Messages, also leased ones.
    pub messages: u64,
    /// Registered clients.
    pub clients: u64,
    /// Queues.
    pub queues: u64,
}
