"""Bounds of the throughput by what the machine can do, as measured before the runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN, trimmed

if TYPE_CHECKING:
    from knee.data import Dataset


@dataclass(frozen=True)
class SyncBound:
    """The throughput at which the busiest store would sync the disk as often as it can be synced.

    syncs_per_s    writes of 4 KiB, each synced, before the runs: the median, the smallest and the largest value
    commits_per_s  the most commits of a store
    throughput     by point, at the most syncs, with the mean requests per commit of the point's repetitions
    """

    syncs_per_s: tuple[float, float, float]
    commits_per_s: float
    throughput: Mapping[int, float]

    @property
    def is_refuted(self) -> bool:
        """Whether a store committed more often than the disk synced before the runs."""
        return self.commits_per_s > self.syncs_per_s[2]


def sync_bound(dataset: Dataset, observations: pl.DataFrame) -> SyncBound | None:
    """The bound at each point whose stores sync every commit; None without such a point or the disk's measurement.

    With U = (commits/s) / (syncs/s) at the busiest store, the bound is X / U: one commit syncs once. The
    syncs/s are the most that the disk has shown: a bound by their median could be below throughputs that were reached.
    """
    measured = dataset.manifest.get("machine", {}).get("disk_sync_per_s")
    if measured is None:
        return None
    syncs = (float(measured["median"]), float(measured["low"]), float(measured["high"]))
    durable = dataset.points.filter(dataset.setting("store.durability") == "always")
    commits = (
        trimmed(dataset, "stations")
        .filter(pl.col("commits").is_not_null())
        .join(durable, on=RUN, how="semi")
        .group_by(*RUN, "process")
        .agg((pl.col("commits").sum() / pl.col("seconds").sum()).alias("per_s"))
        .filter(pl.col("per_s") > 0)
        .group_by(RUN)
        .agg(pl.col("per_s").max())
    )
    each = (
        observations.join(commits, on=RUN)
        .group_by("point")
        .agg((pl.col("throughput") / pl.col("per_s")).mean().alias("requests_per_commit"))
    )
    if each.is_empty():
        return None
    most = float(commits["per_s"].to_numpy().max())
    return SyncBound(syncs, most, {point: syncs[2] * requests for point, requests in each.iter_rows()})
