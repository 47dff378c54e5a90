"""Throughput as the clients see it and as the server sees it, and why they differ. Pure.

A client's own throughput is how many answers it gets per second that it waits, 1 / R: it falls as others make it wait
longer. The server's is what it is asked per second, between the first request and the last: it can grow with the
clients, for it has to wait for them, until it can do no more; where requests cost more the more clients there are, or
others take its processors, it falls. Both are right, and neither is the other: N clients that wait for R and think for
Z make X = N / (R + Z) (the interactive law; Denning & Buzen 1978).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN, trim
from knee.stats.intervals import (
    LEVEL,
    Interval,
    mean_interval,
)

if TYPE_CHECKING:
    from knee.data import Dataset

AGREE = 0.05
"""How far clients and server may be apart on all requests per second without a word about it."""

MOVES = 0.10
"""Changes from the fewest clients to the most that are surely smaller are called none."""


@dataclass(frozen=True)
class View:
    """One client count: requests per second of each client as it waits (1 / R), of all clients, and at the server."""

    clients: int
    each: Interval
    together: Interval
    server: Interval


def throughput_views(dataset: Dataset, observations: pl.DataFrame) -> pl.DataFrame:
    """Both views of every run whose stores report when requests came, with clients that wait for answers.

    Parameters
    ----------
    observations
        Of the same run folder (:mod:`knee.data.observations`).

    Returns
    -------
    `point, repetition, clients, each, together, server`: requests per second as in :class:`View`. The server's is that
    of all stores, each between its first and its last request within the trimmed windows: so many intervals, one less
    than requests. A client that keeps several requests in flight gets as many answers while it waits.
    """
    stations, windows = (trim(frame, dataset.points) for frame in (dataset.stations, dataset.windows))
    keys = [*RUN, "process"]
    spans = (
        stations.filter((pl.col("role") == "store") & pl.col("first_request_unix_s").is_not_null())
        .group_by(keys)
        .agg(
            (pl.col("last_request_unix_s").max() - pl.col("first_request_unix_s").min()).alias("_span_s"),
        )
        .filter(pl.col("_span_s") > 0)
    )
    counts = windows.filter(pl.col("role") == "store").group_by(keys).agg(pl.col("count").sum())
    server = (
        counts.join(spans, on=keys)
        .group_by(RUN)
        .agg(
            ((pl.col("count") - 1) / pl.col("_span_s")).sum().alias("server"),
            pl.len().cast(pl.Int64).alias("_stores"),
        )
    )
    return (
        # Clients of an open loop do not wait before they ask again: one's answers are no share of all.
        observations.filter((pl.col("middlewares") == 0) & pl.col("rate").is_null() & (pl.col("response_ms") > 0))
        .join(dataset.points.select(*RUN, "stores"), on=RUN)
        .join(server, on=RUN)
        # A store without a report may have had requests.
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
    """The means over the repetitions, by clients; `runs` are those of one configuration (:func:`throughput_views`)."""
    return tuple(
        View(
            int(str(clients)), *(mean_interval(rows[name].to_numpy(), level) for name in ("each", "together", "server"))
        )
        for (clients,), rows in runs.sort("clients").group_by("clients", maintain_order=True)
    )
