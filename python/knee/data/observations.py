"""One row per point and repetition: the table that every analysis reads.

It has the columns of a CSV, so the laws, the knee and the models do not depend on the source. All values come from
the trimmed windows, except the totals for the conservation check, which agree only over whole runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.once import once
from knee.data.outages import outages
from knee.data.trim import COVERED_S, NS_PER_MS, RUN, trimmed

if TYPE_CHECKING:
    from knee.data import Dataset

_LINE_OVERHANG_S = 0.15
"""A line for the last second before the start may extend up to this long beyond the start without requests from after
it."""


@once
def observations(dataset: Dataset) -> pl.DataFrame:
    """The measurements at each point in each finished repetition.

    Returns
    -------
    `point`, `repetition`, one column per factor, and

    ====================== =====================================================================
    clients                N, virtual clients over all load hosts
    pipeline               requests that each client keeps in flight: N · pipeline wait or think at any time
    think_ms               Z, mean of the actual think times; null in an open loop
    declared_think_ms      mean think time in the experiment file; the actual think times may be a random sample
    rate                   declared arrival rate, requests per second; null in a closed loop
    workers, middlewares   worker slots of each middleware (null when pipelined), number of them
    stores                 number of stores
    connections            connections of all middlewares to a database; null if requests share them or if unknown
    connections_follow     whether the number is the default, one for each worker; null if `connections` is null
    observed_s             length that the clients' windows cover after trimming
    throughput             X, requests per second, in the clients' view
    response_ms            R, mean, in the clients' view
    middleware_throughput  X over all middlewares; null without middleware
    middleware_response_ms received → replied, mean over all requests
    queueing_ms            received → dequeued
    service_ms             dequeued → answered
    connection_ms          the wait for a connection to a database, part of service_ms; null if unknown
    queue_length           waiting requests, time average, summed over the middlewares
    busy_workers           worker slots in use, time average, summed over the middlewares
    cache_hit_ratio        share of the keys of gets that the middlewares' near caches had; null without them
    store_service_ms       the stores' own service time; null for a foreign store
    items, hits, misses, errors
                           in the clients' view
    miss_share             share of the keys of gets and multi-gets that were not found, in the clients' view
    middleware_miss_share  the same in the middlewares' view; null without such a request
    load_total             requests completed over the whole run, counted by the clients,
    middleware_total       by the middlewares,
    store_total            and by stores that clients talk to themselves; null otherwise
    completed_share        share of an open loop's due requests that ended (answered or failed) before the end of the
                           run; null in a closed loop, and if the load generators do not report it
    late_sends, clients_connected
                           reports of the load generators
    connections_lost       by the clients, reopened ones included; null if unknown
    reconnects             connections reopened by the clients; both over the whole run if only totals are known
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
    windows = trimmed(dataset, "windows")
    stations = trimmed(dataset, "stations")
    table = runs
    for part in (
        _stage_times(windows),
        _queues(stations),
        _totals(dataset.windows, points, is_whole=not dataset.spec.measure.ramp),
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
            # A run without any answer may have no window.
            (pl.col("count").fill_null(0) / pl.col("observed_s")).alias("throughput"),
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
    """Requests in flight per client; null for an open loop, in which the setting is only a bound."""
    each = dataset.setting("workload.pipeline")
    return pl.when(pl.col("rate").is_null()).then(each.cast(pl.Int64).fill_null(1)).alias("pipeline")


def _connections(dataset: Dataset) -> tuple[pl.Expr, pl.Expr]:
    """Connections of each middleware, by default one for each worker; only PostgreSQL has a pool."""
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
        return (pl.col(column).filter(chosen).sum() / pl.col("count").filter(chosen).sum() / NS_PER_MS).fill_nan(None)

    def miss_share(role: str) -> pl.Expr:
        chosen = (pl.col("role") == role) & pl.col("op").is_in(("get", "multiget"))
        missed, hit = (pl.col(name).filter(chosen).sum() for name in ("misses", "hits"))
        return (missed / (missed + hit)).fill_nan(None)

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
        miss_share("load").alias("miss_share"),
        miss_share("middleware").alias("middleware_miss_share"),
        *(pl.col(name).filter(load).sum() for name in ("items", "hits", "misses", "errors")),
    )


def _queues(stations: pl.DataFrame) -> pl.DataFrame:
    """Time averages of each middleware, summed over middlewares; windows are weighted by their length."""
    return (
        stations.filter(pl.col("role") == "middleware")
        .group_by(*RUN, "process")
        .agg(
            pl.col("cache_hits", "cache_misses").sum(),
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
            (pl.col("cache_hits").sum() / (pl.col("cache_hits") + pl.col("cache_misses")).sum())
            .fill_nan(None)
            .alias("cache_hit_ratio"),
        )
    )


def _think_times(stations: pl.DataFrame) -> pl.DataFrame:
    """The mean of the actual think times; null if they were not counted.

    The mean of a few thousand random think times may differ from the declared mean by over 1 %.
    """
    return (
        stations.filter(pl.col("role") == "load")
        .group_by(RUN)
        .agg(
            pl.when(pl.col("thinks").sum() > 0)
            .then(pl.col("think_sum_ns").sum() / pl.col("thinks").sum() / NS_PER_MS)
            .alias("_think_ms")
        )
    )


def _covered(stations: pl.DataFrame) -> pl.DataFrame:
    """Seconds that the trimmed windows of the clients and of the middlewares cover, on average over the processes.

    A process without CPU time prints one line for several seconds, which trimming keeps or drops as a whole.
    """
    each = stations.group_by(*RUN, "role", "process").agg(pl.col("seconds").sum())
    return each.group_by(RUN).agg(
        *(
            pl.col("seconds").filter(pl.col("role") == role).mean().alias(f"_{role}_s")
            for role in ("load", "middleware")
        )
    )


def _totals(windows: pl.DataFrame, points: pl.DataFrame, *, is_whole: bool) -> pl.DataFrame:
    """Requests over the whole run. Clients and middlewares run for one run only, and population bypasses the
    middlewares.

    Stores are populated before the start; a line that covers both phases has no usable total. Requests before the
    clients count, such as registration, are "other" in a middleware, or a "read_from" that checks the registration.
    The steps of a ramp are no whole runs: servers and clients count a request at its end in different steps.
    """

    def total(role: str, counted: pl.Expr) -> pl.Expr:
        chosen = pl.col("role") == role
        return pl.when(chosen.any() & counted).then(pl.col("count").filter(chosen).sum()).alias(f"{role}_total")

    begun = (pl.col("role") != "store") | (pl.col("elapsed_s") >= 0)
    across = ~begun & (pl.col("elapsed_s") + pl.col("seconds") > _LINE_OVERHANG_S)
    # A line that extends beyond the end does not show which requests ended before it.
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
            total("middleware", pl.lit(is_whole)),
            total("store", direct & is_whole & ~pl.col("_across").any()),
            pl.col("count").filter((pl.col("role") == "load") & in_time).sum().alias("_in_time"),
        )
    )


def _load_notes(dataset: Dataset, stations: pl.DataFrame) -> pl.DataFrame:
    """Reports of the load generators; connection counts are for the trimmed windows if known. Connections that were
    lost and reopened within the warm-up do not count.
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
    """The aggregate; null if a load generator does not report the value."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)
