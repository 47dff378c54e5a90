"""Student's t, Welch, the bootstrap, and how intervals are printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from knee.stats.intervals import (
    Floats,
    Interval,
    above_zero,
    between,
    client_count,
    clients_about,
    difference_interval,
    mean_interval,
    mean_intervals,
    median_interval,
    number,
    paired_ratio_interval,
    pooled_bootstrap,
    quantity,
    ratio_interval,
)


def test_jains_example_13_1() -> None:
    # Jain 1991, example 13.1: 32 CPU times, mean 3.90, s 0.95, 90 % interval (3.62, 4.17) by the normal quantile;
    # the t quantile, 1.696 instead of 1.645, widens it by 0.01.
    times = [3.1, 4.2, 2.8, 5.1, 2.8, 4.4, 5.6, 3.9, 3.9, 2.7, 4.1, 3.6, 3.1, 4.5, 3.8, 2.9]
    times += [3.4, 3.3, 2.8, 4.5, 4.9, 5.3, 1.9, 3.7, 3.2, 4.1, 5.1, 3.2, 3.9, 4.8, 5.9, 4.2]
    interval = mean_interval(times, 0.90)
    assert interval.estimate == pytest.approx(3.90, abs=0.02)
    assert interval.low == pytest.approx(3.62, abs=0.03)
    assert interval.high == pytest.approx(4.17, abs=0.03)


def test_three_repetitions_use_the_t_quantile() -> None:
    interval = mean_interval([9.0, 10.0, 11.0])
    # t(0.975; 2) = 4.303, s = 1
    assert interval.half_width == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)


def test_median_lies_between_the_ends_as_often_as_its_level() -> None:
    interval = median_interval([3.0, 1.0, 7.0, 2.0, 5.0])
    assert (interval.estimate, interval.low, interval.high) == (3.0, 1.0, 7.0)
    samples = np.random.default_rng(1).lognormal(size=(4000, 5))
    intervals = [median_interval(sample) for sample in samples]
    covered = np.mean([each.low < 1.0 < each.high for each in intervals])  # type: ignore[operator]
    assert covered == pytest.approx(interval.level, abs=0.02)
    assert median_interval([4.0]) == Interval(4.0, None, None, 0.0, 1)


def test_one_repetition_has_no_interval() -> None:
    interval = mean_interval([5.0])
    assert (interval.estimate, interval.low, interval.high) == (5.0, None, None)
    assert interval.half_width is None


def test_non_finite_values_are_left_out() -> None:
    assert mean_interval([1.0, math.nan, 3.0]).estimate == 2.0
    assert math.isnan(mean_interval([]).estimate)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_an_impossible_level_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean_interval([1.0, 2.0], level)


def test_welch_agrees_with_scipy() -> None:
    from scipy import stats

    rng = np.random.default_rng(0)
    left, right = rng.normal(5, 1, 6), rng.normal(3, 4, 4)
    expected = stats.ttest_ind(left, right, equal_var=False).confidence_interval(0.95)
    interval = difference_interval(left, right)
    assert interval.low == pytest.approx(expected.low)
    assert interval.high == pytest.approx(expected.high)


def test_the_intervals_of_many_groups_are_those_of_each() -> None:
    groups = [[3.0, math.nan, 4.0, 5.5], [math.nan], [2.0], [1.0, math.inf, 1.5], [0.1, 0.1, 0.1], [-1e9, 1e9, 7.0]]
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    together = mean_intervals(np.concatenate(groups), starts, 0.9)
    assert len(together) == len(groups)
    for found, group in zip(together, groups, strict=True):
        alone = mean_interval(group, 0.9)
        assert (found.repetitions, found.level) == (alone.repetitions, alone.level)
        assert found.estimate == pytest.approx(alone.estimate, rel=1e-15, nan_ok=True)
        assert found.half_width == (None if alone.half_width is None else pytest.approx(alone.half_width, rel=1e-14))
    assert mean_intervals(np.array([]), starts[:0]) == []


def test_pooled_bootstrap_covers_with_three_repetitions() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    trials = 60
    for trial in range(trials):
        samples = [100.0 * scale * (1 + 0.02 * rng.standard_normal((3, 1))) for scale in range(1, 7)]
        interval = pooled_bootstrap(samples, lambda drawn: drawn[0].mean(axis=(1, 2)), resamples=200, seed=trial)
        assert interval.low is not None and interval.high is not None
        covered += interval.low <= 100 <= interval.high
    # 95 % nominal; below 0.85 would be five standard errors off.
    assert covered / trials >= 0.85


def test_pooled_bootstrap_of_positive_values_is_positive() -> None:
    samples = [np.array([[0.1], [2.0]]), np.array([[3.0], [40.0]])]

    def product(drawn: Sequence[Floats]) -> Floats:
        return np.asarray(drawn[0].mean(axis=(1, 2)) * drawn[1].mean(axis=(1, 2)))

    anywhere, positive = (pooled_bootstrap(samples, product, positive=known, seed=1) for known in (False, True))
    assert anywhere.low is not None and anywhere.low < 0
    assert positive.low is not None and positive.high is not None
    assert 0 < positive.low < positive.estimate < positive.high
    # Where there is little noise, which kind it is makes no difference.
    quiet = [100 + sample for sample in samples]
    anywhere, positive = (pooled_bootstrap(quiet, product, positive=known, seed=1) for known in (False, True))
    assert positive.half_width == pytest.approx(anywhere.half_width, rel=0.1)


def test_positive_mean_has_a_symmetric_log_interval() -> None:
    wide = above_zero(mean_interval([1.0, 3.0]))
    assert wide.low is not None and wide.high is not None
    assert 0 < wide.low < wide.estimate == 2.0
    assert wide.estimate / wide.low == pytest.approx(wide.high / wide.estimate)
    # t(0.975; 1) · s / √2 is 12.7 times 1.
    assert math.log(wide.high / 2) == pytest.approx(12.706 / 2, rel=1e-4)
    narrow, symmetric = above_zero(mean_interval([100.0, 101.0, 102.0])), mean_interval([100.0, 101.0, 102.0])
    assert narrow.low == pytest.approx(symmetric.low, rel=1e-3)
    assert above_zero(mean_interval([2.0])).low is None


def test_client_counts_show_their_interval() -> None:
    assert clients_about(Interval(11.2, 0.03, 1630.0, 0.95, 2)) == "11 clients (cannot tell from two repetitions)"
    assert clients_about(Interval(2.0, None, None, 0.95, 1)) == "2.0 clients"


def test_bootstrap_is_reproducible() -> None:
    samples = [np.array([[1.0], [1.1], [0.9]]), np.array([[2.0], [2.1], [1.9]])]

    def ratio(drawn: Sequence[Floats]) -> Floats:
        return np.asarray(drawn[1].mean(axis=(1, 2)) / drawn[0].mean(axis=(1, 2)))

    assert pooled_bootstrap(samples, ratio, seed=3) == pooled_bootstrap(samples, ratio, seed=3)
    assert pooled_bootstrap([sample[:1] for sample in samples], ratio).half_width is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0123456, "0.0123"),
        (9.996, "10.0"),  # rounding adds a digit before the point
        (123.456, "123"),
        (17556.5, "17,600"),
        (-2.5, "-2.50"),
        (4.5e22, "45,000,000,000,000,000,000,000"),  # the nearest float ends in 997,902,848
        (math.nan, "–"),
    ],
)
def test_numbers_show_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("estimate", "half_width", "text"),
    [
        (17556.5, 50.1, "17,556 ± 50 /s"),
        (3.0156, 0.0069, "3.016 ± 0.007 /s"),
        (0.5, 1e-12, "0.500 ± 0 /s"),
        (-1e-9, 0.01, "0.000 ± 0.010 /s"),
    ],
)
def test_quantities_show_the_precision_of_their_interval(estimate: float, half_width: float, text: str) -> None:
    assert quantity(Interval(estimate, estimate - half_width, estimate + half_width, 0.95, 3), "/s") == text


def test_ratio_interval_stays_above_zero_and_inverts() -> None:
    fast, slow = mean_interval([5000.0, 3000.0, 7600.0]), mean_interval([1180.0, 800.0, 1560.0])
    ratio, inverse = ratio_interval(slow, fast), ratio_interval(fast, slow)
    assert ratio.low is not None and ratio.high is not None and ratio.high < 1
    assert 0 < ratio.low < ratio.estimate == pytest.approx(slow.estimate / fast.estimate)
    assert (inverse.high, inverse.low) == pytest.approx((1 / ratio.low, 1 / ratio.high))
    assert ratio_interval(slow, mean_interval([5000.0])).low is None


def test_zero_has_no_ratio() -> None:
    nothing, something = mean_interval([0.0, 0.0]), mean_interval([1.0, 2.0])
    for ratio in (ratio_interval(something, nothing), ratio_interval(nothing, something)):
        assert math.isnan(ratio.estimate) and ratio.low is None


def test_few_clients_are_counted_more_exactly_than_many() -> None:
    assert [client_count(estimate) for estimate in (2.5, 9.94, 12.4, 1234.5)] == ["2.5", "9.9", "12", "1,234"]


def test_paired_ratios_and_their_inverses_say_the_same() -> None:
    ratio, inverse = paired_ratio_interval([2.0, 3.0, 8.0]), paired_ratio_interval([1 / 2, 1 / 3, 1 / 8])
    assert ratio.low is not None and ratio.high is not None
    assert ratio.estimate == pytest.approx(48 ** (1 / 3))
    assert (1 / ratio.estimate, 1 / ratio.low) == pytest.approx((inverse.estimate, inverse.high))
    # t(0.975; 1) = 12.706: no end of that interval helps a reader.
    assert between(paired_ratio_interval([2.0, 38.0])) == "cannot tell from two repetitions"
    assert between(paired_ratio_interval([2.0, 2.1])) == "1.5 to 2.8"
    assert paired_ratio_interval([2.0]).low is None


def test_ratios_of_a_few_repetitions_are_covered() -> None:
    """Of means that scatter in proportion, as rates do: by a tenth and by a third."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        ratio = ratio_interval(mean_interval(rng.normal(300, 100, 3)), mean_interval(rng.normal(100, 10, 3)))
        assert ratio.low is not None and ratio.high is not None
        covered += ratio.low <= 3 <= ratio.high
    assert 0.93 <= covered / 1000 <= 0.99
