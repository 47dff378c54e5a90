//! Checks the messages of the interface, and converts them to requests.

use std::fmt::Write as _;
use std::time::Duration;

use knee_rpc::Message;
use knee_rpc::queue::{
    self as rpc, AcknowledgeRequest, CountsRequest, CreateQueueRequest, DeleteQueueRequest,
    ExtendRequest, LeaseRequest, ListQueuesRequest, ReadAllRequest, ReadFromRequest,
    RegisterClientRequest, RegisterMiddlewareRequest, ReleaseRequest, RemoveRequest, SendRequest,
};
use tonic::Status;

use crate::operation::{
    ANYBODY, ClientId, Lease, MiddlewareId, Outgoing, QueueId, QueueSettings, Request, Stored,
};

const MESSAGES_MAX: u32 = 1000;
/// After this much content, an answer takes no further message: clients accept 4 MiB by default.
const ANSWER_CONTENT_BYTES: u64 = 2 << 20;
/// The same for a part of a streamed answer.
const PART_CONTENT_BYTES: u64 = 256 << 10;
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// The duration of a lease, by default and at most.
const VISIBILITY: Duration = Duration::from_secs(30);
const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
const RETENTION_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// Number of attempts before a message becomes a dead letter, by default and at most.
const ATTEMPTS: u32 = 5;
const ATTEMPTS_MAX: u32 = 1_000_000;

/// A request as the trace shows it.
pub(super) trait Question: Message {
    /// The name of a call whose operation is `Op::Other`.
    const NAME: &'static str = "other";

    /// Its fields, each with a space before it.
    fn about(&self) -> String;
}

macro_rules! questions {
    ($($message:ty $(= $name:literal)?: $($field:ident)*,)*) => {
        $(impl Question for $message {
            $(const NAME: &'static str = $name;)?

            fn about(&self) -> String {
                #[allow(unused_mut, reason = "some requests have no fields")]
                let mut about = String::new();
                $(let _ = write!(about, " {}={:?}", stringify!($field), self.$field);)*
                about
            }
        })*
    };
}

questions! {
    RegisterClientRequest = "register_client":,
    RegisterMiddlewareRequest = "register_middleware":,
    CreateQueueRequest = "create_queue": creator,
    DeleteQueueRequest = "delete_queue": queue,
    CountsRequest = "counts":,
    ListQueuesRequest: receiver,
    ReadAllRequest: receiver queue,
    ReadFromRequest: receiver sender,
    RemoveRequest: receiver queue count wait_ms,
    LeaseRequest: receiver queue count wait_ms visibility_ms,
}

impl Question for SendRequest {
    fn about(&self) -> String {
        let mut about = format!(" sender={}", self.sender);
        if let Some(first) = self.messages.first() {
            let _ = write!(about, " receiver={} queue={}", first.receiver, first.queue);
        }
        about
    }
}

macro_rules! of_leases {
    ($($message:ty,)*) => {
        $(impl Question for $message {
            fn about(&self) -> String {
                format!(" leases={}", self.leases.len())
            }
        })*
    };
}

of_leases! {
    AcknowledgeRequest,
    ReleaseRequest,
    ExtendRequest,
}

fn refused<T>(why: impl Into<String>) -> Result<T, Status> {
    Err(Status::invalid_argument(why))
}

fn client(name: &str, client: ClientId) -> Result<ClientId, Status> {
    match client {
        ANYBODY => refused(format!("{name} is 0: use the number of a registered client")),
        client => Ok(client),
    }
}

fn count(count: u32) -> Result<u32, Status> {
    match count {
        0 => Ok(1),
        1..=MESSAGES_MAX => Ok(count),
        _ => refused(format!("count is {count}: use at most {MESSAGES_MAX}")),
    }
}

fn time(name: &str, ms: u64, max: Duration) -> Result<Duration, Status> {
    let time = Duration::from_millis(ms);
    if time > max {
        return refused(format!("{name} is {ms}: use at most {}", max.as_millis()));
    }
    Ok(time)
}

fn visibility(ms: u64) -> Result<Duration, Status> {
    if ms == 0 { Ok(VISIBILITY) } else { time("visibility_ms", ms, VISIBILITY_MAX) }
}

pub(super) fn registered(middleware: MiddlewareId) -> Request {
    Request::RegisterClient { middleware }
}

pub(super) fn created(question: &CreateQueueRequest) -> Result<Request, Status> {
    let CreateQueueRequest { creator, dead_letter_queue, attempts_max, retention_ms } = *question;
    let attempts_max = attempts_max.unwrap_or(ATTEMPTS);
    if !(1..=ATTEMPTS_MAX).contains(&attempts_max) {
        return refused(format!("attempts_max is {attempts_max}: use 1 to {ATTEMPTS_MAX}"));
    }
    if retention_ms == Some(0) {
        return refused("retention_ms is 0: leave it out to keep messages");
    }
    let retention = retention_ms.map(|ms| time("retention_ms", ms, RETENTION_MAX)).transpose()?;
    let dead_letters = dead_letter_queue;
    Ok(Request::CreateQueue {
        creator: client("creator", creator)?,
        settings: QueueSettings { dead_letters, attempts_max, retention },
    })
}

pub(super) fn sent(question: SendRequest, content_bytes_max: usize) -> Result<Request, Status> {
    let SendRequest { sender, messages } = question;
    let sender = client("sender", sender)?;
    if !(1..=MESSAGES_MAX as usize).contains(&messages.len()) {
        let count = messages.len();
        return refused(format!("the call has {count} messages: send 1 to {MESSAGES_MAX}"));
    }
    for rpc::Outgoing { content, .. } in &messages {
        let bytes = content.len();
        if bytes > content_bytes_max {
            return refused(format!(
                "the content has {bytes} bytes: send at most {content_bytes_max}, or raise \
                 --message-bytes-max"
            ));
        }
        if content.contains('\0') {
            return refused("the content has the character U+0000: databases cannot store it");
        }
    }
    let outgoing =
        |rpc::Outgoing { receiver, queue, content }| Outgoing { receiver, queue, content };
    Ok(Request::Send { sender, messages: messages.into_iter().map(outgoing).collect() })
}

pub(super) fn listed(question: &ListQueuesRequest) -> Result<Request, Status> {
    Ok(Request::ListQueues { receiver: client("receiver", question.receiver)? })
}

/// A part of a streamed answer: messages with higher numbers than `after`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) receiver: ClientId,
    pub(super) queue: QueueId,
    pub(super) after: u64,
}

