"""The pools of connections between middlewares and their database: size and utilisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.once import once
from knee.data.trim import RUN, trimmed

if TYPE_CHECKING:
    from knee.data import Dataset

_PROCESS = [*RUN, "role", "process"]


@once
def connection_pools(dataset: Dataset) -> pl.DataFrame:
    """The pool of each middleware in each run, over the trimmed windows.

    A request holds a connection for its service time less the wait for a connection. Combined requests
    (`middleware.combine`) share a connection, so its busy time is unknown: such runs are excluded.

    Returns
    -------
    `point, repetition, role, process, connections, workers, held_ms, throughput, utilization`: `connections` and
    `workers` of the middleware, the time that a request holds a connection (ms), requests per second, and the mean
    share of connections in use.
    """
    hosts = dataset.points.filter(
        dataset.setting("store.kind") == "postgresql",
        dataset.setting("middleware.combine") == 1,
        pl.col("workers").is_not_null(),
    ).select(
        *RUN,
        pl.coalesce(dataset.setting("middleware.connections").cast(pl.Int64) // pl.col("middlewares"), "workers").alias(
            "connections"
        ),
        "workers",
    )
    windows, samples = (
        trimmed(dataset, table).filter(pl.col("role") == "middleware") for table in ("windows", "stations")
    )
    held_ns = pl.col("service_sum_ns") - pl.col("connection_sum_ns")
    return (
        windows.filter(pl.col("connection_sum_ns").is_not_null())
        .group_by(_PROCESS)
        .agg(held_ns.sum().alias("_held_ns"), pl.col("count").sum())
        .join(samples.group_by(_PROCESS).agg(pl.col("seconds").sum()), on=_PROCESS)
        .join(hosts, on=RUN)
        .select(
            *_PROCESS,
            "connections",
            "workers",
            (pl.col("_held_ns") / pl.col("count") / 1e6).alias("held_ms"),
            (pl.col("count") / pl.col("seconds")).alias("throughput"),
            (pl.col("_held_ns") / 1e9 / (pl.col("connections") * pl.col("seconds"))).alias("utilization"),
        )
        .sort(_PROCESS)
    )


def waited_for(dataset: Dataset) -> pl.DataFrame:
    """The pools of :func:`connection_pools` with fewer connections than worker slots. With as many connections as
    slots, no slot waits, and both are one station.
    """
    return connection_pools(dataset).filter(pl.col("connections") < pl.col("workers"))
