"""Reads by what came of them: found nothing, found something, found something very large. Pure.

Results that differ in size by orders of magnitude may make response times that differ as much: the mean of all of them
is then that of no request at all, and a few large ones take most of the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import polars as pl

from knee.data.hdr import Histogram
from knee.stats.intervals import (
    LEVEL,
    Interval,
    between,
    mean_interval,
    number,
    paired_ratio_interval,
    quantity,
)
from knee.verdict.clusters import SHARE_MIN, Cluster, Clusters, find_clusters
from knee.verdict.distributions import Merged, densities

OUTCOMES = {"read_missing": "not found", "read": "ordinary", "read_large": "very large"}
"""What the types of reads are called."""

ALL_READS = "all reads"

OPERATION = pl.when(pl.col("op").is_in(list(OUTCOMES))).then(pl.lit("read")).otherwise("op").alias("op")
"""What clients asked for, of windows: reads are one operation, whatever came of them."""

_IN_WORDS = {"not found": "reads that found nothing", "ordinary": "ordinary reads", "very large": "very large reads"}

OWN = 0.8
"""A cluster is an outcome's own where it holds so much of that outcome, and little else."""

_ALIKE = 1.25
"""A cluster holds all outcomes alike where it surely has no more than so many times as much of one's reads as of
another's."""

_DEVIATIONS = 2.0
"""A share of so many reads scatters (binomial): what is surely less is so many standard deviations less."""

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Outcome:
    """What one outcome of a point's reads took; the last one of a point is all reads together.

    count, share        reads over all repetitions, and what they are of the point's
    time_share          of the time that clients waited for reads
    mean_ms             over the repetitions' means
    pooled_ms           the mean of all repetitions' reads together
    times               how many times as long as an ordinary one, in the same repetition
    longer              share of all pairs in which it took longer than an ordinary one of the same repetition
                        (the Mann–Whitney statistic; a pair of equals counts half)
    p50_ms …            of all repetitions' reads together
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
    """The clients' reads, where the clients told at least two outcomes apart; else nothing."""
    found = {key: one for key, one in histograms.items() if key[2] == "load" and key[3] in OUTCOMES and one.total}
    return found if len({op for *_, op in found}) > 1 else {}


def outcomes(found: Merged, level: float = LEVEL) -> dict[int, tuple[Outcome, ...]]:
    """What each outcome took, by point; `found` are the response times of :func:`reads`."""
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
        p50_ms, p99_ms, max_ms = (together.percentile(percentile) / _NS_PER_MS for percentile in (50, 99, 100))
        found.append(
            Outcome(
                name=name,
                count=together.total,
                share=together.total / whole.total,
                time_share=together.mean * together.total / (whole.mean * whole.total),
                mean_ms=mean_interval([one[name].mean / _NS_PER_MS for one in own], level),
                pooled_ms=together.mean / _NS_PER_MS,
                times=paired_ratio_interval([this.mean / other.mean for this, other in pairs], level),
                longer=mean_interval([_longer(this, other) for this, other in pairs], level),
                p50_ms=p50_ms,
                p99_ms=p99_ms,
                max_ms=max_ms,
            )
        )
    return tuple(found)


def _longer(one: Histogram, other: Histogram) -> float:
    """The share of pairs in which `one` is the longer, those of the same bucket counting half."""
    size = max(one.counts.size, other.counts.size)
    these, those = (np.pad(each.counts, (0, size - each.counts.size)) for each in (one, other))
    shorter = np.cumsum(those) - those / 2
    return float((these * shorter).sum() / (one.total * other.total))


def distribution(found: Merged) -> pl.DataFrame:
    """The distribution of each outcome: `point, outcome, low_ms, high_ms, share`, the last of the outcome's reads."""
    return (
        densities(found)
        .filter(pl.col("op").is_in(list(OUTCOMES)))
        .with_columns(pl.col("op").replace_strict(OUTCOMES, return_dtype=pl.String).alias("outcome"))
        .select("point", "outcome", "low_ms", "high_ms", "share")
    )


def clusters(found: Merged, point: int) -> Clusters:
    """The clusters that a point's reads make, whatever came of them; they hold shares of outcomes."""
    return find_clusters(_repetitions(found, point))


