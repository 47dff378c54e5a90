"""Throughput as the clients see it and as the server sees it, and why they differ. Pure.

A client's own throughput is its number of answers per second while it waits: its requests in flight, over R. It falls
as more clients lengthen the wait. The server's throughput is its number of requests per second, between the first and
the last request. It grows with the clients until the server saturates. It falls if requests cost more with more
clients, or if other programs take the processors. The interactive law, X = N / (R + Z), links the two (Denning &
Buzen 1978).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN, trimmed
from knee.stats.intervals import LEVEL, Interval, mean_interval

if TYPE_CHECKING:
    from knee.data import Dataset

AGREE = 0.05
"""Largest relative difference between the clients' and the server's total throughput without a remark."""

MOVES = 0.10
"""A relative change from the smallest to the largest number of clients counts as none if it is significantly smaller
than this."""


@dataclass(frozen=True)
class View:
    """Throughput at one client count, requests/s: of each client while it waits (`pipeline` / R), of all clients,
    and at the server."""

    clients: int
    each: Interval
    together: Interval
    server: Interval


def throughput_views(dataset: Dataset, observations: pl.DataFrame) -> pl.DataFrame:
    """Both views of every closed-loop run whose stores report arrival times.

    `observations`: of the same run folder (:mod:`knee.data.observations`).

    Returns
    -------
    `point, repetition, clients, each, together, server`: requests per second as in :class:`View`. `server` sums over
    all stores: (requests − 1) / (time from the first to the last request in the trimmed windows).
    """
    stations, windows = trimmed(dataset, "stations"), trimmed(dataset, "windows")
    keys = [*RUN, "process"]
    spans = (
        stations.filter((pl.col("role") == "store") & pl.col("first_request_unix_s").is_not_null())
        .group_by(keys)
        .agg((pl.col("last_request_unix_s").max() - pl.col("first_request_unix_s").min()).alias("_span_s"))
        .filter(pl.col("_span_s") > 0)
    )
    counts = windows.filter(pl.col("role") == "store").group_by(keys).agg(pl.col("count").sum())
    server = (
        counts.join(spans, on=keys)
        .group_by(RUN)
        .agg(
            ((pl.col("count") - 1) / pl.col("_span_s")).sum().alias("server"), pl.len().cast(pl.Int64).alias("_stores")
        )
    )
    return (
        # Open-loop clients do not wait for answers, so 1 / R is not a client's throughput.
        observations.filter((pl.col("middlewares") == 0) & pl.col("rate").is_null() & (pl.col("response_ms") > 0))
        .join(dataset.points.select(*RUN, "stores"), on=RUN)
        .join(server, on=RUN)
        # A store without a report may have received requests.
        .filter(pl.col("stores") == pl.col("_stores"))
        .select(
            *RUN,
            "clients",
            (1000 * pl.col("pipeline") / pl.col("response_ms")).alias("each"),
            pl.col("throughput").alias("together"),
            "server",
        )
        .sort(RUN)
    )


def views(runs: pl.DataFrame, level: float = LEVEL) -> tuple[View, ...]:
    """Means over the repetitions, by client count; `runs` are rows of :func:`throughput_views` of one configuration."""
    return tuple(
        View(
            int(str(clients)), *(mean_interval(rows[name].to_numpy(), level) for name in ("each", "together", "server"))
        )
        for (clients,), rows in runs.sort("clients").group_by("clients", maintain_order=True)
    )
