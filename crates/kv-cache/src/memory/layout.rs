//! The layout of an item in memory, and its location.

use crate::engine::{Expiry, Second, Version};

/// An item's bytes: header, key, value, padding to [`UNIT_BYTES`].
///
/// ```text
/// 0        8       12      16          20       24       25     26     27
/// version  expiry  flags   value_len   used_at  key_len  marks  state  key … value …
/// ```
pub(crate) const HEADER_BYTES: usize = 27;
pub(super) const EXPIRY: usize = 8;
pub(super) const FLAGS: usize = 12;
pub(super) const VALUE_LEN: usize = 16;
pub(super) const USED_AT: usize = 20;
pub(super) const KEY_LEN: usize = 24;
pub(super) const MARKS: usize = 25;
pub(super) const STATE: usize = 26;

/// A bit of the state: the item is no longer in the index.
pub(super) const DEAD: u8 = 1;
/// A bit of the state: the item was used since its put, or since eviction last spared it.
pub(super) const USED: u8 = 2;
/// A bit of the state: the item was read since it was put.
pub(super) const READ: u8 = 4;

/// Items begin at multiples of this.
pub(super) const UNIT_BYTES: usize = 8;
pub(super) const OFFSET_BITS: u32 = 17;
/// The largest segment with several items. A segment with one item, at offset 0, may be larger.
pub(crate) const SEGMENT_BYTES_MAX: usize = UNIT_BYTES << OFFSET_BITS;
/// The most segments. A location has 40 bits: 17 for the offset in units, 23 for the segment.
pub(super) const SEGMENTS_MAX: usize = 1 << 23;

/// The place of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location(pub(crate) u64);

impl Location {
    pub(super) fn new(segment: u32, offset: usize) -> Location {
        Location(u64::from(segment) << OFFSET_BITS | (offset / UNIT_BYTES) as u64)
    }

    pub(super) fn segment(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    pub(super) fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * UNIT_BYTES
    }
}

/// The fields of an item besides its key and value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) version: Version,
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
    pub(crate) marks: u8,
    pub(crate) used_at: Second,
}

#[inline]
pub(crate) fn item_bytes(key_len: usize, value_len: usize) -> usize {
    (HEADER_BYTES + key_len + value_len).next_multiple_of(UNIT_BYTES)
}

pub(super) fn write_head(bytes: &mut [u8], head: &Head) {
    bytes[..EXPIRY].copy_from_slice(&head.version.to_le_bytes());
    bytes[EXPIRY..FLAGS].copy_from_slice(&head.expiry.to_bits().to_le_bytes());
    bytes[FLAGS..VALUE_LEN].copy_from_slice(&head.flags.to_le_bytes());
    bytes[USED_AT..KEY_LEN].copy_from_slice(&head.used_at.to_le_bytes());
    bytes[MARKS] = head.marks;
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], start: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[start..start + 4]);
    u32::from_le_bytes(word)
}
