"""Whether throughput stays constant during a run, without warm-up and cool-down."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl
from scipy import special

from knee.data.trim import COVERED_S, RUN
from knee.stats.comparisons import scatters
from knee.stats.intervals import LEVEL, Floats, Interval, mean_interval
from knee.verdict.knee import NOISE_MAX, PLATEAU

if TYPE_CHECKING:
    from knee.data import Dataset


@dataclass(frozen=True)
class Drift:
    """How far throughput moves from the first half of a run to the second, at one point.

    change  share of the first half's throughput, over the runs with successful requests in both halves
    silent  number of runs without a successful request in at least one half
    runs    number of all runs
    """

    change: Interval
    silent: int
    runs: int

    @property
    def is_judged(self) -> bool:
        """Whether enough runs were made to judge the change."""
        return self.change.low is not None

    @property
    def moves(self) -> bool:
        """Whether throughput surely changes by more than PLATEAU."""
        low, high = self._ends
        return low > PLATEAU or high < -PLATEAU

    @property
    def may_move(self) -> bool:
        """Whether throughput surely changes, and perhaps by more than PLATEAU."""
        low, high = self._ends
        return not low <= 0 <= high and self.reach > PLATEAU

    @property
    def is_vague(self) -> bool:
        """Whether the interval is so wide that almost any change, or none, is possible."""
        if self.moves or self.may_move:
            return False
        return self.change.half_width is not None and self.change.half_width > NOISE_MAX

    @property
    def reach(self) -> float:
        """The largest change that the interval allows."""
        return max(map(abs, self._ends))

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self.change.low, self.change.high
        return (-math.inf, math.inf) if low is None or high is None else (low, high)


def drifts(dataset: Dataset, points: Collection[int], level: float = LEVEL) -> dict[int, Drift]:
    """By point, how far throughput moves from the first half of a run to the second, warm-up and cool-down cut off.

    Failed requests do not count: a server that refuses requests at once answers more of them.

    `level` holds for all judged points together (Bonferroni), and the variance of the changes is pooled over them. With
    60 points of three repetitions, t is 3.4; without pooling it would be 49. A point whose changes surely scatter more
    than the others' keeps its own variance (Cochran 1941).
    """
    runs = dataset.points.filter((pl.col("status") == "done") & pl.col("point").is_in(list(points))).select(
        *RUN, pl.col("warmup_s").alias("_from_s"), (pl.col("seconds") - pl.col("cooldown_s")).alias("_until_s")
    )
    start, end = pl.col("elapsed_s"), pl.col("elapsed_s") + COVERED_S
    middle = (pl.col("_from_s") + pl.col("_until_s")) / 2

    def succeeded(since: pl.Expr, until: pl.Expr) -> pl.Expr:
        """Successful requests between both times. A window that lies partly between them counts in proportion."""
        inside = pl.min_horizontal(end, until) - pl.max_horizontal(start, since)
        good = pl.col("count") - pl.col("errors").fill_null(0)
        return (good * inside.clip(lower_bound=0.0) / COVERED_S).sum()

    halves = (
        dataset.windows.filter(pl.col("role") == "load")
        .join(runs, on=RUN)
        .group_by(RUN)
        .agg(succeeded(pl.col("_from_s"), middle).alias("before"), succeeded(middle, pl.col("_until_s")).alias("after"))
    )
    # Both halves have the same length, even if seconds have no rows: so the ratio of counts is that of rates.
    spoke = (pl.col("before") > 0) & (pl.col("after") > 0)
    changes = (
        runs.join(halves, on=RUN, how="left")
        .with_columns(pl.col("before", "after").fill_null(0.0))
        .select("point", pl.when(spoke).then(pl.col("after") / pl.col("before") - 1).alias("change"))
        .sort("point")
    )
    rows = {int(point): of["change"] for (point,), of in changes.group_by("point", maintain_order=True)}
    intervals = change_intervals({point: of.drop_nulls().to_numpy() for point, of in rows.items()}, level)
    return {point: Drift(intervals[point], of.null_count(), of.len()) for point, of in rows.items()}


def change_intervals(changes: Mapping[int, Floats], level: float) -> dict[int, Interval]:
    """The mean change of each point, as :func:`drifts` has it, from one change of each run.

    If all changes of a point are equal, the point gets the pooled variance of the others. If no point scatters, no
    point gets an interval (:func:`knee.stats.comparisons.noise`).
    """
    judged = {point: sample for point, sample in changes.items() if sample.size > 1}
    each = 1 - (1 - level) / max(1, len(judged))
    found = {point: mean_interval(sample, each) for point, sample in changes.items()}
    equal = {point: sample for point, sample in judged.items() if not scatters(1 + sample)}
    alike = {point: sample for point, sample in judged.items() if point not in equal}
    for point in equal:
        found[point] = replace(found[point], low=None, high=None)
    while len(alike) > 1:
        widest = max(alike, key=lambda point: float(alike[point].var()))
        others = [sample for point, sample in alike.items() if point != widest]
        own, pooled = _pooled([alike[widest]]), _pooled(others)
        if own[0] <= pooled[0] * special.fdtri(own[1], pooled[1], 1 - (1 - level) / len(alike)):
            break
        del alike[widest]
    if not alike:
        return found
    variance, freedom = _pooled(list(alike.values()))
    quantile = float(special.stdtrit(freedom, (1 + each) / 2))
    for point, sample in (alike | equal).items():
        half_width, estimate = quantile * math.sqrt(variance / sample.size), found[point].estimate
        found[point] = replace(found[point], low=estimate - half_width, high=estimate + half_width)
    return found


def _pooled(samples: Sequence[Floats]) -> tuple[float, int]:
    """The variance within samples, and its degrees of freedom."""
    freedom = sum(sample.size - 1 for sample in samples)
    return sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples) / freedom, freedom
