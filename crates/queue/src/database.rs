//! The trait of a database of messages.

use std::fmt;
use std::future::Future;
use std::time::Instant;

use knee_server::program;
use tokio::sync::broadcast;

use crate::operation::{Answer, ClientId, QueueId, Request};

/// A database of messages.
pub trait Database: Send + Sync + 'static {
    /// Answers a request. An answered change is durable, and visible to later requests.
    ///
    /// A dropped future may have begun its request. The request is then completed nevertheless, and its arrivals are
    /// announced.
    fn call(
        &self,
        request: Request,
        stages: &mut Stages,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Subscribes to later arrivals, including messages whose lease ended. An arrival is announced after its message
    /// is visible. `None` reports missed arrivals. Arrivals may also be lost without a report, so waiting calls poll
    /// as well.
    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>>;
}

/// A ready message, or a deleted queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Its queue.
    pub queue: QueueId,
    /// The receiver of the message.
    pub receiver: ClientId,
}

/// The times of a request's stages, on the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stages {
    /// When the request got a connection to the database.
    pub connected: Option<Instant>,
    /// When the database answered.
    pub answered: Option<Instant>,
}

/// Why a request failed. The text is for a human reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The request is wrong in itself.
    Invalid(String),
    /// A client or queue of the request is missing.
    NotThere(String),
    /// The schema is missing, or is another one.
    NotMigrated(String),
    /// This server lacks access, or rights.
    NotAllowed(String),
    /// The database is full.
    Full(String),
    /// The request cannot be done now; nothing was done.
    Unavailable(String),
    /// The connection was lost during the call, which may have taken effect.
    Unknown(String),
    /// No connection was free in time; nothing was done.
    TooLate(String),
    /// The database broke its interface.
    Broken(String),
}

impl Failure {
    /// There is no such client.
    pub(crate) fn no_client(client: ClientId) -> Failure {
        Failure::NotThere(format!("there is no client {client}"))
    }

    /// There is no such queue.
    pub(crate) fn no_queue(queue: QueueId) -> Failure {
        Failure::NotThere(format!("there is no queue {queue}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Invalid(text)
        | Failure::NotThere(text)
        | Failure::NotMigrated(text)
        | Failure::NotAllowed(text)
        | Failure::Full(text)
        | Failure::Unavailable(text)
        | Failure::Unknown(text)
        | Failure::TooLate(text)
        | Failure::Broken(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for program::Failure {
    /// The message does not contain the value of `--database`.
    fn from(failure: Failure) -> program::Failure {
        program::Failure { message: format!("cannot use --database: {failure}"), code: 1 }
    }
}
