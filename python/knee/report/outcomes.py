"""Reads by what came of them: clusters drawn, and the figures of each."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import polars as pl

from knee.distributions import merged
from knee.outcomes import OUTCOMES, clusters, outcomes, reads, why_the_mean_misleads
from knee.report.charts.outcomes import clusters_of_outcomes, outcomes_against_clients
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import Cell

if TYPE_CHECKING:
    from knee.dataset import Dataset

_COLUMNS = (
    ("count", "reads"),
    ("share", "of all reads"),
    ("time_share", "of all waiting"),
    ("mean_ms", "mean ms"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("max_ms", "max ms"),
    ("each", "answers/s of waiting"),
)


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Empty where the clients did not tell reads apart by what came back."""
    found = {key: one for key, one in reads(merged(dataset)).items() if key[0] in sheet.clients}
    if not found:
        return ""
    of_outcomes = outcomes(found).with_columns(
        pl.col("point").replace_strict(sheet.clients, return_dtype=pl.Int64).alias("clients"),
        pl.col("point").replace_strict(sheet.series, return_dtype=pl.String).alias("series"),
    )
    names = [name for name in OUTCOMES.values() if name in of_outcomes["outcome"].to_list()]
    sentence = why_the_mean_misleads(of_outcomes, sheet.chosen, sheet.clients[sheet.chosen])
    figures = sheet.figure(
        "outcome-clusters",
        clusters_of_outcomes(records(clusters(found)), sheet.points, sheet.chosen, names),
        "How long reads of each outcome took, as shares of that outcome's own reads, so that few large ones show as "
        "well. Outcomes that do not overlap are clusters of their own. Mind the logarithmic axis.",
    )
    if len(sheet.counts) > 1:
        figures += sheet.figure(
            "outcome-means",
            outcomes_against_clients(
                records(of_outcomes.select("clients", "series", "outcome", "mean_ms")), sheet.counts, sheet.labels
            ),
            "Mean response time of each outcome. Where they lie far apart, the mean of all reads is that of no read "
            "at all.",
        )
    rows: list[tuple[Cell, ...]] = [
        (row["series"], row["clients"], row["outcome"], *(_shown(name, row[name]) for name, _ in _COLUMNS))
        for row in of_outcomes.sort("series", "clients", maintain_order=True).iter_rows(named=True)
    ]
    header = ("configuration", "clients", "outcome", *(title for _, title in _COLUMNS))
    return f'<p>{escape(sentence)}</p><div class="grid">{figures}</div>' + sheet.of_configurations(header, rows)


def _shown(name: str, value: float) -> Cell:
    return f"{value:.2%}" if name.endswith("share") else value
