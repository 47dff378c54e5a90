"""What each operation took, alone and beside others."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from knee.report.charts.clients import against_load
from knee.report.charts.vega import Rows
from knee.report.sheet import Sheet
from knee.report.tables import Cell, folded
from knee.stats.intervals import counted
from knee.verdict.distributions import merged
from knee.verdict.failures import percent, whose_times
from knee.verdict.operations import Operation, apart_from_mix, beside_others, operations, together_or_alone

if TYPE_CHECKING:
    from knee.data import Dataset

_COMPARED_MAX = 4
"""Configurations in one sentence; of more, the figures tell."""


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Empty where clients asked for one operation only: that is all there is to see of the requests together."""
    found = operations(merged(dataset), sheet.diagnosis.observations, dataset, sheet.diagnosis.level)
    found = {point: found[point] for point, _ in sheet.points if point in found}
    names = sorted({name for each in found.values() for name in each})
    if len(names) < 2:
        return ""
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in _sentences(sheet, dataset, found, names))
    failed = [name for name in names if any(name in each and each[name].failed for each in found.values())]
    times = whose_times(dataset)
    items = "messages" if dataset.spec.base.workload.protocol == "queue" else "keys"
    figures = _figures(sheet, found, {name: f" {times}" if name in failed else "" for name in names})
    note = f'<p class="doubt">Requests/s are those that did not fail. {escape(times)}</p>' if failed else ""
    return words + figures + folded("The numbers", _table(sheet, found, items) + note)


def _table(sheet: Sheet, found: dict[int, dict[str, Operation]], items: str) -> str:
    """With a column of what failed only where anything did, and of what requests are about only where it is not one."""
    places = [(point, one) for point, each in found.items() for one in each.values()]
    columns: dict[str, list[Cell]] = {
        "operation": [one.name for _, one in places],
        items: [one.items for _, one in places],
        "requests/s": [one.per_s for _, one in places],
        "failed": [percent(one.failed) for _, one in places],
        "mean ms": [one.mean_ms for _, one in places],
        "p50 ms": [one.p50_ms for _, one in places],
        "p99 ms": [one.p99_ms for _, one in places],
    }
    if not any(one.failed for _, one in places):
        del columns["failed"]
    if all(one.items == 1 for _, one in places):
        del columns[items]
    rows = [
        (sheet.series[point], sheet.load[point], *cells)
        for (point, _), *cells in zip(places, *columns.values(), strict=True)
    ]
    return sheet.of_lines(tuple(columns), rows)


def _sentences(sheet: Sheet, dataset: Dataset, found: dict[int, dict[str, Operation]], names: list[str]) -> list[str]:
    """Under the most load, where what waits for what shows most."""
    most = max(sheet.axis.levels)
    at_most = {sheet.series[point]: point for point in found if sheet.load[point] == most}
    load = sheet.in_words(most)
    if sheet.configurations:
        at_most = {sheet.in_words(sheet.load[point]): point for point in found}
        load = counted(sheet.counts[0], "client")
    sentences = [
        beside_others(name, of_name, load)
        for name in names
        if 1
        < len(of_name := [(label, found[point][name]) for label, point in at_most.items() if name in found[point]])
        <= _COMPARED_MAX
    ]
    apart = apart_from_mix(dataset)
    sentences += together_or_alone([(label, apart[point], found[point]) for label, point in at_most.items()], load)
    return [sentence for sentence in sentences if sentence]


def _figures(sheet: Sheet, found: dict[int, dict[str, Operation]], notes: dict[str, str]) -> str:
    """One for each operation; `notes` end their captions."""
    if len(sheet.axis.levels) < 2:
        return ""
    figures = ""
    for name, note in notes.items():
        values: Rows = [
            {sheet.axis.field: sheet.load[point], "series": sheet.short(sheet.series[point])}
            | {"value": one.mean_ms.estimate, "low": one.mean_ms.low, "high": one.mean_ms.high}
            for point, each in found.items()
            if (one := each.get(name)) is not None and math.isfinite(one.mean_ms.estimate)
        ]
        if not values:
            continue
        spec = against_load(
            values,
            f"{name}: response time (ms)",
            series=sheet.series_title if len(sheet.labels) > 1 else None,
            choices=sheet.short_labels,
            axis=sheet.axis,
        )
        caption = f"Mean response time of {name} alone, as the clients saw it, beside what else was asked for.{note}"
        figures += sheet.figure(f"operation-{name}", spec, caption)
    return f'<div class="grid">{figures}</div>'
