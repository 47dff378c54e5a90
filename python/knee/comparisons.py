"""By how much several means fall short of the best of them, all at once. Pure.

The best is chosen from the same data, so that any pair might have been compared: the intervals are those of all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy import stats

from knee.intervals import LEVEL, Floats, Interval

_ALIKE = 0.25
"""Significance at which variances are taken to differ. Larger than that of a finding: pooling them is what needs a
reason (Bancroft 1964)."""

L = TypeVar("L")


def shares_apart(samples: Mapping[L, Floats], best: L, level: float = LEVEL) -> dict[L, Interval]:
    """By which share of the best mean each other mean lies apart from it; `level` is that of all together.

    Tukey & Kramer's intervals (Kramer 1956) with the pooled variance of the relative residuals, as noise is taken to
    grow with what is measured. Where these variances differ each pair has its own two (Games & Howell 1976).

    Parameters
    ----------
    samples
        Two repetitions or more of each, none below zero. Where all are zero there is no noise.
    best
        The largest or the smallest, with a mean above zero.
    """
    means = {name: float(sample.mean()) for name, sample in samples.items()}
    residuals = {name: samples[name] / mean - 1 for name, mean in means.items() if mean > 0}
    freedoms = {name: sample.size - 1 for name, sample in residuals.items()}
    variances = {name: float(sample.var(ddof=1)) for name, sample in residuals.items()}
    pooled = are_alike(list(residuals.values()))
    every = sum(freedoms.values())
    if pooled:
        variances = dict.fromkeys(variances, sum(variances[name] * freedoms[name] for name in variances) / every)
    # Of the means, as shares of the best.
    errors = {name: variances[name] / samples[name].size * (means[name] / means[best]) ** 2 for name in variances}
    found = {}
    for name, mean in means.items():
        if name == best:
            continue
        parts = [(errors[one], freedoms[one]) for one in (best, name) if one in errors]
        error = sum(part for part, _ in parts)
        freedom = every if pooled or error == 0 else error**2 / sum(part**2 / freedom for part, freedom in parts)
        half_width = _studentized_range(level, len(samples), _floor(freedom)) * math.sqrt(error / 2)
        apart = abs(means[best] - mean) / means[best]
        repetitions = min(samples[best].size, samples[name].size)
        found[name] = Interval(apart, apart - half_width, apart + half_width, level, int(repetitions))
    return found


def are_alike(residuals: Sequence[Floats]) -> bool:
    """Whether nothing shows that the variances differ (Bartlett 1937)."""
    if len(residuals) < 2:
        return True
    spreads = [float(np.ptp(sample)) for sample in residuals]
    if min(spreads) == 0:
        # The logarithm of such a variance is none: it differs from every other.
        return max(spreads) == 0
    return bool(stats.bartlett(*residuals).pvalue >= _ALIKE)


def _floor(freedom: float) -> float:
    """Two digits are enough, so that few quantiles have to be found."""
    digit = 10.0 ** (math.floor(math.log10(freedom)) - 1)
    return math.floor(freedom / digit + 1e-9) * digit


@lru_cache
def _studentized_range(level: float, means: int, freedom: float) -> float:
    return float(stats.studentized_range.ppf(level, means, freedom))
