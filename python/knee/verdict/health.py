"""Warnings about the measurements: one class for each warning, with its figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from knee.data.outages import connections, outages
from knee.data.reading import resuming
from knee.data.trim import RUN, steadiness, trimmed
from knee.data.utilization import OUTSIDERS_MAX, STOLEN_MAX, cpu_of, stolen
from knee.stats.mser5 import WINDOWS_MIN
from knee.verdict.evidence import Evidence
from knee.verdict.failures import Failures, failures

if TYPE_CHECKING:
    from knee.data import Dataset

MISSED_MAX = 0.01
"""Largest share of keys that were set before the run and not found, without a warning."""

_NEARLY_ALL = 0.999
"""From this populated share on, so few keys are left out that frequent ones are in the stores."""

_DEVIATIONS = 3
"""A few drawn keys may miss more often by chance: the warning needs so many binomial standard deviations more."""

SPEEDS_ALIKE = 1.25
"""Largest ratio between the processor times of a request in repetitions of one point, or in parts of a run, without a
warning."""

_PARTS, _PART_S = 10, 10
"""A run has up to so many parts, each of so many seconds or more."""

_FAILED_MAX = 0.01
"""Largest share of failed requests in a part of a run whose processor times count."""


@dataclass(frozen=True)
class Note:
    """A warning that the manifest or the run folder already contains as text."""

    text: str


@dataclass(frozen=True)
class Incomplete:
    """Only `done` of `planned` runs are complete; the command `resume` makes the others."""

    done: int
    planned: int
    resume: str


@dataclass(frozen=True)
class LostConnections:
    """Clients lost connections in `affected` of `runs`.

    missing    the largest number of missing connections in the worst run, after warm-up; 0 if all were open
    lost       number of connections that were cut off in that run, warm-up included
    clients    number of clients of that run
    outage_s   seconds with missing connections in that run
    run        the folder of that run, `process` the load generator that lost most
    """

    affected: int
    runs: int
    missing: int
    lost: int
    clients: int
    outage_s: float
    run: str
    process: str


@dataclass(frozen=True)
class Unsent:
    """Requests of an open loop that were due and never sent; `cut_off` if the connections for them were missing."""

    count: int
    cut_off: bool


@dataclass(frozen=True)
class WrongAnswers:
    """Values that differ from the written ones, or messages that differ from the sent ones."""

    count: int
    of_messages: bool


@dataclass(frozen=True)
class Ejected:
    """How often middlewares ejected a store."""

    count: int


@dataclass(frozen=True)
class Missed:
    """Runs in which clients did not find over MISSED_MAX more of the keys than their experiment leaves out.

    worst      the share of the keys that were not found in the worst run, `populated` the share that was set before it
    expire     whether values expire
    """

    affected: int
    runs: int
    worst: float
    populated: float
    expire: bool


@dataclass(frozen=True)
class Unanswered:
    """Runs without an answer in the measured seconds (after warm-up, before cool-down)."""

    affected: int
    runs: int


@dataclass(frozen=True)
class LoadLimited:
    """Runs in which the load generator reported that it was the bottleneck."""

    affected: int
    runs: int
    detail: str


@dataclass(frozen=True)
class LoadWaited:
    """Runs in which the load generator waited for a processor; the host's CPU was full in `full` of them."""

    affected: int
    runs: int
    full: int


@dataclass(frozen=True)
class Outsiders:
    """Runs in which programs outside the experiment took more than OUTSIDERS_MAX of a machine's CPU; `worst` is a share
    of `cpu`."""

    affected: int
    runs: int
    worst: float
    cpu: str


@dataclass(frozen=True)
class Stolen:
    """Shares of stolen CPU time (taken by the hypervisor), in the median and in the worst run."""

    median: float
    worst: float


@dataclass(frozen=True)
class SpeedChanged:
    """At `affected` of `points`, the processor time of a request differs between repetitions, at most `worst`-fold."""

    affected: int
    points: int
    worst: float


