"""MSER-5: the length of the initial transient to remove from a series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BATCH_WINDOWS = 5
"""MSER-5's batch: the means of five windows are far less correlated than the windows."""

WINDOWS_MIN = 20
"""Least number of windows: with fewer than four batches there are only two candidates."""


@dataclass(frozen=True)
class Truncation:
    """MSER-5's proposal for one series: cut the first `windows` of its `length` windows.

    `windows` is None if the series is too short. `boundary`: the best cut lies at the end of the search range, so the
    series still drifts.
    """

    length: int
    windows: int | None
    boundary: bool


def mser5(series: npt.ArrayLike) -> Truncation:
    """The truncation that minimises the marginal standard error of the mean, over batches of five.

    z(d) = Σ_{i>d} (Y_i − Ȳ_{n,d})² / (n − d)², with Y_i the batch means (White 1997; White, Cobb & Spratt 2000). The
    search covers the first half only: near the end, a few similar batches would win by chance. The last windows are
    left out if they are fewer than a batch.
    """
    values = np.asarray(series, dtype=np.float64)
    length = int(values.size)
    if length < WINDOWS_MIN:
        return Truncation(length, None, False)
    count = length // BATCH_WINDOWS
    batches = values[: count * BATCH_WINDOWS].reshape(count, BATCH_WINDOWS).mean(axis=1)
    last = count // 2
    statistic = [float(batches[d:].var()) / (count - d) for d in range(last + 1)]
    best = int(np.argmin(statistic))
    return Truncation(length, best * BATCH_WINDOWS, best == last)
