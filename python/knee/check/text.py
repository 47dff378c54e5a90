"""The findings as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePath

from knee.check.findings import Findings
from knee.check.rules import Finding
from knee.stats.intervals import counted
from knee.verdict import words
from knee.verdict.configuration import Verdict

_LABELS = {"wrong": "Wrong", "doubt": "Doubt", "unknown": "Unknown", "holds": "Holds"}


def render_text(found: Findings) -> str:
    """The findings, one per kind: the worst, and the number of other files with it."""
    lines, files = [], {each.source for each in found.results}
    for state, label in _LABELS.items():
        lines += _labelled(label, _worst([each for each in found.checks if each.state == state], files))
    lines += _labelled("Knee", _of_verdicts(found, _knee))
    lines += _labelled("Why", _of_verdicts(found, _bottleneck))
    lines += _labelled("What if", found.predictions)
    lines.append("")
    if wrong := {each.source for each in found.checks if each.state == "wrong"}:
        # A finding over all results has no file.
        count = len(wrong & files) or len(files)
        lines.append(f"{count} of {counted(len(files), 'file')} {'has' if count == 1 else 'have'} a wrong number.")
    else:
        lines.append(f"No contradiction in {counted(len(found.results), 'result')}.")
    return "\n".join(lines)


def _worst(findings: Sequence[Finding], files: Collection[str]) -> list[str]:
    """The worst finding of each kind, and how many files have one."""
    kinds: dict[str, list[Finding]] = {}
    for each in findings:
        kinds.setdefault(each.kind, []).append(each)
    return [_sentence(max(some, key=lambda each: each.figure), some, files) for some in kinds.values()]


def _sentence(worst: Finding, some: Sequence[Finding], files: Collection[str]) -> str:
    sources = len({each.source for each in some})
    more = f" (the furthest of {sources})" if sources > 1 else ""
    # A finding over several results has the tool in place of a file.
    source = PurePath(worst.source).name if worst.source in files else worst.source
    remedy = f"; {worst.remedy}" if worst.remedy else ""
    return f"{source}{more}: {worst.what}: {worst.cause}{remedy}."


def _of_verdicts(found: Findings, lines: Callable[[Verdict], Iterable[str]]) -> list[str]:
    """The lines of each verdict, with its configuration."""
    verdicts = found.verdict.verdicts if found.verdict else ()
    return [f"{each.label}: {line}" if each.label else line for each in verdicts for line in lines(each) if line]


def _knee(verdict: Verdict) -> Iterable[str]:
    return (*words.knee_lines(verdict), words.confidence(verdict.knee))


def _bottleneck(verdict: Verdict) -> Iterable[str]:
    """Empty without measured utilisations."""
    return words.bottleneck_lines(verdict.bottleneck) if verdict.bottleneck.candidates else ()


def _labelled(label: str, lines: Iterable[str]) -> list[str]:
    return [f"{label if i == 0 else '':<8} {line}" for i, line in enumerate(lines)]
