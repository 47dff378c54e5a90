//! The memory of the items: segments, filled from front to back.

use std::collections::VecDeque;

use super::layout::{
    DEAD, EXPIRY, FLAGS, HEADER_BYTES, Head, KEY_LEN, Location, MARKS, READ, SEGMENT_BYTES_MAX,
    SEGMENTS_MAX, STATE, USED, USED_AT, VALUE_LEN, item_bytes, u32_at, write_head,
};
use crate::engine::{Expiry, Item, Second};

/// A contiguous part of memory: of the common size, for many items, or for one large item.
#[derive(Debug, Default)]
struct Segment {
    bytes: Box<[u8]>,
    /// The number of written bytes, from the front.
    filled: usize,
    /// The bytes of items that are in the index.
    live: usize,
    large: bool,
}

/// The cost of a segment besides its memory: its entry, and its number in two lists. Growing lists have up to twice the
/// room that they need.
const BOOKKEEPING_BYTES: usize = 2 * (size_of::<Segment>() + 2 * size_of::<u32>());

/// Segments, and the order in which they were filled.
#[derive(Debug)]
pub(crate) struct Log {
    segment_bytes: usize,
    segments: Vec<Segment>,
    /// Indices of segments without memory.
    vacant: Vec<u32>,
    /// Indices of empty segments of the common size.
    free: Vec<u32>,
    /// The segment that is being filled.
    active: Option<u32>,
    /// All other segments with items, in the order in which they were filled.
    filled: VecDeque<u32>,
    /// Bytes of all segments.
    allocated: usize,
    /// Bytes of all live items.
    live: usize,
}

impl Log {
    /// `segment_bytes` is a power of two, at most [`SEGMENT_BYTES_MAX`].
    pub(crate) fn new(segment_bytes: usize) -> Log {
        debug_assert!(segment_bytes.is_power_of_two() && segment_bytes <= SEGMENT_BYTES_MAX);
        Log {
            segment_bytes,
            segments: Vec::new(),
            vacant: Vec::new(),
            free: Vec::new(),
            active: None,
            filled: VecDeque::new(),
            allocated: 0,
            live: 0,
        }
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Whether an item of this size gets its own segment. So at most an eighth of a common segment is wasted at its
    /// end.
    pub(crate) fn is_large(&self, item_bytes: usize) -> bool {
        item_bytes > self.segment_bytes / 8
    }

    /// The memory taken from the system.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated + self.segments.len() * BOOKKEEPING_BYTES
    }

    /// The memory that one more common segment takes.
    pub(crate) fn segment_cost(&self) -> usize {
        self.segment_bytes + BOOKKEEPING_BYTES
    }

    pub(crate) fn large_item_cost(&self, item_bytes: usize) -> usize {
        item_bytes + BOOKKEEPING_BYTES
    }

