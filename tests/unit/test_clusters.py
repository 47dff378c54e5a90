"""How many clusters response times make: known mixtures, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

from knee.data.hdr import Histogram, bucket_of
from knee.verdict.clusters import Clusters, find_clusters


@pytest.fixture
def random() -> np.random.Generator:
    """The same draws for each test, whichever others are run before it."""
    return np.random.default_rng(7)


def drawn(random: np.random.Generator, *parts: tuple[int, float, float]) -> Histogram:
    """Log-normal response times: so many, about so many ms, and the standard deviation of their logarithm."""
    values = [random.lognormal(np.log(median_ms * 1e6), deviation, count) for count, median_ms, deviation in parts]
    return Histogram(np.bincount([bucket_of(int(value)) for value in np.concatenate(values)]).astype(np.int64))


def found_in(random: np.random.Generator, *parts: tuple[int, float, float], repetitions: int = 2) -> Clusters:
    return find_clusters([{"read": drawn(random, *parts)} for _ in range(repetitions)])


@pytest.mark.parametrize(
    ("parts", "medians_ms"),
    [
        # One, however wide, however few.
        ([(20_000, 0.1, 0.2)], [0.1]),
        ([(20_000, 0.1, 1.2)], [0.1]),
        ([(60, 0.1, 0.5)], [0.1]),
        # One in a hundred, far away; and three.
        ([(20_000, 0.1, 0.3), (200, 5.0, 0.3)], [0.1, 5.0]),
        ([(9000, 0.1, 0.3), (9000, 1.0, 0.3), (300, 40.0, 0.4)], [0.1, 1.0, 40.0]),
        # A shoulder has no valley before it, and one in a thousand is a tail.
        ([(20_000, 0.1, 0.4), (3000, 0.25, 0.4)], [0.1]),
        ([(20_000, 0.1, 0.3), (20, 5.0, 0.3)], [0.1]),
    ],
)
def test_mixtures_have_as_many_clusters_as_lie_apart(
    random: np.random.Generator, parts: list[tuple[int, float, float]], medians_ms: list[float]
) -> None:
    found = found_in(random, *parts)
    assert found.agree, found.alone
    assert [one.median_ms for one in found.together] == pytest.approx(medians_ms, rel=0.25)
    assert sum(one.share for one in found.together) == pytest.approx(1)
    assert [one.high_ms for one in found.together[:-1]] == [one.low_ms for one in found.together[1:]]


def test_chance_makes_no_clusters(random: np.random.Generator) -> None:
    """Few requests, much scattered: their histograms have many peaks."""
    numbers = [len(found_in(random, (150, 1.0, 0.8), repetitions=1).together) for _ in range(200)]
    assert np.mean(np.array(numbers) > 1) < 0.02


def test_types_are_found_where_their_requests_lie(random: np.random.Generator) -> None:
    repetitions = [
        {"read": drawn(random, (9000, 0.1, 0.3), (100, 8.0, 0.2)), "read_large": drawn(random, (200, 8.0, 0.2))},
        {"read": drawn(random, (9000, 0.1, 0.3), (100, 8.0, 0.2))},
    ]
    fast, slow = find_clusters(repetitions).together
    assert fast.holds == pytest.approx({"read": 0.989, "read_large": 0.0}, abs=0.001)
    assert slow.holds == pytest.approx({"read": 0.011, "read_large": 1.0}, abs=0.001)
    assert slow.made == pytest.approx({"read": 0.5, "read_large": 0.5}, abs=0.01)


def test_nothing_makes_no_cluster() -> None:
    assert find_clusters([]) == find_clusters([{}]) == Clusters((), ())
