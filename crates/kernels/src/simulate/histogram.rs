//! Response times, counted in buckets. Buckets of longer times are wider.

/// The number of binary digits of the mantissa that determine the bucket. A bucket's width is at most
/// 2^−8 = 0.4 % of its values.
const DIGITS: u32 = 8;

const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - DIGITS;

/// Counts of non-negative times, in log-linear buckets as in HdrHistogram (Tene). The exponent and the first [`DIGITS`]
/// digits of the mantissa determine a number's bucket. Buckets take memory only from the smallest to the largest value,
/// some 2 KB for each factor of 2. Times of 0 have their own count, because 260,000 buckets lie between 0 and 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The count of bucket 0, which ends below the smallest normal number.
    zeros: u64,
    /// The bucket of `counts[0]`; bucket b begins at the number with the bits b · 2^44.
    first: usize,
    counts: Vec<u64>,
}

impl Histogram {
    #[inline]
    pub(super) fn record(&mut self, value: f64) {
        let bucket = (value.to_bits() >> SHIFT) as usize;
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => self.record_beyond(bucket),
        }
    }

    /// Every bucket with values: its beginning, its end, and the number of its values.
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

    /// There may be ten thousand histograms, one for each replication.
    #[test]
    fn times_of_0_take_no_memory_up_to_the_next_time() {
        let mut histogram = Histogram::default();
        [0.0, 1.0, 0.0, 1.0].into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.counts.len(), 1);
        let buckets: Vec<_> = histogram.buckets().map(|[begin, _, count]| (begin, count)).collect();
        assert_eq!(buckets, [(0.0, 2.0), (1.0, 2.0)]);
    }
}
