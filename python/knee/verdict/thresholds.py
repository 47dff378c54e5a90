"""Whether each point keeps the limits of the experiment file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from knee.data.hdr import Histogram
from knee.data.trim import NS_PER_MS, RUN
from knee.stats.intervals import LEVEL, Interval, mean_interval
from knee.verdict.distributions import merged

if TYPE_CHECKING:
    from knee.data import Dataset

AT_LEAST = ("throughput", "completed_share")
"""The quantities with a lower limit; all others have an upper one."""

_PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0, "p999_ms": 99.9}

State = Literal["misses", "keeps", "cannot tell"]


@dataclass(frozen=True)
class Judged:
    """A point against a limit.

    state   "misses" if the whole interval of the mean lies beyond the limit, "keeps" if none of it does
    value   the mean over the repetitions, with its interval; NaN if the quantity was not measured
    silent  whether a repetition got no answer: it misses every limit of a time
    """

    point: int
    state: State
    value: Interval
    silent: bool


@dataclass(frozen=True)
class Threshold:
    """A limit, and each measured point against it. `at_least` is whether it is a lower limit."""

    quantity: str
    bound: float
    at_least: bool
    judged: tuple[Judged, ...]

    def of(self, state: State) -> list[Judged]:
        """The points in this state."""
        return [one for one in self.judged if one.state == state]


def thresholds(dataset: Dataset, observations: pl.DataFrame, level: float = LEVEL) -> tuple[Threshold, ...]:
    """The limits of the experiment file against every point; `observations` are the dataset's own.

    Throughput leaves out failed requests; response times include them.
    """
    return _against(dataset.spec.thresholds.given, lambda quantity: _samples(dataset, observations, quantity), level)


def thresholds_of_table(
    limits: Mapping[str, float], table: pl.DataFrame, level: float = LEVEL
) -> tuple[Threshold, ...]:
    """Limits against every point of a table of measurements; a quantity without a column is unknown."""
    columns = {name: pl.col(name) for name in limits if name in table.columns}
    if {"errors", "requests"} <= {*table.columns}:
        columns["error_share"] = pl.col("errors") / pl.col("requests")

    def samples_of(quantity: str) -> pl.DataFrame:
        value = columns.get(quantity, pl.lit(None, pl.Float64))
        return table.select("point", value.fill_null(math.nan).alias("value"))

    return _against(limits, samples_of, level)


def _against(
    limits: Mapping[str, float], samples_of: Callable[[str], pl.DataFrame], level: float
) -> tuple[Threshold, ...]:
    """Each limit against the samples of its quantity: `point, value`, a row per repetition."""
    found = []
    for quantity, bound in limits.items():
        at_least = quantity in AT_LEAST
        samples: dict[int, list[float]] = {}
        for point, value in samples_of(quantity).iter_rows():
            samples.setdefault(point, []).append(value)
        judged = tuple(_judge(point, values, bound, at_least, level) for point, values in sorted(samples.items()))
        found.append(Threshold(quantity, bound, at_least, judged))
    return tuple(found)


def _judge(point: int, values: list[float], bound: float, at_least: bool, level: float) -> Judged:
    value = mean_interval(values, level)
    if any(math.isinf(each) for each in values):
        return Judged(point, "misses", value, silent=True)
    state: State = "cannot tell"
    if value.low is not None and value.high is not None:
        if value.high < bound if at_least else value.low > bound:
            state = "misses"
        elif value.low >= bound if at_least else value.high <= bound:
            state = "keeps"
    return Judged(point, state, value, silent=False)


def _samples(dataset: Dataset, observations: pl.DataFrame, quantity: str) -> pl.DataFrame:
    """`point, value`: a row per repetition. A time of a run without an answer is infinite; an unknown value is NaN."""
    failed = pl.col("errors").fill_null(0) / pl.col("observed_s")
    value = {"throughput": pl.col("throughput") - failed, "error_share": failed / pl.col("throughput")}.get(quantity)
    if quantity in _PERCENTILES:
        known = _percentiles(dataset, _PERCENTILES[quantity])
        observations = observations.with_columns(
            pl.Series(quantity, [known.get(key) for key in observations.select(RUN).iter_rows()], pl.Float64)
        )
    value = pl.col(quantity) if value is None else value
    if quantity not in AT_LEAST:
        value = pl.when(pl.col("throughput") > 0).then(value).otherwise(math.inf)
    return observations.select("point", value.fill_null(math.nan).alias("value"))


def _percentiles(dataset: Dataset, percentile: float) -> dict[tuple[int, int], float]:
    """By point and repetition, the percentile of all requests of the clients, in ms."""
    parts: dict[tuple[int, int], list[Histogram]] = {}
    for (point, repetition, role, _), one in merged(dataset).items():
        if role == "load":
            parts.setdefault((point, repetition), []).append(one)
    return {key: Histogram.merge(each).percentile(percentile) / NS_PER_MS for key, each in parts.items()}
