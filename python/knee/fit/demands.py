"""Measured demands: the load, the times and the processor time of a request in each run, by tier."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from knee.data.trim import RUN, trim
from knee.errors import FitError
from knee.stats.intervals import Floats

if TYPE_CHECKING:
    from knee.data import Dataset

TIERS = ("load", "middleware", "store")
"""The tiers from the client inwards."""


@dataclass(frozen=True, eq=False)
class Demands:
    """Runs of a closed loop through middlewares on one host; times in ms, throughputs in requests per ms.

    Attributes
    ----------
    point
        Rows with the same number are repetitions of each other.
    customers
        N, clients times `pipeline`, the requests that each client keeps in flight.
    think
        Z.
    inside, waiting, outside
        Parts of the response time: the request holds a slot, waits for a slot, is elsewhere.
    reply
        Middleware's response time less `inside` and `waiting`: part of `outside`.
    cpu
        Processor time of a request, (runs, tiers).
    processes
        Number of processes, (runs, tiers).
    slots
        Worker slots of each middleware.
    cores
        Number of cores of the host.
    """

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
    processes: Floats
    slots: Floats
    cores: float

    def __len__(self) -> int:
        return len(self.throughput)

    @property
    def response(self) -> Floats:
        """R, in the clients' view."""
        return np.asarray(self.inside + self.waiting + self.outside)

    def take(self, rows: np.ndarray) -> Demands:
        """The chosen rows, by mask or by number."""
        names = [each.name for each in fields(self) if each.name != "cores"]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def with_demands(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """The observations with columns `cpu_TIER` (busy processors) and `processes_TIER`, and `cores` of the host. A run
    without probes of all tiers has no row."""
    probes = trim(dataset.probes, dataset.points)
    each = (
        probes.with_columns(pl.col("target").str.replace(r"-\d+$", "").alias("tier"))
        .filter(pl.col("tier").is_in(TIERS))
        .group_by(*RUN, "tier", "target")
        .agg(((pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum() / pl.col("seconds").sum()).alias("cpu"))
        .group_by(*RUN, "tier")
        .agg(pl.col("cpu").sum(), pl.len().cast(pl.Float64).alias("processes"))
    )
    for tier in TIERS:
        own = each.filter(pl.col("tier") == tier)
        table = table.join(
            own.select(*RUN, pl.col("cpu").alias(f"cpu_{tier}"), pl.col("processes").alias(f"processes_{tier}")),
            on=RUN,
            how="inner",
            maintain_order="left",
        )
    cores = probes.filter(pl.col("target") == "host").group_by(RUN).agg(pl.col("cpu_count").max().alias("cores"))
    return table.join(cores, on=RUN, how="inner", maintain_order="left")


def demands_of(rows: pl.DataFrame) -> Demands:
    """The rows of one configuration from :func:`with_demands`.

    Raises
    ------
    FitError
        If the system is not a closed loop through middlewares with worker slots, or a process was not measured.
    """
    needed = ("throughput", "response_ms", "queueing_ms", "service_ms", "middleware_response_ms", "think_ms", "workers")
    if rows.is_empty() or not set(needed) <= set(rows.columns):
        raise FitError("the processor time of some tier was not measured")
    rows = rows.drop_nulls(needed).filter(pl.col("throughput") > 0)
    if rows.is_empty():
        raise FitError("there is no closed loop through middlewares with worker slots")
    if rows["cores"].n_unique() > 1:
        raise FitError("the host had different numbers of cores in different runs")

    def column(name: str) -> Floats:
        return rows[name].cast(pl.Float64).to_numpy()

    throughput = column("throughput") / 1000
    inside, waiting = column("service_ms"), column("queueing_ms")
    cpu = np.stack([column(f"cpu_{tier}") for tier in TIERS], axis=1) / throughput[:, np.newaxis]
    if not (cpu > 0).all():
        raise FitError("a tier used too little processor time to measure")
    return Demands(
        column("point"),
        throughput,
        column("clients") * column("pipeline"),
        column("pipeline"),
        column("think_ms"),
        inside,
        waiting,
        column("response_ms") - waiting - inside,
        column("middleware_response_ms") - waiting - inside,
        cpu,
        np.stack([column(f"processes_{tier}") for tier in TIERS], axis=1),
        column("workers"),
        float(rows["cores"][0]),
    )
