"""A measured quantity against a law's prediction from the others: the residual, its uncertainty, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from knee.data.measurements import ROUNDING
from knee.laws.scatter import Scatter, scatter_of
from knee.stats.intervals import LEVEL, Floats, Interval, mean_intervals

TOLERANCE = 0.02
"""Largest relative residual at which a law counts as held."""

VISIBLE_MAX = 0.05
"""A law does not count as held if the data could not show a violation of this size."""

Verdict = Literal["holds", "violated", "cannot tell", "does not apply"]

Law = Callable[[Mapping[str, Floats]], Floats]
"""Predicts one quantity, per repetition, from columns by their names."""

Starts = npt.NDArray[np.intp]
"""The rows at which the groups of a table begin."""


@dataclass(frozen=True)
class Rule:
    """When a law counts as held or violated.

    tolerance  largest relative residual at which it is held
    level      confidence level of an interval
    tests      number of comparisons of all laws in the table: together they accuse a table whose laws hold exactly with
               a probability of at most 1 − level (Bonferroni)
    """

    tolerance: float = TOLERANCE
    level: float = LEVEL
    tests: int = 1


@dataclass(frozen=True)
class Outlier:
    """A repetition whose residual differs from the mean of its point's others by `apart`."""

    repetition: int
    apart: float


@dataclass(frozen=True)
class Comparison:
    """A measured quantity against a law's prediction from the others, over a point's repetitions.

    residual   predicted / measured − 1, computed in each repetition, so that errors common to both sides cancel, then
               averaged with a t interval, which covers the covariances of all inputs and borrows the scatter of the
               law's other points (:mod:`knee.laws.scatter`)
    rounding   largest additional error of the residual from rounded inputs (worst case)
    error      standard error of the residual, and its degrees of freedom `freedom`; both 0 if unknown
    outlier    the repetition that departs most from the others, if chance hardly explains it
    """

    measured: Interval
    predicted: Interval
    residual: Interval
    rounding: float = 0.0
    error: float = 0.0
    freedom: float = 0.0
    outlier: Outlier | None = None

    @property
    def uncertainty(self) -> float | None:
        """Half width of the residual's interval, including rounding; None if neither is known."""
        half_width = self.residual.half_width
        if half_width is None:
            return self.rounding or None
        return half_width + self.rounding

    @property
    def apart(self) -> str:
        """The residual with its uncertainty, for a table."""
        residual, uncertainty = self.residual.estimate, self.uncertainty
        if not math.isfinite(residual):
            return "–"
        return f"{residual:+.2%}" + ("" if uncertainty is None else f" ± {uncertainty:.2%}")

    def verdict(self, rule: Rule) -> Verdict:
        """:func:`judge` of the residual."""
        return judge(self.residual, rule.tolerance, self.rounding, self.freedom, rule.tests)


def grouped(table: pl.DataFrame, *keys: str) -> tuple[pl.DataFrame, Starts]:
    """The table sorted by point and then by groups of equal `keys` in order of first occurrence, and the start row of
    each group."""
    numbered = table.with_row_index("_row")
    table = numbered.sort("point", pl.col("_row").min().over("point", *keys), "_row").drop("_row")
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("point", *keys)).fill_null(value=False)
    return table, np.flatnonzero(table.select((~same).alias("begins"))["begins"].to_numpy())


def compare(
    table: pl.DataFrame, starts: Starts, measured: str, law: Law, rule: Rule, scale: Law | None = None
) -> list[Comparison]:
    """Compare a column with a law's prediction of it, in every group of rows; each row is a `repetition`.

    A column NAME may have a column NAME + ROUNDING with the largest rounding error of its numbers.

    The rounding error of the residual is the sum of the changes from each input's rounding, the worst case to first
    order (Taylor 1997, eq. 3.4). Residuals divided by `scale` scatter alike at all points.
    """
    if not starts.size:
        return []
    values = {name: table[name].cast(pl.Float64).to_numpy() for name in table.columns}
    with np.errstate(divide="ignore", invalid="ignore"):
        predicted = law(values)
        residual = predicted / values[measured] - 1
        rounding = np.zeros_like(residual)
        for name in values:
            if (half_digit := values.get(name + ROUNDING)) is not None:
                moved = {**values, name: values[name] + half_digit}
                rounding += np.nan_to_num(np.abs(law(moved) / moved[measured] - 1 - residual))
        scales = np.ones_like(residual) if scale is None else scale(values)
        known = np.isfinite(residual)
        counts = np.maximum(np.add.reduceat(known, starts, dtype=np.intp), 1)
        scatter = scatter_of(residual / scales, starts)
        errors = np.nan_to_num(scatter.error * np.add.reduceat(np.where(known, np.abs(scales), 0.0), starts) / counts)
    roundings = np.add.reduceat(np.where(known, rounding, 0.0), starts) / counts
    outliers = _outliers(values["repetition"], residual, scatter.apart * scales, scatter, rounding, starts, rule)
    return [
        Comparison(
            measured=one,
            predicted=other,
            residual=t_interval(mean.estimate, error, freedom, rule.level, mean.repetitions),
            rounding=off,
            error=error,
            freedom=freedom,
            outlier=outliers.get(group),
        )
        for group, (one, other, mean, off, error, freedom) in enumerate(
            zip(
                *(mean_intervals(of, starts, rule.level) for of in (values[measured], predicted, residual)),
                *(of.tolist() for of in (roundings, errors, scatter.freedom)),
                strict=True,
            )
        )
    ]


