"""Reads by what came of them: their shares, how far the few large ones move the mean, and whose clusters are whose."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import System, synthetic_dataset
from versioned import OUTCOMES, versioned_dataset

from knee.data.hdr import Histogram, bucket_of
from knee.verdict import words
from knee.verdict.distributions import Merged, merged
from knee.verdict.outcomes import Outcome, clusters, distribution, outcomes, reads


def of_point(found: Merged, point: int = 0) -> dict[str, Outcome]:
    return {one.name: one for one in outcomes(found)[point]}


def without(found: Merged, *ops: str) -> Merged:
    return {key: one for key, one in found.items() if key[3] not in ops}


def all_of(response_ms: float, count: int) -> Histogram:
    return Histogram(np.bincount([bucket_of(round(response_ms * 1e6))] * count).astype(np.int64))


def measured(*repetitions: dict[str, tuple[float, int]]) -> Merged:
    """Response times in ms and counts, by type of reads."""
    return {
        (0, number, "load", op): all_of(*one)
        for number, ops in enumerate(repetitions, start=1)
        for op, one in ops.items()
    }


def test_every_outcome_has_its_own_time_and_its_share_of_all() -> None:
    found = of_point(reads(merged(versioned_dataset((1, 8)))), 1)
    assert list(found) == ["not found", "ordinary", "very large", "all reads"]
    assert found["not found"].times.estimate == pytest.approx(OUTCOMES["read_missing"], rel=0.01)
    assert found["very large"].times.estimate == pytest.approx(OUTCOMES["read_large"], rel=0.01)
    assert found["very large"].times.repetitions == 2
    parts = [one for name, one in found.items() if name != "all reads"]
    assert sum(one.share for one in parts) == pytest.approx(1)
    assert sum(one.time_share for one in parts) == pytest.approx(1, rel=0.01)
    assert found["very large"].share == pytest.approx(0.01, rel=0.05)
    weighted = sum(one.share * one.mean_ms.estimate for one in parts)
    assert found["all reads"].mean_ms.estimate == pytest.approx(weighted, rel=0.01)


def test_how_often_one_takes_longer_depends_on_no_mean() -> None:
    """Three quarters of the large ones are as long as an ordinary one, and the rest takes a thousand times as long."""
    few = {"read": (1.0, 10), "read_large": (1.0, 3)}
    found = measured(few, few)
    for repetition in (1, 2):
        whole = (found[0, repetition, "load", "read_large"], all_of(1000.0, 1))
        found[0, repetition, "load", "read_large"] = Histogram.merge(whole)
    each = of_point(found)
    assert each["very large"].longer.estimate == pytest.approx(0.75 * 0.5 + 0.25)
    assert each["ordinary"].longer.estimate == pytest.approx(0.5)


def test_every_outcome_is_drawn_as_shares_of_its_own_reads() -> None:
    drawn = distribution(reads(merged(versioned_dataset((8,)))))
    shares = {outcome: rows["share"].sum() for (outcome,), rows in drawn.group_by("outcome")}
    assert shares == pytest.approx({"not found": 1.0, "ordinary": 1.0, "very large": 1.0})


def test_few_large_reads_are_named_with_their_effect() -> None:
    found = reads(merged(versioned_dataset((8,))))
    sentence = words.outcomes(outcomes(found)[0], "8 clients")
    assert sentence.startswith(
        "At 8 clients, 1.0% of the reads were very large. They caused 57% of the time that clients"
    )
    assert "waited for reads. A very large read took" in sentence
    assert "100 times as long (100 to 100). In 100% (100% to 100%) of all pairs of a very" in sentence
    assert "Without very large reads the mean would be 1.80 ms instead of 4.18" in sentence
    missing = words.outcomes(outcomes(without(found, "read_large"))[0], "8 clients")
    assert "a read that found nothing took" in missing and missing.endswith("0.50 times as long (0.50 to 0.50).")
    alike = without(found, "read_large", "read_missing")
    assert "nothing to compare" in words.outcomes(outcomes(alike)[0], "8 clients")


@pytest.mark.parametrize(
    ("large_ms", "expected"),
    [
        # The machine's speed does not matter: each repetition has its own ordinary reads.
        ((10.0, 20.0), ": 10 times as long (10 to 10)."),
        # No ratio is below zero, however much two differ.
        ((2.0, 76.0), ": 8.7 times as long (cannot tell from two repetitions), so perhaps"),
        ((1.1, 1.7), "), so perhaps equally long."),
        ((10.0,), ": 10 times as long (with one repetition the error is unknown)."),
    ],
)
def test_difference_is_as_sure_as_repetitions_allow(large_ms: tuple[float, ...], expected: str) -> None:
    found = measured(*({"read": (number, 900), "read_large": (ms, 100)} for number, ms in enumerate(large_ms, start=1)))
    assert expected in words.outcomes(outcomes(found)[0], "1 client")


def test_cluster_holds_one_outcome_or_all() -> None:
    own, *more = words.clusters(clusters(reads(merged(versioned_dataset((8,)))), 0), "8 clients")
    assert own.startswith(
        "At 8 clients, the response times of all reads form 3 clusters: 49.4% of the reads at about 1.2"
    )
    assert "at about 240 ms (100% of the very large reads, which make up 100% of this cluster)." in own
    assert not more
    # A tenth of either waits, and the large ones do not stand apart.
    ordinary = {"read": (1.0, 9000), "read_large": (1.0, 900)}
    waiting = {"read": (50.0, 1000), "read_large": (50.0, 100)}
    both = {
        (0, repetition, "load", op): Histogram.merge([all_of(*ordinary[op]), all_of(*waiting[op])])
        for repetition in (1, 2)
        for op in ordinary
    }
    two, reason = words.clusters(clusters(both, 0), "1 client")
    assert "10.0% of the reads at about 47 ms (similar shares of all outcomes: 10% of the ordinary reads, 10%" in two
    assert "so the outcome is not its cause" in reason


@pytest.mark.parametrize(
    ("ordinary", "large"),
    [
        # All large ones and 55 % of the ordinary ones wait: size has to do with it.
        ((9000, 11_000), (0, 600)),
        # So few large reads prove nothing.
        ((10_000, 10_000), (2, 2)),
    ],
)
def test_cluster_of_large_reads_has_no_other_cause(ordinary: tuple[int, int], large: tuple[int, int]) -> None:
    fast, slow = (
        {"read": all_of(ms, of_ordinary), "read_large": all_of(ms, of_large)}
        for ms, of_ordinary, of_large in zip((1.0, 50.0), ordinary, large, strict=True)
    )
    found = {(0, 1, "load", op): Histogram.merge([fast[op], slow[op]]) for op in fast}
    (sentence,) = words.clusters(clusters(found, 0), "1 client")
    assert "form 2 clusters" in sentence and "similar shares" not in sentence


def test_single_cluster_names_what_it_may_hide() -> None:
    """A valley parts the large ones, but they are too few of all for a cluster."""
    found = measured({"read": (0.1, 9960), "read_large": (20.0, 40)})
    (sentence,) = words.clusters(clusters(found, 0), "1 client")
    assert sentence.endswith("the distribution has no second peak with 0.5% of the reads or more.")


def test_mean_without_large_reads_is_over_all_repetitions() -> None:
    """However differently many each repetition has."""
    found = measured({"read": (1.0, 9000), "read_large": (10.0, 1000)}, {"read": (4.0, 90), "read_large": (40.0, 10)})
    sentence = words.outcomes(outcomes(found)[0], "1 client")
    without_large = (9000 * 1.0 + 90 * 4.0) / 9090
    assert f"the mean would be {without_large:.2f} ms instead of" in sentence


def test_clusters_of_some_repetitions_are_unknown() -> None:
    """A repetition that was slower as a whole makes no cluster of its reads."""
    slow = measured({"read": (1.0, 900), "read_missing": (1.0, 90)}, {"read": (9.0, 900), "read_missing": (9.0, 90)})
    (sentence,) = words.clusters(clusters(slow, 0), "1 client")
    assert "the number of clusters of the response times is unknown" in sentence
    assert sentence.endswith("all repetitions together have 2, each repetition alone 1, 1.")
    once = measured({"read": (1.0, 900), "read_missing": (1.0, 90)})
    (sentence,) = words.clusters(clusters(once, 0), "1 client")
    assert "form one cluster (in a single repetition; others may show more or fewer)" in sentence


def test_reads_without_reported_outcomes_have_none() -> None:
    assert not reads(merged(synthetic_dataset(System(), (4,), repetitions=1)))