impl Page {
    pub(super) fn first(question: ReadAllRequest) -> Result<Page, Status> {
        let ReadAllRequest { receiver, queue } = question;
        Ok(Page { receiver: client("receiver", receiver)?, queue, after: 0 })
    }

    pub(super) fn request(self) -> Request {
        let Page { receiver, queue, after } = self;
        let (count, content_bytes_max) = (MESSAGES_MAX, PART_CONTENT_BYTES);
        Request::Read { receiver, queue, after, count, content_bytes_max }
    }

    pub(super) fn next(self, messages: &[Stored]) -> Option<Page> {
        let bytes: u64 = messages.iter().map(|message| message.content.len() as u64).sum();
        let is_full = messages.len() >= MESSAGES_MAX as usize || bytes >= PART_CONTENT_BYTES;
        let last = messages.last().filter(|_| is_full)?;
        Some(Page { after: last.id, ..self })
    }
}

pub(super) fn read_from(question: &ReadFromRequest) -> Result<Request, Status> {
    let ReadFromRequest { receiver, sender } = *question;
    let (receiver, sender) = (client("receiver", receiver)?, client("sender", sender)?);
    Ok(Request::ReadFrom { receiver, sender })
}

/// A request to remove or lease messages, which may wait for them.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) receiver: ClientId,
    pub(super) queue: QueueId,
    pub(super) wait: Duration,
    count: u32,
}

impl Taking {
    fn new(receiver: u32, queue: u32, number: u32, wait_ms: u64) -> Result<Taking, Status> {
        Ok(Taking {
            receiver: client("receiver", receiver)?,
            queue,
            count: count(number)?,
            wait: time("wait_ms", wait_ms, WAIT_MAX)?,
        })
    }

    pub(super) fn removed(question: RemoveRequest) -> Result<Taking, Status> {
        let RemoveRequest { receiver, queue, count, wait_ms } = question;
        Taking::new(receiver, queue, count, wait_ms)
    }

    pub(super) fn leased(question: LeaseRequest) -> Result<(Taking, Duration), Status> {
        let LeaseRequest { receiver, queue, count, wait_ms, visibility_ms } = question;
        Ok((Taking::new(receiver, queue, count, wait_ms)?, visibility(visibility_ms)?))
    }

    pub(super) fn remove(&self) -> Request {
        let &Taking { receiver, queue, count, .. } = self;
        Request::Remove { receiver, queue, count, content_bytes_max: ANSWER_CONTENT_BYTES }
    }

    pub(super) fn lease(&self, visibility: Duration) -> Request {
        let &Taking { receiver, queue, count, .. } = self;
        let content_bytes_max = ANSWER_CONTENT_BYTES;
        Request::Lease { receiver, queue, count, content_bytes_max, visibility }
    }
}

fn leases(leases: Vec<rpc::LeaseId>) -> Result<Vec<Lease>, Status> {
    if !(1..=MESSAGES_MAX as usize).contains(&leases.len()) {
        return refused(format!("the call has {} leases: use 1 to {MESSAGES_MAX}", leases.len()));
    }
    let lease = |rpc::LeaseId { message, attempt }| Lease { message, attempt };
    Ok(leases.into_iter().map(lease).collect())
}

pub(super) fn acknowledged(question: AcknowledgeRequest) -> Result<Request, Status> {
    Ok(Request::Acknowledge { leases: leases(question.leases)? })
}

pub(super) fn released(question: ReleaseRequest) -> Result<Request, Status> {
    Ok(Request::Release { leases: leases(question.leases)? })
}

pub(super) fn extended(question: ExtendRequest) -> Result<Request, Status> {
    let visibility = visibility(question.visibility_ms)?;
    Ok(Request::Extend { leases: leases(question.leases)?, visibility })
}

pub(super) fn stored(message: Stored) -> rpc::Stored {
    let Stored { id, sender, receiver, queue, arrived_at_us, content } = message;
    rpc::Stored { id, sender, receiver, queue, arrived_at_us, content }
}

pub(super) fn leased((message, attempt): (Stored, u32)) -> rpc::Leased {
    rpc::Leased { message: Some(stored(message)), attempt }
}

pub(super) fn ended(leases: Vec<Lease>) -> Vec<rpc::LeaseId> {
    let id = |Lease { message, attempt }| rpc::LeaseId { message, attempt };
    leases.into_iter().map(id).collect()
}
