"""The sentences of each part of the findings."""

from __future__ import annotations

from knee import factorial, laws
from knee.data.measurements import label_of
from knee.fit import parameter_sentence, selection_sentence
from knee.laws import LawReport
from knee.stats.intervals import counted, number, quantity
from knee.verdict.findings import Findings, Unexplained
from knee.verdict.levels import unit_of
from knee.verdict.words.arrivals import arrivals
from knee.verdict.words.levels import levels

_KEYS_UNKNOWN = (
    "Knee names no largest throughput: a factor sets the number of keys in a request, and the answered keys are "
    "unknown."
)


def arrival_lines(findings: Findings) -> list[str]:
    """The largest arrival rate that throughput follows, at each combination of the other factors."""
    return [
        f"{label_of(found.factors)}: {text}" if found.factors else text
        for found in findings.arrivals
        if (text := arrivals(found))
    ]


def factor_lines(findings: Findings) -> list[str]:
    """The factor that changed each response most, or why that is unknown; for a single factor, its best level."""
    if findings.levels is not None:
        return [levels(findings.levels)]
    measured = findings.measurements
    keys = "throughput" in measured.table.columns and unit_of(measured.table, measured.factors) is None
    return [
        *([_KEYS_UNKNOWN] if keys else []),
        *(line for effects in findings.effects for line in factorial.sentences(effects)[:2]),
        *map(unexplained, findings.unexplained),
    ]


def unexplained(found: Unexplained) -> str:
    """Why no factorial analysis explains a response."""
    if found.response is None:
        return "Cannot tell which factor matters for a closed and an open loop together. Analyse a table of each."
    if found.constant:
        return f"No factor matters for {found.response}: {found.response} is the same in every row."
    return f"Cannot tell which factor matters for {found.response}: {found.reason}."


def model_lines(findings: Findings) -> list[str]:
    """Each configuration's best model, or why there is none; empty if the number of clients was not varied."""
    if len(findings.naming.counts) < 2:
        return []
    lines = []
    for system in findings.outlooks.systems:
        label = f"{system.label}: " if system.label else ""
        lines += [label + selection_sentence(system.selection), parameter_sentence(system)]
    return [*lines, *beside_lines(findings), *findings.outlooks.unfitted]


def beside_lines(findings: Findings) -> list[str]:
    """The waiting requests of each model and of the middlewares, at the most clients."""
    most = {row.label: row for row in findings.beside}
    return [
        f"{f'{row.label}: ' if row.label else ''}At {counted(row.clients, 'client')}, {number(row.model['waiting'])} "
        f"requests wait in the model ({row.name}), and {quantity(row.measured['waiting'])} requests wait in the "
        f"middlewares. On average, a request waits {number(row.model['waiting_ms'])} ms in the model, and "
        f"{quantity(row.measured['waiting_ms'])} ms in the middlewares. The model counts the waiting at all its "
        "stations, and the middlewares count only the waiting for a worker slot."
        for row in most.values()
        if {"waiting", "waiting_ms"} <= set(row.measured)
    ]


def law_lines(found: LawReport) -> list[str]:
    """Whether the interactive law holds, which repetitions differ from the others of their point, which other laws are
    violated, and which request types are missing."""
    of_types = [check for check in found.interactive if check.request_type is not None]
    others = [
        check.law
        for checks in (of_types, found.stations, found.pooled)
        for check in checks
        if check.verdict == "violated" and check.law != "the interactive law"
    ]
    for tier in dict.fromkeys(check.tier for check in found.conservation if check.verdict == "violated"):
        others.append(f"the balance of requests between clients and {tier}")
    lines = [*laws.sentences(found)[:1], *laws.outliers(found)]
    if others:
        lines.append(f"Other violated laws: {', '.join(dict.fromkeys(others))}.")
    if absent := dict.fromkeys(name for names in found.absent.values() for name in names):
        lines.append(f"Some run has no requests of these types: {', '.join(absent)}.")
    return lines
