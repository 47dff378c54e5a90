"""Percentiles and histograms of response times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.report.charts.distributions import histogram, percentile_lines
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import folded, table
from knee.verdict.distributions import ALL, densities, merged, percentiles
from knee.verdict.failures import note_on_times

if TYPE_CHECKING:
    from knee.data import Dataset

_VIEWS = {"load": "client", "middleware": "middleware"}


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Percentiles against the load, and the histograms of a point that the reader chooses."""
    histograms = merged(dataset)
    if not histograms:
        return ""
    table_of = percentiles(histograms).with_columns(
        pl.col("point").replace_strict(sheet.load, return_dtype=pl.Float64).alias(sheet.axis.field),
        pl.col("point").replace_strict(sheet.series, return_dtype=pl.String).alias("series"),
        ("p" + pl.col("percentile").cast(pl.String).str.strip_suffix(".0")).alias("name"),
    )
    seen = table_of.filter((pl.col("role") == "load") & (pl.col("op") == ALL))
    lines = seen.select(sheet.axis.field, "series", pl.col("name").alias("percentile"), "value_ms", "low_ms", "high_ms")
    density = densities(histograms).with_columns(pl.col("role").replace_strict(_VIEWS, return_dtype=pl.String))
    ops = sorted(density["op"].unique().to_list(), key=lambda op: (op != ALL, op))
    if len(ops) == 2:  # one operation: "all" would show the same again
        ops = ops[:1]
        density = density.filter(pl.col("op") == ALL)
    note = note_on_times(dataset)
    figures = sheet.figure(
        "percentiles",
        percentile_lines(records(lines), sheet.axis, sheet.labels),
        "Percentiles as the clients saw them, read off the merged histograms; the bars span the repetitions. "
        f"Mind the logarithmic axis.{note}",
    ) + sheet.figure(
        "histogram",
        histogram(records(density), sheet.points, sheet.chosen, ops),
        (
            "The same requests, timed by the clients and by the middlewares. The distance between the two "
            "is the way between them."
            if "middleware" in density["role"].to_list()
            else "How long requests took, as the clients saw them."
        )
        + note,
    )
    names = list(dict.fromkeys(seen["name"].to_list()))
    rows = []
    for point, label in sheet.points:
        for (role, op), group in table_of.filter(pl.col("point") == point).group_by("role", "op", maintain_order=True):
            rows.append((label, _VIEWS[str(role)], str(op), *group.sort("percentile")["value_ms"].to_list()))
    header = ("point", "view", "operation", *(f"{name} ms" for name in names))
    return f'<div class="grid">{figures}</div>' + folded("The numbers", table(header, rows))
