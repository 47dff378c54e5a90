"""The findings as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from knee import laws
from knee.verdict import words
from knee.verdict.findings import Findings


def render_text(findings: Findings) -> str:
    """The findings as plain text, one per line, with a label before each kind."""
    lines = [findings.name + (f": {findings.question}" if findings.question else "")]
    if not findings.verdicts:
        lines.append("No run is complete: there is nothing to diagnose.")
    common_knee, bottleneck = findings.has_common_obstacle, findings.common_bottleneck
    if findings.arrivals or common_knee or bottleneck:
        lines.append("")
    lines += _labelled("Arrivals", words.arrival_lines(findings))
    if common_knee:
        lines += _labelled("Knee", [words.knee(findings.verdicts[0].knee)])
    if bottleneck:
        lines += _labelled("Bottleneck", words.bottleneck_lines(bottleneck))
    for verdict in findings.verdicts if not (common_knee and bottleneck) else ():
        lines.append("")
        if verdict.label:
            lines.append(verdict.label)
        if not common_knee:
            lines += _labelled("Knee", [*words.knee_lines(verdict), words.confidence(verdict.knee)])
        if not bottleneck:
            lines += _labelled("Bottleneck", words.bottleneck_lines(verdict.bottleneck, verdict.limits))
    lines.append("")
    lines += _labelled("Thresholds", words.thresholds(findings.thresholds, dict(findings.naming.points)))
    lines += _labelled("Largest", words.peak(findings.peak) if findings.peak else ())
    lines += _labelled("Crossing", [words.crossing(findings.crossing)])
    lines += _labelled("Laws", laws.sentences(findings.laws))
    lines += _labelled("Factors", words.factor_lines(findings))
    lines += _labelled("Model", words.model_lines(findings))
    lines += _details(findings)
    lines += _labelled("Warning", map(words.warning, findings.warnings))
    return "\n".join(lines)


def _details(findings: Findings) -> list[str]:
    """The lines that only a run folder has data for."""
    details, naming = findings.details, findings.naming
    if details is None:
        return []
    views = [
        (verdict.label, line)
        for verdict in findings.verdicts
        for line in words.views(details.views[verdict.label], verdict.knee)
    ]
    return [
        *_labelled("Views", _named(views)),
        *_labelled("Operations", words.operations(details, naming)),
        *_labelled("Reads", words.reads(details, naming)),
        *_labelled(
            "Stores", [words.uncounted(*details.uncounted), words.balance(details.balances, dict(naming.points))]
        ),
        *_labelled("Drift", [words.drift(details.drifts, dict(naming.points))]),
        *_labelled("Log", words.log(details, naming)),
    ]


def _named(lines: Sequence[tuple[str, str]]) -> list[str]:
    """The lines, with the configuration's name before its first line."""
    return [
        f"{name}: {line}" if name and (i == 0 or lines[i - 1][0] != name) else line
        for i, (name, line) in enumerate(lines)
    ]


def _labelled(label: str, lines: Iterable[str]) -> list[str]:
    return [f"{label if i == 0 else '':<11} {line}" for i, line in enumerate(filter(None, lines))]
