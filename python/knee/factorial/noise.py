"""From the variance of one observation to intervals, in the model's scale and in the response's own unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from knee.intervals import Interval

Model = Literal["additive", "multiplicative"]
"""Effects add up to the response, or to its natural logarithm."""


@dataclass(frozen=True)
class Noise:
    """The error of single observations, in the model's scale.

    spread       s_e; None where there is no estimate
    degrees      its degrees of freedom
    level        of the intervals
    repetitions  fewest of a cell
    """

    spread: float | None
    degrees: int
    level: float
    repetitions: int

    def interval(self, estimate: float, variance: float) -> Interval:
        """Around an estimate whose variance is so many times that of one observation; open without `spread`."""
        if self.spread is None:
            return Interval(estimate, None, None, self.level, self.repetitions)
        quantile = float(stats.t.ppf((1 + self.level) / 2, self.degrees))
        half_width = quantile * self.spread * math.sqrt(variance)
        return Interval(estimate, estimate - half_width, estimate + half_width, self.level, self.repetitions)


def in_unit(interval: Interval, model: Model) -> Interval:
    """An interval from the model's scale back to the response's own unit."""
    if model == "additive":
        return interval
    low, high = (None if end is None else math.exp(end) for end in (interval.low, interval.high))
    return Interval(math.exp(interval.estimate), low, high, interval.level, interval.repetitions)
