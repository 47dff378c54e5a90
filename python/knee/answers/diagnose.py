"""The answer of `knee diagnose`, `knee run` and `knee report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from knee.stats.intervals import Interval
from knee.verdict import Findings, render_text, words
from knee.verdict.configuration import Verdict
from knee.verdict.knee import Confidence, Knee

Level = int | float | str | bool | None
"""The level of a factor; null if it has none, as of the rate in a closed loop."""


@dataclass(frozen=True)
class Resource:
    """A resource with the utilisation of its busiest process, at the knee and at the largest number of clients. Both
    are at the largest number if the knee was not reached.
    `first_saturated` is the smallest number of clients at which it was saturated."""

    name: str
    process: str
    at_knee: Interval
    at_most: Interval
    first_saturated: int | None


@dataclass(frozen=True)
class Bottleneck:
    """What limits throughput: `names` of resources, several if they saturate together."""

    status: Literal["found", "load generator", "cannot tell", "none"]
    names: tuple[str, ...]
    confidence: Confidence
    resources: tuple[Resource, ...]
    text: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """A combination of the factors other than the clients, with its measured points."""

    label: str
    factors: Mapping[str, Level]
    points: tuple[int, ...]
    open_loop: bool
    knee: Knee
    knee_text: tuple[str, ...]
    bottleneck: Bottleneck


@dataclass(frozen=True)
class AtPoint:
    """A point against a threshold. The value is the mean over its repetitions. `silent`: a repetition answered
    nothing."""

    point: int
    name: str
    state: Literal["misses", "keeps", "cannot tell"]
    value: Interval
    silent: bool


@dataclass(frozen=True)
class Limit:
    """A threshold of the experiment file, a lower one if `at_least`."""

    quantity: str
    bound: float
    at_least: bool
    misses: bool
    points: tuple[AtPoint, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The knee and the bottleneck of each configuration, with the sentences of the other findings. `text` is the whole
    printed answer.

    `run` is the run folder of `knee run`, and `report` the page of `knee run` and `knee report`; null otherwise.
    """

    name: str
    question: str
    level: float
    configurations: tuple[Configuration, ...]
    arrivals: tuple[str, ...]
    thresholds: tuple[Limit, ...]
    largest: tuple[str, ...]
    laws: tuple[str, ...]
    factors: tuple[str, ...]
    model: tuple[str, ...]
    warnings: tuple[str, ...]
    text: tuple[str, ...]
    run: str | None = None
    report: str | None = None


def of(findings: Findings, run: str | None = None, report: str | None = None) -> Diagnosis:
    """The answer of these findings."""
    names = dict(findings.naming.points)
    return Diagnosis(
        name=findings.name,
        question=findings.question,
        level=findings.level,
        configurations=tuple(map(_configuration, findings.verdicts)),
        arrivals=tuple(words.arrival_lines(findings)),
        thresholds=tuple(
            Limit(
                one.quantity,
                one.bound,
                one.at_least,
                bool(one.of("misses")),
                tuple(
                    AtPoint(
                        each.point, names.get(each.point, f"point {each.point}"), each.state, each.value, each.silent
                    )
                    for each in one.judged
                ),
            )
            for one in findings.thresholds
        ),
        largest=tuple(words.peak(findings.peak)) if findings.peak else (),
        laws=tuple(words.law_lines(findings.laws)),
        factors=tuple(words.factor_lines(findings)),
        model=tuple(words.model_lines(findings)),
        warnings=tuple(map(words.warning, findings.warnings)),
        text=tuple(render_text(findings).splitlines()),
        run=run,
        report=report,
    )


def _configuration(verdict: Verdict) -> Configuration:
    knee_text = (*words.knee_lines(verdict), words.confidence(verdict.knee))
    return Configuration(
        label=verdict.label,
        factors=verdict.factors,
        points=verdict.points,
        open_loop=verdict.open_loop,
        knee=verdict.knee,
        knee_text=tuple(filter(None, knee_text)),
        bottleneck=bottleneck_of(verdict),
    )


def bottleneck_of(verdict: Verdict) -> Bottleneck:
    """The bottleneck of a configuration."""
    found = verdict.bottleneck
    return Bottleneck(
        status=found.status,
        names=found.names,
        confidence=found.confidence,
        resources=tuple(
            Resource(each.name, each.process, each.at_knee, each.at_most, each.first_saturated)
            for each in found.candidates
        ),
        text=tuple(filter(None, words.bottleneck_lines(found, verdict.limits))),
    )
