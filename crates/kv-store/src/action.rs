//! The actions of a commit on its keys.

use knee_kv_cache::engine::{Expiry, Version};

use super::record::{Growth, Kind, Sequence};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Values are written in pieces of at most so much.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 20;

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// The key is not there.
    Absent,
    /// The key is there.
    Present,
    /// The key is there, in this version.
    Version(Version),
}

/// The action on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// It has this value from now on.
    Put {
        /// The client's number.
        flags: u32,
        /// When it ends.
        expiry: Expiry,
        /// Bits that the layer above keeps beside it.
        marks: u8,
        /// The value.
        value: &'a [u8],
    },
    /// Its value grows by this; what is not there is an empty value.
    Append(&'a [u8]),
    /// It is gone from now on.
    Delete,
}

/// One key's part of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its condition; if one fails, the whole commit does not happen.
    pub condition: Condition,
    /// Its action.
    pub action: Action<'a>,
}

/// The pieces that a value is written in, with the kinds of their records.
pub(super) fn pieces(first: Kind, value: &[u8]) -> impl Iterator<Item = (Kind, &[u8])> + Clone {
    let empty = value.is_empty().then_some((first, value));
    empty.into_iter().chain(
        value
            .chunks(PIECE_BYTES_MAX)
            .enumerate()
            .map(move |(part, piece)| (if part == 0 { first } else { Kind::Append }, piece)),
    )
}

/// A value as its records are appended.
#[derive(Debug, Default)]
pub(super) struct Growing {
    pub(super) whole: u64,
    /// The last record of it.
    pub(super) last: (Sequence, u32),
    pub(super) records: u32,
}

impl Growing {
    /// Adds a record; what an append says of the value then.
    pub(super) fn grow(
        &mut self,
        place: (Sequence, u32),
        kind: Kind,
        bytes: usize,
    ) -> Option<Growth> {
        self.whole += bytes as u64;
        let from = std::mem::replace(&mut self.last, place);
        let depth = self.records;
        self.records += 1;
        (kind == Kind::Append).then_some(Growth { whole: self.whole, from, depth })
    }
}
