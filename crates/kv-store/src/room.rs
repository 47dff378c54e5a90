//! The space that a write needs in the log, for callers that must not wait for the disk.

use super::action::{Action, Write, pieces};
use super::record::Kind;

/// Upper bound of a record's bytes besides key and value.
const RECORD_COST_BYTES: usize = 128;

/// The space that a commit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub(super) bytes: usize,
    pub(super) records: usize,
    /// Whether the commit only frees space, and so may use the reserve.
    frees: bool,
}

impl Room {
    /// The space for some writes as one commit.
    pub fn of(writes: &[Write<'_>]) -> Room {
        let frees = writes.iter().all(|write| write.action == Action::Delete);
        let mut room = Room { bytes: 0, records: 0, frees };
        for write in writes {
            let value = match write.action {
                Action::Put { value, .. } | Action::Append(value) => value,
                Action::Delete => &[],
            };
            // Each piece has its own record.
            let records = pieces(Kind::Put, value).count();
            room.records += records;
            room.bytes += records * (RECORD_COST_BYTES + write.key.len()) + value.len();
        }
        room
    }

    pub(super) const CLEAR: Room = Room { bytes: RECORD_COST_BYTES, records: 1, frees: true };

    /// Segments that the commit may take beyond the limit.
    pub(super) fn beyond(self) -> usize {
        usize::from(self.frees)
    }
}
