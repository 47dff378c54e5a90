"""The answer of `knee check`."""

from __future__ import annotations

from dataclasses import dataclass

from knee.answers.diagnose import Bottleneck, bottleneck_of
from knee.check import Finding, Findings
from knee.data.foreign import Result
from knee.verdict.knee import Knee


@dataclass(frozen=True)
class LabelledKnee(Knee):
    """The knee of one tool and operation."""

    label: str = ""


@dataclass(frozen=True)
class LabelledBottleneck(Bottleneck):
    """The bottleneck of one tool and operation."""

    label: str = ""


@dataclass(frozen=True)
class Checked:
    """The results as their tools printed them, the findings about them, the knees and the predictions. `bottlenecks`
    are known for results of `knee find`, which have processor times."""

    results: tuple[Result, ...]
    findings: tuple[Finding, ...]
    knees: tuple[LabelledKnee, ...]
    bottlenecks: tuple[LabelledBottleneck, ...]
    predictions: tuple[str, ...]


def of(found: Findings) -> Checked:
    """The answer of these findings."""
    verdicts = found.verdict.verdicts if found.verdict else ()
    knees = tuple(LabelledKnee(**vars(each.knee), label=each.label) for each in verdicts)
    bottlenecks = tuple(
        LabelledBottleneck(**vars(bottleneck_of(each)), label=each.label)
        for each in verdicts
        if each.bottleneck.candidates
    )
    return Checked(found.results, found.checks, knees, bottlenecks, found.predictions)
