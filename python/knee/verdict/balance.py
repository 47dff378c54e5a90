"""How evenly middlewares spread requests over the stores. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from knee.data.trim import RUN, trimmed
from knee.stats.intervals import LEVEL, Interval, mean_interval

if TYPE_CHECKING:
    from knee.data import Dataset


@dataclass(frozen=True)
class Balance:
    """The stores of one point.

    requests  requests that all middlewares sent to each store, in the measured seconds of all repetitions
    bytes     of these requests and of their answers; of an address space, of their data
    fairness  Jain's index of these requests, as a mean over the repetitions: 1 if all stores get as many, 1/n if one
              of n stores gets all
    """

    requests: tuple[int, ...]
    bytes: tuple[int, ...]
    fairness: Interval

    @property
    def shares(self) -> list[float]:
        return [each / sum(self.requests) for each in self.requests]


def fairness(requests: Sequence[int]) -> float:
    """(Σ x)² / (n Σ x²), the fairness index of Jain, Chiu & Hawe (1984); NaN without requests."""
    x = np.array(requests, float)
    return float(x.sum() ** 2 / (x.size * np.square(x).sum())) if x.any() else float("nan")


def balances(dataset: Dataset, points: Sequence[int], level: float = LEVEL) -> dict[int, Balance]:
    """The balance at each point with several stores behind middlewares that report their requests."""
    runs: dict[int, dict[int, list[list[list[int]]]]] = {}
    for point, repetition, *each in (
        trimmed(dataset, "stations")
        .filter(pl.col("servers_requests").list.len() > 1, pl.col("point").is_in(list(points)))
        .select("point", "repetition", "servers_requests", "servers_bytes")
        .iter_rows()
    ):
        runs.setdefault(point, {}).setdefault(repetition, []).append(each)
    found = {}
    for point in points:
        sums = [np.sum(each, axis=0).tolist() for each in runs.get(point, {}).values()]
        if np.any(sums):
            known = [index for requests, _ in sums if np.isfinite(index := fairness(requests))]
            requests, sizes = np.sum(sums, axis=0).tolist()
            found[point] = Balance(tuple(requests), tuple(sizes), mean_interval(known, level))
    return found


def uncounted(dataset: Dataset, points: Sequence[int]) -> tuple[int, int]:
    """Of the runs with several stores behind middlewares, the number of those without requests of each store, and the
    number of all. Earlier versions of Knee counted such requests only over the life of a middleware.
    """
    several = dataset.points.filter(pl.col("stores") > 1, pl.col("point").is_in(list(points)))
    behind = trimmed(dataset, "stations").filter(role="middleware").join(several, on=RUN, how="semi")
    runs = behind.group_by(RUN).agg(pl.col("servers_requests").has_nulls().alias("lacks"))
    return runs.filter("lacks").height, runs.height
