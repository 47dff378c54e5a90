//! A planned write, and its records.

use knee_kv_cache::engine::{Expiry, Version};

use super::action::{Action, Growing, Write, pieces};
use super::record::Kind;
use super::table::{SlotId, View};

/// A write whose condition holds.
pub(super) struct Planned<'a> {
    pub(super) write: Write<'a>,
    pub(super) hash: u64,
    pub(super) slot: Option<SlotId>,
    pub(super) view: Option<View>,
    /// The key's next version, if the store counts versions for each key (sequential consistency).
    pub(super) version: Version,
    /// The old version, if the write keeps it.
    pub(super) keeps: Option<Version>,
}

impl<'a> Planned<'a> {
    pub(super) fn attributes(&self) -> (u32, Expiry, u8) {
        match (self.write.action, &self.view) {
            (Action::Put { flags, expiry, marks, .. }, _) => (flags, expiry, marks),
            (Action::Append(_), Some(view)) => (view.flags, view.expiry, view.marks),
            _ => (0, Expiry::NEVER, 0),
        }
    }

    /// The value's size, last record and record count before this write appends its first piece.
    pub(super) fn growing(&self) -> Growing {
        match (self.write.action, &self.view) {
            (Action::Append(_), Some(view)) => Growing {
                whole: view.value_bytes as u64,
                last: (view.sequence, view.part),
                records: view.records() as u32,
            },
            _ => Growing { whole: 0, last: (0, 0), records: 0 },
        }
    }

    /// The records' kinds and values.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Kind, &'a [u8])> + Clone + use<'a> {
        let (first, value) = match self.write.action {
            Action::Put { value, .. } => (Kind::Put, value),
            Action::Append(tail) if self.view.is_some() => (Kind::Append, tail),
            Action::Append(tail) => (Kind::Put, tail),
            Action::Delete => (Kind::Delete, &[][..]),
        };
        pieces(first, value)
    }
}
