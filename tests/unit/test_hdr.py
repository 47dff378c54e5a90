"""HdrHistograms against the Python port of the reference implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from knee.data.hdr import Histogram, HistogramError, bucket_of

HIGHEST = 60_000_000_000
VALUES = st.lists(st.integers(0, 5_000) | st.integers(0, HIGHEST), min_size=1, max_size=200)


def reference(values: list[int], digits: int = 3) -> HdrHistogram:
    histogram = HdrHistogram(1, HIGHEST, digits)
    for value in values:
        assert histogram.record_value(value)
    return histogram


def ours(values: list[int], digits: int = 3) -> Histogram:
    counts = np.zeros(1 + max(bucket_of(value, digits) for value in values), dtype=np.int64)
    for value in values:
        counts[bucket_of(value, digits)] += 1
    return Histogram(counts, digits, 1, HIGHEST)


@settings(max_examples=25)
@given(VALUES, st.integers(1, 4))
def test_decoding_what_the_reference_encoded(values: list[int], digits: int) -> None:
    decoded = Histogram.decode(reference(values, digits).encode().decode())
    np.testing.assert_array_equal(decoded.counts, ours(values, digits).counts)
    assert (decoded.significant_digits, decoded.lowest, decoded.highest) == (digits, 1, HIGHEST)


@settings(max_examples=25)
@given(VALUES)
def test_the_reference_decodes_what_we_encode(values: list[int]) -> None:
    decoded = HdrHistogram.decode(ours(values).encode())
    assert decoded.get_total_count() == len(values)
    assert decoded.get_max_value() == reference(values).get_max_value()


@settings(max_examples=25)
@given(VALUES, st.floats(0, 100))
def test_a_percentile_is_the_upper_end_of_the_bucket_of_its_rank(values: list[int], percentile: float) -> None:
    histogram = ours(values)
    rank = max(1, math.ceil(round(percentile / 100 * len(values), 6)))
    value = sorted(values)[rank - 1]
    found = histogram.percentile(percentile)
    assert found == reference([value]).get_highest_equivalent_value(value)
    assert value <= found <= max(value * 1.001, value)


@settings(max_examples=10)
@given(VALUES)
def test_the_mean_is_that_of_the_reference(values: list[int]) -> None:
    assert ours(values).mean == pytest.approx(reference(values).get_mean_value(), rel=1e-9, abs=1e-9)


@settings(max_examples=25)
@given(VALUES, VALUES)
def test_merging_counts_every_value_of_both(left: list[int], right: list[int]) -> None:
    merged = Histogram.merge([ours(left), ours(right)])
    np.testing.assert_array_equal(merged.counts, ours(left + right).counts)
    decoded = Histogram.decode(ours(left).encode(), Histogram.merge([]).encode(), ours(right).encode())
    np.testing.assert_array_equal(decoded.counts, merged.counts)


def test_an_empty_histogram_has_no_percentile() -> None:
    empty = Histogram.merge([])
    assert empty.total == 0
    assert math.isnan(empty.percentile(50)) and math.isnan(empty.mean)
    assert Histogram.decode(empty.encode()).total == 0


def test_histograms_of_different_resolution_do_not_merge() -> None:
    with pytest.raises(HistogramError, match="different resolutions"):
        Histogram.merge([ours([1], 2), ours([1], 3)])
    with pytest.raises(HistogramError, match="different resolutions"):
        Histogram.decode(ours([1], 2).encode(), ours([1], 3).encode())


@settings(max_examples=30)
@given(st.text("HISTFAzZ09+/=é \n", max_size=40) | st.binary(max_size=80).map(lambda b: "HISTFAAAA" + b.hex()))
def test_what_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(HistogramError):
        Histogram.decode(text)


@settings(max_examples=25)
@given(VALUES, st.data())
def test_a_cut_histogram_is_refused(values: list[int], data: st.DataObject) -> None:
    text = ours(values).encode()
    with pytest.raises(HistogramError):
        Histogram.decode(text[: data.draw(st.integers(0, len(text) - 5)) // 4 * 4])


def test_a_run_of_zeros_cannot_claim_memory_without_limit() -> None:
    bomb = Histogram(np.array([-(2**40), 1], dtype=np.int64))
    # Written as it stands: a negative count is read back as that many zeros.
    with pytest.raises(HistogramError, match="more buckets"):
        Histogram.decode(bomb.encode())
