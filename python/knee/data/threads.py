"""The threads of the lab's programs: number and utilisation of the threads that serve requests, by process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.measurements import configuration
from knee.data.once import once
from knee.data.trim import RUN, trimmed

if TYPE_CHECKING:
    from knee.data import Dataset

_BESIDE_SHARE = 0.1
"""If other threads use at least this share of the serving threads' CPU time, the utilisation of the serving threads is
unusable."""


@once
def threads(dataset: Dataset) -> pl.DataFrame:
    """The threads of every process in each run, over the trimmed windows.

    Returns
    -------
    `point, repetition, role, process, servers, utilization, busiest, untold`: number of threads, their mean
    utilisation, the utilisation of the busiest thread, and the reason why these do not show the load of the process,
    for example because other threads do much of the work; null if they do. `untold` applies to all processes of a tier
    and all runs of a configuration, so that each demand has one meaning.
    """
    tier = ["role", *configuration(dataset)]
    samples = trimmed(dataset, "stations").join(
        dataset.points.select(*RUN, *configuration(dataset)), on=RUN, maintain_order="left"
    )
    beside_s, own_s = pl.col("beside_cpu_s").sum(), pl.col("threads_cpu_s").sum()
    beside = (
        samples.group_by(*tier, "process")
        .agg(((beside_s > 0) & (beside_s >= _BESIDE_SHARE * own_s)).alias("_beside"))
        .group_by(tier)
        .agg(pl.col("_beside").any())
    )
    why = "other threads do much of the " + pl.col("role") + "s' work"
    return (
        samples.group_by(*RUN, *tier, "process")
        .agg(
            pl.col("threads").max().cast(pl.Float64).alias("servers"),
            (pl.col("threads_cpu_s").sum() / (pl.col("threads").max() * pl.col("seconds").sum())).alias("utilization"),
            pl.when(pl.col("thread_cpu_max_s").is_not_null().any())
            .then(pl.col("thread_cpu_max_s").sum() / pl.col("seconds").sum())
            .alias("busiest"),
        )
        .filter(pl.col("servers") > 0)
        .join(beside, on=tier, nulls_equal=True)
        .select(
            *RUN, "role", "process", "servers", "utilization", "busiest", pl.when("_beside").then(why).alias("untold")
        )
        .sort(*RUN, "role", "process")
    )
