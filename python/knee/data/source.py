"""What a diagnosis is made from, whether a run folder holds it or a table of somebody else's.

A run folder has windows, probes and what its load generators said; a table has its columns. Whatever a table lacks is
an empty frame here, with the columns that it would have.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.csv import Measurements, of_run, station_column
from knee.data.trim import RUN, steady_state, steady_state_warnings, trim
from knee.stats.intervals import counted
from knee.verdict.bottleneck import OUTSIDERS_MAX, SATURATED, cpu_shares, utilizations
from knee.verdict.failures import requests, what_failed, whose_times

if TYPE_CHECKING:
    from knee.data import Dataset

STOLEN_MAX = 0.05
"""Share of the CPU time of a virtual machine that its hypervisor may keep in any run before a reader is told."""


@dataclass(frozen=True, eq=False)
class Observed:
    """Everything that is known of a system under load.

    name, question  the experiment's, or the table's file and nothing
    measurements    one row per observation
    utilizations    see :func:`knee.verdict.bottleneck.utilizations`
    cpu_shares      see :func:`knee.verdict.bottleneck.cpu_shares`
    limits          what load generators said against themselves, see :func:`_load_limits`
    unmeasured      what may limit the system and left no trace, in words
    warnings        what a reader has to know before trusting the numbers
    """

    name: str
    question: str
    measurements: Measurements
    utilizations: pl.DataFrame
    cpu_shares: pl.DataFrame
    limits: pl.DataFrame
    unmeasured: tuple[str, ...]
    warnings: tuple[str, ...]


def observed_run(dataset: Dataset) -> Observed:
    """What a run folder holds, warm-up and cool-down cut off."""
    found = of_run(dataset)
    utilization = utilizations(dataset)
    limits = _load_limits(dataset.summaries, found.table, utilization)
    shares = cpu_shares(dataset)
    return Observed(
        name=dataset.name,
        question=dataset.question,
        measurements=found,
        utilizations=utilization,
        cpu_shares=shares,
        limits=limits,
        unmeasured=tuple(_unmeasured(dataset, utilization)),
        warnings=(
            *(_sentence(warning) for warning in dataset.warnings),
            *_failures(dataset),
            *_unanswered(found.table),
            *_load_warnings(limits, found.table.height),
            *_outsiders(shares, found.table.height),
            *_stolen(dataset),
            *_left_elsewhere(dataset),
            *steady_state_warnings(steady_state(dataset.windows, dataset.points)),
        ),
    )


def observed_table(found: Measurements) -> Observed:
    """What a table holds: of utilisations those of its columns `utilization_STATION`."""
    run = {name: pl.Int64() for name in RUN}
    return Observed(
        name=found.source.rsplit("/", 1)[-1],
        question="",
        measurements=found,
        utilizations=_stations(found.table),
        cpu_shares=pl.Schema({**run, "owner": pl.String(), "share": pl.Float64()}).to_frame(),
        limits=pl.Schema({**run, "detail": pl.String(), "waited": pl.Boolean(), "host_full": pl.Boolean()}).to_frame(),
        unmeasured=(),
        warnings=(),
    )


def _stations(table: pl.DataFrame) -> pl.DataFrame:
    """The utilisations of a table in the form of :func:`knee.verdict.bottleneck.utilizations`."""
    columns = {
        name: found[1] for name in table.columns if (found := station_column(name)) and found[0] == "utilization"
    }
    frames = [
        table.filter(pl.col(name).is_not_null()).select(
            *(pl.col(key).cast(pl.Int64) for key in RUN),
            pl.lit(station).alias("role"),
            pl.lit(station).alias("process"),
            pl.lit("station").alias("resource"),
            pl.col(name).cast(pl.Float64).alias("utilization"),
        )
        for name, station in columns.items()
    ]
    schema = dict.fromkeys(RUN, pl.Int64()) | dict.fromkeys(("role", "process", "resource"), pl.String())
    empty = pl.Schema({**schema, "utilization": pl.Float64()}).to_frame()
    return pl.concat([empty, *frames])


def _load_limits(summaries: pl.DataFrame, table: pl.DataFrame, utilization: pl.DataFrame) -> pl.DataFrame:
    """What load generators said against themselves: `point, repetition, detail, waited, host_full`.

    `waited`: a closed loop sent late, because its process waited for a processor. Its clients then wait longer for
    their answers and send less, but the generator has CPU time left: that alone makes it no bottleneck.
    """
    host = utilization.filter(pl.col("resource") == "host CPU").select(*RUN, pl.col("utilization").alias("_host"))
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


def _load_warnings(limits: pl.DataFrame, runs: int) -> list[str]:
    warnings = []
    itself = limits.filter(~pl.col("waited"))
    if itself.height:
        warnings.append(
            f"In {itself.select(RUN).n_unique()} of {counted(runs, 'run')} the load generator said that it was itself "
            f"the limit ({itself['detail'][0]}): give it more threads or hosts."
        )
    waited = limits.filter(pl.col("waited"))
    if waited.height:
        full = waited.filter(pl.col("host_full")).select(RUN).n_unique()
        fullness = f"the host's CPU was full in {full}" if full else "though the host's CPU was not full on average"
        warnings.append(
            f"In {waited.select(RUN).n_unique()} of {counted(runs, 'run')} the load generator at times waited for one "
            f"of the cores that it shares with the system ({fullness}), and response times contain that. To "
            "measure the system alone, take more cores, or servers on another machine (address = [...])."
        )
    return warnings


def _unanswered(table: pl.DataFrame) -> list[str]:
    silent = table.filter(pl.col("response_ms").is_null()).height
    if not silent:
        return []
    return [
        f"In {silent} of {counted(table.height, 'run')} no request was answered in the seconds that count: throughput "
        "was 0 there, and what needs a response time, such as the knee, leaves them out. Measure longer, or on a "
        "quieter machine."
    ]


def _outsiders(shares: pl.DataFrame, runs: int) -> list[str]:
    """What programs outside the experiment took, where it was enough to move the numbers."""
    taken = shares.filter((pl.col("owner") == "others") & (pl.col("share") > OUTSIDERS_MAX))["share"].to_list()
    if not taken:
        return []
    return [
        f"In {len(taken)} of {counted(runs, 'run')} programs outside the experiment took more than "
        f"{OUTSIDERS_MAX:.0%} of the host's CPU, {max(taken):.0%} in the worst: what differs between runs may be "
        "theirs. Stop them and measure again."
    ]


def _stolen(dataset: Dataset) -> list[str]:
    """What the hypervisor kept for other guests, where it was enough to move the numbers."""
    shares = (
        trim(dataset.probes, dataset.points)
        .filter((pl.col("target") == "host") & pl.col("cpu_steal_s").is_not_null())
        .group_by(RUN)
        .agg((pl.col("cpu_steal_s").sum() / (pl.col("cpu_count") * pl.col("seconds")).sum()).alias("share"))
    )["share"].to_list()
    if not shares or max(shares) < STOLEN_MAX:
        return []
    return [
        f"The hypervisor kept {statistics.median(shares):.0%} of this machine's CPU time for others in the middle run, "
        f"{max(shares):.0%} in the worst: the noise may be theirs. Measure when they are quiet, or on a machine of "
        "your own."
    ]


def _left_elsewhere(dataset: Dataset) -> list[str]:
    """What runs leave to the next ones, also those that failed, where nobody can have that removed."""
    runs = dataset.points.height
    system, workload = dataset.spec.base.system, dataset.spec.base.workload
    if workload.protocol != "queue" or system.middleware is None or system.middleware.address is None or runs < 2:
        return []
    backlog = f", and sends another {counted(workload.backlog, 'message')} before it" if workload.backlog else ""
    return [
        f"Nothing was cleared between the {runs} runs, as the middlewares run elsewhere: each makes clients and queues "
        f"of its own{backlog}. What differs between runs may be due to what those before have left there."
    ]


def _unmeasured(dataset: Dataset, utilization: pl.DataFrame) -> list[str]:
    """What may limit the system and left no trace in the tables, with the reason."""
    if dataset.points.filter(pl.col("status") == "done").is_empty():
        return []
    system, seen = dataset.spec.base.system, set(utilization["role"])
    parts = []
    if system.middleware is not None and "middleware" not in seen:
        parts.append("the middlewares (they run elsewhere)" if system.middleware.address else "the middlewares")
    if "store" not in seen:
        parts += _stores_unmeasured(dataset)
    if "middleware" in seen and not dataset.points.filter(dataset.setting("middleware.combine") > 1).is_empty():
        parts.append("the use of the connections to the database (requests that are combined share them)")
    if "host" not in seen:
        parts.append("the host's CPU")
    if dataset.spec.wants_links:
        emulated = bool(dataset.manifest.get("links_emulated"))
        parts.append("the use of the links" + ("" if emulated else " (link_mbit was not emulated)"))
    return parts


def _stores_unmeasured(dataset: Dataset) -> list[str]:
    """The stores of which nobody has seen anything: of messages, middlewares may have none, or one within them."""
    store, is_queue = dataset.spec.base.system.store, dataset.spec.base.workload.protocol == "queue"
    if store is None:
        return ["whatever store is behind them" if is_queue else "the stores (they run elsewhere)"]
    if store.address is not None:
        return ["the database (it runs elsewhere)" if is_queue else "the stores (they run elsewhere)"]
    if not is_queue:
        return ["the stores"]
    done = dataset.points.filter(pl.col("status") == "done")
    words = {"sqlite": "the database apart from the middleware that it is within", "null": None}
    kinds = done.select(dataset.setting("store.kind").alias("kind"))["kind"].unique().sort().to_list()
    return [words_of for kind in kinds if (words_of := words.get(kind, "the database")) is not None]


def _sentence(text: str) -> str:
    """A note as a sentence; a field's name keeps its spelling."""
    first = text if "_" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]
    return first + ("" if text.endswith((".", "!", "?")) else ".")


def _failures(dataset: Dataset) -> list[str]:
    """What failed, and which of the numbers on the page that is in."""
    failed = what_failed(requests(dataset))
    if not failed:
        return []
    return [
        f"{failed}. They count towards throughput, except in what each operation took, from one half of a run to the "
        f"other, and where the best level or configuration is looked for. {whose_times(dataset)} Look into the "
        "servers' logs before trusting the numbers."
    ]
