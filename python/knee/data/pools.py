"""The pools of connections between middlewares and their database: how large, and how busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN, trim

if TYPE_CHECKING:
    from knee.data import Dataset

_PROCESS = [*RUN, "role", "process"]


def connection_pools(dataset: Dataset) -> pl.DataFrame:
    """The pool of each middleware in each run, over the trimmed windows.

    A request has a connection for its service time less the wait for one. Requests that go to the database together
    (`middleware.combine`) share one, so its busy time is unknown: such runs are left out.

    Returns
    -------
    `point, repetition, role, process, connections, workers, held_ms, throughput, utilization`: K and W of the
    middleware, how long a request has a connection, requests per second, and the mean share of connections in use.
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
        trim(frame, dataset.points).filter(pl.col("role") == "middleware")
        for frame in (dataset.windows, dataset.stations)
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
    """The pools of :func:`connection_pools` that are smaller than the worker slots before them.

    With as many connections as slots no slot waits for one: they are the same station then.
    """
    return connection_pools(dataset).filter(pl.col("connections") < pl.col("workers"))
