"""By how much means fall short of the best, against a published example and in drawn samples."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats
from soak import SOAK

from knee.stats.comparisons import noise, shares_apart
from knee.stats.intervals import Floats, Interval
from knee.stats.tukey import studentized_range

_DRAWN = 200 if SOAK else 80


def drawn(means: Floats, noise: Floats, repetitions: int) -> list[dict[int, Floats]]:
    random = np.random.default_rng(1)
    normal = random.standard_normal((_DRAWN, means.size, repetitions))
    return [dict(enumerate(sample)) for sample in means[:, None] * (1 + noise[:, None] * normal)]


def best_of(samples: dict[int, Floats]) -> int:
    return max(samples, key=lambda at: float(samples[at].mean()))


def test_studentized_range_equals_other_computations() -> None:
    for level, freedom in product((0.8, 0.95, 0.999), (1.0, 1.3, 4.0, 110.0, 1e5)):
        # The range of two is their difference.
        difference = np.sqrt(2) * stats.t.ppf((1 + level) / 2, freedom)
        assert studentized_range(level, 2, freedom) == pytest.approx(difference, rel=1e-6)
    for means, freedom in ((3, 2.0), (12, 8.0), (40, 24.0), (200, 400.0)):
        reference = stats.studentized_range.ppf(0.95, means, freedom)
        assert studentized_range(0.95, means, freedom) == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize(
    ("count", "repetitions", "noise_max"), [(3, 3, 0.01), (12, 3, 0.01), (12, 3, 0.1)], ids=["few", "many", "one noisy"]
)
def test_equal_means_seldom_differ(count: int, repetitions: int, noise_max: float) -> None:
    noise = np.full(count, 0.01)
    noise[0] = noise_max
    wrong = 0
    for samples in drawn(np.full(count, 1000.0), noise, repetitions):
        found = shares_apart(samples, best_of(samples))
        wrong += any(share.low is not None and share.low > 0 for share in found.values())
    # Of a hundred such families five may be wrong, a few more where unequal variances pass for equal ones.
    assert wrong / _DRAWN < 0.09


def test_level_five_percent_worse_is_found_among_many() -> None:
    means = np.full(12, 950.0)
    means[0] = 1000.0
    found_worse = 0
    for samples in drawn(means, np.full(12, 0.01), 3):
        found = shares_apart(samples, best_of(samples))
        found_worse += sum(share.low is not None and share.low > 0 for share in found.values())
    assert found_worse / (11 * _DRAWN) > 0.8


def test_intervals_are_those_of_tukey_where_noise_is_alike() -> None:
    samples = {
        "a": np.array([99.0, 100.0, 101.0]),
        "b": np.array([89.1, 90.0, 90.9]),
        "c": np.array([49.5, 50.0, 50.5]),
    }
    found = shares_apart(samples, "a")
    # Of all, one per cent of relative noise in six degrees of freedom.
    half_width = stats.studentized_range.ppf(0.95, 3, 6) * 0.01 * np.sqrt((1 + 0.9**2) / 2 / 3)
    assert (found["b"].estimate, found["b"].half_width) == pytest.approx((0.1, half_width), rel=1e-6)
    assert found["c"].half_width < found["b"].half_width, "less is left to scatter"


def test_where_noise_differs_each_pair_has_its_own() -> None:
    quiet = {"a": np.array([999.0, 1000.0, 1001.0]), "b": np.array([989.0, 990.0, 991.0])}
    noisy = quiet | {"c": np.array([300.0, 600.0, 900.0])}
    alone, beside = shares_apart(quiet, "a")["b"], shares_apart(noisy, "a")["b"]
    assert alone.low is not None and beside.low is not None and 0 < beside.low < alone.low


def test_constant_zero_is_compared_by_the_best_levels_noise() -> None:
    def apart(some: list[float]) -> Interval:
        return shares_apart({"none": np.zeros(2), "some": np.array(some)}, "some")["none"]

    steady, stalls, equal = apart([1000.0, 1001.0]), apart([1 / 60, 0.0]), apart([15.0, 15.0])
    assert (steady.estimate, stalls.estimate, equal.estimate) == (1, 1, 1)
    assert steady.low is not None and steady.low > 0.9
    assert stalls.low is not None and stalls.low < 0, "one request in all: the best may be as low"
    assert equal.low is None


def test_equal_repetitions_get_the_pooled_noise() -> None:
    same = {"a": np.array([10.0, 10.0]), "b": np.array([9.0, 9.0])}
    others = {"c": np.array([7.0, 7.2, 7.7]), "d": np.array([5.0, 5.1, 5.3])}
    found = shares_apart(same | others, "a")["b"]
    variances = [float((sample / sample.mean()).var(ddof=1)) for sample in others.values()]
    half_width = stats.studentized_range.ppf(0.95, 4, 4) * np.sqrt(np.mean(variances) * (1 + 0.9**2) / 2 / 2)
    assert (found.estimate, found.half_width) == pytest.approx((0.1, half_width), rel=1e-6)
    # How many others are equal does not make it less.
    more = shares_apart(same | others | {f"e{i}": np.array([1.0, 1.0]) for i in range(8)}, "a")["b"]
    assert more.half_width is not None and more.half_width > half_width


def test_equal_repetitions_get_the_mean_of_unequal_noise() -> None:
    samples = {
        "a": np.array([10.0, 10.0]),
        "b": np.array([9.0, 9.0]),
        "quiet": np.array([7.0, 7.0001, 7.0002]),
        "noisy": np.array([2.0, 3.0, 4.0]),
    }
    found = shares_apart(samples, "a")
    # It is that of the noisy one, nearly, and so are its degrees of freedom.
    variance = (1 / 9 + (0.0001 / 7) ** 2) / 2
    half_width = stats.studentized_range.ppf(0.95, 4, 2) * np.sqrt(variance * (1 + 0.9**2) / 2 / 2)
    assert found["b"].half_width == pytest.approx(half_width, rel=1e-3)


def test_difference_has_the_noise_of_both_means() -> None:
    equal, scattered = np.array([1.0, 1.0]), [np.array([1 - d, 1.0, 1 + d]) for d in (0.001, 0.01, 0.1)]
    found = noise([equal, *scattered, equal])
    assert found is not None and found.shares.tolist() == [True, False, False, False, True]
    # Of each variance, how often it is in the difference between two means.
    weights = {0: (1 / 6, 1 / 6, 1 / 6), 1: (1 / 3, 0, 0), 2: (0, 1 / 3, 0), 3: (0, 0, 1 / 3), 4: (1 / 6, 1 / 6, 1 / 6)}
    counts = np.array([0.5, 1 / 3, 1 / 3, 1 / 3, 0.5])
    for at, own in weights.items():
        errors, freedoms = found.differences(counts, at)
        for other in weights.keys() - {at}:
            parts = (np.array(own) + weights[other]) * [1e-6, 1e-4, 1e-2]
            expected = parts.sum(), parts.sum() ** 2 / (parts**2 / 2).sum()
            assert (errors[other], freedoms[other]) == pytest.approx(expected, rel=1e-9)


def test_equal_repetitions_everywhere_compare_nothing() -> None:
    found = shares_apart({"a": np.array([10.0, 10.0]), "b": np.array([5.0, 5.0]), "c": np.zeros(2)}, "a")
    assert [(share.estimate, share.low, share.high) for share in found.values()] == [(0.5, None, None), (1, None, None)]


@pytest.mark.parametrize("repetitions", [2, 3])
def test_means_equal_by_rounding_seldom_differ(repetitions: int) -> None:
    wrong, equal = 0, 0
    for drawn_samples in drawn(np.full(6, 20.0), np.full(6, 0.03), repetitions):
        samples = {at: np.round(sample) for at, sample in drawn_samples.items()}
        found = shares_apart(samples, best_of(samples))
        wrong += any(share.low is not None and share.low > 0 for share in found.values())
        equal += any(np.ptp(sample) == 0 for sample in samples.values())
    assert equal / _DRAWN > 0.5
    assert wrong / _DRAWN < 0.02
