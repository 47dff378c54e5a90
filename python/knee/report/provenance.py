"""The origin of the numbers: a line for the head of the page, and a section."""

from __future__ import annotations

from html import escape

from knee.data.measurements import Measurements
from knee.report.sheet import Sheet
from knee.report.tables import folded, mapping, table
from knee.stats.intervals import counted
from knee.verdict.findings import Findings, Provenance

_LEVELS_MAX = 8
"""The most levels of a factor that the head of the page lists."""


def section(sheet: Sheet) -> str:
    """The manifest and the experiment file of a run, or the facts and assumptions about a table."""
    found = sheet.findings.provenance
    if found is None:
        return _of_table(sheet.findings)
    manifest = dict(found.manifest)
    commands = manifest.pop("commands", None)
    return (
        mapping({name: value for name, value in manifest.items() if value not in ([], {}, "")})
        + (folded("The commands as started", mapping(commands)) if commands else "")
        + ("" if found.experiment is None else folded("The experiment file", f"<pre>{escape(found.experiment)}</pre>"))
    )


def facts(findings: Findings) -> str:
    """How much was measured."""
    if findings.provenance is None:
        found = findings.measurements
        return " · ".join(filter(None, (counted(found.table.height, "observation"), _factors(found))))
    return _facts_of_run(findings.provenance)


def _of_table(findings: Findings) -> str:
    found = findings.measurements
    rows = [
        ("file", found.source),
        ("observations", f"{found.table.height:,}"),
        ("factors", _factors(found) or "none"),
        ("responses", ", ".join(found.responses)),
        *(("assumed", note) for note in (*found.notes, *findings.laws.notes)),
    ]
    return table(("field", "value"), rows, wrap=True)


def _factors(found: Measurements) -> str:
    """workers (8, 16, 32), clients (12 levels)."""
    parts = []
    for name in found.factors:
        levels = found.table[name].drop_nulls().unique().sort().to_list()
        shown = ", ".join(map(str, levels)) if len(levels) <= _LEVELS_MAX else f"{len(levels)} levels"
        parts.append(f"{name} ({shown})")
    return ", ".join(parts)


def _facts_of_run(found: Provenance) -> str:
    if not found.runs:
        return "No run is complete."
    parts = [f"{counted(found.points, 'point')}, {counted(found.runs, 'run')} of {found.seconds} s"]
    if found.warmup_s + found.cooldown_s:
        parts[0] += f" ({found.warmup_s} s warm-up and {found.cooldown_s} s cool-down cut off)"
    for numbers, name in ((found.middlewares, "middleware"), (found.stores, "store")):
        if any(numbers):
            parts.append(f"{' or '.join(map(str, numbers))} {name}{'' if numbers == (1,) else 's'}")
    return " · ".join(parts)
