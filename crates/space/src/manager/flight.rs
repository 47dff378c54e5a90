//! Requests that machines have not answered.

use std::sync::Arc;
use std::time::Instant;

use knee_nbd::{Errno, Request};
use knee_reactor::ConnId;
use knee_server::Share;
use tokio::sync::oneshot;

/// A request over gRPC.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: Request,
    /// The data of a write.
    pub(crate) data: bytes::Bytes,
    pub(crate) answer: Answer,
    /// Keeps the memory of the call counted, even if its caller leaves.
    pub(crate) share: Option<Arc<Share>>,
}

/// Takes the data of a read, or the number of an error.
pub(crate) type Answer = oneshot::Sender<Result<Vec<u8>, Errno>>;

/// The sender of a request.
#[derive(Debug)]
pub(crate) enum Caller {
    /// A client over NBD.
    Client(ConnId),
    /// A client over gRPC.
    Call(Answer, Option<Arc<Share>>),
}

/// A request.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) caller: Caller,
    pub(super) request: Request,
    pub(super) received: Instant,
    /// The number of parts without an answer.
    pub(super) left: usize,
    /// The first error.
    pub(super) error: Errno,
    /// The data of a read from several machines.
    pub(super) joined: Vec<u8>,
}

/// The part of a request that one machine has.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) flight: u64,
    /// The connection that the part was sent on.
    pub(super) conn: ConnId,
    pub(super) machine: usize,
    /// The distance from the start of the request.
    pub(super) at: u32,
    /// The length of the data in the answer.
    pub(super) reads: u32,
    /// Whether the machine may change data.
    pub(super) changes: bool,
    pub(super) sent: Instant,
}
