"""One row per point and repetition: the table that every analysis reads.

Its columns are those of a CSV, so the laws, the knee and the models need not know where the numbers came
from. Everything is taken from the trimmed windows, except the totals for the
conservation check, which only agree over whole runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.outages import outages
from knee.data.trim import COVERED_S, RUN, trim

if TYPE_CHECKING:
    from knee.data import Dataset

_NS_PER_MS = 1e6
_LINE_OVERHANG_S = 0.15
"""A line about the last second before the start may reach a little beyond it without telling of requests after it."""


def observations(dataset: Dataset) -> pl.DataFrame:
    """What was measured at each point in each finished repetition.

    Returns
    -------
    `point`, `repetition`, one column per factor, and

    ====================== =====================================================================
    clients                N, virtual clients over all load hosts
    pipeline               requests that each client keeps in flight: N · pipeline wait or think at any time
    think_ms               Z, mean of the think times taken; null in an open loop
    declared_think_ms      the think time that the experiment asked for; those taken may be a random sample
    rate                   requests per second asked for; null in a closed loop
    workers, middlewares   worker slots of each middleware (null when pipelined), number of them
    stores                 number of stores
    connections            those of all middlewares to a database, null where requests share them or it is unknown
    connections_follow     whether there is one for each worker, by default; null as `connections` is
    observed_s             length of what remains after trimming, as the clients' windows cover it
    throughput             X, requests per second, as the clients saw it
    response_ms            R, mean, as the clients saw it
    middleware_throughput  X at the middlewares, all together; null without middleware
    middleware_response_ms received → replied, mean over all requests
    queueing_ms            received → dequeued
    service_ms             dequeued → answered
    connection_ms          the wait for a connection to a database, part of service_ms; null where unknown
    queue_length           waiting requests, time average, summed over the middlewares
    busy_workers           worker slots in use, time average, summed over the middlewares
    store_service_ms       the stores' own service time; null for a foreign store
    hits, misses, errors   as the clients saw them
    load_total             requests completed over the whole run, counted by the clients,
    middleware_total       by the middlewares,
    store_total            and by stores that clients talk to themselves; null otherwise
    completed_share        of the requests of an open loop that came due in the run, the share that was over before its
                           end, answered or failed; null in a closed loop, and where the load generators do not tell
    late_sends, clients_connected
                           what the load generators said of themselves
    connections_lost       by the clients, whether or not opened again; null where unknown
    reconnects             connections opened again by the clients; both over the whole run where only totals are known
    connections_missing, outage_s, outage_share
                           of the clients' connections (:func:`knee.data.outages.outages`)
    ====================== =====================================================================
    """
    points = dataset.points.filter(pl.col("status") == "done")
    runs = points.select(
        *RUN,
        *dict.fromkeys([*dataset.factors, "clients", "think_ms", "rate", "workers", "middlewares", "stores"]),
        _pipeline(dataset),
        *_connections(dataset),
        (pl.col("seconds") - pl.col("warmup_s") - pl.col("cooldown_s")).cast(pl.Float64).alias("observed_s"),
    )
    windows = trim(dataset.windows, points)
    stations = trim(dataset.stations, points)
    table = runs
    for part in (
        _stage_times(windows),
        _queues(stations),
        _totals(dataset.windows, points),
        _load_notes(dataset, stations),
        outages(dataset).select(*RUN, "connections_missing", "outage_s", "outage_share"),
        _think_times(stations),
        _covered(stations),
    ):
        table = table.join(part, on=RUN, how="left")
    return (
        table.with_columns(
            pl.col("think_ms").alias("declared_think_ms"),
            pl.coalesce("_think_ms", "think_ms").alias("think_ms"),
            pl.coalesce("_load_s", "observed_s").alias("observed_s"),
            pl.coalesce("_middleware_s", "observed_s").alias("_middleware_s"),
        )
        .with_columns(
            (pl.col("count") / pl.col("observed_s")).alias("throughput"),
            (pl.col("middleware_count") / pl.col("_middleware_s")).alias("middleware_throughput"),
        )
        .with_columns(
            pl.when(pl.col("rate").is_not_null())
            .then(pl.col("_in_time") / (pl.col("load_total") + pl.col("_unsent")))
            .alias("completed_share")
        )
        .drop("count", "middleware_count", "_think_ms", "_load_s", "_middleware_s", "_in_time", "_unsent")
        .sort(RUN)
    )


def _pipeline(dataset: Dataset) -> pl.Expr:
    """Null for an open loop: there the setting only bounds what is in flight."""
    each = dataset.setting("workload.pipeline")
    return pl.when(pl.col("rate").is_null()).then(each.cast(pl.Int64).fill_null(1)).alias("pipeline")


def _connections(dataset: Dataset) -> tuple[pl.Expr, pl.Expr]:
    """One for each worker unless given; PostgreSQL alone has a pool of them."""
    pooled = (dataset.setting("store.kind") == "postgresql") & (dataset.setting("middleware.combine") == 1)
    given = dataset.setting("middleware.connections").cast(pl.Int64)
    slots = pl.col("workers") * pl.col("middlewares")
    return (
        pl.when(pooled).then(pl.coalesce(given, slots)).alias("connections"),
        pl.when(pooled).then(given.is_null()).alias("connections_follow"),
    )


def _stage_times(windows: pl.DataFrame) -> pl.DataFrame:
    """Counts, and means of the stages weighted by requests, from each role's view."""

    def mean_ms(role: str, column: str) -> pl.Expr:
        chosen = (pl.col("role") == role) & pl.col(column).is_not_null()
        return (pl.col(column).filter(chosen).sum() / pl.col("count").filter(chosen).sum() / _NS_PER_MS).fill_nan(None)

    load = pl.col("role") == "load"
    middleware = pl.col("role") == "middleware"
    return windows.group_by(RUN).agg(
        pl.col("count").filter(load).sum(),
        mean_ms("load", "response_sum_ns").alias("response_ms"),
        pl.when(middleware.any()).then(pl.col("count").filter(middleware).sum()).alias("middleware_count"),
        mean_ms("middleware", "response_sum_ns").alias("middleware_response_ms"),
        mean_ms("middleware", "queueing_sum_ns").alias("queueing_ms"),
        mean_ms("middleware", "service_sum_ns").alias("service_ms"),
        mean_ms("middleware", "connection_sum_ns").alias("connection_ms"),
        mean_ms("store", "service_sum_ns").alias("store_service_ms"),
        *(pl.col(name).filter(load).sum() for name in ("items", "hits", "misses", "errors")),
    )


