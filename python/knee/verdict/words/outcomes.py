"""The sentences on outcomes of reads, and on clusters of response times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

from knee.stats.intervals import Interval, between, number, quantity
from knee.verdict.clusters import SHARE_MIN, Cluster, Clusters
from knee.verdict.details import Details
from knee.verdict.naming import Naming
from knee.verdict.outcomes import ALL_READS, Outcome

OWN = 0.8
"""A cluster belongs to an outcome if it holds at least this share of the outcome's reads, and at least this share of
the cluster has this outcome."""

_IN_WORDS = {"not found": "reads that found nothing", "ordinary": "ordinary reads", "very large": "very large reads"}

_ALIKE = 1.25
"""A cluster holds all outcomes alike if its shares of any two outcomes surely differ by at most this ratio."""

_DEVIATIONS = 2.0
"""A difference of shares is sure beyond this many binomial standard deviations."""


def reads(details: Details, naming: Naming) -> list[str]:
    """The outcomes of reads and their clusters at the point shown first; empty if clients do not report outcomes."""
    if not details.outcomes:
        return []
    point = shown_first(details, naming)
    load = naming.in_words(naming.load[point])
    return [outcomes(details.outcomes[point], load), *clusters(details.clusters[point], load)]


def shown_first(details: Details, naming: Naming) -> int:
    """The point whose outcomes are shown first: that of the knee, if its reads have outcomes."""
    return naming.chosen if naming.chosen in details.outcomes else next(iter(details.clusters))


def outcomes(found: Sequence[Outcome], load: str) -> str:
    """How much very large reads change the mean at a point; without any, how long reads that found nothing took.

    `load` is a phrase, such as “8 clients”.
    """
    by_name = {one.name: one for one in found}
    at = f"At {load}"
    large, ordinary, missing = (by_name.get(name) for name in ("very large", "ordinary", "not found"))
    if ordinary is None or (large is None and missing is None):
        return f"{at}, every read had the same outcome: there is nothing to compare."
    if large is None:
        assert missing is not None
        return (
            f"{at}, a read that found nothing took {quantity(missing.mean_ms, 'ms')} on average, and an ordinary one "
            f"{quantity(ordinary.mean_ms, 'ms')}: {_times(missing.times)}."
        )
    whole = by_name[ALL_READS].pooled_ms
    rest = whole * (1 - large.time_share) / (1 - large.share)
    return (
        f"{at}, {large.share:.1%} of the reads were very large. They caused {large.time_share:.0%} of the time that "
        f"clients waited for reads. A very large read took {quantity(large.mean_ms, 'ms')} on average, and an ordinary "
        f"one {quantity(ordinary.mean_ms, 'ms')}: {_times(large.times)}. In {_share(large.longer)} of all pairs of a "
        "very large and an ordinary read, the very large read took longer. Without very large reads the mean would be "
        f"{number(rest)} ms instead of {number(whole)} ms."
    )


def clusters(found: Clusters, load: str) -> list[str]:
    """How many clusters the response times of a point's reads form, and which outcomes each cluster holds."""
    at = f"At {load}"
    if not found.agree:
        alone = ", ".join(map(str, found.alone))
        return [
            f"{at}, the number of clusters of the response times is unknown: all repetitions together have "
            f"{len(found.together)}, each repetition alone {alone}."
        ]
    sure = "" if len(found.alone) > 1 else " (in a single repetition; others may show more or fewer)"
    if len(found.together) == 1:
        return [
            f"{at}, the response times of all reads form one cluster{sure}: the distribution has no second peak "
            f"with {SHARE_MIN:.1%} of the reads or more."
        ]
    places = "; ".join(
        f"{one.share:.1%} of the reads at about {number(one.median_ms, 2)} ms ({_held_by(one)})"
        for one in found.together
    )
    sentences = [f"{at}, the response times of all reads form {len(found.together)} clusters{sure}: {places}."]
    if any(_holds_alike(one) for one in found.together[1:]):
        sentences.append(
            "A slow cluster holds similar shares of all outcomes, so the outcome is not its cause. The cause may be a "
            "wait for a processor, or a pause of a program."
        )
    return sentences


def _times(times: Interval) -> str:
    """The ratio to an ordinary read's response time, with its interval."""
    if times.low is None or times.high is None:
        return f"{number(times.estimate, 2)} times as long (with one repetition the error is unknown)"
    text = f"{number(times.estimate, 2)} times as long ({between(times)})"
    return f"{text}, so perhaps equally long" if times.low <= 1 <= times.high else text


def _share(share: Interval) -> str:
    """A share of pairs, with its interval cut off at 0 and 1."""
    if share.low is None or share.high is None:
        return f"{share.estimate:.0%}"
    return f"{share.estimate:.0%} ({max(0.0, share.low):.0%} to {min(1.0, share.high):.0%})"


def _held_by(cluster: Cluster) -> str:
    for name, share in cluster.holds.items():
        if share >= OWN and cluster.made[name] >= OWN and not _holds_alike(cluster):
            return f"{share:.0%} of the {_IN_WORDS[name]}, which make up {cluster.made[name]:.0%} of this cluster"
    parts = [f"{cluster.holds[name]:.0%} of the {words}" for name, words in _IN_WORDS.items() if name in cluster.holds]
    return "similar shares of all outcomes: " * _holds_alike(cluster) + ", ".join(parts)


def _holds_alike(cluster: Cluster) -> bool:
    """Whether the cluster surely holds all outcomes alike; False if an outcome has too few reads to tell."""
    if len(cluster.holds) < 2 or not min(cluster.holds.values()):
        return False
    variances = {name: (1 - share) / (share * cluster.requests[name]) for name, share in cluster.holds.items()}
    return all(
        math.log(cluster.holds[one] / cluster.holds[other]) + _DEVIATIONS * math.sqrt(variances[one] + variances[other])
        <= math.log(_ALIKE)
        for one, other in permutations(cluster.holds, 2)
    )
