"""What a run folder says of each measurement's load, times and processor time: the data of a layered model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.data import Dataset
from knee.data.observations import observations
from knee.data.trim import RUN, trim
from knee.stats.intervals import Floats

TIERS = ("load", "middleware", "store")


@dataclass(frozen=True, eq=False)
class Measured:
    """One row per measurement of a closed loop through middlewares; times in ms, throughputs in requests/ms.

    threads  of each tier, (rows, tiers)
    cpu      processor time of a request in each tier, (rows, tiers)
    slots    of each middleware
    """

    rows: pl.DataFrame
    throughput: Floats
    customers: Floats
    think: Floats
    inside: Floats
    waiting: Floats
    outside: Floats
    reply: Floats
    cpu: Floats
    threads: Floats
    middlewares: Floats
    slots: Floats
    cores: float


def measured(dataset: Dataset) -> Measured:
    """The rows of finished measurements whose tiers were all probed."""
    probes = trim(dataset.probes, dataset.points)
    each = (
        probes.filter(pl.col("target") != "host")
        .with_columns(pl.col("target").str.replace(r"-\d+$", "").alias("tier"))
        .filter(pl.col("tier").is_in(TIERS))
        .group_by(*RUN, "tier", "target")
        .agg(((pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum() / pl.col("seconds").sum()).alias("cpu"))
        .group_by(*RUN, "tier")
        .agg(pl.col("cpu").sum(), pl.len().alias("processes"))
    )
    table = observations(dataset).drop_nulls(["throughput", "response_ms", "queueing_ms", "service_ms", "think_ms"])
    for tier in TIERS:
        own = each.filter(pl.col("tier") == tier).select(
            *RUN, pl.col("cpu").alias(f"_{tier}_cpu"), pl.col("processes").alias(f"_{tier}_processes")
        )
        table = table.join(own, on=RUN, how="inner")
    throughput = table["throughput"].to_numpy() / 1000
    host = probes.filter(pl.col("target") == "host")

    def column(name: str) -> Floats:
        return table[name].cast(pl.Float64).to_numpy()

    return Measured(
        table,
        throughput,
        column("clients") * column("pipeline"),
        column("think_ms"),
        column("service_ms"),
        column("queueing_ms"),
        column("response_ms") - column("queueing_ms") - column("service_ms"),
        column("middleware_response_ms") - column("queueing_ms") - column("service_ms"),
        np.stack([column(f"_{tier}_cpu") for tier in TIERS], axis=1) / throughput[:, np.newaxis],
        np.stack([column(f"_{tier}_processes") for tier in TIERS], axis=1),
        column("middlewares"),
        column("workers"),
        float(host["cpu_count"].max()),  # type: ignore[arg-type]
    )