def _queues(stations: pl.DataFrame) -> pl.DataFrame:
    """Time averages per middleware, then summed: each window counts by the time it covers."""
    return (
        stations.filter(pl.col("role") == "middleware")
        .group_by(*RUN, "process")
        .agg(
            pl.when(pl.col("queue_length_mean").is_not_null().any()).then(
                (pl.col("queue_length_mean") * pl.col("seconds")).sum() / pl.col("seconds").sum()
            ),
            pl.when(pl.col("workers_busy_s").is_not_null().any())
            .then(pl.col("workers_busy_s").sum() / pl.col("seconds").sum())
            .alias("busy_workers"),
        )
        .group_by(RUN)
        .agg(
            pl.when(pl.col("queue_length_mean").is_not_null().any())
            .then(pl.col("queue_length_mean").sum())
            .alias("queue_length"),
            pl.when(pl.col("busy_workers").is_not_null().any()).then(pl.col("busy_workers").sum()),
        )
    )


def _think_times(stations: pl.DataFrame) -> pl.DataFrame:
    """The mean of the think times that were taken, null where they were not counted.

    Random think times scatter about the declared mean: over a few thousand of them by more than a per cent.
    """
    return (
        stations.filter(pl.col("role") == "load")
        .group_by(RUN)
        .agg(
            pl.when(pl.col("thinks").sum() > 0)
            .then(pl.col("think_sum_ns").sum() / pl.col("thinks").sum() / _NS_PER_MS)
            .alias("_think_ms")
        )
    )


def _covered(stations: pl.DataFrame) -> pl.DataFrame:
    """Seconds that the trimmed windows of the clients and of the middlewares cover, on average over the processes.

    A process that was starved prints one line for several seconds, which trimming keeps or leaves out as a whole.
    """
    each = stations.group_by(*RUN, "role", "process").agg(pl.col("seconds").sum())
    return each.group_by(RUN).agg(
        *(
            pl.col("seconds").filter(pl.col("role") == role).mean().alias(f"_{role}_s")
            for role in ("load", "middleware")
        )
    )


def _totals(windows: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Requests over the whole run. Both outer tiers live for one run only, and populating goes past the middlewares.

    Stores are populated before the start; a line that covers both has no usable total. Requests that clients send
    before they count are "other" to a middleware, such as registering, or a "read_from" that checks it.
    """

    def total(role: str, counted: pl.Expr) -> pl.Expr:
        chosen = pl.col("role") == role
        return pl.when(chosen.any() & counted).then(pl.col("count").filter(chosen).sum()).alias(f"{role}_total")

    begun = (pl.col("role") != "store") | (pl.col("elapsed_s") >= 0)
    across = ~begun & (pl.col("elapsed_s") + pl.col("seconds") > _LINE_OVERHANG_S)
    # A line that reaches beyond the end does not show what was over before it.
    in_time = pl.col("elapsed_s") + COVERED_S <= pl.col("_ends_s")
    direct = (pl.col("middlewares") == 0).all()
    before = pl.col("op").is_in(("other", "read_from"))
    asked = (pl.col("role") == "load").any().over(*RUN, "op")
    return (
        windows.join(points.select(*RUN, "middlewares", pl.col("seconds").alias("_ends_s")), on=RUN)
        .with_columns(across.any().over(RUN).alias("_across"))
        .filter(begun, (pl.col("role") != "middleware") | ~before | asked)
        .group_by(RUN)
        .agg(
            total("load", pl.lit(value=True)),
            total("middleware", pl.lit(value=True)),
            total("store", direct & ~pl.col("_across").any()),
            pl.col("count").filter((pl.col("role") == "load") & in_time).sum().alias("_in_time"),
        )
    )


def _load_notes(dataset: Dataset, stations: pl.DataFrame) -> pl.DataFrame:
    """What the load generators report of themselves; of their connections within the trimmed windows, where known.

    Connections that were lost in warm-up and opened again within it do not count.
    """
    lines = stations.filter(pl.col("role") == "load").group_by(RUN).agg(_known_sum("losses"), _known_sum("reconnects"))
    return (
        dataset.summaries.filter(pl.col("role") == "load")
        .group_by(RUN)
        .agg(
            pl.col("clients").sum().alias("clients_connected"),
            pl.col("late_sends").sum(),
            _known_sum("reconnects").alias("_reconnects"),
            _known_sum("losses").alias("_losses"),
            _known_sum("unsent").alias("_unsent"),
        )
        .join(lines, on=RUN, how="left")
        .with_columns(
            pl.coalesce("losses", "_losses").alias("connections_lost"), pl.coalesce("reconnects", "_reconnects")
        )
        .drop("losses", "_losses", "_reconnects")
    )


def _known_sum(name: str) -> pl.Expr:
    """Null where one load generator does not report it."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)
