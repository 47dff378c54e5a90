"""The service demand of a request at each stage between client and server, from stage times, CPU times and
throughputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.data.trim import RUN
from knee.laws.stations import THREADS
from knee.stats.intervals import LEVEL, Floats, Interval, capital, mean_interval, pooled_bootstrap

RESAMPLES = 400


@dataclass(frozen=True)
class Stage:
    """One stage, from the client inwards.

    servers      requests that the stage serves at a time, over all processes; None for a delay
    visits       V, visits of one client request to the stage (the forced flow law, X_k = V X)
    light_ms     D, the service demand of a request over all visits, at the fewest clients
    demand_ms    D over all client counts, with equal weight for each request
    utilization  mean utilisation of the servers at the most clients; None for a delay
    """

    name: str
    servers: float | None
    visits: float
    light_ms: Interval
    demand_ms: Interval
    utilization: float | None


@dataclass(frozen=True)
class Stages:
    """The stages that the measurements distinguish, and sentences on the stages that they do not."""

    found: tuple[Stage, ...]
    missing: str


def stage_demands(
    rows: pl.DataFrame, stations: pl.DataFrame | None = None, *, level: float = LEVEL, seed: int = 0
) -> Stages:
    """The stages of one configuration, client counts and repetitions together.

    A network's demand is the difference of the times at its two ends: R − R_middleware, and a
    slot's service time − the servers' own. A connection's demand is a slot's service time − the wait for a connection.
    The CPU time per request of network threads and stores is U m / X (service demand law). The intervals are bootstraps
    over repetitions (:func:`knee.stats.intervals.pooled_bootstrap`).

    `rows`: :mod:`knee.data.observations`, or a foreign table with some of its columns. `stations`:
    :mod:`knee.laws.stations` of the same runs, for the CPU times.
    """
    rows = rows.filter(pl.col("throughput") > 0)
    needs = dict(NEEDS)
    if stations is not None:
        stations = stations.join(rows.select(RUN), on=RUN, how="semi")
        needs |= _NEEDS_OF_RUN
        for name, tier in _TIERS.items():
            own = stations.filter(pl.col("station").str.contains(rf"^{tier}-\d+{THREADS}$"))
            if reasons := own["untold"].drop_nulls().to_list():
                # If only some runs have the CPU times, the stage would mix different runs.
                needs[name] = reasons[0]
                continue
            busy_ms = (1000 * pl.col(f"_{tier}_busy") / pl.col("throughput")).alias(f"_{tier}_ms")
            rows = rows.join(_threads(own, rows, tier), on=RUN, how="left").with_columns(busy_ms)
        visits = stations.filter(pl.col("station") == "the stores").select(*RUN, pl.col("visits").alias("_visits"))
        rows = rows.join(visits, on=RUN, how="left")
    slots = pl.col("workers") * pl.col("middlewares")
    if {"workers", "middlewares", "connections"} <= set(rows.columns):
        # With as many connections as slots, both are one station.
        pool = pl.col("connections").cast(pl.Float64, strict=False)
        rows = rows.with_columns(pl.when(pool < slots).then(pool).alias("_pool"))
    found = []
    for name, columns, each_ms, servers in (
        ("client–middleware network", ("response_ms", "middleware_response_ms"), _difference, None),
        ("network threads", ("_middleware_ms", "_middleware_threads"), _first, pl.col("_middleware_threads")),
        ("worker slots", ("service_ms", "workers", "middlewares"), _first, slots),
        ("connections", ("service_ms", "connection_ms", "_pool"), _difference, pl.col("_pool")),
        ("middleware–store network", ("service_ms", "store_service_ms"), _difference, None),
        ("stores", ("_store_ms", "_store_threads"), _first, pl.col("_store_threads")),
    ):
        if not set(columns) <= set(rows.columns):
            continue
        known = rows.drop_nulls(columns) if servers is None else rows.drop_nulls(columns).filter(servers > 0)
        if not known.is_empty():
            found.append(_stage(name, known, each_ms(known, columns), servers, level, seed))
    names = {stage.name for stage in found}
    lacking = {name: why for name, why in needs.items() if name not in names}
    return Stages(tuple(found), " ".join(f"{capital(name)}: {why}." for name, why in lacking.items()))


NEEDS = {
    "client–middleware network": "needs the columns response_ms and middleware_response_ms",
    "network threads": "need the CPU times of the middlewares' threads, which only a run folder has",
    "worker slots": "need service_ms and the numbers of workers and middlewares",
    "middleware–store network": "needs service_ms and the stores' own service time",
    "stores": "need the CPU times of their threads, which only a run folder has",
}
"""The stages from the client inwards, and the columns that each requires."""

_NEEDS_OF_RUN = {
    "network threads": "there is no middleware, or some middleware does not report the CPU time of its threads",
    "stores": "there is no store, or some store does not report the CPU time of its threads",
}
"""Reasons why a stage can be missing although there is a run folder."""

_TIERS = {"network threads": "middleware", "stores": "store"}
"""The tier whose threads form the stage."""

_Each = Callable[[pl.DataFrame, Sequence[str]], Floats]


def _first(rows: pl.DataFrame, columns: Sequence[str]) -> Floats:
    return rows[columns[0]].cast(pl.Float64).to_numpy()


def _difference(rows: pl.DataFrame, columns: Sequence[str]) -> Floats:
    return np.asarray(_first(rows, columns) - _first(rows, columns[1:]))


def _threads(own: pl.DataFrame, rows: pl.DataFrame, tier: str) -> pl.DataFrame:
    """Number of threads of a tier and mean number of busy threads, for each run in which all processes report them."""
    known = (
        own.filter(pl.col("utilization").is_not_null() & pl.col("servers").is_not_null())
        .group_by(RUN)
        .agg(
            (pl.col("utilization") * pl.col("servers")).sum().alias(f"_{tier}_busy"),
            pl.col("servers").sum().alias(f"_{tier}_threads"),
            pl.len().alias("_known"),
        )
    )
    if f"{tier}s" in rows.columns:
        known = known.join(rows.select(*RUN, f"{tier}s"), on=RUN).filter(pl.col("_known") == pl.col(f"{tier}s"))
    return known.select(*RUN, f"_{tier}_busy", f"_{tier}_threads")


def _stage(name: str, rows: pl.DataFrame, each_ms: Floats, servers: pl.Expr | None, level: float, seed: int) -> Stage:
    rows = rows.with_columns(pl.Series("_each", each_ms))
    samples = [
        np.stack([own["_each"].to_numpy() * own["throughput"].to_numpy(), own["throughput"].to_numpy()], axis=1)
        for own in rows.partition_by("point")
    ]

    def per_request(several: Sequence[Floats]) -> Floats:
        total, requests = np.concatenate(several, axis=1).sum(axis=1).T
        return np.asarray(total / requests)

    light = rows.filter(pl.col("clients") == pl.col("clients").min())
    most = rows.filter(pl.col("clients") == pl.col("clients").max())
    count = None if servers is None else float(rows.select(servers.mean().alias("m"))["m"][0])
    busy = (most["_each"] * most["throughput"]).mean()
    return Stage(
        name=name,
        servers=count,
        visits=float(rows["_visits"].mean()) if name == "stores" and rows["_visits"].null_count() == 0 else 1.0,  # type: ignore[arg-type]
        light_ms=mean_interval(light["_each"].to_numpy(), level),
        demand_ms=pooled_bootstrap(samples, per_request, level=level, resamples=RESAMPLES, seed=seed),
        utilization=None if count is None else float(busy) / 1000 / count,  # type: ignore[arg-type]
    )
