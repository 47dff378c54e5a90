//! The actions of a commit on its keys.

use knee_kv_cache::engine::{Expiry, Version};

use super::record::{Growth, Kind, Sequence};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Largest piece of a value, in bytes: a longer value takes several records.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 20;

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The write always happens.
    Always,
    /// The key is absent.
    Absent,
    /// The key is present.
    Present,
    /// The key is present, in this version.
    Version(Version),
}

/// The action on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Sets the value of the key.
    Put {
        /// The client's number.
        flags: u32,
        /// When the key expires.
        expiry: Expiry,
        /// Bits that the caller stores with the value.
        marks: u8,
        /// The value.
        value: &'a [u8],
    },
    /// Appends these bytes to the value; a missing key counts as an empty value.
    Append(&'a [u8]),
    /// Deletes the key.
    Delete,
}

/// One key's part of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its condition. If the condition of one write fails, no write of the commit happens.
    pub condition: Condition,
    /// Its action.
    pub action: Action<'a>,
}

/// Splits a value into pieces, and gives the kind of record for each piece.
pub(super) fn pieces(first: Kind, value: &[u8]) -> impl Iterator<Item = (Kind, &[u8])> + Clone {
    let empty = value.is_empty().then_some((first, value));
    empty.into_iter().chain(
        value
            .chunks(PIECE_BYTES_MAX)
            .enumerate()
            .map(move |(part, piece)| (if part == 0 { first } else { Kind::Append }, piece)),
    )
}

/// The state of a value while its records are appended.
#[derive(Debug, Default)]
pub(super) struct Growing {
    pub(super) whole: u64,
    /// The last record of the value.
    pub(super) last: (Sequence, u32),
    pub(super) records: u32,
}

impl Growing {
    /// Adds a record; returns the growth for an append record.
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
