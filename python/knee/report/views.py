"""Throughput as the server and as the clients see it, and how the two relate."""

from __future__ import annotations

from collections.abc import Mapping

from knee.report.charts.vega import Rows, ends
from knee.report.sheet import Sheet
from knee.report.tables import columns, folded, grid, heading, paragraphs
from knee.stats.intervals import counted
from knee.verdict import words
from knee.verdict.views import View

_VIEWS = (
    (
        "each",
        "One client (answers/s while it waits)",
        "The clients' view: answers per second while it waits, on average over the clients. It stays the same "
        "while the server has capacity to spare, and then falls with every further client.",
    ),
    (
        "server",
        "The server (requests/s)",
        "The server's view: requests per second, from the first request to the last. It grows with the clients "
        "until the server is at its capacity.",
    ),
)


def section(sheet: Sheet) -> str:
    """Both views of each configuration; empty if no store reports the arrival times of requests."""
    if sheet.findings.details is None:
        return ""
    found = sheet.findings.details.views
    if not any(found.values()):
        return ""
    texts = [
        heading(verdict.label) + paragraphs(words.views(found[verdict.label], verdict.knee))
        for verdict in sheet.findings.verdicts
        if found[verdict.label]
    ]
    first, *others = texts
    more = folded(counted(len(others), "more configuration"), "".join(others)) if others else ""
    return first + more + _figures(sheet, found) + _table(sheet, found)


def _figures(sheet: Sheet, found: Mapping[str, tuple[View, ...]]) -> str:
    if len(sheet.naming.counts) < 2:
        return ""
    figures = []
    for name, title, caption in _VIEWS:
        values: Rows = [
            {"clients": view.clients, "series": sheet.naming.short(label), **ends(getattr(view, name))}
            for label, levels in found.items()
            for view in levels
        ]
        figures.append(sheet.figure(f"view-{name}", sheet.against_load(values, title), caption))
    return grid(*figures)


def _table(sheet: Sheet, found: Mapping[str, tuple[View, ...]]) -> str:
    return sheet.of_configurations(
        *columns(
            [
                {
                    "configuration": label,
                    "clients": view.clients,
                    "one client (1/s while it waits)": view.each,
                    "all clients (requests/s)": view.together,
                    "the server (requests/s)": view.server,
                }
                for label, levels in found.items()
                for view in levels
            ]
        )
    )
