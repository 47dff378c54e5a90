"""Measured demands: load, times and processor time of a request in each run, by tier."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from knee.data.threads import threads
from knee.data.trim import RUN, trim
from knee.data.utilization import OUTSIDERS_MAX, STOLEN_MAX, cpu_shares, stolen
from knee.errors import FitError
from knee.fit.links import wire_of, with_wire
from knee.stats.intervals import Floats

if TYPE_CHECKING:
    from knee.data import Dataset

TIERS = ("load", "middleware", "store")
"""The tiers from the client inwards."""


@dataclass(frozen=True, eq=False)
class Demands:
    """Runs of a closed loop on one host; times in ms, throughputs in requests per ms.

    tiers      those of TIERS that the system has
    pooled     whether the slots are connections to a database, which are fewer than the workers
    backends   whether the store has a process for each slot
    spread     whether some requests go to several stores: writes to all replicas, and sharded multi-gets
    cores      of the host
    point      rows with the same number are repetitions of each other
    customers  N, clients times `pipeline`, the requests that each client keeps in flight
    think      Z
    inside, waiting, outside
               parts of the response time: a slot is held, the request waits for one, all else. Without middlewares all
               is outside, and without slots no request waits for one
    reply      part of `outside` that the middleware measured
    cpu        processor time of a request, (runs, tiers)
    foreign    share of the host's processors that other programs, other guests of the hypervisor, and the emulation of
               links used
    disturbed  whether other programs used more than OUTSIDERS_MAX of the processors, or other guests more than
               STOLEN_MAX
    processes  number of processes, (runs, tiers)
    threads    number of threads that serve requests, of all processes, (runs, tiers)
    slots      slots of each middleware; NaN if requests wait for none
    workers    of each middleware; NaN if requests wait for none
    wire       as :func:`knee.fit.links.wire_of`; None if unknown
    rates      Mbit/s of the emulated links of each tier, (runs, tiers), NaN without a rate; None without links
    left_out   number of disturbed runs that :func:`closed` left out
    """

    tiers: tuple[str, ...]
    pooled: bool
    backends: bool
    spread: bool
    cores: float
    point: Floats
    throughput: Floats
    customers: Floats
    pipeline: Floats
    think: Floats
    inside: Floats
    waiting: Floats
    outside: Floats
    reply: Floats
    cpu: Floats
    foreign: Floats
    disturbed: Floats
    processes: Floats
    threads: Floats
    slots: Floats
    workers: Floats
    wire: Floats | None = None
    rates: Floats | None = None
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.throughput)

    @property
    def response(self) -> Floats:
        """R, in the clients' view."""
        return np.asarray(self.inside + self.waiting + self.outside)

    @property
    def middlewares(self) -> Floats:
        """Their number."""
        return self.processes[:, 1] if "middleware" in self.tiers else np.zeros(len(self))

    @property
    def each(self) -> Floats:
        """Threads of each process, (runs, tiers)."""
        found = np.maximum(1, self.threads // self.processes)
        if self.backends:
            found[:, -1] = 1
        return found

    def take(self, rows: np.ndarray) -> Demands:
        """The chosen rows, by mask or by number."""
        names = [
            each.name
            for each in fields(self)
            if each.name not in ("tiers", "pooled", "backends", "spread", "cores", "wire", "left_out")
        ]
        each = {name: getattr(self, name) for name in names}
        return replace(self, **{name: values[rows] for name, values in each.items() if values is not None})


def with_demands(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """The observations with columns `cpu_TIER` (busy processors), `processes_TIER` and `threads_TIER`, null without
    probes of all processes of the tier, `cores` of the host, `backends`, whether the store has a process for each
    connection, `spread`, whether some requests go to several stores, `foreign` and `disturbed`
    as in :class:`Demands`, and those of :func:`knee.fit.links.with_wire`."""
    probes = trim(dataset.probes, dataset.points)
    each = (
        probes.with_columns(pl.col("target").str.replace(r"-\d+$", "").alias("tier"))
        .group_by(*RUN, "tier", "target")
        .agg(((pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum() / pl.col("seconds").sum()).alias("cpu"))
        .group_by(*RUN, "tier")
        .agg(pl.col("cpu").sum(), pl.len().cast(pl.Float64).alias("processes"))
    )
    serving = threads(dataset).group_by(*RUN, "role").agg(pl.col("servers").sum())
    settings = dataset.points.select(
        *RUN,
        *(dataset.setting(f"{tier}.threads").cast(pl.Float64).alias(f"_{tier}_threads") for tier in TIERS),
        (dataset.setting("store.kind") == "postgresql").alias("backends"),
        _spread(dataset).alias("spread"),
    )
    table = table.join(settings, on=RUN, maintain_order="left")
    for tier in TIERS:
        own = each.filter(pl.col("tier") == tier).join(
            serving.filter(pl.col("role") == tier).drop("role"), on=RUN, how="left"
        )
        table = table.join(
            own.select(*RUN, pl.col("cpu").alias(f"cpu_{tier}"), "processes", "servers"),
            on=RUN,
            how="left",
            maintain_order="left",
        )
        count = pl.coalesce("servers", pl.col("processes") * pl.col(f"_{tier}_threads").fill_null(1.0))
        if tier == "store":
            # PostgreSQL has a process for each connection.
            backends = pl.coalesce("connections", pl.col("workers") * pl.col("middlewares")).cast(pl.Float64)
            count = pl.when(pl.col("backends")).then(backends).otherwise(count)
        table = table.with_columns(count.alias(f"threads_{tier}"), pl.col("processes").alias(f"processes_{tier}")).drop(
            "processes", "servers", f"_{tier}_threads"
        )
    cores = probes.filter(pl.col("target") == "host").group_by(RUN).agg(pl.col("cpu_count").max().alias("cores"))
    others, links = (
        cpu_shares(dataset).filter(pl.col("owner") == owner).group_by(RUN).agg(pl.col("share").sum().alias(f"_{owner}"))
        for owner in ("others", "links")
    )
    for each in (cores, others, links, stolen(dataset)):
        table = table.join(each, on=RUN, how="left", maintain_order="left")
    taken, guests = (pl.col(name).fill_null(0.0) for name in ("_others", "stolen"))
    table = table.with_columns(
        (taken + guests + pl.col("_links").fill_null(0.0)).alias("foreign"),
        # The emulation of links takes more in a run of more requests: leaving such runs out would select by result.
        ((taken > OUTSIDERS_MAX) | (guests > STOLEN_MAX)).alias("disturbed"),
    ).drop("_others", "_links", "stolen")
    return with_wire(dataset, table)


def _spread(dataset: Dataset) -> pl.Expr:
    """Whether a middleware of the memcached protocol sends some requests to several stores."""
    writes = dataset.setting("workload.set_get").cast(pl.String).str.split(":").list.first() != "0"
    sharded = (dataset.setting("middleware.multiget").cast(pl.String) == "sharded") & (
        dataset.setting("workload.multiget") > 1
    )
    return (dataset.setting("workload.protocol") == "memcached") & (writes | sharded.fill_null(value=False))


def _disturbed(rows: pl.DataFrame) -> int:
    return int(rows["disturbed"].sum())


def closed(rows: pl.DataFrame) -> pl.DataFrame:
    """The runs of a closed loop that answered requests. A disturbed run is left out if another one of its point was
    quiet."""
    quiet = ~pl.col("disturbed")
    found = rows.filter(pl.col("throughput") > 0).drop_nulls(["response_ms", "think_ms"])
    return found.filter(quiet | quiet.any().over("point").not_())


def demands_of(rows: pl.DataFrame) -> Demands:
    """The rows of one configuration from :func:`with_demands`.

    Raises FitError if there is no closed loop, or some tier was not measured.
    """
    every, rows = rows, closed(rows)
    if rows.is_empty():
        raise FitError("there is no closed loop with response times")
    between = rows["middlewares"].to_list()
    if 0 in between and any(between):
        raise FitError("some runs had middlewares and others none")
    tiers = tuple(tier for tier in TIERS if tier != "middleware" or between[0])
    needed = ["cores", *(f"{what}_{tier}" for what in ("cpu", "threads") for tier in tiers)]
    needed += ["service_ms", "middleware_response_ms"] if between[0] else []
    for name in needed:
        if rows[name].null_count():
            raise FitError(f"{name}: not measured in every run, and the model needs every process on this machine")
    if rows["cores"].n_unique() > 1:
        raise FitError("the host had different numbers of cores in different runs")

    def column(name: str) -> Floats:
        return rows[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()

    throughput, response = column("throughput") / 1000, column("response_ms")
    workers, connections, middlewares = column("workers"), column("connections"), column("middlewares")
    zero = np.zeros(len(rows))
    inside = waiting = reply = zero
    fewer = connections < workers * middlewares
    if fewer.any() and not fewer.all():
        raise FitError("only some runs had fewer connections than workers, so the runs have different slots")
    pooled = bool(between[0]) and bool(fewer.all())
    if between[0]:
        inside, waiting = column("service_ms"), np.nan_to_num(column("queueing_ms"))
        reply = column("middleware_response_ms") - waiting - inside
        if pooled:
            connecting = np.nan_to_num(column("connection_ms"))
            inside, waiting = inside - connecting, waiting + connecting
        # Requests without slots wait for the middleware's thread, which the model has as a processor.
        waiting = np.where(np.isnan(workers), 0.0, waiting)
    cpu = np.stack([column(f"cpu_{tier}") for tier in tiers], axis=1) / throughput[:, np.newaxis]
    if not (cpu > 0).all():
        raise FitError("some tier used too little processor time to measure")
    return Demands(
        tiers,
        pooled,
        bool(rows["backends"].fill_null(False).all()) and bool(between[0]),
        bool(rows["spread"].fill_null(False).any()),
        float(rows["cores"][0]),
        column("point"),
        throughput,
        column("clients") * column("pipeline"),
        column("pipeline"),
        column("think_ms"),
        inside,
        waiting,
        response - waiting - inside,
        reply,
        cpu,
        column("foreign"),
        column("disturbed"),
        np.stack([column(f"processes_{tier}") for tier in tiers], axis=1),
        np.stack([column(f"threads_{tier}") for tier in tiers], axis=1),
        connections / middlewares if pooled else workers,
        workers,
        wire_of(rows, tiers),
        np.stack([column(f"mbit_{tier}") for tier in tiers], axis=1),
        _disturbed(every) - _disturbed(rows),
    )
