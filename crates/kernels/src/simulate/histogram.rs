//! Response times, counted in buckets whose width is a share of their value.

/// Binary digits of a value that tell buckets apart: a bucket is 2^−8 = 0.4 % of its value wide.
const DIGITS: u32 = 8;

const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - DIGITS;

/// Counts of times that are not negative, in log-linear buckets as HdrHistogram's (Tene): the
/// bucket of a number is its exponent and the first [`DIGITS`] digits of its mantissa.
/// Only buckets between the least value above 0 and the greatest take memory, some 2 KB for each
/// doubling. Times of 0 are counted apart: between 0 and 1 there are 260,000 buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// In bucket 0, which ends below the least normal number.
    zeros: u64,
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
        let counted =
            counted.map(move |(index, &count)| [begin(index), begin(index + 1), count as f64]);
        let zeros = (self.zeros > 0).then(|| [0.0, f64::from_bits(1 << SHIFT), self.zeros as f64]);
        zeros.into_iter().chain(counted)
    }

    #[cold]
    fn record_beyond(&mut self, bucket: usize) {
        if bucket == 0 {
            self.zeros += 1;
            return;
        }
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

    /// Ten thousand replications keep one each.
    #[test]
    fn a_time_of_0_takes_no_memory_up_to_the_next() {
        let mut histogram = Histogram::default();
        [0.0, 1.0, 0.0, 1.0].into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.counts.len(), 1);
        let buckets: Vec<_> = histogram.buckets().map(|[begin, _, count]| (begin, count)).collect();
        assert_eq!(buckets, [(0.0, 2.0), (1.0, 2.0)]);
    }
}
