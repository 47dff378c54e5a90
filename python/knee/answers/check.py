"""The answer of `knee check`."""

from __future__ import annotations

from dataclasses import dataclass

from knee.check import Finding, Findings
from knee.data.foreign import Result
from knee.verdict.knee import Knee


@dataclass(frozen=True)
class LabelledKnee(Knee):
    """The knee of one tool and operation."""

    label: str = ""


@dataclass(frozen=True)
class Checked:
    """The results as their tools printed them, the findings about them, the knees and the predictions."""

    results: tuple[Result, ...]
    findings: tuple[Finding, ...]
    knees: tuple[LabelledKnee, ...]
    predictions: tuple[str, ...]


def of(found: Findings) -> Checked:
    """The answer of these findings."""
    verdicts = found.verdict.verdicts if found.verdict else ()
    knees = tuple(LabelledKnee(**vars(each.knee), label=each.label) for each in verdicts)
    return Checked(found.results, found.checks, knees, found.predictions)
