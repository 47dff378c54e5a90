"""Every point's runs, second by second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.report.charts.timeline import resource_timeline, timeline
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.timeline import load_per_second, resources_per_second

if TYPE_CHECKING:
    from knee.dataset import Dataset


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Throughput, response time and CPU use of a point that the reader chooses."""
    seconds = load_per_second(dataset).filter(pl.col("point").is_in(list(sheet.clients)))
    if seconds.is_empty():
        return ""
    run = dataset.points.filter(pl.col("status") == "done").row(0, named=True)
    shades = [
        {"from": 0, "to": run["warmup_s"]},
        {"from": run["seconds"] - run["cooldown_s"], "to": run["seconds"]},
    ]
    values = records(seconds)
    figures = "".join(
        sheet.figure(
            f"timeline-{field}",
            timeline(values, shades, field, title, sheet.points, sheet.chosen),
            caption,
        )
        for field, title, caption in (
            (
                "throughput",
                "Throughput (requests/s)",
                "Each second of each repetition. The shaded parts are cut off; between them lines should be level.",
            ),
            ("response_ms", "Response time (ms)", "Mean response time of each second."),
        )
    )
    cores = resources_per_second(dataset).filter(
        (pl.col("repetition") == 1) & pl.col("point").is_in(list(sheet.clients))
    )
    if not cores.is_empty():
        figures += sheet.figure(
            "cpu-timeline",
            resource_timeline(records(cores.drop("repetition")), sheet.points, sheet.chosen),
            "CPU use of the host and of every process, in the first repetition.",
            wide=True,
        )
    return f'<div class="grid">{figures}</div>'
