"""What the server saw and what the clients saw, and why that is not the same."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import polars as pl

from knee.report.charts.clients import against_load
from knee.report.sheet import Sheet
from knee.report.tables import Cell, folded
from knee.stats.intervals import Interval, counted
from knee.verdict.views import View, throughput_views, views, why_they_differ

if TYPE_CHECKING:
    from knee.data import Dataset

_VIEWS = (
    (
        "each",
        "One client (answers/s of waiting)",
        "The clients' view: what one client gets per second that it waits, 1 / its response time, on average over the "
        "clients. It stays while the server has capacity to spare, and then falls with every further client.",
    ),
    (
        "server",
        "The server (requests/s)",
        "The server's view: its requests divided by the time from the first to the last. It can grow with the clients "
        "until the server can do no more.",
    ),
)


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Both views of each configuration; empty where no store told when requests came."""
    runs = throughput_views(dataset, sheet.diagnosis.observations)
    found = {
        verdict.label: views(runs.filter(pl.col("point").is_in(verdict.points)), sheet.diagnosis.level)
        for verdict in sheet.diagnosis.verdicts
    }
    if not any(found.values()):
        return ""
    words = [
        (f"<h3>{escape(verdict.label)}</h3>" if verdict.label else "")
        + "".join(f"<p>{escape(sentence)}</p>" for sentence in why_they_differ(found[verdict.label], verdict.knee))
        for verdict in sheet.diagnosis.verdicts
        if found[verdict.label]
    ]
    first, *others = words
    more = folded(counted(len(others), "more configuration"), "".join(others)) if others else ""
    return first + more + _figures(sheet, found) + _table(sheet, found)


def _figures(sheet: Sheet, found: dict[str, tuple[View, ...]]) -> str:
    if len(sheet.counts) < 2:
        return ""
    figures = []
    for name, title, caption in _VIEWS:
        values = []
        for label, levels in found.items():
            for view in levels:
                at: Interval = getattr(view, name)
                values.append(
                    {"clients": view.clients, "series": sheet.short(label)}
                    | {"value": at.estimate, "low": at.low, "high": at.high}
                )
        spec = against_load(
            values,
            title,
            series=sheet.series_title if len(sheet.labels) > 1 else None,
            choices=sheet.short_labels,
            axis=sheet.axis,
        )
        figures.append(sheet.figure(f"view-{name}", spec, caption))
    return f'<div class="grid">{"".join(figures)}</div>'


def _table(sheet: Sheet, found: dict[str, tuple[View, ...]]) -> str:
    header = (
        "configuration",
        "clients",
        "one client (1/s of waiting)",
        "all clients (requests/s)",
        "the server (requests/s)",
    )
    rows: list[tuple[Cell, ...]] = [
        (label, view.clients, view.each, view.together, view.server)
        for label, levels in found.items()
        for view in levels
    ]
    return sheet.of_configurations(header, rows)
