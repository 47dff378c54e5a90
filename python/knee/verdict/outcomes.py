"""Reads by outcome: found nothing, found something, found something very large. Pure.

If result sizes differ by orders of magnitude, response times may differ as much. Then no request is near the mean
response time, and a few large requests take most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.data.hdr import Histogram
from knee.data.trim import NS_PER_MS
from knee.stats.intervals import LEVEL, Interval, mean_interval, paired_ratio_interval
from knee.verdict.clusters import Clusters, find_clusters
from knee.verdict.distributions import Merged, densities

OUTCOMES = {"read_missing": "not found", "read": "ordinary", "read_large": "very large"}
"""Names of the types of reads."""

ALL_READS = "all reads"

OPERATION = pl.when(pl.col("op").is_in(list(OUTCOMES))).then(pl.lit("read")).otherwise("op").alias("op")
"""The requested operation of a window: reads are one operation, whatever their outcome."""


@dataclass(frozen=True)
class Outcome:
    """The response times of one outcome of a point's reads; a point's last entry is all reads together.

    count, share        number of reads over all repetitions, and their share of the point's reads
    time_share          share of the time that clients waited for reads
    mean_ms             mean over the repetitions' means
    pooled_ms           the mean of all repetitions' reads together
    times               ratio to the mean of an ordinary read in the same repetition
    longer              share of all pairs in which it took longer than an ordinary one of the same repetition
                        (the Mann–Whitney statistic; a pair of equals counts half)
    p50_ms …            percentiles of all repetitions' reads together
    """

    name: str
    count: int
    share: float
    time_share: float
    mean_ms: Interval
    pooled_ms: float
    times: Interval
    longer: Interval
    p50_ms: float
    p99_ms: float
    max_ms: float


def reads(histograms: Merged) -> Merged:
    """The clients' reads if the clients report at least two outcomes; otherwise empty."""
    found = {key: one for key, one in histograms.items() if key[2] == "load" and key[3] in OUTCOMES and one.total}
    return found if len({op for *_, op in found}) > 1 else {}


def outcomes(found: Merged, level: float = LEVEL) -> dict[int, tuple[Outcome, ...]]:
    """The outcomes by point; `found` are the response times of :func:`reads`."""
    return {point: _outcomes(_repetitions(found, point), level) for point in sorted({key[0] for key in found})}


def _repetitions(found: Merged, point: int) -> list[dict[str, Histogram]]:
    """A point's response times by outcome, one mapping per repetition."""
    by_repetition: dict[int, dict[str, Histogram]] = {}
    for (at, repetition, _, op), one in sorted(found.items(), key=lambda item: item[0][:2]):
        if at == point:
            by_repetition.setdefault(repetition, {})[OUTCOMES[op]] = one
    return list(by_repetition.values())


def _outcomes(repetitions: Sequence[dict[str, Histogram]], level: float) -> tuple[Outcome, ...]:
    each = [one | {ALL_READS: Histogram.merge(one.values())} for one in repetitions]
    whole = Histogram.merge(one[ALL_READS] for one in each)
    found = []
    for name in (*OUTCOMES.values(), ALL_READS):
        own = [one for one in each if name in one]
        if not own:
            continue
        together = Histogram.merge(one[name] for one in own)
        pairs = [(one[name], one["ordinary"]) for one in own if "ordinary" in one]
        p50_ms, p99_ms, max_ms = (together.percentile(percentile) / NS_PER_MS for percentile in (50, 99, 100))
        found.append(
            Outcome(
                name=name,
                count=together.total,
                share=together.total / whole.total,
                time_share=together.mean * together.total / (whole.mean * whole.total),
                mean_ms=mean_interval([one[name].mean / NS_PER_MS for one in own], level),
                pooled_ms=together.mean / NS_PER_MS,
                times=paired_ratio_interval([this.mean / other.mean for this, other in pairs], level),
                longer=mean_interval([_longer(this, other) for this, other in pairs], level),
                p50_ms=p50_ms,
                p99_ms=p99_ms,
                max_ms=max_ms,
            )
        )
    return tuple(found)


def _longer(one: Histogram, other: Histogram) -> float:
    """The share of pairs in which `one` is longer; a pair in the same bucket counts half."""
    size = max(one.counts.size, other.counts.size)
    these, those = (np.pad(each.counts, (0, size - each.counts.size)) for each in (one, other))
    shorter = np.cumsum(those) - those / 2
    return float((these * shorter).sum() / (one.total * other.total))


def distribution(found: Merged) -> pl.DataFrame:
    """The distribution of each outcome: `point, outcome, low_ms, high_ms, share`; `share` is relative to the outcome's
    reads."""
    return (
        densities(found)
        .filter(pl.col("op").is_in(list(OUTCOMES)))
        .with_columns(pl.col("op").replace_strict(OUTCOMES, return_dtype=pl.String).alias("outcome"))
        .select("point", "outcome", "low_ms", "high_ms", "share")
    )


def clusters(found: Merged, point: int) -> Clusters:
    """The clusters of all of a point's reads, with the share of each outcome in each cluster."""
    return find_clusters(_repetitions(found, point))
