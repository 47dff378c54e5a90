//! The place of a record in the log.

/// Number of a segment; later segments have larger numbers.
pub(crate) type SegmentId = u32;

/// Records begin at multiples of this number of bytes.
pub(crate) const ALIGN: usize = 8;

/// Size of the largest segment: a place in it, or its end, has 24 bits.
pub(crate) const SEGMENT_BYTES_MAX: usize = ALIGN * 0xFF_FFFF;

/// The place of a record.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Location {
    pub(crate) segment: SegmentId,
    /// The offset in the segment, in units of [`ALIGN`].
    eighth: u32,
}

impl Location {
    pub(crate) fn new(segment: SegmentId, offset: usize) -> Location {
        debug_assert_eq!(offset % ALIGN, 0);
        Location { segment, eighth: (offset / ALIGN) as u32 }
    }

    pub(crate) fn offset(self) -> usize {
        self.eighth as usize * ALIGN
    }

    /// Packs the place into 56 bits, in the order of the log. The offset is at most [`SEGMENT_BYTES_MAX`].
    pub(crate) fn to_bits(self) -> u64 {
        debug_assert!(self.offset() <= SEGMENT_BYTES_MAX);
        u64::from(self.segment) << 24 | u64::from(self.eighth)
    }

    /// Unpacks a place; 0 is no place, as segments are counted from 1.
    pub(crate) fn from_bits(bits: u64) -> Option<Location> {
        let place = Location { segment: (bits >> 24) as u32, eighth: (bits & 0xFF_FFFF) as u32 };
        (place.segment != 0).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_largest_segment_precedes_the_next_segment() {
        let end = Location::new(7, SEGMENT_BYTES_MAX);
        assert_eq!(Location::from_bits(end.to_bits()), Some(end));
        assert!(end.to_bits() < Location::new(8, 0).to_bits());
    }
}
