"""The configuration with the largest throughput, and the configurations that may equal it. Pure.

The largest of many means is large by luck as well (the winner's curse). A subset selection (Gupta 1965) keeps every
configuration that may be the best. A simultaneous interval for all configurations also holds for the chosen one (Miller
1981, §2.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import special

from knee.laws.foreign import ALL
from knee.stats.comparisons import Noise, noise
from knee.stats.intervals import LEVEL, Floats, Interval, above_zero
from knee.verdict.knee import PLATEAU
from knee.verdict.levels import REQUESTS, Level, in_unit, sample, share_failed, unit_of

_FEW_BELOW = 5
"""Below this many repetitions, the small number alone makes an interval wide. Student's 95 % quantile is 12.7 for two
repetitions, 4.3 for three, 3.2 for four, 2.8 for five and 2.0 in the limit."""


@dataclass(frozen=True)
class Peak:
    """The configuration of a closed loop with the largest mean throughput.

    factors     its levels
    throughput  its mean, with a simultaneous interval for all configurations. There is no interval if fewer than two
                configurations have repetitions, or if all repetitions are equal
    compared    number of configurations with repetitions; the peak is the largest of these
    as_large    the other configurations that may have as large a throughput, with simultaneous intervals, the largest
                means first
    once        number of configurations without repetitions
    failing     by configuration, the failed share of the requests if it exceeds PLATEAU; throughput excludes failed
                requests
    silent      number of configurations with repetitions that answered no request
    unit        of throughput: keys/s if the number of keys in a request varies
    """

    factors: Mapping[str, Level]
    throughput: Interval
    compared: int
    as_large: tuple[tuple[Mapping[str, Level], Interval], ...]
    once: int
    failing: tuple[tuple[Mapping[str, Level], float], ...] = ()
    silent: int = 0
    unit: str = REQUESTS

    @property
    def is_of_once(self) -> bool:
        """Whether the comparison includes configurations measured once, for lack of repetitions."""
        return self.compared < 2 or self.throughput.repetitions < 2

    @property
    def is_vague(self) -> bool:
        """Whether the interval reaches a factor e on either side of the mean: a half-width of 1 on the log scale."""
        return self.throughput.high is not None and self.throughput.high >= math.e * self.throughput.estimate

    @property
    def has_few_repetitions(self) -> bool:
        """Whether the small number of repetitions alone makes the interval wide."""
        return self.throughput.repetitions < _FEW_BELOW

    @property
    def less(self) -> int:
        """Number of other configurations with a significantly smaller, positive throughput."""
        return self.compared - 1 - len(self.as_large) - self.silent


def peak(table: pl.DataFrame, factors: Sequence[str], level: float = LEVEL) -> Peak | None:
    """The peak; None for a single factor (see the knee or :mod:`levels`), or if fewer than two closed-loop
    configurations have a throughput.

    The relative variances are pooled, as two or three repetitions give a poor estimate. If they differ
    (:func:`knee.stats.comparisons.noise`), each configuration has its own variance.

    `table`: rows of :mod:`knee.data.observations`. `factors`: the columns that distinguish configurations, including
    the clients.
    """
    if not {"throughput", "think_ms"} <= set(table.columns):
        return None
    rows = table.filter(pl.col("think_ms").is_not_null() & pl.col("throughput").is_finite())
    if "request_type" in factors:
        rows = rows.filter(pl.col("request_type").str.to_lowercase().is_in(list(ALL)))
    varied = [name for name in factors if rows[name].n_unique() > 1]
    if len(varied) < 2:
        return None
    unit = unit_of(rows, varied)
    if unit is None:
        return None
    rows = in_unit(rows, unit)
    configurations = [
        (dict(zip(varied, levels, strict=True)), own) for levels, own in rows.group_by(varied, maintain_order=True)
    ]
    failed = [(at, share_failed(own)) for at, own in configurations]
    failing = tuple((at, share) for at, share in failed if share > PLATEAU)
    measured = [(at, sample(own, "throughput")) for at, own in configurations]
    measured.sort(key=lambda one: -float(one[1].mean()))
    repeated = [one for one in measured if one[1].size > 1]
    # A throughput of zero has no relative noise.
    answering = [one for one in repeated if one[1].mean() > 0]
    silent = len(repeated) - len(answering)
    once = len(measured) - len(repeated)
    if len(measured) < 2 or not measured[0][1].mean() > 0:
        return None
    known = noise([values for _, values in answering])
    if len(repeated) < 2 or known is None:
        # A configuration measured once can be the peak only if none has repetitions.
        at, values = answering[0] if len(repeated) > 1 and answering else measured[0]
        alone = Interval.around(float(values.mean()), None, level, values.size)
        return Peak(at, alone, len(repeated), (), once, failing, silent, unit)
    means = np.array([values.mean() for _, values in answering])
    # Noise of the logarithms of the means.
    counts = np.array([1 / values.size for _, values in answering])
    quantiles = special.stdtrit(known.freedoms, 1 - (1 - level) / 2 / means.size)
    half_widths = quantiles * np.sqrt(counts * known.variances) * means
    found = [
        (at, above_zero(Interval.around(float(mean), float(half_width), level, values.size)))
        for (at, values), mean, half_width in zip(answering, means, half_widths, strict=True)
    ]
    each = 1 - (1 - level) / max(1, means.size - 1)
    as_large = tuple(found[i] for i in _not_less(means, known, counts, each) if i)
    return Peak(*found[0], len(repeated), as_large, once, failing, silent, unit)


def _not_less(means: Floats, known: Noise, counts: Floats, each: float) -> list[int]:
    """Indices of the configurations that no other one significantly exceeds.

    Each of the k − 1 comparisons is one-sided at level 1 − α / (k − 1). So the best configuration is among the result
    with confidence 1 − α (Gupta 1965). With unequal variances, each pair has its own degrees of freedom (Welch 1947).

    Parameters
    ----------
    means
        Means of the configurations, the largest first.
    counts
        Number of repetitions in each mean.
    each
        Level of each comparison, 1 − α / (k − 1).
    """
    logs = np.log(means)
    exceeded = np.zeros(means.size, np.bool_)
    for i, log in enumerate(logs):
        errors, freedoms = known.differences(counts, i)
        left = np.flatnonzero(~exceeded & (logs < log))
        exceeded[left] = log - logs[left] > special.stdtrit(freedoms[left], each) * np.sqrt(errors[left])
    return [int(i) for i in np.flatnonzero(~exceeded)]
