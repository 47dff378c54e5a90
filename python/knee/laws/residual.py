"""What was measured against what a law makes of the other measurements: the residual, how sure it is, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

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
    """A measured quantity against what a law predicts from the others, over a point's repetitions.

    residual   predicted / measured − 1, computed in each repetition, so that errors common to both sides cancel, then
               averaged with its t interval: the covariances of all inputs are in it
    rounding   how much further the residual may lie off because the inputs were rounded, all in the worst direction
    """

    measured: Interval
    predicted: Interval
    residual: Interval
    rounding: float = 0.0

    @property
    def uncertainty(self) -> float | None:
        """Half width of the residual's interval, rounding included; None where neither is known."""
        half_width = self.residual.half_width
        if half_width is None:
            return self.rounding or None
        return half_width + self.rounding


def grouped(table: pl.DataFrame, *keys: str) -> tuple[pl.DataFrame, Starts]:
    """The table by points, at each the groups of equal `keys` in the order of their first rows; where they begin."""
    numbered = table.with_row_index("_row")
    table = numbered.sort("point", pl.col("_row").min().over("point", *keys), "_row").drop("_row")
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("point", *keys)).fill_null(value=False)
    return table, np.flatnonzero(table.select((~same).alias("begins"))["begins"].to_numpy())


def compare(table: pl.DataFrame, starts: Starts, measured: str, law: Law, level: float) -> list[Comparison]:
    """Compare a column with a law's prediction of it, in every group of rows; each row is a repetition.

    A column NAME may have one NAME + ROUNDING beside it, which says how far its numbers may have been rounded.

    Rounding is propagated as the sum of what each input's rounding changes by itself, which is its worst case to
    first order (Taylor 1997, eq. 3.4).
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
    """Violated when the whole interval lies outside ± tolerance; held when it was shown to lie within.

    To show it at a level of 1 − α takes the interval of 1 − 2α within the tolerance: two one-sided tests
    (Schuirmann 1987).

    A single repetition has no interval and is judged by its value alone, as far as rounding leaves it: the law is an
    identity, so one run shows a violation as well as three do.
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
    """How far a t interval's estimate lies from its one-sided bound of the same level; None without an interval."""
    if interval.half_width is None:
        return None
    return _one_sided_share(interval.level, interval.repetitions) * interval.half_width


@lru_cache
def _one_sided_share(level: float, repetitions: int) -> float:
    return float(stats.t.ppf(level, repetitions - 1) / stats.t.ppf((1 + level) / 2, repetitions - 1))


def worst(*verdicts: Verdict) -> Verdict:
    """The verdict on several checks together."""
    for verdict in ("violated", "cannot tell", "holds"):
        if verdict in verdicts:
            return verdict
    return "does not apply"


def measured_throughout(table: pl.DataFrame, *columns: str, by: Sequence[str] = ("point",)) -> pl.DataFrame:
    """The rows of those groups in which the columns have no gap."""
    if not set(columns) <= set(table.columns):
        return table.clear()
    return table.filter(pl.all_horizontal(pl.col(name).is_not_null().all().over(list(by)) for name in columns))