    /// The size of all items that are in the index.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live
    }

    /// The free bytes of the active segment.
    pub(crate) fn room(&self) -> usize {
        self.active.map_or(0, |active| {
            let segment = &self.segments[active as usize];
            segment.bytes.len() - segment.filled
        })
    }

    pub(crate) fn has_free_segment(&self) -> bool {
        !self.free.is_empty()
    }

    /// Begins a new active segment: a free one, or a new one.
    pub(crate) fn begin_segment(&mut self) {
        if let Some(sealed) = self.active.take() {
            if self.segments[sealed as usize].live == 0 {
                self.segments[sealed as usize].filled = 0;
                self.free.push(sealed);
            } else {
                self.filled.push_back(sealed);
            }
        }
        let segment = self.free.pop().unwrap_or_else(|| self.allocate(self.segment_bytes));
        self.active = Some(segment);
    }

    /// Gives the memory of one free segment back to the system. Returns false if there is none.
    pub(crate) fn release_free_segment(&mut self) -> bool {
        let Some(segment) = self.free.pop() else { return false };
        self.release(segment);
        true
    }

    fn allocate(&mut self, bytes: usize) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            assert!(self.segments.len() < SEGMENTS_MAX, "too many segments");
            self.segments.push(Segment::default());
            (self.segments.len() - 1) as u32
        });
        // The kernel provides zeroed memory page by page, at the first access.
        self.segments[number as usize].bytes = vec![0; bytes].into_boxed_slice();
        self.allocated += bytes;
        number
    }

    fn release(&mut self, number: u32) {
        let segment = std::mem::take(&mut self.segments[number as usize]);
        self.allocated -= segment.bytes.len();
        self.vacant.push(number);
    }

    /// Writes a new item to the active segment, which must have room. A large item gets its own segment.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], head: &Head) -> Location {
        let location = self.reserve(item_bytes(key.len(), value.len()));
        let bytes = self.bytes_mut(location);
        bytes[VALUE_LEN..USED_AT].copy_from_slice(&(value.len() as u32).to_le_bytes());
        bytes[KEY_LEN] = key.len() as u8;
        bytes[STATE] = 0;
        write_head(bytes, head);
        let (key_place, rest) = bytes[HEADER_BYTES..].split_at_mut(key.len());
        key_place.copy_from_slice(key);
        rest[..value.len()].copy_from_slice(value);
        location
    }

    /// Replaces an item's value by one of the same length.
    pub(crate) fn rewrite(&mut self, at: Location, value: &[u8], head: &Head) {
        let start = HEADER_BYTES + self.key(at).len();
        let end = start + self.value_len(at);
        let bytes = self.bytes_mut(at);
        bytes[STATE] |= USED;
        write_head(bytes, head);
        bytes[start..end].copy_from_slice(value);
    }

    /// Overwrites the value of an item if the rounded item size is unchanged. Otherwise returns false.
    pub(crate) fn overwrite(&mut self, at: Location, value: &[u8], head: &Head) -> bool {
        let key_len = self.key(at).len();
        if item_bytes(key_len, value.len()) != item_bytes(key_len, self.value_len(at)) {
            return false;
        }
        let bytes = self.bytes_mut(at);
        bytes[VALUE_LEN..USED_AT].copy_from_slice(&(value.len() as u32).to_le_bytes());
        // The item keeps its old place in the order of eviction, so it counts as used.
        bytes[STATE] = USED;
        write_head(bytes, head);
        bytes[HEADER_BYTES + key_len..][..value.len()].copy_from_slice(value);
        true
    }

    fn reserve(&mut self, bytes: usize) -> Location {
        self.live += bytes;
        if self.is_large(bytes) {
            let number = self.allocate(bytes);
            let segment = &mut self.segments[number as usize];
            (segment.filled, segment.live, segment.large) = (bytes, bytes, true);
            self.filled.push_back(number);
            return Location::new(number, 0);
        }
        let active = self.active.expect("room was made before the item is written");
        let segment = &mut self.segments[active as usize];
        let offset = segment.filled;
        segment.filled += bytes;
        segment.live += bytes;
        Location::new(active, offset)
    }

    /// Marks an item, which is no longer in the index, as dead. A segment with only dead items becomes free.
    pub(crate) fn kill(&mut self, at: Location) {
        let bytes = self.size(at);
        self.bytes_mut(at)[STATE] |= DEAD;
        self.live -= bytes;
        let number = at.segment() as u32;
        let segment = &mut self.segments[at.segment()];
        segment.live -= bytes;
        if segment.live == 0 {
            if self.active == Some(number) {
                segment.filled = 0;
            } else if let Some(place) = self.filled.iter().position(|&filled| filled == number) {
                self.filled.remove(place);
                self.set_free(number);
            }
        }
    }

    fn set_free(&mut self, number: u32) {
        let segment = &mut self.segments[number as usize];
        if segment.large {
            self.release(number);
        } else {
            (segment.filled, segment.live) = (0, 0);
            self.free.push(number);
        }
    }

    /// Drops all items and all memory.
    pub(crate) fn clear(&mut self) {
        *self = Log::new(self.segment_bytes);
    }

    /// The first live item of a segment at or after the offset `from`, and the offset of the next item.
    pub(crate) fn next_live(&self, segment: u32, from: usize) -> Option<(Location, usize)> {
        let filled = self.segments[segment as usize].filled;
        let mut offset = from;
        while offset < filled {
            let at = Location::new(segment, offset);
            let next = offset + self.size(at);
            if self.bytes(at)[STATE] & DEAD == 0 {
                return Some((at, next));
            }
            offset = next;
        }
        None
    }

    /// The segment that was filled first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.filled.front().copied()
    }

    pub(crate) fn holds_large_item(&self, segment: u32) -> bool {
        self.segments[segment as usize].large
    }

    /// The common segment with the fewest live bytes, and their number.
    pub(crate) fn emptiest(&self) -> Option<(u32, usize)> {
        self.filled
            .iter()
            .filter(|&&number| !self.holds_large_item(number))
            .map(|&number| (number, self.segments[number as usize].live))
            .min_by_key(|&(_, live)| live)
    }

    /// Moves the oldest segment to the end of the order.
    pub(crate) fn renew_oldest(&mut self) {
        self.filled.rotate_left(1);
    }

    /// Copies a small item into the active segment, which must have room. The copy counts as unused. The caller must
    /// then kill the original.
    pub(crate) fn relocate(&mut self, from: Location) -> Location {
        let bytes = self.size(from);
        let to = self.reserve(bytes);
        // The target's memory is taken out of its segment, because two segments are borrowed at a time.
        let mut target = std::mem::take(&mut self.segments[to.segment()].bytes);
        target[to.offset()..][..bytes].copy_from_slice(&self.bytes(from)[..bytes]);
        target[to.offset() + STATE] &= !USED;
        self.segments[to.segment()].bytes = target;
        to
    }

    #[inline]
    pub(crate) fn key(&self, at: Location) -> &[u8] {
        let bytes = self.bytes(at);
        &bytes[HEADER_BYTES..HEADER_BYTES + usize::from(bytes[KEY_LEN])]
    }

    fn value_len(&self, at: Location) -> usize {
        u32_at(self.bytes(at), VALUE_LEN) as usize
    }

    pub(crate) fn size(&self, at: Location) -> usize {
        let bytes = self.bytes(at);
        item_bytes(usize::from(bytes[KEY_LEN]), u32_at(bytes, VALUE_LEN) as usize)
    }

    #[inline]
    pub(crate) fn expiry(&self, at: Location) -> Expiry {
        Expiry::from_bits(u32_at(self.bytes(at), EXPIRY))
    }

    /// Whether the item was used since it was put or last spared.
    pub(crate) fn is_used(&self, at: Location) -> bool {
        self.bytes(at)[STATE] & USED != 0
    }

    /// Whether the item was read since it was put.
    pub(crate) fn is_read(&self, at: Location) -> bool {
        self.bytes(at)[STATE] & READ != 0
    }

    pub(crate) fn set_unused(&mut self, at: Location) {
        self.bytes_mut(at)[STATE] &= !USED;
    }

    #[inline]
    pub(crate) fn item(&self, at: Location) -> Item<'_> {
        let bytes = self.bytes(at);
        let start = HEADER_BYTES + usize::from(bytes[KEY_LEN]);
        Item {
            flags: u32_at(bytes, FLAGS),
            expiry: Expiry::from_bits(u32_at(bytes, EXPIRY)),
            version: u64::from(u32_at(bytes, 0)) | u64::from(u32_at(bytes, 4)) << 32,
            marks: bytes[MARKS],
            read: bytes[STATE] & READ != 0,
            used_at: u32_at(bytes, USED_AT),
            value: &bytes[start..start + u32_at(bytes, VALUE_LEN) as usize],
        }
    }

    #[inline]
    pub(crate) fn read(&mut self, at: Location, now: Second) {
        let bytes = self.bytes_mut(at);
        bytes[USED_AT..USED_AT + 4].copy_from_slice(&now.to_le_bytes());
        bytes[STATE] |= USED | READ;
    }

    /// Rewrites the head only, and marks the item as used.
    pub(crate) fn amend(&mut self, at: Location, head: &Head) {
        let bytes = self.bytes_mut(at);
        write_head(bytes, head);
        bytes[STATE] |= USED;
    }

    #[inline]
    fn bytes(&self, at: Location) -> &[u8] {
        &self.segments[at.segment()].bytes[at.offset()..]
    }

    #[inline]
    fn bytes_mut(&mut self, at: Location) -> &mut [u8] {
        &mut self.segments[at.segment()].bytes[at.offset()..]
    }
}
