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
from knee.stats.intervals import Floats, Interval, mean_intervals

TOLERANCE = 0.02
"""Largest relative residual at which a law counts as held."""

Verdict = Literal["holds", "violated", "cannot tell", "does not apply"]

Law = Callable[[Mapping[str, Floats]], Floats]
"""Predicts one quantity, per repetition, from columns by their names."""

Starts = npt.NDArray[np.intp]
"""The rows at which the groups of a table begin."""


@dataclass(frozen=True)
class Comparison:
    """A measured quantity against a law's prediction from the others, over a point's repetitions.

    residual   predicted / measured − 1, computed in each repetition, so that errors common to both sides cancel, then
               averaged with a t interval, which covers the covariances of all inputs
    rounding   largest additional error of the residual from rounded inputs (worst case)
    """

    measured: Interval
    predicted: Interval
    residual: Interval
    rounding: float = 0.0

    @property
    def uncertainty(self) -> float | None:
        """Half width of the residual's interval, including rounding; None if neither is known."""
        half_width = self.residual.half_width
        if half_width is None:
            return self.rounding or None
        return half_width + self.rounding


def grouped(table: pl.DataFrame, *keys: str) -> tuple[pl.DataFrame, Starts]:
    """The table sorted by point and then by groups of equal `keys` in order of first occurrence, and the start row of
    each group."""
    numbered = table.with_row_index("_row")
    table = numbered.sort("point", pl.col("_row").min().over("point", *keys), "_row").drop("_row")
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("point", *keys)).fill_null(value=False)
    return table, np.flatnonzero(table.select((~same).alias("begins"))["begins"].to_numpy())


def compare(table: pl.DataFrame, starts: Starts, measured: str, law: Law, level: float) -> list[Comparison]:
    """Compare a column with a law's prediction of it, in every group of rows; each row is a repetition.

    A column NAME may have a column NAME + ROUNDING with the largest rounding error of its numbers.

    The rounding error of the residual is the sum of the changes from each input's rounding, the worst case to first
    order (Taylor 1997, eq. 3.4).
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
    known = np.isfinite(residual)
    counts = np.add.reduceat(known, starts, dtype=np.intp)
    roundings = np.add.reduceat(np.where(known, rounding, 0.0), starts) / np.maximum(counts, 1)
    return [
        Comparison(*of_group)
        for of_group in zip(
            mean_intervals(values[measured], starts, level),
            mean_intervals(predicted, starts, level),
            mean_intervals(residual, starts, level),
            roundings.tolist(),
            strict=True,
        )
    ]


def judge(residual: Interval, tolerance: float, rounding: float = 0.0) -> Verdict:
    """Violated if the whole interval lies outside ± tolerance; held if the interval at level 1 − 2α lies within. The
    latter shows equivalence at level 1 − α by two one-sided tests (Schuirmann 1987).

    A single repetition has no interval; its value and rounding error decide. The law is an identity, so one run can
    show a violation.
    """
    if not math.isfinite(residual.estimate):
        return "cannot tell"
    low = residual.estimate if residual.low is None else residual.low
    high = residual.estimate if residual.high is None else residual.high
    if abs(residual.estimate) + (one_sided_half_width(residual) or 0.0) + rounding <= tolerance:
        return "holds"
    if low - rounding > tolerance or high + rounding < -tolerance:
        return "violated"
    return "cannot tell"


def one_sided_half_width(interval: Interval) -> float | None:
    """Distance of a t interval's estimate to the one-sided bound at the same level; None without an interval."""
    if interval.half_width is None:
        return None
    return _one_sided_share(interval.level, interval.repetitions) * interval.half_width


@lru_cache
def _one_sided_share(level: float, repetitions: int) -> float:
    return float(special.stdtrit(repetitions - 1, level) / special.stdtrit(repetitions - 1, (1 + level) / 2))


def worst(*verdicts: Verdict) -> Verdict:
    """The combined verdict of several checks."""
    for verdict in ("violated", "cannot tell", "holds"):
        if verdict in verdicts:
            return verdict
    return "does not apply"


def measured_throughout(table: pl.DataFrame, *columns: str, by: Sequence[str] = ("point",)) -> pl.DataFrame:
    """The rows of the groups without null in these columns."""
    if not set(columns) <= set(table.columns):
        return table.clear()
    return table.filter(pl.all_horizontal(pl.col(name).is_not_null().all().over(list(by)) for name in columns))
