"""Every point's runs, second by second."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN
from knee.report.charts.timeline import operation_timeline, resource_timeline, store_timeline, timeline
from knee.report.charts.vega import Rows
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.verdict.drift import drifts, whether_it_stays
from knee.verdict.failures import note_on_throughput, note_on_times
from knee.verdict.timeline import (
    load_per_second,
    operations_per_second,
    resources_per_second,
    store_per_second,
    what_the_log_took,
)

if TYPE_CHECKING:
    from knee.data import Dataset

_OF_STORES: tuple[tuple[str, str, dict[str, str], str], ...] = (
    (
        "file",
        "Log (MB)",
        {"file_mb": "taken", "live_mb": "live"},
        "What the stores' logs take, and how much of it may still be asked for. Space between the two is had back in "
        "time; where the live part grows, there are more keys or old versions.",
    ),
    ("versions", "Versions", {"versions": "versions"}, "Versions that the stores keep."),
    (
        "snapshots",
        "Age (s)",
        {"snapshot_age_s": "oldest snapshot"},
        "Age of the oldest snapshot that somebody reads: nothing that was replaced since is had back.",
    ),
    ("commits", "Time of a commit (ms)", {"commit_ms": "a commit"}, "Mean time to make a group of writes safe."),
    ("groups", "Writes in a commit", {"commit_records": "writes"}, "Mean number of writes made safe together."),
)


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Throughput, response times and CPU use of a point that the reader chooses."""
    seconds = load_per_second(dataset).filter(pl.col("point").is_in(list(sheet.load)))
    if seconds.is_empty():
        return ""
    run = dataset.points.filter(pl.col("status") == "done").row(0, named=True)
    shades = [
        {"from": 0, "to": run["warmup_s"]},
        {"from": run["seconds"] - run["cooldown_s"], "to": run["seconds"]},
    ]
    values, of_times = records(seconds), note_on_times(dataset)
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
                "Each second of each repetition. The shaded parts are cut off; between them lines should be level."
                f"{note_on_throughput(dataset)}",
            ),
            ("response_ms", "Response time (ms)", f"Mean response time of each second.{of_times}"),
        )
    )
    figures += _of_operations(sheet, dataset, shades, of_times)
    cores = _of_one_run(resources_per_second(dataset), sheet, dataset)
    if not cores.is_empty():
        figures += sheet.figure(
            "cpu-timeline",
            resource_timeline(records(cores.drop("repetition")), sheet.points, sheet.chosen),
            "CPU use of the host and of every process, in the first repetition that did not fail.",
            wide=True,
        )
    words, of_stores = _of_stores(sheet, dataset)
    names = dict(sheet.points)
    if stays := whether_it_stays(drifts(dataset, names, sheet.diagnosis.level), names):
        words = f"<p>{escape(stays)}</p>{words}"
    return f'{words}<div class="grid">{figures}{of_stores}</div>'


def _of_one_run(seconds: pl.DataFrame, sheet: Sheet, dataset: Dataset) -> pl.DataFrame:
    """Each point's first repetition that did not fail."""
    done = dataset.points.filter((pl.col("status") == "done") & pl.col("point").is_in(list(sheet.load)))
    first = done.group_by("point").agg(pl.col("repetition").min())
    return seconds.join(first, on=RUN, how="semi", maintain_order="left")


def _of_operations(sheet: Sheet, dataset: Dataset, shades: Rows, note: str) -> str:
    """Response times where there are several operations: in the mean of all what is asked for most hides the others.

    `note` ends the caption.
    """
    seconds = _of_one_run(operations_per_second(dataset), sheet, dataset)
    if seconds["op"].n_unique() < 2:
        return ""
    values = records(seconds.drop("repetition"))
    return sheet.figure(
        "timeline-operations",
        operation_timeline(values, shades, sheet.points, sheet.chosen),
        f"Mean response time of each operation in each second, in the first repetition that did not fail.{note}",
        wide=True,
    )


def _of_stores(sheet: Sheet, dataset: Dataset) -> tuple[str, str]:
    """What stores that keep versions told of themselves in one run of each point, in words and in figures; only what
    there was anything of."""
    told = _of_one_run(store_per_second(dataset), sheet, dataset)
    figures = ""
    for name, title, fields, caption in _OF_STORES:
        parts = [
            told.select("point", "middle_s", pl.lit(what).alias("what"), pl.col(column).cast(pl.Float64).alias("value"))
            for column, what in fields.items()
        ]
        values = pl.concat(parts).drop_nulls("value")
        if values.is_empty() or not values["value"].max():
            continue
        spec = store_timeline(records(values), title, sheet.points, sheet.chosen)
        figures += sheet.figure(f"store-{name}", spec, caption)
    label = dict(sheet.points).get(sheet.chosen, "")
    log = what_the_log_took(told.filter(pl.col("point") == sheet.chosen))
    return f"<p>{escape(label)}: {escape(log)}</p>" if log else "", figures
