"""Foreign stores, which print no measurements: number and utilisation of their processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.once import once
from knee.data.trim import RUN, trimmed

if TYPE_CHECKING:
    from knee.data import Dataset

_PROCESS = [*RUN, "process"]


@once
def foreign_stores(dataset: Dataset) -> pl.DataFrame:
    """Utilisation of foreign stores from the probes' CPU times, over the trimmed windows.

    Returns
    -------
    `point, repetition, process, servers, confined, utilization`. `servers` are memcached's declared threads; PostgreSQL
    has a process for each connection; its `servers` are the processors that it may use. `confined`: the store may use
    only a share of the host's processors (`store.cpus`, rounded up if the host cannot divide a processor). Such a store
    may saturate its share while the host has idle processors.
    """
    host = dataset.probes.filter(pl.col("target") == "host").group_by(RUN).agg(pl.col("cpu_count").max().alias("_cpus"))
    processes = dataset.setting("store.kind") == "postgresql"
    given = dataset.setting("store.cpus").cast(pl.Float64)
    if not dataset.manifest.get("shares_cpus", True):
        given = given.ceil()
    servers = dataset.points.join(host, on=RUN, how="left").select(
        *RUN,
        pl.when(processes)
        .then(pl.min_horizontal(given.fill_null(pl.col("_cpus")), "_cpus"))
        .otherwise(dataset.setting("store.threads"))
        .cast(pl.Float64)
        .alias("servers"),
        (processes & (given < pl.col("_cpus"))).fill_null(value=False).alias("confined"),
    )
    samples = trimmed(dataset, "stations")
    printed = samples.filter(pl.col("threads_cpu_s").is_not_null()).select(_PROCESS).unique()
    return (
        trimmed(dataset, "probes")
        .filter(pl.col("target").str.starts_with("store-"))
        .rename({"target": "process"})
        .join(printed, on=_PROCESS, how="anti")
        .group_by(_PROCESS)
        .agg((pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum().alias("_cpu_s"), pl.col("seconds").sum())
        .join(servers, on=RUN)
        .filter(pl.col("servers") > 0)
        .select(
            *_PROCESS,
            "servers",
            "confined",
            (pl.col("_cpu_s") / (pl.col("servers") * pl.col("seconds"))).alias("utilization"),
        )
        .sort(_PROCESS)
    )
