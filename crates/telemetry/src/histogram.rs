//! HDR histograms of nanoseconds: one configuration for the whole project.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use hdrhistogram::{Counter, Histogram};

/// The highest trackable value, 60 s: slower requests count as 60 s.
pub const HIGHEST_NS: u64 = 60_000_000_000;

/// Significant decimal digits that a histogram keeps.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// An empty histogram of 1 ns to [`HIGHEST_NS`]. It takes 27,648 counters of `C`.
pub(crate) fn empty<C: Counter>() -> Histogram<C> {
    Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that satisfy the constructor's conditions")
}

/// Counts one duration. Longer durations than [`HIGHEST_NS`] count as [`HIGHEST_NS`].
#[inline]
pub(crate) fn record(histogram: &mut Histogram<u32>, value_ns: u64) {
    // The crate's own saturation sets in only where the array ends, at 68.7 s.
    histogram.saturating_record(value_ns.min(HIGHEST_NS));
}

/// Adds a window's counts, kept in 32 bits, to totals, kept in 64.
pub(crate) fn accumulate(total: &mut Histogram<u64>, window: &Histogram<u32>) {
    for cell in window.iter_recorded() {
        total.saturating_record_n(cell.value_iterated_to(), u64::from(cell.count_at_value()));
    }
}

/// HdrHistogram's V2 encoding, deflate-compressed, in base64: the form in histogram logs.
pub(crate) fn encode<C: Counter>(
    serializer: &mut V2DeflateSerializer,
    histogram: &Histogram<C>,
) -> String {
    let mut bytes = Vec::new();
    serializer
        .serialize(histogram, &mut bytes)
        .expect("writing to memory does not fail, and no count exceeds an i64");
    BASE64.encode(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slower_than_the_highest_value_counts_as_the_highest() {
        let mut histogram = empty();
        // 65 s still fits into the array, 70 s does not.
        for value_ns in [65_000_000_000, 70_000_000_000, u64::MAX] {
            record(&mut histogram, value_ns);
        }
        assert_eq!(histogram.len(), 3);
        assert_eq!(histogram.count_at(HIGHEST_NS), 3);
    }

    proptest! {
        // A case touches megabytes of counters, which is slow without optimisation.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn encoding_and_accumulation_keep_every_count(
            values in prop::collection::vec(0..=HIGHEST_NS, 0..200),
        ) {
            let mut window = empty();
            let mut total = empty::<u64>();
            for value_ns in &values {
                record(&mut window, *value_ns);
                total.record(*value_ns).expect("within bounds");
            }
            let mut accumulated = empty();
            accumulate(&mut accumulated, &window);
            prop_assert_eq!(&accumulated, &total);

            let text = encode(&mut V2DeflateSerializer::new(), &window);
            prop_assert!(text.starts_with("HISTFAAA"));
            let bytes = BASE64.decode(text).expect("base64");
            let decoded: Histogram<u64> = Deserializer::new()
                .deserialize(&mut Cursor::new(bytes))
                .expect("V2-deflate");
            prop_assert_eq!(decoded, total);
        }
    }
}
