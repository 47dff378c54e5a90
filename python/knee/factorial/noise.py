"""From the variances of the cells to intervals, in the model's scale and in the response's own unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from knee.factorial.design import Design
from knee.factorial.transform import Floats
from knee.stats.comparisons import ALIKE, bartlett_probability
from knee.stats.intervals import Interval
from knee.stats.tukey import studentized_range

Model = Literal["additive", "multiplicative"]
"""Effects add up to the response, or to its natural logarithm."""

_EXPONENT_MAX = math.log(np.finfo(np.float64).max)

_FREEDOMS_MIN = 1.5
"""Least median of the cells' degrees of freedom for a pooled variance: with two repetitions, Bartlett's test misses
many noisy cells."""


@dataclass(frozen=True, eq=False)
class Variances:
    """The variance of every cell's mean, in units of s_e², the pooled variance of one observation.

    of_means     1/n if all cells are equally noisy, else s_i²/(n s_e²); 0 for a cell without a run
    freedoms     degrees of freedom of each cell's variance; None if all cells are equally noisy
    most         largest degrees of freedom of an estimate
    probability  of Bartlett's test of equal variances; None if it was not computed
    scale        standard deviation of an effect's √SS in units of s_e: √(Σ v / Σ 1/n), one if cells are equally noisy
    """

    of_means: Floats
    freedoms: Floats | None
    most: float
    probability: float | None
    scale: float

    @property
    def largest(self) -> Floats:
        """Each cell's variance over its degrees of freedom; zeros if all cells are equally noisy."""
        return np.zeros_like(self.of_means) if self.freedoms is None else self.of_means / self.freedoms

    @property
    def reason(self) -> tuple[str, ...]:
        """Why intervals use the variances of their own cells; empty if they use the pooled one."""
        if self.freedoms is None:
            return ()
        used = "so each interval uses the variances of its own cells (Welch)"
        if self.probability is None:
            return (f"The repetitions of some cells are equal, {used}. Such a cell has the pooled variance.",)
        if self.probability < ALIKE:
            return (f"Some cells may be noisier than others (Bartlett's test, p = {self.probability:.2g}), {used}.",)
        return (
            f"Two repetitions of a cell are too few to show that all cells are equally noisy, {used}. Measure each "
            "cell three times for narrower intervals.",
        )

    def degrees(self, variance: npt.ArrayLike, largest: npt.ArrayLike) -> Floats:
        """Degrees of freedom of estimates whose variance is Σ v with the largest v/ν: f = Σ v / max(v/ν).

        f is a lower bound of Welch and Satterthwaite's (Σ v)² / Σ (v²/ν). Theirs is too large if the noisiest cell
        happens to have a small variance, which is likely with few repetitions.
        """
        if self.freedoms is None:
            return np.full(np.shape(variance), self.most)
        return np.asarray(np.minimum(self.most, np.divide(variance, largest)))


def equal_variances(design: Design, degrees: float) -> Variances:
    """Equally noisy cells, with the degrees of freedom of their pooled variance."""
    with np.errstate(divide="ignore"):
        return Variances(np.where(design.counts > 0, 1 / design.counts, 0.0), None, degrees, None, 1.0)


