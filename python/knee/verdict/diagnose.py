"""The verdict: the knee, the bottleneck, whether the numbers hold together, and which factor matters, with evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from knee import factorial
from knee.data.csv import Measurements, configuration, is_open_loop, label_of
from knee.data.source import Observed, observed_run, observed_table
from knee.data.trim import RUN
from knee.errors import DesignError
from knee.factorial import Findings, analyse
from knee.fit import Outlooks, outlooks
from knee.laws import TOLERANCE, Demand, LawReport, laws_of_measurements, laws_of_run
from knee.laws import sentences as law_sentences
from knee.laws.foreign import ALL
from knee.laws.tables import stations
from knee.stats.intervals import LEVEL, clients_between, counted, quantity
from knee.verdict.arrivals import Arrivals, arrivals
from knee.verdict.bottleneck import Bottleneck, Candidate, find_bottleneck, find_bottleneck_at_rate
from knee.verdict.knee import OPEN_LOOP, Knee, find_knee
from knee.verdict.levels import Level, Levels, levels
from knee.verdict.peak import Peak, peak

if TYPE_CHECKING:
    from knee.data import Dataset

EXPLAINED = ("throughput", "response_ms")
"""The responses that a factorial analysis explains without being asked."""

VERDICTS_MAX = 64
"""Combinations of the other factors for which a knee is sought: more than a person reads."""

MODELS_MAX = 8
"""Configurations that get a model in a report: each takes a second or two."""

_KNEE_NEEDS = {
    "clients": "the number of clients",
    "throughput": "throughput",
    "response_ms": "response times",
}


@dataclass(frozen=True)
class Verdict:
    """The knee and the bottleneck at one combination of the factors other than the clients.

    In an open loop, where these say nothing, at one combination of all factors: at one arrival rate.
    """

    factors: dict[str, Level]
    points: tuple[int, ...]
    open_loop: bool
    knee: Knee
    bottleneck: Bottleneck

    @property
    def label(self) -> str:
        """The combination in words; empty when the clients are the only factor."""
        return label_of(self.factors)


@dataclass(frozen=True)
class Diagnosis:
    """Everything that the analyses found, for people and for the report.

    `factorial` has one entry per response that could be explained, `unexplained` a sentence per response that could
    not; both are empty where fewer than two factors vary, and `levels` is there for a single one. `peak` is there for
    several, in a closed loop. `arrivals` has one
    entry per combination of the factors but the arrival rate, and none in a closed loop. `level` is that of
    every interval.
    """

    name: str
    question: str
    verdicts: tuple[Verdict, ...]
    arrivals: tuple[Arrivals, ...]
    laws: LawReport
    factorial: tuple[Findings, ...]
    unexplained: tuple[str, ...]
    levels: Levels | None
    peak: Peak | None
    warnings: tuple[str, ...]
    measurements: Measurements
    utilizations: pl.DataFrame
    cpu_shares: pl.DataFrame
    others: tuple[str, ...]
    stations: pl.DataFrame | None
    level: float

    @cached_property
    def outlooks(self) -> Outlooks:
        """The models of at most MODELS_MAX configurations, and what they predict; fitted when first asked for."""
        return outlooks(self.observations, self.others, self.stations, configurations_max=MODELS_MAX, level=self.level)

    @property
    def observations(self) -> pl.DataFrame:
        """One row per point and repetition (:mod:`knee.data.observations`)."""
        return self.measurements.table

    @property
    def common_knee_sentence(self) -> str | None:
        """Why there is no knee to look for, where that is the same everywhere: said once then."""
        sentences = {None if verdict.knee.clients else verdict.knee.sentence for verdict in self.verdicts}
        return sentences.pop() if len(sentences) == 1 and len(self.verdicts) > 1 else None

    @property
    def common_bottleneck(self) -> Bottleneck | None:
        """What is known of the bottleneck, where that is the same nothing everywhere."""
        found = [verdict.bottleneck for verdict in self.verdicts]
        if len(found) < 2 or found[0].names or any(other != found[0] for other in found[1:]):
            return None
        return found[0]


def diagnose(
    source: Dataset | Measurements, *, level: float = LEVEL, tolerance: float = TOLERANCE, seed: int = 0
) -> Diagnosis:
    """Apply every analysis to a run or to a table. `seed` is that of the bootstrap behind the knee's interval.

    What cannot be analysed, because a table lacks the columns or a run its points, says so in its sentence.
    """
    if isinstance(source, Measurements):
        observed = observed_table(source)
        others = configuration(source) if "clients" in source.table.columns else []
        others += [name for name in ("request_type",) if name in source.factors]
        laws = laws_of_measurements(source, tolerance=tolerance, level=level)
    else:
        observed = observed_run(source)
        others = configuration(source)
        laws = laws_of_run(source, tolerance=tolerance, level=level)
    found = observed.measurements
    closed = found.table.filter(pl.col("think_ms").is_not_null())
    opened = found.table.filter(pl.col("think_ms").is_null())
    every = [*others, *(name for name in found.factors if name not in others)]
    combinations = [*_combinations(closed, others), *_combinations(opened, every)]
    factorial, unexplained = _explain(found, level)
    covered = combinations[:VERDICTS_MAX]
    itself = observed.limits.filter(~pl.col("waited"))["point"].to_list()
    rates = arrivals(pl.concat([found.table.clear(), *(rows for _, rows in covered)]), found.factors, itself, level)
    verdicts = tuple(
        _with_demands(_verdict(observed, factors, rows, rates, level, seed), laws) for factors, rows in covered
    )
    return Diagnosis(
        name=observed.name,
        question=observed.question,
        verdicts=verdicts,
        arrivals=rates,
        laws=laws,
        factorial=factorial,
        unexplained=unexplained,
        levels=levels(found.table, found.factors, _keep_up(rates), level),
        peak=peak(found.table, found.factors, level),
        warnings=(*observed.warnings, *_left_out(combinations)),
        measurements=found,
        utilizations=observed.utilizations,
        cpu_shares=observed.cpu_shares,
        others=tuple(others),
        stations=None if isinstance(source, Measurements) else stations(source),
        level=level,
    )


def _verdict(
    observed: Observed,
    factors: dict[str, Level],
    rows: pl.DataFrame,
    rates: Sequence[Arrivals],
    level: float,
    seed: int,
) -> Verdict:
    points = tuple(sorted(set(rows["point"].to_list())))
    utilization = observed.utilizations.join(rows.select(RUN), on=RUN, how="semi")
    shares = observed.cpu_shares.join(rows.select(RUN), on=RUN, how="semi")
    if is_open_loop(rows):
        notes = observed.limits.join(rows.select(RUN), on=RUN, how="semi")
        found = next((found for found in rates if points[0] in found.rates), None)
        there = None if found is None else found.at(points[0])
        at_rate = find_bottleneck_at_rate(
            rows,
            utilization,
            shares,
            notes["detail"].to_list(),
            keeps_up=None if found is None else found.keeps_up(points[0]),
            repetitions=None if there is None else there.throughput.repetitions,
            unmeasured=observed.unmeasured,
            level=level,
        )
        return Verdict(factors, points, open_loop=True, knee=Knee("cannot tell", OPEN_LOOP, ()), bottleneck=at_rate)
    if (obstacle := _no_knee(factors, rows)) is not None:
        knee = Knee("cannot tell", obstacle, ())
        return Verdict(factors, points, open_loop=False, knee=knee, bottleneck=_no_bottleneck(utilization))
    knee = find_knee(rows, level=level, seed=seed)
    saturated = rows.filter(pl.col("clients") >= (knee.level.clients if knee.level else 0))
    notes = observed.limits.join(saturated.select(RUN), on=RUN, how="semi")
    bottleneck = find_bottleneck(
        knee,
        rows,
        utilization,
        shares,
        notes.filter(~pl.col("waited"))["detail"].to_list(),
        load_waited=bool(notes["waited"].any()),
        unmeasured=observed.unmeasured,
        level=level,
    )
    return Verdict(factors, points, open_loop=False, knee=knee, bottleneck=bottleneck)


def _keep_up(rates: Sequence[Arrivals]) -> dict[int, bool | None]:
    """Whether throughput follows the arrival rate, at the points at which it was measured."""
    return {point: found.keeps_up(point) for found in rates if found.measured for point in found.rates}


def _no_knee(factors: Mapping[str, Level], rows: pl.DataFrame) -> str | None:
    """Why a knee cannot be looked for, None where it can."""
    missing = [
        f"{said} (column {name})"
        for name, said in _KNEE_NEEDS.items()
        if name not in rows.columns or rows[name].is_null().all()
    ]
    if missing:
        return f"No knee can be looked for without {' and '.join(missing)}."
    if not (rows["throughput"] > 0).any():
        return "No knee can be looked for: no request was answered, throughput is 0 wherever it was measured."
    if str(factors.get("request_type", "all")).lower() not in ALL:
        return (
            "No knee can be looked for among requests of one type: a knee is one of all requests together. Give rows "
            "that count them all, with request_type all."
        )
    return None


def _no_bottleneck(utilization: pl.DataFrame) -> Bottleneck:
    """What can be said of the bottleneck where there is no knee to look beyond."""
    sentence = "Cannot tell the bottleneck: no utilisation was measured."
    evidence = ""
    if not utilization.is_empty():
        busiest = (
            utilization.group_by("point", "resource", "process")
            .agg(pl.col("utilization").mean())
            .group_by("resource", "process")
            .agg(pl.col("utilization").max())
            .sort("utilization", descending=True)
        )
        named = ", ".join(f"{row['process']} {row['utilization']:.0%}" for row in busiest.head(3).iter_rows(named=True))
        sentence = "Cannot tell the bottleneck: it is what saturates where throughput stops rising, which is not known."
        evidence = f"Busiest anywhere: {named}."
    return Bottleneck("cannot tell", sentence, (evidence,) if evidence else (), (), (), (), {}, "low", ())


def _with_demands(verdict: Verdict, laws: LawReport) -> Verdict:
    """The verdict with what service demands say of the bottleneck, where it says nothing or something else."""
    first = next((own.bottleneck for own in laws.demands if _has_levels(own.factors, verdict.factors)), None)
    bottleneck = verdict.bottleneck
    if first is None or any(_is_station(c, first) for c in bottleneck.candidates if c.name in bottleneck.names):
        return verdict
    # Ours are called "middleware-0's connections" or "the stores"; how somebody else's are, says nothing.
    several = re.fullmatch(r"(.*'s|the) [^']*s", first.station) is not None
    verb, they = ("saturate", "they allow") if several else ("saturates", "it allows")
    said = f"By service demand {first.station} {verb} first: {they} at most {quantity(first.capacity, 'requests/s')}."
    evidence = (*bottleneck.evidence, said)
    if not bottleneck.names:
        return replace(verdict, bottleneck=replace(bottleneck, evidence=evidence))
    return replace(
        verdict,
        bottleneck=replace(
            bottleneck,
            evidence=evidence,
            confidence="medium" if bottleneck.confidence == "high" else "low",
            reasons=(*bottleneck.reasons, f"service demands name {first.station} instead"),
        ),
    )


def _has_levels(factors: Mapping[str, Level | None], levels: Mapping[str, Level]) -> bool:
    """Whether both say the same configuration; what a closed or an open loop lacks may be left out."""
    return {name: level for name, level in factors.items() if level is not None} == levels


def _is_station(candidate: Candidate, demand: Demand) -> bool:
    """Whether a resource, which stands for all processes of its tier, is what the laws call a station."""
    resources = {
        "worker slots": "'s worker slots",
        "connections": "'s connections",
        "commits": "'s commits",
        "thread": "'s threads",
        "CPU share": "'s threads",
        "host CPU": "",
        "station": "",
    }
    of_tier = re.sub(r"-\d+(?='s )", "", demand.station)
    return of_tier in (candidate.role + resources[candidate.resource], candidate.name)


def _explain(found: Measurements, level: float) -> tuple[tuple[Findings, ...], tuple[str, ...]]:
    """Which factor matters for each response; and, where that cannot be told, why."""
    if len(found.factors) < 2:
        return (), ()
    if found.table["think_ms"].null_count() not in (0, found.table.height):
        return (), ("Which factor matters cannot be told of a closed and an open loop together: give a table of each.",)
    order = "run_order" if "run_order" in found.table.columns else None
    explained, not_explained = [], []
    for response in [name for name in found.responses if name in EXPLAINED] or found.responses:
        try:
            findings = analyse(found.table, found.factors, response, level=level, run_order=order)
        except DesignError as error:
            why = "; ".join(line.removesuffix(".") for line in str(error).splitlines())
            not_explained.append(f"Which factor matters for {response} cannot be told: {why}.")
            continue
        if findings.analysis.total:
            explained.append(findings)
        else:
            not_explained.append(f"No factor matters for {response}: it is the same in every row.")
    return tuple(explained), tuple(not_explained)


def _left_out(combinations: Sequence[object]) -> list[str]:
    if len(combinations) <= VERDICTS_MAX:
        return []
    return [
        f"A knee was sought for the first {VERDICTS_MAX} of {len(combinations):,} combinations of the other factors: "
        "leave factors out to see the others."
    ]


def _combinations(table: pl.DataFrame, others: Sequence[str]) -> list[tuple[dict[str, Level], pl.DataFrame]]:
    if table.is_empty():
        return []
    others = [name for name in others if not table[name].is_null().all()]
    if not others:
        return [({}, table)]
    return [
        (dict(zip(others, levels, strict=True)), rows)
        for levels, rows in table.sort(others).group_by(others, maintain_order=True)
    ]


def knee_lines(verdict: Verdict) -> list[str]:
    """The knee in words: whose it is, its interval, what the system does there."""
    knee = verdict.knee
    lines = [knee.sentence]
    if knee.status == "found" and knee.clients and knee.clients.low is not None:
        lines[0] += f" {knee.clients.level:.0%} interval: {clients_between(knee.clients)}."
    if verdict.bottleneck.status == "load generator":
        lines.append("It is the load generator's own knee: the system could take more.")
    if knee.level is not None:
        beyond = (
            knee.status == "found" and knee.clients is not None and knee.level.clients > round(knee.clients.estimate)
        )
        lines.append(
            f"At {counted(knee.level.clients, 'client')}{', the next measured' if beyond else ''}: "
            f"{quantity(knee.level.throughput, 'requests/s')}, "
            f"response time {quantity(knee.level.response_ms, 'ms')}."
        )
    if knee.retrograde:
        lines.append("Beyond the plateau throughput falls again: more clients make it worse.")
    if knee.status == "found" and knee.power_clients is not None:
        lines.append(f"Second opinion: the power X/R is largest at {counted(knee.power_clients, 'client')}.")
    return lines


def bottleneck_lines(bottleneck: Bottleneck) -> list[str]:
    """The bottleneck in words, with its evidence and how sure it is."""
    return [bottleneck.sentence, *bottleneck.evidence, confidence_line(bottleneck)]


def confidence_line(verdict: Knee | Bottleneck) -> str:
    """How sure a verdict is, with what speaks against it; empty where nothing was there to judge."""
    if verdict.status == "cannot tell" and not verdict.reasons:
        return ""
    reasons = "; ".join(verdict.reasons)
    return f"Confidence: {verdict.confidence}" + (f" ({reasons})." if reasons else ".")


def law_lines(laws: LawReport) -> list[str]:
    """Whether the interactive law holds, what else is violated, and which request types are missing; what else was
    found, :func:`knee.laws.sentences` says."""
    others = [check.law for check in laws.stations if check.verdict == "violated"]
    of_types = (check for check in laws.interactive if check.request_type is not None)
    if any(check.verdict == "violated" for check in of_types):
        others.insert(0, "the interactive law of single request types")
    for tier in dict.fromkeys(check.tier for check in laws.conservation if check.verdict == "violated"):
        others.append(f"the balance of requests between clients and {tier}")
    lines = list(law_sentences(laws)[:1])
    if others:
        lines.append(f"Violated besides: {', '.join(dict.fromkeys(others))}.")
    if absent := dict.fromkeys(name for names in laws.absent.values() for name in names):
        lines.append(f"Request types that never occurred in some run: {', '.join(absent)}.")
    return lines


def arrival_lines(diagnosis: Diagnosis) -> list[str]:
    """Up to which arrival rate throughput follows, at each combination of the other factors."""
    return [
        f"{label_of(found.factors)}: {found.sentence}" if found.factors else found.sentence
        for found in diagnosis.arrivals
        if found.sentence
    ]


def factor_lines(diagnosis: Diagnosis) -> list[str]:
    """What moved each response most, and what else did; or why nobody can tell. Of a single factor, its best level."""
    if diagnosis.levels is not None:
        return [diagnosis.levels.sentence]
    first = [line for findings in diagnosis.factorial for line in factorial.sentences(findings)[:2]]
    return [*first, *diagnosis.unexplained]


def render_text(diagnosis: Diagnosis) -> str:
    """The diagnosis in a few lines for people; plain text, one finding a line."""
    lines = [diagnosis.name + (f": {diagnosis.question}" if diagnosis.question else "")]
    if not diagnosis.verdicts:
        lines.append("No run is complete: there is nothing to diagnose.")
    knee_sentence, bottleneck = diagnosis.common_knee_sentence, diagnosis.common_bottleneck
    if diagnosis.arrivals or knee_sentence or bottleneck:
        lines.append("")
    lines += _labelled("Arrivals", arrival_lines(diagnosis))
    if knee_sentence:
        lines += _labelled("Knee", [knee_sentence])
    if bottleneck:
        lines += _labelled("Bottleneck", bottleneck_lines(bottleneck))
    for verdict in diagnosis.verdicts if not (knee_sentence and bottleneck) else ():
        lines.append("")
        if verdict.label:
            lines.append(verdict.label)
        if not knee_sentence:
            lines += _labelled("Knee", [*knee_lines(verdict), confidence_line(verdict.knee)])
        if not bottleneck:
            lines += _labelled("Bottleneck", bottleneck_lines(verdict.bottleneck))
    lines.append("")
    lines += _labelled("Largest", diagnosis.peak.sentences if diagnosis.peak else ())
    lines += _labelled("Laws", law_sentences(diagnosis.laws))
    lines += _labelled("Factors", factor_lines(diagnosis))
    lines += _labelled("Warning", diagnosis.warnings)
    return "\n".join(lines)


def _labelled(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{label if i == 0 else '':<11} {line}" for i, line in enumerate(filter(None, lines))]
