"""The largest throughput of all configurations, which others may have as much, and what choosing it costs. Pure.

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

from knee.data.csv import label_of
from knee.laws.foreign import ALL
from knee.stats.comparisons import EQUAL, Noise, noise
from knee.stats.intervals import LEVEL, NAMED_MAX, Floats, Interval, above_zero, counted, listed, number
from knee.verdict.failures import percent
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
        How many of those that were measured more than once answered nothing. How much of that is chance nobody knows.
    """

    factors: Mapping[str, Level]
    throughput: Interval
    compared: int
    as_large: tuple[tuple[Mapping[str, Level], Interval], ...]
    once: int
    failing: tuple[tuple[Mapping[str, Level], float], ...] = ()
    silent: int = 0

    @property
    def sentences(self) -> tuple[str, ...]:
        """Where throughput is largest, where it may be as large, what being chosen did to it, and what was left out."""
        found = f"largest with {label_of(self.factors)}: {number(self.throughput.estimate)} requests/s"
        if self._is_of_once:
            were = "was" if self.once == 1 else "were"
            return (
                f"Throughput was {found}. Where it is largest cannot be told without repetitions: "
                f"{counted(self.once, 'configuration')} of {self.compared + self.once} {were} measured once.",
                *self._failed,
            )
        what = "Of the configurations with repetitions, throughput" if self.once else "Throughput"
        once = f" Of {self.once} more, measured once, nothing can be told." if self.once else ""
        if self.throughput.low is None or self.throughput.high is None:
            if self.silent == self.compared - 1:
                return (f"{what} was {found}.", self._others + once, *self._failed)
            return (f"{what} was {found}. Where it is largest cannot be told: {EQUAL}.{once}", *self._failed)
        interval = (
            f"{self.throughput.level:.0%} interval: {number(self.throughput.low)} to {number(self.throughput.high)}"
        )
        said = f"{what} is {found} ({interval})."
        if self._is_vague and self.throughput.repetitions < _FEW_BELOW:
            said = (
                f"{what} was {found}. So few repetitions do not tell how far off that is ({interval}): repeat more "
                "often."
            )
        elif self._is_vague:
            said = f"{what} was {found}. Repetitions differ too much to tell how far off that is ({interval})."
        return (
            said,
            self._others + once,
            self._chosen,
            *self._failed,
        )

    @property
    def is_all_named(self) -> bool:
        """Whether the sentences name all that may be as large."""
        return len(self.as_large) <= NAMED_MAX

    @property
    def _is_of_once(self) -> bool:
        """Whether it is the largest of what was measured once as well, for want of repetitions."""
        return self.compared < 2 or self.throughput.repetitions < 2

    @property
    def _is_vague(self) -> bool:
        """Whether as much as the mean itself lies on either side of it, to first order, which is e times on a scale of
        logarithms: nobody would plan with that."""
        return self.throughput.high is not None and self.throughput.high >= math.e * self.throughput.estimate

    @property
    def _chosen(self) -> str:
        """One that is far ahead was not chosen by luck."""
        if not self.as_large:
            return f"The interval holds whichever of the {self.compared} is chosen."
        return (
            f"As the largest of {self.compared} this mean is likelier too high than too low: expect less of another "
            "run. The interval holds whichever of them is chosen."
        )

    @property
    def _failed(self) -> list[str]:
        named = listed([f"{label_of(factors)} ({percent(share)})" for factors, share in self.failing], "; ")
        return [f"Not counted are requests that failed, as with {named}."] if named else []

    @property
    def _others(self) -> str:
        less = self.compared - 1 - len(self.as_large) - self.silent
        said = []
        if self.as_large and not less and not self.silent and not self.is_all_named:
            said.append(f"With each of the {len(self.as_large)} others it may be as large.")
        elif self.as_large:
            said.append(f"It may be as large with {listed([label_of(factors) for factors, _ in self.as_large], '; ')}.")
        if less:
            said.append(f"With {_rest(less, others=self.silent)} it is surely less.")
        if self.silent:
            said.append(f"With {_rest(self.silent, others=less)} nothing was answered.")
        return " ".join(said)


def peak(table: pl.DataFrame, factors: Sequence[str], level: float = LEVEL) -> Peak | None:
    """None of a single factor, of which the knee or :mod:`levels` tell, and where no two configurations of a
    closed loop have a throughput.

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


def _rest(count: int, *, others: int) -> str:
    """Those that were not named, or so many of them where there are `others` as well."""
    if others:
        return f"{count} of the {count + others} others"
    return "the other" if count == 1 else f"the {count} others"