def variances_of(design: Design, residuals: Floats) -> Variances:
    """The cells' variances from the residuals of a replicated design.

    Cells are equally noisy unless Bartlett's test speaks against it, most cells have two repetitions, which are too
    few for the test, or the repetitions of some cells are equal. Equal repetitions show only the resolution of the
    measurement: such a cell has the pooled variance, as has a cell with one observation.
    """
    freedoms: Floats = np.asarray(design.counts - 1, dtype=np.float64)
    squares = np.bincount(design.cells, weights=residuals**2, minlength=freedoms.size)
    degrees = float(residuals.size - design.runs)
    pooled = float(squares.sum()) / degrees
    own = (freedoms > 0) & (squares > freedoms * pooled * 1e-18)
    if not own.any():
        return equal_variances(design, degrees)
    variances = squares[own] / freedoms[own]
    probability = bartlett_probability(variances, freedoms[own]) if own[freedoms > 0].all() else None
    if probability is not None and probability >= ALIKE and np.median(freedoms[own]) >= _FREEDOMS_MIN:
        return equal_variances(design, degrees)
    relative = np.ones(freedoms.size)
    relative[own] = variances / pooled
    # The pooled variance is a mean of the cells' own.
    of_pooled = float(squares.sum() / variances.max())
    measured = design.counts > 0
    shares = np.where(measured, 1 / np.maximum(design.counts, 1), 0.0)
    of_means = relative * shares
    return Variances(
        of_means=of_means,
        freedoms=np.where(own, freedoms, of_pooled),
        most=degrees if own[measured].all() else of_pooled,
        probability=probability,
        scale=math.sqrt(of_means.sum() / shares.sum()),
    )


@dataclass(frozen=True, eq=False)
class Noise:
    """The error of the cells' means, in the model's scale.

    spread       s_e, pooled over the cells; None without an estimate
    variances    of the cells' means
    level        confidence level of the intervals
    repetitions  smallest number of repetitions in a cell
    """

    spread: float | None
    variances: Variances
    level: float
    repetitions: int

    @cached_property
    def degrees(self) -> float:
        """Degrees of freedom of s_e² as the mean of all cells' variances."""
        return float(self.variances.degrees(self.variances.of_means.sum(), self.variances.largest.max()))

    @property
    def of_effect(self) -> float:
        """The standard deviation of an effect's √SS; 0 without `spread`."""
        return self.variances.scale * (self.spread or 0.0)

    @property
    def margin(self) -> float:
        """Half of the interval of an effect's √SS; 0 without `spread`."""
        return _quantile(self.level, self.degrees, 2) * self.of_effect

    def of_cell(self, mean: float, cell: int) -> Interval:
        """The interval of a cell's mean."""
        variance = float(self.variances.of_means[cell])
        degrees = self.variances.degrees(variance, self.variances.largest[cell])
        return self.interval(mean, variance, float(degrees))

    def sum_interval(self, estimate: float, squares: Floats, *, future: float = 0.0, among: int = 2) -> Interval:
        """The interval of a sum of the cells' means with these squared weights. `future` adds the variance of a mean
        of future observations, in units of s_e².
        """
        variance = float(squares @ self.variances.of_means)
        degrees = self.variances.degrees(variance, np.max(squares * self.variances.largest))
        return self.interval(estimate, variance + future, float(degrees), among=among)

    def interval(self, estimate: float, variance: float, degrees: float, *, among: int = 2) -> Interval:
        """The interval of an estimate with `variance` in units of s_e²; open without `spread`. If `among` is above two,
        the estimate is the difference of the largest and the smallest of that many means. The quantile is then of the
        studentised range (Tukey 1953; with unequal variances Kramer 1956, Games & Howell 1976).
        """
        half_width = None
        if self.spread is not None:
            half_width = _quantile(self.level, degrees, among) * self.spread * math.sqrt(variance)
        return Interval.around(estimate, half_width, self.level, self.repetitions)


@lru_cache(maxsize=256)
def _quantile(level: float, degrees: float, among: int) -> float:
    if among == 2:  # the same as the range of two, and faster
        return float(special.stdtrit(degrees, (1 + level) / 2))
    return studentized_range(level, among, degrees) / math.sqrt(2)


def in_unit(interval: Interval, model: Model) -> Interval:
    """An interval converted from the model's scale to the response's unit; open if an end overflows."""
    if model == "additive":
        return interval
    low, high = interval.low, interval.high
    if low is None or high is None or high > _EXPONENT_MAX:
        return replace(interval, estimate=math.exp(interval.estimate), low=None, high=None)
    return replace(interval, estimate=math.exp(interval.estimate), low=math.exp(low), high=math.exp(high))


def confidence(level: float) -> str:
    """A confidence level as a percentage, never rounded to 100%: 95%, 99.99%."""
    return f"{100 * level:.6g}%"
