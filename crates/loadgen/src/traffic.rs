//! Requests in the memcached protocol, and what their answers mean.

use knee_proto::{Expect, Response, Value};
use knee_telemetry::Op;

use crate::complaints::SHOWN_BYTES_MAX;
use crate::values::Difference;

/// What all clients of a run have in common.
pub(crate) trait Traffic: Send + Sync + 'static {
    /// One client's stream of requests. It depends on the run and the client's number only, not on answers, time or threads.
    type Requests: Send;
    /// What a connection remembers to verify answers.
    type Memory: Default + Send;

    /// The stream of client number `client` of `clients`.
    fn requests(&self, client: u64, clients: u64) -> Self::Requests;

    /// The longest answer.
    fn response_bytes_max(&self) -> usize;

    /// Appends the next request to `out` and returns its operation. With `memory`, remembers what its answer must be.
    fn append_next(
        &self,
        requests: &mut Self::Requests,
        out: &mut Vec<u8>,
        memory: Option<&mut Self::Memory>,
    ) -> Op;

    /// The number of keys in a request of this operation.
    fn keys_of(&self, op: Op) -> u32;

    /// The form of the answer to this operation.
    fn expect(&self, op: Op) -> Expect;

    /// Interprets an answer to this operation.
    fn judge(&self, op: Op, response: &Response<'_>) -> Judgement;

    /// Checks the answer to the oldest request in `memory`; calls `wrong` for each wrong value.
    fn verify(
        &self,
        memory: &mut Self::Memory,
        op: Op,
        response: &Response<'_>,
        wrong: impl FnMut(&Value<'_>, Fault),
    );

    /// Forgets the requests in flight, as the connection was lost.
    fn forget(memory: &mut Self::Memory);
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// The operation that it counts as.
    pub(crate) op: Op,
    /// Keys for which the request had an effect or found a value.
    pub(crate) hits: u32,
    /// The other keys.
    pub(crate) misses: u32,
    /// Whether it is no answer to such a request.
    pub(crate) error: bool,
}

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its key is not of this run.
    ForeignKey,
    /// The request did not ask for its key, or not so often.
    NotAsked,
    /// It is not its key's value.
    Differs(Difference),
    /// A newer version of its key was seen before the request.
    WentBack {
        /// The newer version.
        seen: u64,
        /// The version that came.
        found: u64,
    },
    /// A write made a version that is not newer than one seen before the request.
    NotNew {
        /// The version that it saw.
        seen: u64,
        /// The version that was made.
        made: u64,
    },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::ForeignKey => f.write_str("it is none of this run's keys"),
            Fault::NotAsked => f.write_str("the request did not ask for that key"),
            Fault::Differs(difference) => difference.fmt(f),
            Fault::WentBack { seen, found } => {
                write!(f, "it is version {found}, and its client has seen version {seen}")
            }
            Fault::NotNew { seen, made } => {
                write!(f, "it was given version {made}, and its client has seen version {seen}")
            }
        }
    }
}

/// A value that is not what it must be.
pub(crate) struct WrongValue<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) value: &'a [u8],
    pub(crate) fault: Fault,
}

impl std::fmt::Display for WrongValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WrongValue { key, flags, value, fault } = self;
        write!(
            f,
            "key {}: {fault} (flags {flags}, {} bytes, beginning {})",
            key.escape_ascii(),
            value.len(),
            value[..value.len().min(SHOWN_BYTES_MAX)].escape_ascii(),
        )
    }
}