def why_the_mean_misleads(found: Sequence[Outcome], load: str) -> str:
    """How far the very large results move the mean at a point, or else what finding nothing does.

    `load` is under how much of it, such as “8 clients”.
    """
    by_name = {one.name: one for one in found}
    at = f"At {load}"
    large, ordinary, missing = (by_name.get(name) for name in ("very large", "ordinary", "not found"))
    if ordinary is None or (large is None and missing is None):
        return f"{at} every read had the same outcome: there is nothing to compare."
    if large is None:
        assert missing is not None
        return (
            f"{at} a read that found nothing took {quantity(missing.mean_ms, 'ms')} on average, one that found "
            f"something {quantity(ordinary.mean_ms, 'ms')}: {_times(missing.times)}."
        )
    whole = by_name[ALL_READS].pooled_ms
    rest = whole * (1 - large.time_share) / (1 - large.share)
    return (
        f"{at} {large.share:.1%} of the reads were very large ones, and they were {large.time_share:.0%} of all the "
        f"time that clients waited for reads. They took {quantity(large.mean_ms, 'ms')} on average, ordinary ones "
        f"{quantity(ordinary.mean_ms, 'ms')}: {_times(large.times)}. Of all pairs of both the very large one took "
        f"longer in {_share(large.longer)}. Without the very large ones the mean would be {number(rest)} ms "
        f"instead of {number(whole)} ms."
    )


def _times(times: Interval) -> str:
    """How many times as long as an ordinary one; a difference that the repetitions may hide is none."""
    if times.low is None or times.high is None:
        return f"{number(times.estimate, 2)} times as long, but how surely cannot be told without repetitions"
    told = f"{number(times.estimate, 2)} times as long ({between(times)})"
    return f"{told}, so whether they differ at all cannot be told" if times.low <= 1 <= times.high else told


def _share(share: Interval) -> str:
    """A share of pairs, with its interval within what a share can be."""
    if share.low is None or share.high is None:
        return f"{share.estimate:.0%}"
    return f"{share.estimate:.0%} ({max(0.0, share.low):.0%} to {min(1.0, share.high):.0%})"


def what_clusters_there_are(found: Clusters, load: str) -> list[str]:
    """How many clusters the response times of a point's reads make, and whose they are.

    `load` as in :func:`why_the_mean_misleads`.
    """
    at = f"At {load}"
    if not found.agree:
        alone = ", ".join(map(str, found.alone))
        return [
            f"{at} how many clusters the response times make cannot be told: all repetitions together make "
            f"{len(found.together)}, the repetitions alone {alone}."
        ]
    sure = "" if len(found.alone) > 1 else " (in one repetition: others may show more or fewer)"
    if len(found.together) == 1:
        return [
            f"{at} the response times of all reads make one cluster{sure}: no valley parts {SHARE_MIN:.1%} of the "
            "reads or more from the rest."
        ]
    places = "; ".join(
        f"{one.share:.1%} of the reads at about {number(one.median_ms, 2)} ms, {_whose(one)}" for one in found.together
    )
    sentences = [f"{at} the response times of all reads make {len(found.together)} clusters{sure}: {places}."]
    if any(_holds_alike(one) for one in found.together[1:]):
        sentences.append(
            "What made a slow cluster that holds all outcomes alike is not what came back: a wait for a processor, or "
            "a pause of a program, would make one."
        )
    return sentences


def _whose(cluster: Cluster) -> str:
    for name, share in cluster.holds.items():
        if share >= OWN and cluster.made[name] >= OWN and not _holds_alike(cluster):
            return f"which holds {share:.0%} of the {_IN_WORDS[name]} and is {cluster.made[name]:.0%} those"
    parts = [f"{cluster.holds[name]:.0%} of the {words}" for name, words in _IN_WORDS.items() if name in cluster.holds]
    return ("which holds all outcomes alike: " if _holds_alike(cluster) else "which holds ") + ", ".join(parts)


def _holds_alike(cluster: Cluster) -> bool:
    """Whether it surely does: of a few reads of an outcome one cannot tell."""
    if len(cluster.holds) < 2 or not min(cluster.holds.values()):
        return False
    variances = {name: (1 - share) / (share * cluster.requests[name]) for name, share in cluster.holds.items()}
    return all(
        math.log(cluster.holds[one] / cluster.holds[other]) + _DEVIATIONS * math.sqrt(variances[one] + variances[other])
        <= math.log(_ALIKE)
        for one, other in permutations(cluster.holds, 2)
    )
