"""The input of a verdict, from a run folder or from a table.

A run folder has windows, probes and the load generators' own reports; a table has its columns. For data that a table
lacks, the frame is empty, with its usual columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.measurements import Measurements, of_run, station_column
from knee.data.trim import RUN
from knee.data.utilization import SATURATED, cpu_shares, utilizations

if TYPE_CHECKING:
    from knee.data import Dataset


@dataclass(frozen=True, eq=False)
class Evidence:
    """All measurements of a system under load.

    name, question  name and question of the experiment; for a table, the file name and an empty question
    measurements    one row per observation
    utilizations    see :func:`knee.data.utilization.utilizations`
    cpu_shares      see :func:`knee.data.utilization.cpu_shares`
    limits          reports of load generators that they were the bottleneck, see :func:`_load_limits`
    unmeasured      parts that may limit the system and were not measured
    """

    name: str
    question: str
    measurements: Measurements
    utilizations: pl.DataFrame
    cpu_shares: pl.DataFrame
    limits: pl.DataFrame
    unmeasured: tuple[str, ...]


def evidence_of_run(dataset: Dataset) -> Evidence:
    """The evidence of a run folder, without warm-up and cool-down."""
    measurements = of_run(dataset)
    utilization = utilizations(dataset)
    return Evidence(
        name=dataset.name,
        question=dataset.question,
        measurements=measurements,
        utilizations=utilization,
        cpu_shares=cpu_shares(dataset),
        limits=_load_limits(dataset.summaries, measurements.table, utilization),
        unmeasured=tuple(_unmeasured(dataset, utilization)),
    )


def evidence_of_table(measurements: Measurements) -> Evidence:
    """The evidence of a table: columns `utilization_STATION` are utilisations."""
    run = {name: pl.Int64() for name in RUN}
    return Evidence(
        name=measurements.source.rsplit("/", 1)[-1],
        question="",
        measurements=measurements,
        utilizations=_stations(measurements),
        cpu_shares=pl.Schema({**run, "machine": pl.String(), "owner": pl.String(), "share": pl.Float64()}).to_frame(),
        limits=pl.Schema({**run, "detail": pl.String(), "waited": pl.Boolean(), "host_full": pl.Boolean()}).to_frame(),
        unmeasured=(),
    )


def _stations(measurements: Measurements) -> pl.DataFrame:
    """The utilisations of a table in the form of :func:`knee.data.utilization.utilizations`; the resource is the
    station's kind."""
    table = measurements.table
    columns = {
        name: found[1] for name in table.columns if (found := station_column(name)) and found[0] == "utilization"
    }
    frames = [
        table.filter(pl.col(name).is_not_null()).select(
            *(pl.col(key).cast(pl.Int64) for key in RUN),
            pl.lit(station).alias("role"),
            pl.lit(station).alias("process"),
            pl.lit(measurements.kind_of(station)).alias("resource"),
            pl.col(name).cast(pl.Float64).alias("utilization"),
        )
        for name, station in columns.items()
    ]
    schema = dict.fromkeys(RUN, pl.Int64()) | dict.fromkeys(("role", "process", "resource"), pl.String())
    empty = pl.Schema({**schema, "utilization": pl.Float64()}).to_frame()
    return pl.concat([empty, *frames])


def _load_limits(summaries: pl.DataFrame, table: pl.DataFrame, utilization: pl.DataFrame) -> pl.DataFrame:
    """Reports of load generators that they were the bottleneck: `point, repetition, detail, waited, host_full`.

    `waited`: a closed loop sent late because its process waited for a processor. Its clients then wait longer for
    their answers and send less. The generator has CPU time left, so this alone does not make it the bottleneck.
    """
    host = (
        utilization.filter(pl.col("resource") == "host CPU", pl.col("role").is_in(["host", "load"]))
        .group_by(RUN)
        .agg(pl.col("utilization").max().alias("_host"))
    )
    return (
        summaries.filter(pl.col("bottleneck_reason").is_not_null())
        .join(table.select(*RUN, "rate"), on=RUN)
        .join(host, on=RUN, how="left")
        .select(
            *RUN,
            pl.col("bottleneck_detail").fill_null("it gave no detail").alias("detail"),
            ((pl.col("bottleneck_reason") == "late") & pl.col("rate").is_null()).alias("waited"),
            (pl.col("_host") >= SATURATED).fill_null(value=False).alias("host_full"),
        )
    )


def _unmeasured(dataset: Dataset, utilization: pl.DataFrame) -> list[str]:
    """Parts that may limit the system and have no measurements in the tables, with the reason."""
    if dataset.points.filter(pl.col("status") == "done").is_empty():
        return []
    system, seen = dataset.spec.base.system, set(utilization["role"])
    parts = []
    if system.middleware is not None and "middleware" not in seen:
        parts.append("the middlewares (they run elsewhere)" if system.middleware.address else "the middlewares")
    if "store" not in seen:
        parts += _stores_unmeasured(dataset)
    if "middleware" in seen and not dataset.points.filter(dataset.setting("middleware.combine") > 1).is_empty():
        parts.append("the use of the connections to the database (combined requests share them)")
    if "host CPU" not in set(utilization["resource"]):
        parts.append("the processors of each machine" if dataset.has_machines else "the host's CPU")
    if dataset.has_machines:
        parts.append("the network between the machines")
    if dataset.spec.wants_links and not dataset.manifest.get("links_emulated"):
        parts.append("the use of the links (link_mbit was not emulated)")
    return parts


def _stores_unmeasured(dataset: Dataset) -> list[str]:
    """The stores without any measurement. A message middleware may have no store, or one inside its own process."""
    store, is_queue = dataset.spec.base.system.store, dataset.spec.base.workload.protocol == "queue"
    if store is None:
        return ["the stores behind them" if is_queue else "the stores (they run elsewhere)"]
    if store.address is not None:
        return ["the database (it runs elsewhere)" if is_queue else "the stores (they run elsewhere)"]
    if not is_queue:
        return ["the stores"]
    done = dataset.points.filter(pl.col("status") == "done")
    words = {"sqlite": "the database, which runs within the middleware", "null": None}
    kinds = done.select(dataset.setting("store.kind").alias("kind"))["kind"].unique().sort().to_list()
    return [words_of for kind in kinds if (words_of := words.get(kind, "the database")) is not None]
