"""The seconds of every point's runs."""

from __future__ import annotations

import polars as pl

from knee.report.charts.timeline import resource_timeline, store_timeline, timeline
from knee.report.charts.vega import Rows
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import grid, paragraphs
from knee.verdict import words
from knee.verdict.details import Details

_OF_STORES: tuple[tuple[str, str, dict[str, str], str], ...] = (
    (
        "file",
        "Log (MB)",
        {"file_mb": "taken", "live_mb": "live"},
        "Size of the stores' logs, and how much of it is live data. The store reclaims the difference over time. If "
        "live data grows, there are more keys or old versions.",
    ),
    ("versions", "Versions", {"versions": "versions"}, "Versions that the stores keep."),
    (
        "snapshots",
        "Age (s)",
        {"snapshot_age_s": "oldest snapshot"},
        "Age of the oldest open snapshot. The store keeps versions that were replaced since then.",
    ),
    ("commits", "Time of a commit (ms)", {"commit_ms": "a commit"}, "Mean time to make a group of writes durable."),
    ("groups", "Writes in a commit", {"commit_records": "writes"}, "Mean number of writes made durable together."),
)


def section(sheet: Sheet) -> str:
    """Throughput, response times and CPU use of a point that the reader chooses."""
    details, run = sheet.findings.details, sheet.findings.provenance
    if details is None or run is None or details.per_second.is_empty():
        return ""
    shades = [{"from": 0, "to": run.warmup_s}, {"from": run.seconds - run.cooldown_s, "to": run.seconds}]
    values, of_times = records(details.per_second), words.note_on_times(details.failures)
    figures = "".join(
        sheet.figure(
            f"timeline-{field}",
            timeline(values, shades, field, title, sheet.naming.points, sheet.naming.chosen),
            caption,
            place="open" if field == "throughput" else "more",
        )
        for field, title, caption in (
            (
                "throughput",
                "Throughput (requests/s)",
                "Each second of each repetition. Analyses leave out the shaded parts; between these, lines should be "
                "flat."
                f"{words.note_on_throughput(details.failures)}",
            ),
            ("response_ms", "Response time (ms)", f"Mean response time of each second.{of_times}"),
        )
    )
    figures += _of_operations(sheet, details, shades, of_times)
    cores = details.cores_per_second
    if not cores.is_empty():
        figures += sheet.figure(
            "cpu-timeline",
            resource_timeline(records(cores.drop("repetition")), sheet.naming.points, sheet.naming.chosen),
            "CPU use of the host and of every process, in the first repetition that did not fail.",
            wide=True,
        )
    sentences = [words.drift(details.drifts, dict(sheet.naming.points)), *words.log(details, sheet.naming)]
    return paragraphs(sentences) + grid(figures, _of_stores(sheet, details))


def _of_operations(sheet: Sheet, details: Details, shades: Rows, note: str) -> str:
    """Response times of each of several operations: the mean of all would hide rare ones.

    `note` ends the caption.
    """
    seconds = details.operations_per_second
    if seconds["op"].n_unique() < 2:
        return ""
    values, naming = records(seconds.drop("repetition")), sheet.naming
    spec = timeline(values, shades, "response_ms", "Response time (ms)", naming.points, naming.chosen, ("op", None))
    caption = "Mean response time of each operation in each second, in the first repetition that did not fail."
    return sheet.figure("timeline-operations", spec, caption + note, wide=True)


def _of_stores(sheet: Sheet, details: Details) -> str:
    """Charts of the stores' own reports, for one run of each point; empty without a store with versions."""
    figures = ""
    for name, title, fields, caption in _OF_STORES:
        parts = [
            details.stores_per_second.select(
                "point", "middle_s", pl.lit(what).alias("what"), pl.col(column).cast(pl.Float64).alias("value")
            )
            for column, what in fields.items()
        ]
        values = pl.concat(parts).drop_nulls("value")
        if values.is_empty() or not values["value"].max():
            continue
        spec = store_timeline(records(values), title, sheet.naming.points, sheet.naming.chosen)
        figures += sheet.figure(f"store-{name}", spec, caption)
    return figures
