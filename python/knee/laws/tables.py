"""Converts a run folder to the input of the laws: its runs, by request type and by station."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.foreign_stores import foreign_stores
from knee.data.measurements import configuration
from knee.data.observations import observations
from knee.data.pools import waited_for
from knee.data.threads import threads
from knee.data.trim import NS_PER_MS, RUN, TIMED, steadiness, trimmed
from knee.data.utilization import OUTSIDERS_DECISIVE, OUTSIDERS_MAX, SATURATED, by_machine, cpu_of, cpu_shares, links
from knee.laws.findings import LawReport, check_laws
from knee.laws.residual import TOLERANCE
from knee.laws.stations import CONNECTIONS, STATIONS, THREADS, WORKER_SLOTS
from knee.laws.visits import with_visits
from knee.stats.intervals import LEVEL

if TYPE_CHECKING:
    from knee.data import Dataset

_PROCESS = [*RUN, "role", "process"]


def laws_of_run(
    dataset: Dataset, by_station: pl.DataFrame | None = None, *, tolerance: float = TOLERANCE, level: float = LEVEL
) -> LawReport:
    """Every law that a run folder allows. `by_station` is the result of :func:`stations`, if the caller has it
    already."""
    return check_laws(
        observations(dataset),
        types=request_types(dataset),
        stations=stations(dataset) if by_station is None else by_station,
        steadiness=steadiness(dataset),
        by=configuration(dataset),
        tolerance=tolerance,
        level=level,
    )


def request_types(dataset: Dataset) -> pl.DataFrame:
    """The runs by request type.

    Returns
    -------
    `point, repetition, request_type, visits, throughput, response_ms, middleware_throughput, middleware_response_ms`
    for each type that a run's clients sent or were to send. `visits` are the requests of the type in one round of a
    client (:mod:`knee.laws.visits`). A type without any timed request has no response time.
    """
    seconds = _covered(trimmed(dataset, "stations"))
    counts = (
        trimmed(dataset, "windows")
        .group_by(*_PROCESS, "op")
        .agg(pl.col("count", "errors", "response_sum_ns").sum(), TIMED.alias("_timed"))
        .join(seconds, on=_PROCESS, how="left")
        .with_columns((pl.col("count") / pl.col("seconds")).alias("rate"))
    )

    timed = pl.col("_timed").sum()

    def of(role: str, prefix: str, *more: pl.Expr) -> pl.DataFrame:
        return (
            counts.filter((pl.col("role") == role) & (pl.col("count") > 0))
            .group_by(*RUN, "op")
            .agg(
                pl.col("rate").sum().alias(f"{prefix}throughput"),
                pl.when(timed > 0)
                .then(pl.col("response_sum_ns").sum() / timed / NS_PER_MS)
                .alias(f"{prefix}response_ms"),
                *more,
            )
        )

    types = of("load", "", pl.col("errors").sum()).join(of("middleware", "middleware_"), on=[*RUN, "op"], how="left")
    return with_visits(types, dataset).rename({"op": "request_type"}).drop("errors").sort(*RUN, "request_type")


def stations(dataset: Dataset) -> pl.DataFrame:
    """The runs by station, as in :mod:`knee.laws.stations`: queues, worker slots, connections and threads of every
    process, the host's CPUs, and the tiers, whose visits follow from the clients' requests."""
    windows, samples = trimmed(dataset, "windows"), trimmed(dataset, "stations")
    flows = (
        windows.group_by(_PROCESS)
        .agg(pl.col("count").sum(), pl.col("queueing_sum_ns").sum(), pl.col("service_sum_ns").sum())
        .join(_covered(samples), on=_PROCESS, how="left")
        .with_columns(
            (pl.col("count") / pl.col("seconds")).alias("throughput"),
            *(
                (pl.col(f"{stage}_sum_ns") / pl.col("count") / NS_PER_MS).alias(f"{stage}_ms")
                for stage in ("queueing", "service")
            ),
        )
    )
    used = (
        samples.group_by(_PROCESS)
        .agg(
            (pl.col("queue_length_mean") * pl.col("seconds")).sum().alias("_waiting_s"),
            pl.col("queue_length_mean").is_not_null().any().alias("_queues"),
            pl.col("workers").max(),
            pl.col("workers_busy_s").sum(),
            pl.col("seconds").sum().alias("_seconds"),
        )
        .join(flows.select(*_PROCESS, "throughput", "queueing_ms", "service_ms"), on=_PROCESS, how="left")
    )
    middlewares = used.filter(pl.col("role") == "middleware")
    # A pipelined middleware has no worker slots and so no queue for them: it is a delay without a queue length.
    queues = middlewares.filter(pl.col("_queues") & (pl.col("workers") > 0)).select(
        *RUN,
        "throughput",
        station=pl.col("process") + "'s queue",
        response_ms="queueing_ms",
        queue_length=pl.col("_waiting_s") / pl.col("_seconds"),
    )
    slots = middlewares.filter(pl.col("workers") > 0).select(
        *RUN,
        "throughput",
        "service_ms",
        station=pl.col("process") + WORKER_SLOTS,
        servers="workers",
        utilization=pl.col("workers_busy_s") / (pl.col("workers") * pl.col("_seconds")),
    )
    # Without the service time: the utilisation was computed from it.
    pools = waited_for(dataset).select(
        *RUN, "throughput", "utilization", station=pl.col("process") + CONNECTIONS, servers="connections"
    )
    own = (
        threads(dataset)
        .join(flows, on=_PROCESS, how="left")
        .select(
            *RUN,
            "servers",
            "throughput",
            "untold",
            station=pl.col("process") + THREADS,
            utilization=pl.when(pl.col("untold").is_null()).then("utilization"),
        )
    )
    foreign = foreign_stores(dataset).select(*RUN, "servers", "utilization", station=pl.col("process") + THREADS)
    linked = links(dataset).unpivot(index=_PROCESS, variable_name="link", value_name="utilization")
    wires = linked.select(*RUN, "utilization", station=pl.concat_str("process", pl.lit("'s "), "link"), servers=1.0)
    software = (queues, slots, pools, _tiers(dataset, windows, flows))
    frames = [
        *(frame.with_columns(software=False) for frame in (wires, own, foreign, _host(dataset))),
        *(frame.with_columns(software=True) for frame in software),
    ]
    return (
        pl.concat([STATIONS.to_frame(), *frames], how="diagonal_relaxed")
        .select(list(STATIONS))
        .cast(STATIONS)
        .sort(*RUN, "station")
    )


def _covered(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.group_by(_PROCESS).agg(pl.col("seconds").sum())


def _host(dataset: Dataset) -> pl.DataFrame:
    """All processors of a machine as one station, less stolen time and time of programs outside the experiment. A small
    outside share is the kernel's work for the experiment, which belongs to no process. If outside programs filled the
    host, its utilisation is unknown.
    """
    outsiders = cpu_shares(dataset).filter((pl.col("owner") == "others") & (pl.col("share") > OUTSIDERS_MAX))
    share = pl.col("share").fill_null(0.0)
    taken_s = share * pl.col("_all_s")
    filled = (pl.col("_cpu_s") >= SATURATED * pl.col("_capacity_s")) & (share >= OUTSIDERS_DECISIVE)
    return (
        by_machine(dataset)
        .filter(pl.col("target") == "host")
        .group_by(*RUN, "machine")
        .agg(
            (pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum().alias("_cpu_s"),
            (pl.col("cpu_count") * pl.col("seconds") - pl.col("cpu_steal_s").fill_null(0.0)).sum().alias("_capacity_s"),
            (pl.col("cpu_count") * pl.col("seconds")).sum().alias("_all_s"),
            pl.col("seconds").sum(),
        )
        .filter(pl.col("_capacity_s") > 0)
        .join(outsiders, on=[*RUN, "machine"], how="left")
        .with_columns(
            pl.when(~filled).then(pl.col("_cpu_s") - taken_s).alias("_cpu_s"),
            pl.when(~filled).then(pl.col("_capacity_s") - taken_s).alias("_capacity_s"),
            pl.when(filled).then(pl.lit("programs outside the experiment filled it")).alias("untold"),
        )
        .select(
            *RUN,
            pl.col("machine").map_elements(cpu_of, pl.String()).alias("station"),
            (pl.col("_capacity_s") / pl.col("seconds")).alias("servers"),
            (pl.col("_cpu_s") / pl.col("_capacity_s")).alias("utilization"),
            "untold",
        )
    )


def _tiers(dataset: Dataset, windows: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Throughput of all middlewares, of all stores and of each of several stores, and the mean visits of a client
    request there.

    A middleware sends each write to every store, and a sharded multi-get of n keys to min(n, stores) stores. A
    middleware asks the stores in turn, so each has an equal share of the visits. With a near cache, the visits of a
    get are unknown.
    """
    sharded, keys = dataset.setting("middleware.multiget"), dataset.setting("workload.multiget")
    parts = (
        pl.when(pl.col("middlewares") == 0)
        .then(1)
        .when(pl.col("op") == "set")
        .then("stores")
        .when(dataset.setting("middleware.cache_mb") > 0)
        .then(None)
        .when((pl.col("op") == "multiget") & (sharded == "sharded"))
        .then(pl.min_horizontal("stores", keys.cast(pl.Int64)))
        .when(pl.col("op").is_in(["get", "multiget"]))
        .then(1)
    )
    asked = (
        windows.filter(pl.col("role") == "load")
        .join(dataset.points, on=RUN)
        .with_columns(parts.alias("_parts"))
        .group_by(RUN)
        .agg(
            (pl.col("count") * pl.col("_parts")).sum().alias("_stores"),
            pl.col("count").sum().alias("_requests"),
            pl.col("middlewares").first(),
            pl.col("_parts").is_null().any().alias("_unknown"),
        )
    )
    served = flows.filter(pl.col("role") != "load").with_columns(
        ("the " + pl.col("role") + "s").alias("station"), pl.len().over(*RUN, "role").alias("_equal")
    )
    each = served.filter((pl.col("role") == "store") & (pl.col("_equal") > 1)).with_columns(station="process")
    tiers = served.group_by(*RUN, "role", "station").agg(pl.col("throughput").sum(), _equal=1)
    return (
        pl.concat([tiers, each.select(tiers.columns)], how="vertical_relaxed")
        .join(asked, on=RUN)
        .with_columns(
            pl.when(pl.col("role") == "middleware")
            .then(1.0)
            .when(~pl.col("_unknown") & ((pl.col("middlewares") > 0) | (pl.col("_equal") == 1)))
            .then(pl.col("_stores") / pl.col("_requests") / pl.col("_equal"))
            .alias("visits")
        )
        .select(*RUN, "station", "throughput", "visits")
    )
