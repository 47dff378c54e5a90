//! What the clients of the memcached protocol say to a server, and how its answers are judged.

use knee_proto::{Expect, Response, Value};
use knee_telemetry::Op;

use crate::complaints::SHOWN_BYTES_MAX;
use crate::values::Difference;

/// What all clients of a run have in common.
pub(crate) trait Traffic: Send + Sync + 'static {
    /// One client's stream of requests. It depends on the run and the client's number only: not on
    /// the answers, on time, or on how clients share threads.
    type Requests: Send;
    /// What a connection remembers, to verify what comes back.
    type Memory: Default + Send;

    /// The stream of client number `client` of `clients`.
    fn requests(&self, client: u64, clients: u64) -> Self::Requests;

    /// The longest answer.
    fn response_bytes_max(&self) -> usize;

    /// Appends the next request to `out` and tells its type. What is to be verified of its answer
    /// is remembered where there is a `memory`.
    fn append_next(
        &self,
        requests: &mut Self::Requests,
        out: &mut Vec<u8>,
        memory: Option<&mut Self::Memory>,
    ) -> Op;

    /// Keys that each request of this type names.
    fn keys_of(&self, op: Op) -> u32;

    /// The shape of the answer to a request of this type.
    fn expect(&self, op: Op) -> Expect;

    /// What an answer to a request of this type says.
    fn judge(&self, op: Op, response: &Response<'_>) -> Judgement;

    /// Checks the values of the answer to the oldest request that `memory` has, and tells `wrong` of
    /// those that are not right.
    fn verify(
        &self,
        memory: &mut Self::Memory,
        op: Op,
        response: &Response<'_>,
        wrong: impl FnMut(&Value<'_>, Fault),
    );

    /// The connection is lost: what was asked for will not be answered.
    fn forget(memory: &mut Self::Memory);
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// What the request is counted as.
    pub(crate) op: Op,
    /// Keys for which it had an effect, or found something.
    pub(crate) hits: u32,
    /// Keys for which it did not.
    pub(crate) misses: u32,
    /// Whether it is none of the answers that such a request has.
    pub(crate) error: bool,
}

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has a key that is none of the run's.
    ForeignKey,
    /// It has a key that the request did not ask for (or not so often).
    NotAsked,
    /// It is not the value that belongs to its key.
    Differs(Difference),
    /// The client saw a newer version of its key before it asked.
    WentBack {
        /// The newer version.
        seen: u64,
        /// The version that came.
        found: u64,
    },
    /// The client saw this version of its key, or a newer one, before it asked for a new one.
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
