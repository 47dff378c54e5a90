//! Executes the writes in messages.

use knee_kv_cache::engine::{Expiry, Second};
use knee_kv_store::calendar::now;
use knee_kv_store::{Action, Committed, Condition, RequestId, Room, Store, Write, WriteError};
use knee_rpc::kv::{self, BulkPutRequest, Change, Value, change};
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

use super::refusal::unwritten;

/// The permit to make segments, which one call holds at a time.
pub(super) type SegmentPermit = OwnedMutexGuard<()>;

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

/// The write of a change; `None` if it has no action.
fn write_of(Change { key, action, condition }: &Change, now: Second) -> Option<Write<'_>> {
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

fn idle(index: usize) -> Refused {
    let message = format!("change {index} has no action: set put, append or delete");
    Refused { status: Status::invalid_argument(message), sequence: 0, is_full: false }
}

/// Why a write failed.
pub(super) struct Refused {
    pub(super) status: Status,
    /// The commit that the status reflects, or 0.
    pub(super) sequence: u64,
    pub(super) is_full: bool,
}

/// The outcome of an attempt at a bulk put.
pub(super) enum Tried {
    Done(Result<Committed, Refused>),
    /// The write needs new segments, and has no permit to make them.
    Unready(BulkPutRequest),
    /// The log had too little space.
    Full(BulkPutRequest, Room, Refused),
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
        is_full: error.is_full(),
        sequence: match error {
            WriteError::Condition { sequence, .. } => sequence,
            // This error reflects the size of the value, and that the conditions hold.
            WriteError::TooLarge { .. } => store.last(),
            _ => 0,
        },
    })
}

/// Executes a bulk put. Returns the request if it needs space, or new segments without a permit.
pub(super) fn written_at_once(
    store: &Store,
    bulk: BulkPutRequest,
    permit: Option<SegmentPermit>,
) -> Tried {
    let now = now();
    let writes = bulk
        .changes
        .iter()
        .enumerate()
        .map(|(index, change)| write_of(change, now).ok_or_else(|| idle(index)))
        .collect::<Result<Vec<_>, Refused>>();
    let writes = match writes {
        Ok(writes) => writes,
        Err(refused) => return Tried::Done(Err(refused)),
    };
    let room = Room::of(&writes);
    if !store.is_ready_for(room) {
        if permit.is_none() {
            drop(writes);
            return Tried::Unready(bulk);
        }
        // Make segments before the write locks its keys: calls on the runtime's threads may need those locks.
        let _ = store.make_ready_for(room);
    }
    match written(store, &writes, bulk.request, now) {
        Err(refused) if refused.is_full => {
            drop(writes);
            Tried::Full(bulk, room, refused)
        }
        outcome => Tried::Done(outcome),
    }
}
