"""Percentiles and histograms of response times."""

from __future__ import annotations

import polars as pl

from knee.report.charts.distributions import histogram, percentile_lines
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import grid, numbers, table
from knee.verdict import words
from knee.verdict.distributions import ALL

_VIEWS = {"load": "client", "middleware": "middleware"}


def section(sheet: Sheet) -> str:
    """Percentiles against the load, and the histograms of a point that the reader chooses."""
    details = sheet.findings.details
    if details is None or details.percentiles.is_empty():
        return ""
    table_of = details.percentiles.with_columns(
        pl.col("point").replace_strict(sheet.naming.load, return_dtype=pl.Float64).alias(sheet.axis.field),
        pl.col("point").replace_strict(sheet.naming.series, return_dtype=pl.String).alias("series"),
        ("p" + pl.col("percentile").cast(pl.String).str.strip_suffix(".0")).alias("name"),
    )
    # The quartiles are in the table only: the figure has few enough lines to read.
    drawn = ~pl.col("name").is_in(["p25", "p75"])
    seen = table_of.filter((pl.col("role") == "load") & (pl.col("op") == ALL) & drawn)
    lines = seen.select(sheet.axis.field, "series", pl.col("name").alias("percentile"), "value_ms", "low_ms", "high_ms")
    density = details.densities.with_columns(pl.col("role").replace_strict(_VIEWS, return_dtype=pl.String))
    ops = sorted(density["op"].unique().to_list(), key=lambda op: (op != ALL, op))
    if len(ops) == 2:  # "all" repeats the only operation
        ops = ops[:1]
        density = density.filter(pl.col("op") == ALL)
    note = words.note_on_times(details.failures)
    figures = sheet.figure(
        "percentiles",
        percentile_lines(records(lines), sheet.axis, sheet.naming.labels),
        "Percentiles as the clients saw them, from merged histograms. The bars span the repetitions. "
        f"The axis is logarithmic.{note}",
        place="open",
    ) + sheet.figure(
        "histogram",
        histogram(records(density), sheet.naming.points, sheet.naming.chosen, ops),
        (
            "Response times of the same requests, measured by clients and by middlewares. The difference is the time "
            "between client and middleware."
            if "middleware" in density["role"].to_list()
            else "Response times of requests, as the clients saw them."
        )
        + note,
    )
    names = dict(table_of.select("name", "percentile").unique().sort("percentile").iter_rows())
    rows = []
    for point, label in sheet.naming.points:
        for (role, op), group in table_of.filter(pl.col("point") == point).group_by("role", "op", maintain_order=True):
            values = dict(group.select("name", "value_ms").iter_rows())
            rows.append((label, _VIEWS[str(role)], str(op), *map(values.get, names)))
    header = ("point", "view", "operation", *(f"{name} ms" for name in names))
    return numbers(grid(figures), table(header, rows))
