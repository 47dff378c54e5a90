"""The ratio of one quantity of two systems, from the logarithms of its repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from knee.stats.comparisons import scatters
from knee.stats.intervals import Floats, Interval

RUNS_APART = 1.0
"""Standard deviation between runs of one system, in standard deviations between the repetitions of a point: two single
runs show no difference between runs, so it is assumed (docs/compare.md)."""

POWER = 0.8
"""Probability that the smallest detectable difference is found."""

SOUGHT = 0.05
"""The difference for which the number of repetitions is planned."""

_COUNT_MAX = 1000


@dataclass(frozen=True)
class Ratio:
    """B / A.

    interval    geometric mean of the ratios; without an interval if the noise is unknown
    p           probability of such a ratio, or one farther from 1, if both are equal; None without an interval
    smallest    relative difference that is found with the probability POWER; None without an interval
    needed      repetitions of each that find SOUGHT with the probability POWER; None if too few do, or without an
                interval
    """

    interval: Interval
    p: float | None
    smallest: float | None
    needed: int | None


def ratio_of(a: Floats, b: Floats, level: float, *, paired: bool, between: tuple[float, float] = (0.0, 0.0)) -> Ratio:
    """B / A from logarithms: Welch's interval, or the t interval of the differences if repetitions are paired.

    Parameters
    ----------
    between
        Assumed variances between runs of A, and of B, if not paired.
    """
    count = min(a.size, b.size)
    if count == 0:
        return Ratio(Interval(math.nan, None, None, level, 0), None, None, None)
    estimate = float(np.mean(b) - np.mean(a))
    unknown = Ratio(Interval(math.exp(estimate), None, None, level, count), None, None, None)
    if count < 2 or not (scatters(np.exp(a)) or scatters(np.exp(b))):
        return unknown
    if paired:
        variance = float(np.var(b - a, ddof=1))
        error, freedom = math.sqrt(variance / count), count - 1.0
    else:
        variances = np.array([float(np.var(side, ddof=1)) for side in (a, b)])
        variance = float(variances.sum())
        parts = variances / [a.size, b.size] + between
        error = math.sqrt(parts.sum())
        freedom = float(parts.sum() ** 2 / (parts**2 / [a.size - 1, b.size - 1]).sum())
    if error == 0:
        return unknown
    quantile = float(special.stdtrit(freedom, (1 + level) / 2))
    low, high = (_exp(estimate + sign * quantile * error) for sign in (-1, 1))
    p = 2 * float(special.stdtr(freedom, -abs(estimate) / error))
    smallest = _exp((quantile + float(special.stdtrit(freedom, POWER))) * error) - 1
    needed = repetitions_for(variance, level, paired=paired, between=0.0 if paired else sum(between))
    return Ratio(Interval(_exp(estimate), low, high, level, count), p, smallest, needed)


def repetitions_for(variance: float, level: float, *, paired: bool, between: float = 0.0) -> int | None:
    """Repetitions of each system that find SOUGHT with the probability POWER.

    Parameters
    ----------
    variance
        Of a pair's difference of logarithms; unpaired, the sum of the variances of both systems.
    between
        The sum of both variances between runs.
    """
    counts = np.arange(2, _COUNT_MAX + 1)
    freedom = (counts - 1) * (1 if paired else 2)
    quantiles = special.stdtrit(freedom, (1 + level) / 2) + special.stdtrit(freedom, POWER)
    enough = quantiles * np.sqrt(variance / counts + between) <= math.log(1 + SOUGHT)
    return int(counts[enough.argmax()]) if enough.any() else None


def holm(probabilities: Sequence[float | None], alpha: float) -> list[bool]:
    """Which differences hold together with the probability 1 − `alpha` (Holm 1979); an unknown one does not hold."""
    known = sorted((p, place) for place, p in enumerate(probabilities) if p is not None)
    found = [False] * len(probabilities)
    for rank, (p, place) in enumerate(known):
        if p > alpha / (len(known) - rank):
            break
        found[place] = True
    return found


def _exp(logarithm: float) -> float:
    return math.exp(min(max(logarithm, -300.0), 300.0))
