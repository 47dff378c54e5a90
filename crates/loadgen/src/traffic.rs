//! A workload over a protocol on the event loop: its requests, and the meaning of their answers.

use std::fmt::Display;

use knee_proto::{Decoded, Value};
use knee_telemetry::Op;

use crate::complaints::SHOWN_BYTES_MAX;
use crate::values::Difference;

/// A workload. All clients of a run share one.
pub(crate) trait Traffic: Send + Sync + 'static {
    /// One client's stream of requests. It depends only on the workload and the client's number, not on answers, time
    /// or threads.
    type Requests: Send;
    /// The state of a connection that verification needs, such as the requests in flight.
    type Memory: Default + Send;
    /// Finds the answers in a connection's input.
    type Decoder: Send;
    type Answer<'a>;
    type Malformed: Display;

    fn requests(&self, client: u64, clients: u64) -> Self::Requests;

    /// The length of the longest answer.
    fn response_bytes_max(&self) -> usize;

    /// The decoder of a new connection.
    fn decoder(&self) -> Self::Decoder;

    /// Takes a part of a handshake at the front of `input`, and appends the answer to `out`. Returns its length, and
    /// whether requests may follow; `None` if it is incomplete. Without a handshake, requests may follow at once.
    ///
    /// # Errors
    /// Why the server cannot be used.
    fn greet(
        &self,
        _decoder: &mut Self::Decoder,
        _requests: &mut Self::Requests,
        _input: &[u8],
        _out: &mut Vec<u8>,
    ) -> Result<Option<(usize, bool)>, String> {
        Ok(Some((0, true)))
    }

    /// Appends the next request to `out` and returns its operation. With `memory`, notes there which answer is right.
    fn append_next(
        &self,
        requests: &mut Self::Requests,
        out: &mut Vec<u8>,
        memory: Option<&mut Self::Memory>,
    ) -> Op;

    /// The number of keys in a request of this operation.
    fn keys_of(&self, op: Op) -> u32;

    /// Decodes the answer to this operation at the front of `input`.
    fn decode<'a>(
        &self,
        decoder: &mut Self::Decoder,
        op: Op,
        input: &'a [u8],
    ) -> Decoded<Self::Answer<'a>, Self::Malformed>;

    /// Interprets an answer to this operation.
    fn judge(&self, op: Op, answer: &Self::Answer<'_>) -> Judgement;

    /// An answer that is an error, for a message.
    fn shown(answer: &Self::Answer<'_>) -> String;

    /// Checks the answer to the oldest request in `memory`; calls `wrong` for each wrong value.
    fn verify(
        &self,
        memory: &mut Self::Memory,
        op: Op,
        answer: &Self::Answer<'_>,
        wrong: impl FnMut(&Value<'_>, Fault),
    );

    /// Removes the requests in flight of a lost connection.
    fn forget(memory: &mut Self::Memory);
}

/// The first line of an answer in the memcached protocol.
pub(crate) fn first_line(raw: &[u8]) -> String {
    let line = raw.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line[..line.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// The operation that the request counts as.
    pub(crate) op: Op,
    /// Number of keys for which the request had an effect or found a value.
    pub(crate) hits: u32,
    /// The other keys.
    pub(crate) misses: u32,
    /// Whether the answer is an error, or does not fit the request.
    pub(crate) error: bool,
}

/// Why a value in an answer is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The key does not belong to this run.
    ForeignKey,
    /// The request did not ask for the key, or asked for it fewer times.
    NotAsked,
    /// The value does not belong to its key.
    Differs(Difference),
    /// Its connection had seen a newer version of the key before the request.
    WentBack {
        /// The newer version.
        seen: u64,
        /// The version in the answer.
        found: u64,
    },
    /// A write made a version that is not newer than a version that its connection had seen before.
    NotNew {
        /// The version seen before.
        seen: u64,
        /// The version of the write.
        made: u64,
    },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::ForeignKey => f.write_str("it is not a key of this run"),
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
