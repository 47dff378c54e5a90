"""Response times of each operation, alone and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

from knee.report.charts.vega import Rows, ends
from knee.report.sheet import Sheet
from knee.report.tables import Cell, grid, numbers, paragraphs
from knee.stats.intervals import percent
from knee.verdict import words
from knee.verdict.operations import Operation

Found = Mapping[int, Mapping[str, Operation]]


def section(sheet: Sheet) -> str:
    """Empty for a single operation: other sections show it already."""
    details = sheet.findings.details
    if details is None:
        return ""
    found = details.operations
    names = sorted({name for each in found.values() for name in each})
    if len(names) < 2:
        return ""
    text = paragraphs(words.operations(details, sheet.naming))
    failed = [name for name in names if any(name in each and each[name].failed for each in found.values())]
    times = words.response_times_of_failed(details.failures)
    figures = _figures(sheet, found, {name: f" {times}" if name in failed else "" for name in names})
    note = paragraphs([f"Requests/s counts requests that did not fail. {times}"] if failed else [], "doubt")
    return numbers(text + figures, _table(sheet, found, details.items) + note)


def _table(sheet: Sheet, found: Found, items: str) -> str:
    """The table of all operations. A column of failures, or of items per request, exists only if it has information."""
    places = [(point, one) for point, each in found.items() for one in each.values()]
    columns: dict[str, list[Cell]] = {
        "operation": [one.name for _, one in places],
        items: [one.items for _, one in places],
        "requests/s": [one.per_s for _, one in places],
        f"{items}/s": [one.items_per_s for _, one in places],
        "failed": [percent(one.failed) for _, one in places],
        "mean ms": [one.mean_ms for _, one in places],
        "p50 ms": [one.p50_ms for _, one in places],
        "p99 ms": [one.p99_ms for _, one in places],
    }
    if not any(one.failed for _, one in places):
        del columns["failed"]
    if all(one.items == 1 for _, one in places):
        del columns[items], columns[f"{items}/s"]
    rows = [
        (sheet.naming.series[point], sheet.naming.load[point], *cells)
        for (point, _), *cells in zip(places, *columns.values(), strict=True)
    ]
    return sheet.of_lines(tuple(columns), rows)


def _figures(sheet: Sheet, found: Found, notes: dict[str, str]) -> str:
    """A figure for each operation. `notes` are the ends of their captions."""
    if len(sheet.axis.levels) < 2:
        return ""
    figures = ""
    for name, note in notes.items():
        values: Rows = [
            sheet.place(point) | ends(one.mean_ms)
            for point, each in found.items()
            if (one := each.get(name)) is not None and math.isfinite(one.mean_ms.estimate)
        ]
        if not values:
            continue
        spec = sheet.against_load(values, f"{name}: response time (ms)")
        caption = f"Mean response time of {name}, as the clients saw it, while the other operations run.{note}"
        figures += sheet.figure(f"operation-{name}", spec, caption)
    return grid(figures)