@dataclass(frozen=True)
class SpeedVaried:
    """In `affected` of `runs`, a request took all programs more processor time in one part of the run than in another,
    each at least `worst`-fold in the worst run."""

    affected: int
    runs: int
    worst: float


@dataclass(frozen=True)
class LeftElsewhere:
    """Runs that left their clients and queues on external middlewares, with `backlog` messages each."""

    runs: int
    backlog: int


@dataclass(frozen=True)
class Unsteady:
    """The result of MSER-5 if it contradicts the declared warm-up.

    kind       no steady state, a longer warm-up, or runs too short for the test
    runs       number of runs; `first` is the first of these (point, repetition)
    length_s   length of a run; `needed_s` is the length that the test requires
    """

    kind: Literal["no steady state", "longer warm-up", "cannot tell"]
    runs: int
    first: tuple[int, int]
    warmup_s: int
    length_s: int
    needed_s: int
    suggested_s: int = 0
    series: str = ""
    bias: float = 0.0


@dataclass(frozen=True)
class LeftOut:
    """The knee analysis covers only the first `covered` of `combinations` configurations."""

    covered: int
    combinations: int


HealthWarning = (
    Note
    | Incomplete
    | LostConnections
    | Unsent
    | WrongAnswers
    | Ejected
    | Failures
    | Missed
    | Unanswered
    | LoadLimited
    | LoadWaited
    | Outsiders
    | Stolen
    | SpeedChanged
    | SpeedVaried
    | LeftElsewhere
    | Unsteady
    | LeftOut
)


def warnings_of_folder(dataset: Dataset) -> list[HealthWarning]:
    """Warnings that the records of the run folder contain."""
    found: list[HealthWarning] = [Note(str(note)) for note in dataset.manifest.get("notes", [])]
    planned = dataset.spec.measure.repetitions * math.prod(len(levels) for levels in dataset.spec.factors.values())
    done = dataset.points.filter(pl.col("status") == "done").height
    if (why := dataset.why_empty) is not None:
        found.append(Note(why))
    elif done < planned:
        found.append(Incomplete(done, planned, resuming(dataset.path, dataset.manifest)))
    found += lost_connections(dataset)
    found += _unsent(dataset)
    if wrong := dataset.summaries["wrong_values"].sum():
        found.append(WrongAnswers(int(wrong), dataset.spec.base.workload.protocol == "queue"))
    if ejected := dataset.summaries["servers_ejected"].sum():
        found.append(Ejected(int(ejected)))
    return found


def warnings_of_run(dataset: Dataset, evidence: Evidence) -> list[HealthWarning]:
    runs = evidence.measurements.table.height
    failed = failures(dataset)
    return [
        *warnings_of_folder(dataset),
        *([failed] if failed.errors else []),
        *_missed(dataset, evidence.measurements.table),
        *_unanswered(evidence.measurements.table),
        *_load_limits(evidence.limits, runs),
        *_outsiders(evidence.cpu_shares, runs),
        *_stolen(dataset),
        *_speed(dataset, evidence.measurements.table),
        *_speed_within(dataset, runs),
        *_left_elsewhere(dataset),
        *unsteady(steadiness(dataset), dataset.points),
    ]


def lost_connections(dataset: Dataset) -> list[LostConnections]:
    """A warning for the runs with missing connections, and one for the runs that reopened all connections."""
    runs = dataset.points.filter(pl.col("status") == "done").height
    found = outages(dataset)
    gone = found.filter(pl.col("connections_missing") > 0).sort("outage_share", descending=True, maintain_order=True)
    back = found.filter(pl.col("connections_missing") == 0, pl.col("connections_cut") > 0)
    back = back.sort("connections_cut", descending=True, maintain_order=True)
    warnings = []
    for rows in (gone, back):
        if rows.is_empty():
            continue
        worst = rows.row(0, named=True)
        warnings.append(
            LostConnections(
                affected=rows.height,
                runs=runs,
                missing=worst["connections_missing"],
                lost=worst["connections_cut"],
                clients=worst["connections_wanted"],
                outage_s=worst["outage_s"],
                run=dataset.logs_of(worst["point"], worst["repetition"]),
                process=worst["outage_process"],
            )
        )
    return warnings


