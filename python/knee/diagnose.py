"""The verdict: the knee, the bottleneck, and whether the numbers hold together, with their evidence."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.asymptotes import Knee, find_knee
from knee.bottleneck import SATURATED, Bottleneck, cpu_shares, find_bottleneck, utilizations
from knee.intervals import LEVEL, counted, quantity
from knee.laws import TOLERANCE, LawReport, check_laws
from knee.observations import observations
from knee.trim import RUN, steady_state, steady_state_warnings, trim

if TYPE_CHECKING:
    from knee.dataset import Dataset

CLIENTS = "load.clients"
"""The factor over which a knee is sought; every combination of the others gets a verdict of its own."""

STOLEN_MAX = 0.05
"""Share of the CPU time of a virtual machine that its hypervisor may keep in any run before a reader is told."""

Level = int | float | str | bool


@dataclass(frozen=True)
class Verdict:
    """The knee and the bottleneck at one combination of the factors other than the clients."""

    factors: dict[str, Level]
    points: tuple[int, ...]
    knee: Knee
    bottleneck: Bottleneck

    @property
    def label(self) -> str:
        """The combination in words; empty when the clients are the only factor."""
        return ", ".join(f"{name} = {level}" for name, level in self.factors.items())


@dataclass(frozen=True)
class Diagnosis:
    """Everything that the analysis of a dataset found, for people and for the report."""

    name: str
    question: str
    verdicts: tuple[Verdict, ...]
    laws: LawReport
    warnings: tuple[str, ...]
    observations: pl.DataFrame
    utilizations: pl.DataFrame
    cpu_shares: pl.DataFrame
    steadiness: pl.DataFrame

    @property
    def common_knee_sentence(self) -> str | None:
        """Why there is no knee to look for, where that is the same everywhere: said once then."""
        sentences = {None if verdict.knee.clients else verdict.knee.sentence for verdict in self.verdicts}
        return sentences.pop() if len(sentences) == 1 and len(self.verdicts) > 1 else None


def diagnose(dataset: Dataset, *, level: float = LEVEL, tolerance: float = TOLERANCE, seed: int = 0) -> Diagnosis:
    """Apply every analysis to a dataset. `seed` is that of the bootstrap behind the knee's interval."""
    table = observations(dataset)
    utilization = utilizations(dataset)
    shares = cpu_shares(dataset)
    steadiness = steady_state(dataset.windows, dataset.points)
    others = [name for name in dataset.factors if name != CLIENTS]
    limits = _load_limits(dataset.summaries, table, utilization)
    unmeasured = _unmeasured(dataset, utilization)
    verdicts: list[Verdict] = []
    for factors, rows in _combinations(table, others):
        knee = find_knee(rows, level=level, seed=seed)
        saturated = rows.filter(pl.col("clients") >= (knee.level.clients if knee.level else 0))
        notes = limits.join(saturated.select(RUN), on=RUN, how="semi")
        bottleneck = find_bottleneck(
            knee,
            rows,
            utilization.join(rows.select(RUN), on=RUN, how="semi"),
            shares.join(rows.select(RUN), on=RUN, how="semi"),
            notes.filter(~pl.col("waited"))["detail"].to_list(),
            load_waited=bool(notes["waited"].any()),
            unmeasured=unmeasured,
            level=level,
        )
        points = tuple(sorted(set(rows["point"].to_list())))
        verdicts.append(Verdict(factors, points, knee, bottleneck))
    return Diagnosis(
        name=dataset.name,
        question=dataset.question,
        verdicts=tuple(verdicts),
        laws=check_laws(table, tolerance=tolerance, level=level),
        warnings=(
            *(_sentence(warning) for warning in dataset.warnings),
            *_errors(table),
            *_load_warnings(limits, table.height),
            *_stolen(dataset),
            *steady_state_warnings(steadiness),
        ),
        observations=table,
        utilizations=utilization,
        cpu_shares=shares,
        steadiness=steadiness,
    )


