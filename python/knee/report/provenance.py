"""Where the numbers come from: in a line for the head of the page, and in full."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import polars as pl

from knee.data.csv import Measurements
from knee.report.sheet import Sheet
from knee.report.tables import folded, mapping, table
from knee.stats.intervals import counted

if TYPE_CHECKING:
    from knee.data import Dataset

_LEVELS_MAX = 8
"""Of a factor, that the head of the page names one by one."""


def section(sheet: Sheet, dataset: Dataset | None) -> str:
    """The manifest and the experiment file of a run, or what is known of a table and what was assumed of it."""
    if dataset is None:
        return _of_table(sheet)
    text, manifest = dataset.experiment_text, dict(dataset.manifest)
    commands = manifest.pop("commands", None)
    return (
        mapping({name: value for name, value in manifest.items() if value not in ([], {}, "")})
        + (folded("The commands as started", mapping(commands)) if commands else "")
        + ("" if text is None else folded("The experiment file", f"<pre>{escape(text)}</pre>"))
    )


def facts(sheet: Sheet, dataset: Dataset | None) -> str:
    """How much was measured."""
    return _facts_of_table(sheet.diagnosis.measurements) if dataset is None else _facts_of_run(dataset)


def _of_table(sheet: Sheet) -> str:
    found = sheet.diagnosis.measurements
    rows = [
        ("file", found.source),
        ("observations", f"{found.table.height:,}"),
        ("factors", _factors(found) or "none"),
        ("responses", ", ".join(found.responses)),
        *(("assumed", note) for note in (*found.notes, *sheet.diagnosis.laws.notes)),
    ]
    return table(("field", "value"), rows, wrap=True)


def _facts_of_table(found: Measurements) -> str:
    factors = _factors(found)
    return f"{counted(found.table.height, 'observation')} of somebody else's" + (f" · {factors}" if factors else "")


def _factors(found: Measurements) -> str:
    """workers (8, 16, 32), clients (12 levels)."""
    parts = []
    for name in found.factors:
        levels = found.table[name].drop_nulls().unique().sort().to_list()
        shown = ", ".join(map(str, levels)) if len(levels) <= _LEVELS_MAX else f"{len(levels)} levels"
        parts.append(f"{name} ({shown})")
    return ", ".join(parts)


def _facts_of_run(dataset: Dataset) -> str:
    done = dataset.points.filter(pl.col("status") == "done")
    if done.is_empty():
        return "No run is complete."
    first = done.sort("start_unix_s").row(0, named=True)
    parts = [
        f"{done['point'].n_unique()} points, {done.height} runs of {first['seconds']} s "
        f"({first['warmup_s']} s warm-up and {first['cooldown_s']} s cool-down cut off)"
    ]
    for column, name in (("middlewares", "middleware"), ("stores", "store")):
        numbers = done[column].drop_nulls().unique().sort().to_list()
        if any(numbers):
            parts.append(f"{' or '.join(map(str, numbers))} {name}{'' if numbers == [1] else 's'}")
    return " · ".join(parts)
