//! What messages ask to be written.

use knee_rpc::kv::{self, Change, Value, change};
use tonic::Status;

use super::refusal::unwritten;
use crate::engine::{Expiry, Second};
use crate::versioned::{Action, Committed, Condition, RequestId, Store, Write, WriteError};

pub(super) fn put(Value { value, flags, ttl_s }: &Value, now: Second) -> Action<'_> {
    let expiry = match ttl_s {
        0 => Expiry::NEVER,
        seconds => Expiry::at(now.saturating_add(*seconds)),
    };
    Action::Put { flags: *flags, expiry, marks: 0, value }
}

pub(super) fn in_version(version: Option<u64>) -> Condition {
    version.map_or(Condition::Always, Condition::Version)
}

/// What a part of a bulk put asks for; nothing if it does not say.
pub(super) fn write_of(
    Change { key, action, condition }: &Change,
    now: Second,
) -> Option<Write<'_>> {
    let action = match action.as_ref()? {
        change::Action::Put(value) => put(value, now),
        change::Action::Append(tail) => Action::Append(tail),
        change::Action::Delete(_) => Action::Delete,
    };
    let condition = match condition {
        None => Condition::Always,
        Some(change::Condition::IfAbsent(_)) => Condition::Absent,
        Some(change::Condition::IfPresent(_)) => Condition::Present,
        Some(change::Condition::IfVersion(version)) => Condition::Version(*version),
    };
    Some(Write { key, condition, action })
}

pub(super) fn idle(index: usize) -> Refused {
    let message = format!("change {index} does not say what is to happen");
    Refused { status: Status::invalid_argument(message), sequence: 0 }
}

/// Why nothing was written.
pub(super) struct Refused {
    pub(super) status: Status,
    /// The commit that it tells of, if it tells of one.
    pub(super) sequence: u64,
}

pub(super) fn written(
    store: &Store,
    writes: &[Write<'_>],
    request: Option<kv::RequestId>,
    now: Second,
) -> Result<Committed, Refused> {
    let request = request.map(|kv::RequestId { client, number }| RequestId { client, number });
    store.write(writes, request, now).map_err(|error| Refused {
        status: unwritten(&error, writes),
        sequence: match error {
            WriteError::Condition { sequence, .. } => sequence,
            // It says how much is there, and that the conditions hold.
            WriteError::TooLarge(_) => store.last(),
            _ => 0,
        },
    })
}