def _unsent(dataset: Dataset) -> list[Unsent]:
    unsent = dataset.summaries.group_by(RUN).agg(pl.col("unsent").sum())
    cut_off = connections(dataset).filter(pl.col("missing") > 0, pl.col("elapsed_s") >= 0)
    counts = {how == "semi": unsent.join(cut_off, on=RUN, how=how)["unsent"].sum() for how in ("anti", "semi")}
    return [Unsent(int(count), is_cut_off) for is_cut_off, count in counts.items() if count]


def _missed(dataset: Dataset, table: pl.DataFrame) -> list[Missed]:
    settings = [dataset.setting(f"workload.{name}").alias(name) for name in ("populated", "ttl_s", "key_choice")]
    # Frequent keys may be the ones that were left out.
    is_even = pl.col("key_choice").cast(pl.String).str.contains("^(zipf|hotset)").not_().fill_null(value=True)
    left_out = 1 - pl.col("populated")
    deviation = (left_out * pl.col("populated") / (pl.col("hits") + pl.col("misses"))).sqrt()
    over = (
        dataset.points.select(*RUN, *settings)
        .join(table.select(*RUN, "hits", "misses", "miss_share"), on=RUN)
        .filter(is_even | (pl.col("populated") >= _NEARLY_ALL))
        .filter(pl.col("populated") > 0, pl.col("miss_share") > left_out + MISSED_MAX + _DEVIATIONS * deviation)
        .sort("miss_share")
    )
    if over.is_empty():
        return []
    worst = over.row(-1, named=True)
    return [Missed(over.height, table.height, worst["miss_share"], worst["populated"], worst["ttl_s"] is not None)]


def _unanswered(table: pl.DataFrame) -> list[Unanswered]:
    silent = table.filter(pl.col("response_ms").is_null()).height
    return [Unanswered(silent, table.height)] if silent else []


def _load_limits(limits: pl.DataFrame, runs: int) -> list[LoadLimited | LoadWaited]:
    found: list[LoadLimited | LoadWaited] = []
    itself, waited = limits.filter(~pl.col("waited")), limits.filter("waited")
    if itself.height:
        found.append(LoadLimited(itself.select(RUN).n_unique(), runs, str(itself["detail"][0])))
    if waited.height:
        full = waited.filter("host_full").select(RUN).n_unique()
        found.append(LoadWaited(waited.select(RUN).n_unique(), runs, full))
    return found


def _outsiders(shares: pl.DataFrame, runs: int) -> list[Outsiders]:
    taken = shares.filter((pl.col("owner") == "others") & (pl.col("share") > OUTSIDERS_MAX)).sort("share")
    if taken.is_empty():
        return []
    return [Outsiders(taken.select(RUN).n_unique(), runs, taken["share"][-1], cpu_of(taken["machine"][-1]))]


def _stolen(dataset: Dataset) -> list[Stolen]:
    shares = stolen(dataset)["stolen"].to_list()
    if not shares or max(shares) < STOLEN_MAX:
        return []
    return [Stolen(statistics.median(shares), max(shares))]


