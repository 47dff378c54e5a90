"""The largest throughput of all configurations, which others may be as large, and what choosing it costs. Pure.

The largest of many means is large by luck as well (the winner's curse). A subset selection (Gupta 1965) keeps every
configuration that may be the best, and an interval that holds for all of them at once holds for the chosen one, too
(Miller 1981, §2.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import stats

from knee.laws.foreign import ALL
from knee.stats.comparisons import Noise, noise
from knee.stats.intervals import LEVEL, Floats, Interval, above_zero
from knee.verdict.knee import PLATEAU
from knee.verdict.levels import Level, sample, share_failed

_FEW_BELOW = 5
"""Fewer repetitions make an interval wide by their number alone: Student's quantile at 95 % is 12.7 of two, 4.3 of
three and 3.2 of four, and then 2.8 of five as against 2.0 of ever so many."""


@dataclass(frozen=True)
class Peak:
    """The configuration of a closed loop with the largest mean throughput.

    Attributes
    ----------
    factors
        Its levels.
    throughput
        Its mean, with an interval that holds for all configurations at once; without one where fewer than two of them
        were measured more than once, or where all repetitions are equal.
    compared
        How many configurations were measured more than once: it is the largest of those.
    as_large
        The others that may have as large a throughput, with intervals alike, those with the largest means first.
    once
        How many configurations were measured only once.
    failing
        By configuration, which share of the requests failed, where that is more than PLATEAU; throughput is that of the
        others.
    silent
        How many of those that were measured more than once answered no request.
    """

    factors: Mapping[str, Level]
    throughput: Interval
    compared: int
    as_large: tuple[tuple[Mapping[str, Level], Interval], ...]
    once: int
    failing: tuple[tuple[Mapping[str, Level], float], ...] = ()
    silent: int = 0

    @property
    def is_of_once(self) -> bool:
        """Whether it is the largest of configurations measured once as well, for want of repetitions."""
        return self.compared < 2 or self.throughput.repetitions < 2

    @property
    def is_vague(self) -> bool:
        """Whether as much as the mean itself lies on either side of it, to first order: e times on a log scale."""
        return self.throughput.high is not None and self.throughput.high >= math.e * self.throughput.estimate

    @property
    def has_few_repetitions(self) -> bool:
        """Whether the small number of repetitions alone makes the interval wide."""
        return self.throughput.repetitions < _FEW_BELOW

    @property
    def less(self) -> int:
        """How many of the others surely have a smaller throughput above zero."""
        return self.compared - 1 - len(self.as_large) - self.silent


def peak(table: pl.DataFrame, factors: Sequence[str], level: float = LEVEL) -> Peak | None:
    """None for a single factor (see the knee or :mod:`levels`), and where no two configurations of a closed loop have a
    throughput.

    The variances of relative noise are pooled, since two or three repetitions say little of their own, unless they
    differ (:func:`knee.stats.comparisons.noise`): each configuration has its own then.

    Parameters
    ----------
    table
        Rows of :mod:`knee.data.observations`.
    factors
        The columns that tell configurations apart, the clients among them.
    """
    if not {"throughput", "think_ms"} <= set(table.columns):
        return None
    rows = table.filter(pl.col("think_ms").is_not_null() & pl.col("throughput").is_finite())
    if "request_type" in factors:
        rows = rows.filter(pl.col("request_type").str.to_lowercase().is_in(list(ALL)))
    varied = [name for name in factors if rows[name].n_unique() > 1]
    if len(varied) < 2:
        return None
    configurations = [
        (dict(zip(varied, levels, strict=True)), own) for levels, own in rows.group_by(varied, maintain_order=True)
    ]
    failed = [(at, share_failed(own)) for at, own in configurations]
    failing = tuple((at, share) for at, share in failed if share > PLATEAU)
    measured = [(at, sample(own, "throughput")) for at, own in configurations]
    measured.sort(key=lambda one: -float(one[1].mean()))
    repeated = [one for one in measured if one[1].size > 1]
    # What answers nothing has no relative noise.
    answering = [one for one in repeated if one[1].mean() > 0]
    silent = len(repeated) - len(answering)
    once = len(measured) - len(repeated)
    if len(measured) < 2 or not measured[0][1].mean() > 0:
        return None
    known = noise([values for _, values in answering])
    if len(repeated) < 2 or known is None:
        # One measured once is crowned only where nothing else can be.
        at, values = answering[0] if len(repeated) > 1 and answering else measured[0]
        alone = Interval(float(values.mean()), None, None, level, values.size)
        return Peak(at, alone, len(repeated), (), once, failing, silent)
    means = np.array([values.mean() for _, values in answering])
    # Of the means' logarithms.
    counts = np.array([1 / values.size for _, values in answering])
    quantiles = stats.t.ppf(1 - (1 - level) / 2 / means.size, known.freedoms)
    half_widths = quantiles * np.sqrt(counts * known.variances) * means
    found = [
        (at, above_zero(Interval(float(mean), float(mean - half_width), float(mean + half_width), level, values.size)))
        for (at, values), mean, half_width in zip(answering, means, half_widths, strict=True)
    ]
    each = 1 - (1 - level) / max(1, means.size - 1)
    as_large = tuple(found[i] for i in _not_less(means, known, counts, each) if i)
    return Peak(*found[0], len(repeated), as_large, once, failing, silent)


def _not_less(means: Floats, known: Noise, counts: Floats, each: float) -> list[int]:
    """Those that no other one exceeds by more than a difference of two equal ones may be.

    The best is compared with the k − 1 others, so with each at 1 − α / (k − 1), one-sided, it is among them with
    confidence 1 − α (Gupta 1965). Variances that differ have degrees of freedom of each pair (Welch 1947).

    Parameters
    ----------
    means
        The largest first.
    counts
        How often the relative variances are in those of the means.
    each
        1 − α / (k − 1).
    """
    logs = np.log(means)
    exceeded = np.zeros(means.size, np.bool_)
    for i, log in enumerate(logs):
        errors, freedoms = known.differences(counts, i)
        left = np.flatnonzero(~exceeded & (logs < log))
        exceeded[left] = log - logs[left] > stats.t.ppf(each, freedoms[left]) * np.sqrt(errors[left])
    return [int(i) for i in np.flatnonzero(~exceeded)]
