"""The answer of `knee factorial`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from knee import factorial as analysis
from knee.factorial import Findings
from knee.factorial.analysis import Cell, Error, Term
from knee.factorial.audit import Audit
from knee.factorial.explanations import RowExplanation
from knee.stats.intervals import Interval


@dataclass(frozen=True)
class Explained:
    """What explains a response: the terms by explained variation, the largest first, and the mean of each cell.
    `leads` is whether the first term is surely the largest."""

    response: str
    model: str
    reason: str
    level: float
    mean: Interval
    terms: tuple[Term, ...]
    error: Error
    cells: tuple[Cell, ...]
    leads: bool | None
    notes: tuple[str, ...]
    text: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """A published effect, the effect computed from the responses, and the difference that rounding explains."""

    term: str
    published: float
    computed: float
    tolerance: float


@dataclass(frozen=True)
class Replacement:
    """A response that explains the published effects, with its levels in the order of the factors."""

    row: int
    name: str
    levels: tuple[int, ...]
    printed: float
    implied: float


@dataclass(frozen=True)
class Audited:
    """Whether published effects of a response follow from its table; the rows that explain the difference, each by
    itself or `together`."""

    response: str
    factors: Mapping[str, str]
    verdict: str
    effects: tuple[Published, ...]
    rows: tuple[Replacement, ...]
    together: tuple[Replacement, ...]
    text: str


@dataclass(frozen=True)
class Factorial:
    """The analysis of each response; with `--effects`, the audit of each response instead."""

    responses: tuple[Explained, ...]
    audits: tuple[Audited, ...]


def of(found: Sequence[Findings], audits: Sequence[Audited] = ()) -> Factorial:
    """The answer of these findings."""
    return Factorial(tuple(map(_explained, found)), tuple(audits))


def audited(response: str, factors: Mapping[str, str], audit: Audit) -> Audited:
    """The answer of an audit. `factors` are the names by letter."""
    return Audited(
        response,
        factors,
        audit.verdict,
        tuple(Published(each.term, float(each.published), each.computed, each.tolerance) for each in audit.differences),
        _replacements(audit.rows),
        _replacements(audit.together),
        analysis.render_audit(audit),
    )


def _explained(found: Findings) -> Explained:
    chosen = found.analysis
    return Explained(
        found.response,
        chosen.model,
        found.reason,
        chosen.level,
        chosen.mean,
        chosen.ranked,
        chosen.error,
        chosen.cells,
        chosen.leads,
        chosen.notes,
        tuple(analysis.sentences(found)),
    )


def _replacements(rows: Sequence[RowExplanation]) -> tuple[Replacement, ...]:
    return tuple(Replacement(each.row, each.name, each.levels, each.printed, each.implied) for each in rows)
