"""Where the response times of two configurations cross. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.stats.intervals import LEVEL, Floats, Interval, pooled_bootstrap
from knee.verdict.naming import Naming


@dataclass(frozen=True)
class Crossing:
    """The value on the horizontal axis at which two lines cross.

    at        interpolated between levels, with its interval, which ends at the first or the last level at most
    before    the line with the shorter response time before it; `after` is the other one
    is_sure   whether the lines surely cross: the interval lies within the levels, and the lines differ on either side
    is_inside
              whether the interval lies within the levels
    """

    axis: str
    at: Interval
    before: str
    after: str
    is_sure: bool
    is_inside: bool


def crossing(table: pl.DataFrame, naming: Naming, level: float = LEVEL, seed: int = 0) -> Crossing | None:
    """The crossing of the only two lines; None with more or fewer lines, or unless their means cross exactly once."""
    if len(naming.parts) > 1 or len(naming.labels) != 2 or naming.configurations or "response_ms" not in table.columns:
        return None
    known = table.filter(pl.col("response_ms").is_finite())
    samples: dict[str, dict[float, Floats]] = {label: {} for label in naming.labels}
    for (point,), rows in known.group_by("point", maintain_order=True):
        if point in naming.load:
            samples[naming.series[point]][naming.load[point]] = rows.select("response_ms").to_numpy()
    one, other = samples.values()
    levels = sorted(one.keys() & other.keys())
    if len(levels) < 2:
        return None
    compared = [line[at] for line in (one, other) for at in levels]
    signs = np.sign(_differences(compared)).ravel()
    if signs[0] == 0 or np.count_nonzero(np.diff(signs)) != 1 or signs[-1] == 0:
        return None

    def crossings(drawn: Sequence[Floats]) -> Floats:
        differences = signs[0] * np.stack(_differences(drawn, axis=1), axis=-1)[:, 0]
        return np.array([first_zero(levels, each) for each in differences])

    at = pooled_bootstrap(compared, crossings, level=level, seed=seed)
    before, after = naming.labels if signs[0] < 0 else naming.labels[::-1]
    if at.low is None or at.high is None or not (levels[0] < at.low and at.high < levels[-1]):
        return Crossing(naming.axis.title, at, before, after, is_sure=False, is_inside=False)
    sides = (
        _ratio(compared, [place for place, each in enumerate(levels) if is_there(each)], level, seed)
        for is_there in (at.low.__gt__, at.high.__lt__)
    )
    signed = [signs[0] * end for side in sides for end in (side.low, side.high) if end is not None]
    is_sure = len(signed) == 4 and min(signed[:2]) > 0 and max(signed[2:]) < 0
    return Crossing(naming.axis.title, at, before, after, is_sure, is_inside=True)


def _ratio(compared: Sequence[Floats], places: Sequence[int], level: float, seed: int) -> Interval:
    """The logarithm of one line's mean over the other's, averaged over levels: their ratio beside a crossing."""
    half = len(compared) // 2

    def average(drawn: Sequence[Floats]) -> Floats:
        means = [np.log(each.mean(axis=1)[:, 0]) for each in drawn]
        return np.asarray(np.mean([means[place] - means[half + place] for place in places], axis=0))

    return pooled_bootstrap(compared, average, level=level, seed=seed)


def _differences(samples: Sequence[Floats], axis: int = 0) -> list[Floats]:
    """The difference between the lines' means at each level; the samples are those of a line, then of the other."""
    half = len(samples) // 2
    return [
        one.mean(axis=axis) - other.mean(axis=axis) for one, other in zip(samples[:half], samples[half:], strict=True)
    ]


def first_zero(levels: Sequence[float], differences: Floats) -> float:
    """The first level, interpolated, at which the differences are no longer positive; at most the last level."""
    ends = np.flatnonzero(differences <= 0)
    if not ends.size or ends[0] == 0:
        return levels[0] if ends.size else levels[-1]
    last = ends[0] - 1
    share = differences[last] / (differences[last] - differences[last + 1])
    return float(levels[last] + share * (levels[last + 1] - levels[last]))
