//! Response times, counted in buckets whose width is a share of their value.

/// Binary digits of a value that tell buckets apart: a bucket is 2^−8 = 0.4 % of its value wide.
const DIGITS: u32 = 8;

const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - DIGITS;

/// Counts of times that are not negative, in log-linear buckets as HdrHistogram's (Tene): the
/// bucket of a number is its exponent and the first [`DIGITS`] digits of its mantissa.
/// Only buckets between the least and the greatest value take memory, at most 4 MB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The bucket of `counts[0]`; bucket b begins at the number whose bits are b · 2^44.
    first: usize,
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub(super) fn record(&mut self, value: f64) {
        let bucket = (value.to_bits() >> SHIFT) as usize;
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => self.record_beyond(bucket),
        }
    }

    /// Every bucket that counts something: where it begins and ends, and how many values it has.
    pub fn buckets(&self) -> impl Iterator<Item = [f64; 3]> {
        let begin = |index| f64::from_bits(((self.first + index) as u64) << SHIFT);
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(move |(index, &count)| [begin(index), begin(index + 1), count as f64])
    }

    #[cold]
    fn record_beyond(&mut self, bucket: usize) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let index = bucket - self.first;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_is_in_its_bucket(
            values in prop::collection::vec(prop_oneof![Just(0.0), 1e-9..1e9_f64], 1..200)
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            for [low, high, count] in histogram.buckets() {
                let inside = values.iter().filter(|&&value| low <= value && value < high).count();
                prop_assert_eq!(inside as f64, count);
                if low > 0.0 {
                    prop_assert!((high - low) / low <= 0.5_f64.powi(DIGITS as i32));
                }
            }
            let total: f64 = histogram.buckets().map(|[_, _, count]| count).sum();
            prop_assert_eq!(total, values.len() as f64);
        }
    }
}
