"""Every measured quantity against clients, the arrival rate or another factor."""

from __future__ import annotations

import polars as pl

from knee.report.charts.vega import Rows, ends
from knee.report.sheet import Place, Sheet
from knee.report.tables import Cell, grid, numbers, paragraphs
from knee.stats.intervals import Interval, counted, mean_interval, percent
from knee.verdict import words
from knee.verdict.ceilings import SyncBound

_QUANTITIES = (
    ("throughput", "Throughput (requests/s)", "Throughput, as the clients saw it."),
    ("response_ms", "Response time (ms)", "Mean response time, as the clients saw it."),
    (
        "queue_length",
        "Queue length (requests)",
        "Mean number of requests that wait for a worker slot, summed over all middlewares.",
    ),
    (
        "queueing_ms",
        "Queueing time (ms)",
        "Mean time that a request waits for a worker slot. It grows if worker slots are the limit.",
    ),
    (
        "service_ms",
        "Service time (ms)",
        "Mean time from dequeued to answered. It grows if a server behind the middleware is the limit.",
    ),
    (
        "connection_ms",
        "Wait for a connection (ms)",
        "Mean time that a worker slot waits for a connection to the database, part of the service time. It grows if "
        "connections are the limit.",
    ),
    (
        "cache_hit_ratio",
        "Hit ratio of the near cache",
        "Share of the keys of gets that the middlewares answered without a store. Its hits have no service time.",
    ),
    (
        "middleware_response_ms",
        "Response time at the middleware (ms)",
        "Mean time from received to replied. The clients' response times also include the time between client and "
        "middleware.",
    ),
)

_MISSES = (("miss_share", "Missed keys (clients)"), ("middleware_miss_share", "Missed keys (middlewares)"))

_AGAINST = {
    ("clients", "response_ms"): "Mean response time, as the clients saw it. Once throughput stops rising, "
    "every further client makes it longer.",
    ("rate", "throughput"): "Throughput, as the clients saw it. On the dotted line, throughput equals the arrival "
    "rate: the system answers requests as fast as they arrive. Below the line, the system does not keep up.",
    ("rate", "response_ms"): "Mean response time, as the clients saw it. If requests arrive faster than the system "
    "answers them, it has no steady value: the wait grows with the length of the run.",
    (
        "requests in flight",
        "throughput",
    ): "Throughput, as the clients saw it. The load is an open loop: throughput is the "
    "arrival rate as long as the system keeps up. The number of clients only limits how many requests there can be "
    "in flight.",
}
"""Captions for a certain axis. In an open loop, the number of clients only limits the requests in flight."""


def title(sheet: Sheet) -> str:
    """The heading: the axis, or the number of clients if there is only one."""
    if sheet.axis.field == "rate":
        return "Against the arrival rate"
    clients = counted(sheet.naming.counts[0], "client") if len(sheet.naming.counts) == 1 else ""
    if sheet.naming.factor is not None:
        return f"Against {sheet.naming.factor}" + (f", at {clients}" if clients else "")
    return f"At {clients}" if clients else "Against clients"


def section(sheet: Sheet) -> str:
    """All measured quantities, with a line for each combination of the other factors; empty without points."""
    if not sheet.naming.load:
        return ""
    columns = sheet.findings.observations.columns
    means = {column: found for column, _, _ in _QUANTITIES if column in columns and (found := _means(sheet, column))}
    failures = sheet.findings.details.failures if sheet.findings.details else None
    notes = {"throughput": words.note_on_throughput(failures), "response_ms": words.note_on_times(failures)}
    bound = sheet.findings.details.sync_bound if sheet.findings.details else None
    bounds = _bounds(sheet, bound) if bound and not bound.is_refuted else []
    # The verdict draws the same curves of a single configuration.
    verdicts = sheet.naming.verdicts
    is_drawn = len(sheet.naming.labels) == len(verdicts) == 1 and len(verdicts[0].knee.levels) > 1 and not bounds
    main = () if is_drawn else ("throughput", "response_ms")
    if bound and not sheet.axis.names:
        notes["throughput"] += words.note_on_syncs(bound)
    figures: list[str] = []
    for column, name, caption in _QUANTITIES if len(sheet.axis.levels) > 1 else ():
        values = [
            sheet.place(point) | ends(at)
            for point, _ in sheet.naming.points
            if (at := means.get(column, {}).get(point)) is not None and at.repetitions
        ]
        if values:
            spec = sheet.against_load(
                values,
                name,
                diagonal=sheet.axis.field == "rate" and column == "throughput",
                bounds=bounds if column == "throughput" and not sheet.axis.names else None,
            )
            over = (
                "requests in flight" if sheet.naming.open_loop and sheet.axis.field == "clients" else sheet.axis.field
            )
            said = _AGAINST.get((over, column), caption) + notes.get(column, "")
            place: Place = "open" if column in main else "more"
            figures.append(sheet.figure(f"{sheet.axis.field}-{column}", spec, said, place=place))
    shown = [(column, name) for column, name, _ in _QUANTITIES if column in means]
    missed = {name: found for column, name in _MISSES if column in columns and (found := _means(sheet, column))}
    rows: list[tuple[Cell, ...]] = [
        (
            sheet.naming.series[point],
            sheet.naming.load[point],
            *(means[column][point] for column, _ in shown),
            *(percent(each[point].estimate) if each[point].repetitions else None for each in missed.values()),
        )
        for point, _ in sheet.naming.points
    ]
    table = sheet.of_lines([*(name for _, name in shown), *missed], rows)
    return numbers(paragraphs([words.crossing(sheet.findings.crossing)]) + grid(*figures), table)


def _bounds(sheet: Sheet, bound: SyncBound) -> Rows:
    return [
        sheet.place(point) | {"value": bound.throughput[point]}
        for point, _ in sheet.naming.points
        if point in bound.throughput
    ]


def _means(sheet: Sheet, column: str) -> dict[int, Interval]:
    """Each point's mean over its repetitions; empty without a measurement."""
    values = sheet.findings.observations.filter(pl.col(column).is_not_null()).group_by("point").agg(column)
    if values.is_empty():
        return {}
    nothing = mean_interval([], sheet.findings.level)
    found = {point: mean_interval(repetitions, sheet.findings.level) for point, repetitions in values.iter_rows()}
    return {point: found.get(point, nothing) for point in sheet.naming.load}