def _busy(probes: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The processors that each program keeps busy."""
    time = pl.col("cpu_user_s") + pl.col("cpu_system_s")
    return (
        probes.filter(pl.col("target").str.contains(r"^(load|middleware|store)-\d+$"))
        .group_by(*by, "target")
        .agg((time.sum() / pl.col("seconds").sum()).alias("cpu"))
    )


def _speed(dataset: Dataset, table: pl.DataFrame) -> list[SpeedChanged]:
    """The same work at the same load takes the same processor time, unless the processors became slower."""
    ratios = (
        _busy(trimmed(dataset, "probes"), *RUN)
        .group_by(RUN)
        .agg(pl.col("cpu").sum())
        .join(table.filter(pl.col("throughput") > 0).select(*RUN, "throughput"), on=RUN)
        .with_columns((pl.col("cpu") / pl.col("throughput")).alias("each"))
        .group_by("point")
        .agg((pl.col("each").max() / pl.col("each").min()).alias("ratio"), pl.len())
        .filter(pl.col("len") > 1, pl.col("ratio").is_finite())
    )["ratio"].to_list()
    changed = [ratio for ratio in ratios if ratio > SPEEDS_ALIKE]
    return [SpeedChanged(len(changed), len(ratios), max(changed))] if changed else []


def _speed_within(dataset: Dataset, runs: int) -> list[SpeedVaried]:
    """The parts of each run, by the processor time of a request.

    A program whose work grows, such as a database with more data, slows down alone. Slower processors slow down all,
    but so do longer answers. Failed requests are other work: parts with more than _FAILED_MAX of them do not count.
    """
    since = pl.col("elapsed_s") - pl.col("elapsed_s").min().over(RUN)
    length = pl.col("elapsed_s").max().over(RUN) - pl.col("elapsed_s").min().over(RUN) + 1
    parts = (length // _PART_S).clip(upper_bound=_PARTS)
    part = (since * parts / length).floor().alias("part")
    rates = (
        trimmed(dataset, "windows")
        .filter(pl.col("role") == "load")
        .group_by(*RUN, "elapsed_s")
        .agg(pl.col("count").sum(), pl.col("errors").sum())
        .group_by(*RUN, part)
        .agg(pl.col("count").mean(), pl.col("errors").mean())
        .filter(pl.col("errors") <= _FAILED_MAX * pl.col("count"))
    )
    times = (
        _busy(trimmed(dataset, "probes").with_columns(part), *RUN, "part")
        .group_by(*RUN, "part", pl.col("target").str.extract(r"^(.*)-").alias("tier"))
        .agg(pl.col("cpu").sum())
        .join(rates, on=[*RUN, "part"])
        .select(*RUN, "part", "tier", (pl.col("cpu") / pl.col("count")).alias("each"))
    )
    worst = (
        times.join(times, on=[*RUN, "tier"])
        .group_by(*RUN, "part", "part_right")
        .agg((pl.col("each") / pl.col("each_right")).min().alias("ratio"), pl.len())
        .filter(pl.col("len") > 1, pl.col("ratio").is_finite())
        .group_by(RUN)
        .agg(pl.col("ratio").max())
        .filter(pl.col("ratio") > SPEEDS_ALIKE)
    )["ratio"].to_list()
    return [SpeedVaried(len(worst), runs, max(worst))] if worst else []


def _left_elsewhere(dataset: Dataset) -> list[LeftElsewhere]:
    runs = dataset.points.height
    system, workload = dataset.spec.base.system, dataset.spec.base.workload
    if workload.protocol != "queue" or system.middleware is None or system.middleware.address is None or runs < 2:
        return []
    return [LeftElsewhere(runs, workload.backlog)]


def unsteady(steadiness: pl.DataFrame, points: pl.DataFrame) -> list[Unsteady]:
    """A warning for each kind of problem that :func:`knee.data.trim.steady_state` found."""
    found = []
    for kind in ("no steady state", "longer warm-up", "cannot tell"):
        rows = steadiness.filter(pl.col("verdict") == kind)
        if rows.is_empty():
            continue
        worst = rows.sort("suggested_s").row(-1, named=True)
        first = rows.sort(RUN).row(0, named=True)
        run = points.filter((pl.col("point") == first["point"]) & (pl.col("repetition") == first["repetition"]))
        found.append(
            Unsteady(
                kind=kind,
                runs=rows.select(RUN).n_unique(),
                first=(first["point"], first["repetition"]),
                warmup_s=worst["warmup_s"],
                length_s=int(run["seconds"][0]),
                needed_s=WINDOWS_MIN + int(run["cooldown_s"][0]),
                suggested_s=worst["suggested_s"] or 0,
                series=worst["series"],
                bias=worst["bias"] or 0.0,
            )
        )
    return found


def left_out(combinations: Sequence[object], covered: int) -> list[LeftOut]:
    """A warning if there are more configurations than verdicts."""
    return [LeftOut(covered, len(combinations))] if len(combinations) > covered else []