def t_interval(estimate: float, error: float, freedom: float, level: float, repetitions: int) -> Interval:
    """An estimate with the interval of its standard error; none without freedom."""
    half_width = t_quantile((1 + level) / 2, freedom) * error if freedom > 0 else None
    return Interval.around(estimate, half_width, level, repetitions)


def _outliers(
    repetitions: Floats, residual: Floats, apart: Floats, scatter: Scatter, rounding: Floats, starts: Starts, rule: Rule
) -> dict[int, Outlier]:
    """By group, the repetition furthest from the others, of those beyond tolerance and chance (Cook & Weisberg 1982,
    §2.2.2). Of two repetitions, the one further from the law."""
    sizes = np.diff(starts, append=residual.size)
    chance = (1 - rule.level) / (rule.tests * max(sizes))
    found: dict[int, Outlier] = {}
    departing = (scatter.probability < chance) & (np.abs(apart) - rounding > rule.tolerance)
    # The last one of a group is kept.
    order = np.lexsort((np.abs(residual), np.abs(apart).round(9)))
    for row in order[departing[order]].tolist():
        group = int(np.searchsorted(starts, row, side="right")) - 1
        found[group] = Outlier(int(repetitions[row]), float(apart[row]))
    return found


def judge(
    residual: Interval, tolerance: float, rounding: float = 0.0, freedom: float | None = None, tests: int = 1
) -> Verdict:
    """Violated if the whole interval lies outside ± tolerance, and zero outside the interval that allows for all
    `tests`; held if the interval at level 1 − 2α lies within ± tolerance. The latter shows equivalence at level 1 − α
    by two one-sided tests (Schuirmann 1987). `freedom`: degrees of freedom, by default repetitions less one.

    Without an interval, the value and its rounding error decide. The law is an identity, so one run can show a
    violation.
    """
    if not math.isfinite(residual.estimate):
        return "cannot tell"
    apart = abs(residual.estimate)
    freedom = residual.repetitions - 1 if freedom is None else freedom
    if apart + half_width(residual, residual.level, freedom) + rounding <= tolerance:
        return "holds"
    rule = Rule(tolerance, residual.level, tests)
    return "violated" if apart - rounding > tolerated(residual, rule, freedom) else "cannot tell"


def tolerated(residual: Interval, rule: Rule, freedom: float, certain: float | None = None) -> float:
    """The largest estimate that is no violation: its bound at the level `certain`, by default that of the interval,
    reaches the tolerance, or the interval that allows for all tests contains zero."""
    certain, for_all = certain or (1 + rule.level) / 2, 1 - (1 - rule.level) / rule.tests / 2
    return max(rule.tolerance + half_width(residual, certain, freedom), half_width(residual, for_all, freedom))


def half_width(interval: Interval, probability: float, freedom: float) -> float:
    """Distance of a t interval's estimate to its one-sided bound at this probability; 0 without an interval."""
    if interval.half_width is None:
        return 0.0
    return interval.half_width * t_quantile(probability, freedom) / t_quantile((1 + interval.level) / 2, freedom)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    return float(special.stdtrit(freedom, probability))


def worst(*verdicts: Verdict) -> Verdict:
    for verdict in ("violated", "cannot tell", "holds"):
        if verdict in verdicts:
            return verdict
    return "does not apply"


def measured_throughout(table: pl.DataFrame, *columns: str, by: Sequence[str] = ("point",)) -> pl.DataFrame:
    """The rows of the groups without null in these columns."""
    if not set(columns) <= set(table.columns):
        return table.clear()
    return table.filter(pl.all_horizontal(pl.col(name).is_not_null().all().over(list(by)) for name in columns))
