"""Reads by what came of them: their shares, how far the few large ones move the mean, and whose clusters are whose."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import System, synthetic_dataset
from versioned import OUTCOMES, versioned_dataset

from knee.data.hdr import Histogram, bucket_of
from knee.verdict.distributions import Merged, merged
from knee.verdict.outcomes import (
    Outcome,
    clusters,
    distribution,
    outcomes,
    reads,
    what_clusters_there_are,
    why_the_mean_misleads,
)


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


def test_the_few_large_ones_are_named_for_what_they_do_to_the_mean() -> None:
    found = reads(merged(versioned_dataset((8,))))
    sentence = why_the_mean_misleads(outcomes(found)[0], "8 clients")
    assert sentence.startswith("At 8 clients 1.0% of the reads were very large ones, and they were 57% of all the time")
    assert "time that clients waited for reads. They took" in sentence
    assert (
        "100 times as long (100 to 100). Of all pairs of both the very large one took longer in 100% (100% to 100%)."
        in sentence
    )
    assert "Without the very large ones the mean would be 1.80 ms instead of 4.18" in sentence
    missing = why_the_mean_misleads(outcomes(without(found, "read_large"))[0], "8 clients")
    assert "a read that found nothing took" in missing and missing.endswith("0.50 times as long (0.50 to 0.50).")
    alike = without(found, "read_large", "read_missing")
    assert "nothing to compare" in why_the_mean_misleads(outcomes(alike)[0], "8 clients")


@pytest.mark.parametrize(
    ("large_ms", "expected"),
    [
        # The machine's speed does not matter: each repetition has its own ordinary reads.
        ((10.0, 20.0), ": 10 times as long (10 to 10)."),
        # No ratio is below zero, however much two differ.
        ((2.0, 76.0), ": 8.7 times as long (less than 0.001 to more than 1,000), so whether they differ at all cannot"),
        ((1.1, 1.7), "), so whether they differ at all cannot be told."),
        ((10.0,), ": 10 times as long, but how surely cannot be told without repetitions."),
    ],
)
def test_a_difference_is_told_as_surely_as_the_repetitions_allow(large_ms: tuple[float, ...], expected: str) -> None:
    found = measured(*({"read": (number, 900), "read_large": (ms, 100)} for number, ms in enumerate(large_ms, start=1)))
    assert expected in why_the_mean_misleads(outcomes(found)[0], "1 client")


def test_a_cluster_is_somebodys_own_or_everybodys() -> None:
    own, *more = what_clusters_there_are(clusters(reads(merged(versioned_dataset((8,)))), 0), "8 clients")
    assert own.startswith(
        "At 8 clients the response times of all reads make 3 clusters: 49.4% of the reads at about 1.2"
    )
    assert "at about 240 ms, which holds 100% of the very large reads and is 100% those." in own
    assert not more
    # A tenth of either waits, and the large ones do not stand apart.
    ordinary = {"read": (1.0, 9000), "read_large": (1.0, 900)}
    waiting = {"read": (50.0, 1000), "read_large": (50.0, 100)}
    both = {
        (0, repetition, "load", op): Histogram.merge([all_of(*ordinary[op]), all_of(*waiting[op])])
        for repetition in (1, 2)
        for op in ordinary
    }
    two, reason = what_clusters_there_are(clusters(both, 0), "1 client")
    assert "10.0% of the reads at about 47 ms, which holds all outcomes alike: 10% of the ordinary reads, 10%" in two
    assert "is not what came back" in reason


@pytest.mark.parametrize(
    ("ordinary", "large"),
    [
        # All large ones and 55 % of the ordinary ones wait: size has to do with it.
        ((9000, 11_000), (0, 600)),
        # So few large ones tell of nothing.
        ((10_000, 10_000), (2, 2)),
    ],
)
def test_what_size_may_have_made_is_not_said_to_have_another_cause(
    ordinary: tuple[int, int], large: tuple[int, int]
) -> None:
    fast, slow = (
        {"read": all_of(ms, of_ordinary), "read_large": all_of(ms, of_large)}
        for ms, of_ordinary, of_large in zip((1.0, 50.0), ordinary, large, strict=True)
    )
    found = {(0, 1, "load", op): Histogram.merge([fast[op], slow[op]]) for op in fast}
    (sentence,) = what_clusters_there_are(clusters(found, 0), "1 client")
    assert "make 2 clusters" in sentence and "alike" not in sentence


def test_one_cluster_is_told_with_what_it_may_hide() -> None:
    """A valley parts the large ones, but they are too few of all for a cluster."""
    found = measured({"read": (0.1, 9960), "read_large": (20.0, 40)})
    (sentence,) = what_clusters_there_are(clusters(found, 0), "1 client")
    assert sentence.endswith("no valley parts 0.5% of the reads or more from the rest.")


def test_the_mean_without_the_large_ones_is_that_of_all_repetitions_reads() -> None:
    """However differently many each repetition has."""
    found = measured({"read": (1.0, 9000), "read_large": (10.0, 1000)}, {"read": (4.0, 90), "read_large": (40.0, 10)})
    sentence = why_the_mean_misleads(outcomes(found)[0], "1 client")
    without_large = (9000 * 1.0 + 90 * 4.0) / 9090
    assert f"the mean would be {without_large:.2f} ms instead of" in sentence


def test_clusters_that_not_every_repetition_shows_are_not_told() -> None:
    """A repetition that was slower as a whole makes no cluster of its reads."""
    slow = measured({"read": (1.0, 900), "read_missing": (1.0, 90)}, {"read": (9.0, 900), "read_missing": (9.0, 90)})
    (sentence,) = what_clusters_there_are(clusters(slow, 0), "1 client")
    assert sentence.endswith("cannot be told: all repetitions together make 2, the repetitions alone 1, 1.")
    once = measured({"read": (1.0, 900), "read_missing": (1.0, 90)})
    (sentence,) = what_clusters_there_are(clusters(once, 0), "1 client")
    assert "make one cluster (in one repetition: others may show more or fewer)" in sentence


def test_reads_that_nobody_told_apart_have_no_outcomes() -> None:
    assert not reads(merged(synthetic_dataset(System(), (4,), repetitions=1)))
