"""Response-time distributions from histograms merged over processes, seconds and repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from knee.data.hdr import Histogram
from knee.data.once import once
from knee.data.trim import NS_PER_MS, RUN, trimmed

if TYPE_CHECKING:
    from knee.data import Dataset

PERCENTILES = (25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)

BINS_PER_DECADE = 20
"""Bins of a drawn histogram: each is 12 % wide, far coarser than the three recorded digits."""

ALL = "all"
"""Name for all operations together."""

Merged = dict[tuple[int, int, str, str], Histogram]


@once
def merged(dataset: Dataset) -> Merged:
    """Response times of the trimmed windows, by (point, repetition, role, operation), for clients and middlewares that
    timed any request."""
    windows = trimmed(dataset, "windows").filter(
        pl.col("role").is_in(["load", "middleware"]) & pl.col("response").is_not_null()
    )
    histograms: Merged = {}
    for point, repetition, role, op, texts in windows.group_by(*RUN, "role", "op").agg("response").iter_rows():
        whole = Histogram.decode(*texts)
        if whole.total:
            histograms[point, repetition, role, op] = whole
    return histograms


def percentiles(histograms: Merged) -> pl.DataFrame:
    """Percentiles of the merged histograms, and their range over the repetitions.

    Returns
    -------
    `point, role, op, percentile, value_ms, low_ms, high_ms`; `op` is "all" for all operations together.
    """
    rows = []
    for (point, role, op), repetitions in _grouped(histograms).items():
        whole = Histogram.merge(repetitions)
        for percentile in PERCENTILES:
            each = [one.percentile(percentile) / NS_PER_MS for one in repetitions]
            value = whole.percentile(percentile) / NS_PER_MS
            rows.append((point, role, op, percentile, value, min(each), max(each)))
    return _frame(rows, "percentile", "value_ms", "low_ms", "high_ms")


def densities(histograms: Merged) -> pl.DataFrame:
    """Histograms for drawing, in bins of equal width on a logarithmic axis, over all repetitions.

    Returns
    -------
    `point, role, op, low_ms, high_ms, share`: the share of the requests that fell into each bin; shares add up to 1.
    """
    rows = []
    for (point, role, op), repetitions in _grouped(histograms).items():
        whole = Histogram.merge(repetitions)
        if not whole.total:
            continue
        first, counts = logarithmic_bins(whole)
        for number, count in enumerate(counts.tolist(), start=first):
            rows.append((point, role, op, bin_start_ms(number), bin_start_ms(number + 1), count / whole.total))
    return _frame(rows, "low_ms", "high_ms", "share")


def _frame(rows: Sequence[tuple[int | str | float, ...]], first: str, *others: str) -> pl.DataFrame:
    """Rows of `point, role, op` and these numbers, sorted by all up to the first number."""
    schema = {"point": pl.Int64(), "role": pl.String(), "op": pl.String()}
    schema |= dict.fromkeys((first, *others), pl.Float64())
    return pl.DataFrame(rows, schema=schema, orient="row").sort("point", "role", "op", first)


def logarithmic_bins(histogram: Histogram) -> tuple[int, NDArray[np.int64]]:
    """The number of the first non-empty bin (see :func:`bin_start_ms`), and the counts from there to the last non-empty
    bin. Bins have equal width on a logarithmic axis. The histogram must not be empty."""
    lows, widths = histogram.buckets()
    filled = np.flatnonzero(histogram.counts)
    middles_ms = (lows[filled] + widths[filled] / 2) / NS_PER_MS
    numbers = np.floor(np.log10(middles_ms) * BINS_PER_DECADE).astype(np.int64)
    first, last = int(numbers[0]), int(numbers[-1])
    counts = np.zeros(last - first + 1, dtype=np.int64)
    np.add.at(counts, numbers - first, histogram.counts[filled])
    return first, counts


def bin_start_ms(number: int) -> float:
    """Lower end of a bin in ms, which is the upper end of the bin before."""
    return math.pow(10, number / BINS_PER_DECADE)


def _grouped(histograms: Merged) -> dict[tuple[int, str, str], list[Histogram]]:
    """One histogram per repetition, for every operation and for all together."""
    by_run: dict[tuple[int, str, str], dict[int, list[Histogram]]] = {}
    for (point, repetition, role, op), histogram in histograms.items():
        for name in (op, ALL):
            by_run.setdefault((point, role, name), {}).setdefault(repetition, []).append(histogram)
    return {
        key: [Histogram.merge(parts) for _, parts in sorted(repetitions.items())] for key, repetitions in by_run.items()
    }
