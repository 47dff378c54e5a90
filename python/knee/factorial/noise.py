"""From the variance of one observation to intervals, in the model's scale and in the response's own unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import stats

from knee.stats.intervals import Interval
from knee.stats.tukey import studentized_range

Model = Literal["additive", "multiplicative"]
"""Effects add up to the response, or to its natural logarithm."""

_EXPONENT_MAX = math.log(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Noise:
    """The error of single observations, in the model's scale.

    spread       s_e; None without an estimate
    degrees      its degrees of freedom
    level        confidence level of the intervals
    repetitions  smallest number of repetitions in a cell
    """

    spread: float | None
    degrees: int
    level: float
    repetitions: int

    def interval(self, estimate: float, variance: float, *, among: int = 2) -> Interval:
        """The interval of an estimate with `variance` in units of one observation's; open without `spread`. If `among`
        is above two, the estimate is the difference of the largest and the smallest of that many means. The quantile is
        then of the studentised range (Tukey 1953; with unequal variances Kramer 1956).
        """
        if self.spread is None:
            return Interval(estimate, None, None, self.level, self.repetitions)
        half_width = _quantile(self.level, self.degrees, among) * self.spread * math.sqrt(variance)
        return Interval(estimate, estimate - half_width, estimate + half_width, self.level, self.repetitions)


@lru_cache(maxsize=64)
def _quantile(level: float, degrees: int, among: int) -> float:
    if among == 2:  # the same as the range of two, and faster
        return float(stats.t.ppf((1 + level) / 2, degrees))
    return studentized_range(level, among, float(degrees)) / math.sqrt(2)


def in_unit(interval: Interval, model: Model) -> Interval:
    """An interval converted from the model's scale to the response's unit; open if an end overflows."""
    if model == "additive":
        return interval
    low, high = interval.low, interval.high
    if high is None or high > _EXPONENT_MAX:
        return Interval(math.exp(interval.estimate), None, None, interval.level, interval.repetitions)
    assert low is not None
    return Interval(math.exp(interval.estimate), math.exp(low), math.exp(high), interval.level, interval.repetitions)


def confidence(level: float) -> str:
    """A confidence level as a percentage, never rounded to 100%: 95%, 99.99%."""
    return f"{100 * level:.6g}%"
