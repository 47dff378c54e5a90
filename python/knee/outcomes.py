"""Reads by what came of them: found nothing, found something, found something very large. Pure.

Results that differ in size by orders of magnitude make response times that differ as much: the mean of all of them is
then that of no request at all, and a few large ones take most of the time.
"""

from __future__ import annotations

import polars as pl

from knee.distributions import Merged, densities
from knee.hdr import Histogram
from knee.intervals import counted, number

OUTCOMES = {"read_missing": "not found", "read": "ordinary", "read_large": "very large"}
"""What the types of reads are called."""

ALL_READS = "all reads"

_NS_PER_MS = 1e6


def reads(histograms: Merged) -> Merged:
    """The clients' reads, where the clients told at least two outcomes apart; else nothing."""
    found = {key: one for key, one in histograms.items() if key[2] == "load" and key[3] in OUTCOMES and one.total}
    return found if len({op for *_, op in found}) > 1 else {}


def outcomes(found: Merged) -> pl.DataFrame:
    """What each outcome took, from the merged histograms of all repetitions.

    Returns
    -------
    `point, outcome, count, share, time_share, mean_ms, p50_ms, p99_ms, max_ms, each`: the share of the point's reads,
    the share of the time that clients waited for them, and the answers per second that a client waits (1 / mean). The
    last outcome of each point is all reads together.
    """
    rows = []
    for point in sorted({key[0] for key in found}):
        parts = {
            name: Histogram.merge(one for key, one in found.items() if key[0] == point and key[3] == op)
            for op, name in OUTCOMES.items()
        }
        whole = Histogram.merge(parts.values())
        waited = whole.mean * whole.total
        for name, one in [*parts.items(), (ALL_READS, whole)]:
            if one.total:
                percentiles = (one.percentile(percentile) / _NS_PER_MS for percentile in (50, 99, 100))
                shares = (one.total / whole.total, one.mean * one.total / waited)
                mean_ms = one.mean / _NS_PER_MS
                rows.append((point, name, one.total, *shares, mean_ms, *percentiles, 1000 / mean_ms))
    columns = ["share", "time_share", "mean_ms", "p50_ms", "p99_ms", "max_ms", "each"]
    schema = {"point": pl.Int64, "outcome": pl.String, "count": pl.Int64, **dict.fromkeys(columns, pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def clusters(found: Merged) -> pl.DataFrame:
    """The distribution of each outcome: `point, outcome, low_ms, high_ms, share`, the last of the outcome's reads."""
    return (
        densities(found)
        .filter(pl.col("op").is_in(list(OUTCOMES)))
        .with_columns(pl.col("op").replace_strict(OUTCOMES, return_dtype=pl.String).alias("outcome"))
        .select("point", "outcome", "low_ms", "high_ms", "share")
    )


def why_the_mean_misleads(table: pl.DataFrame, point: int, clients: int) -> str:
    """How far the very large results move the mean at a point; `table` is that of :func:`outcomes`."""
    rows = {row["outcome"]: row for row in table.filter(pl.col("point") == point).iter_rows(named=True)}
    at = f"At {counted(clients, 'client')}"
    large, ordinary, whole = rows.get("very large"), rows.get("ordinary"), rows.get(ALL_READS)
    if whole is None or ordinary is None or large is None:
        missing = rows.get("not found")
        if ordinary is None or missing is None:
            return f"{at} every read had the same outcome: there is nothing to compare."
        ratio = missing["mean_ms"] / ordinary["mean_ms"]
        return (
            f"{at} a read that found nothing took {number(ratio, 2)} times as long as one that found something "
            f"({number(missing['mean_ms'])} against {number(ordinary['mean_ms'])} ms)."
        )
    rest = whole["mean_ms"] * (1 - large["time_share"]) / (1 - large["share"])
    return (
        f"{at} {large['share']:.1%} of the reads were very large ones. They took {number(large['mean_ms'])} ms on "
        f"average, {number(large['mean_ms'] / ordinary['mean_ms'], 2)} times as long as ordinary ones "
        f"({number(ordinary['mean_ms'])} ms), and {large['time_share']:.0%} of all the time that clients waited. "
        f"Without them the mean would be {number(rest)} ms instead of {number(whole['mean_ms'])} ms."
    )