def _combinations(table: pl.DataFrame, others: list[str]) -> list[tuple[dict[str, Level], pl.DataFrame]]:
    if table.is_empty():
        return []
    if not others:
        return [({}, table)]
    return [
        (dict(zip(others, levels, strict=True)), rows)
        for levels, rows in table.sort(others).group_by(others, maintain_order=True)
    ]


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


def _unmeasured(dataset: Dataset, utilization: pl.DataFrame) -> list[str]:
    """What may limit the system and left no trace in the tables, with the reason."""
    if dataset.points.filter(pl.col("status") == "done").is_empty():
        return []
    system, seen = dataset.spec.base.system, set(utilization["role"])
    parts = []
    if system.middleware is not None and "middleware" not in seen:
        parts.append("the middlewares (they run elsewhere)" if system.middleware.address else "the middlewares")
    if "store" not in seen:
        elsewhere = system.store is None or system.store.address is not None
        parts.append("the stores (they run elsewhere)" if elsewhere else "the stores")
    if "host" not in seen:
        parts.append("the host's CPU")
    if dataset.spec.wants_links:
        emulated = bool(dataset.manifest.get("links_emulated"))
        parts.append("the use of the links" + ("" if emulated else " (link_mbit was not emulated)"))
    return parts


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _errors(table: pl.DataFrame) -> list[str]:
    errors = int(table["errors"].sum() or 0)
    if not errors:
        return []
    requests = float((table["throughput"] * table["observed_s"]).sum())
    return [
        f"{errors} of {requests:.0f} requests ({errors / requests:.2%}) were answered with an error, and count "
        "towards throughput: look into the servers' logs before trusting the numbers."
    ]


def knee_lines(verdict: Verdict) -> list[str]:
    """The knee in words: whose it is, its interval, what the system does there."""
    knee = verdict.knee
    lines = [knee.sentence]
    if knee.status == "found" and knee.clients and knee.clients.low is not None:
        assert knee.clients.high is not None
        lines[0] += f" {knee.clients.level:.0%} interval: {knee.clients.low:.1f} to {knee.clients.high:.1f}."
    if verdict.bottleneck.status == "load generator":
        lines.append("It is the load generator's own knee: the system could take more.")
    if knee.level is not None:
        beyond = (
            knee.status == "found" and knee.clients is not None and knee.level.clients > round(knee.clients.estimate)
        )
        lines.append(
            f"At {knee.level.clients} clients{', the next measured' if beyond else ''}: "
            f"{quantity(knee.level.throughput, 'requests/s')}, "
            f"response time {quantity(knee.level.response_ms, 'ms')}."
        )
    if knee.retrograde:
        lines.append("Beyond the plateau throughput falls again: more clients make it worse.")
    if knee.status == "found" and knee.power_clients is not None:
        lines.append(f"Second opinion: the power X/R is largest at {knee.power_clients} clients.")
    return lines


def confidence_line(verdict: Knee | Bottleneck) -> str:
    """How sure a verdict is, with what speaks against it."""
    reasons = "; ".join(verdict.reasons)
    return f"Confidence: {verdict.confidence}" + (f" ({reasons})." if reasons else ".")


def render_text(diagnosis: Diagnosis) -> str:
    """The diagnosis in a few lines for people; plain text, one finding a line."""
    lines = [diagnosis.name + (f": {diagnosis.question}" if diagnosis.question else "")]
    if not diagnosis.verdicts:
        lines.append("No run is complete: there is nothing to diagnose.")
    common = diagnosis.common_knee_sentence
    if common:
        lines += ["", *_labelled("Knee", [common])]
    for verdict in diagnosis.verdicts:
        lines.append("")
        if verdict.label:
            lines.append(verdict.label)
        if not common:
            lines += _labelled("Knee", [*knee_lines(verdict), confidence_line(verdict.knee)])
        lines += _labelled(
            "Bottleneck",
            [verdict.bottleneck.sentence, *verdict.bottleneck.evidence, confidence_line(verdict.bottleneck)],
        )
    lines.append("")
    lines += _labelled("Laws", list(diagnosis.laws.sentences))
    lines += _labelled("Warning", list(diagnosis.warnings))
    return "\n".join(lines)


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"{label if i == 0 else '':<11} {line}" for i, line in enumerate(lines)]
