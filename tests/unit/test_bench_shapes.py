"""Whether measured points have the shape that a seed states: bench.shapes."""

from __future__ import annotations

import math

import polars as pl
import pytest
from bench.published import CLIENTS, STORES, WORKERS
from bench.reproduce import PAGE
from bench.shapes import SHAPES, Judge, falls, grows, judged, mean_of, outweighs, stays

from knee.stats.intervals import difference_interval, mean_interval


def points(means: list[float], half: float) -> pl.DataFrame:
    """A point for each number of clients from 1 on."""
    return pl.DataFrame(
        {
            CLIENTS: range(1, len(means) + 1),
            "throughput": means,
            "throughput_half": [half] * len(means),
            "repetitions": 3,
        }
    )


TWO, ONE = {CLIENTS: 2}, {CLIENTS: 1}


@pytest.mark.parametrize(
    ("judge", "second", "half", "outcome"),
    [
        (grows(TWO, ONE), 150.0, 10.0, "same"),
        (grows(TWO, ONE), 101.0, 10.0, "cannot tell"),
        (grows(TWO, ONE), 50.0, 10.0, "different"),
        (falls(TWO, ONE), 50.0, 10.0, "same"),
        (stays(TWO, ONE), 104.0, 2.0, "same"),
        (stays(TWO, ONE), 104.0, 20.0, "cannot tell"),
        (stays(TWO, ONE), 150.0, 2.0, "different"),
    ],
)
def test_ratio_and_interval_give_the_outcome(judge: Judge, second: float, half: float, outcome: str) -> None:
    assert judge(points([100.0, second], half))[1] == outcome


def test_mean_of_points_has_welchs_interval() -> None:
    """Half widths of two means give the interval that Welch's test of the values has."""
    first, second = [9.0, 10.0, 12.0], [20.0, 23.0, 30.0]
    halves = [mean_interval(values).half_width for values in (first, second)]
    table = points([sum(first) / 3, sum(second) / 3], 0.0).with_columns(throughput_half=pl.Series(halves))
    both = mean_of(table, "throughput", {})
    expected = difference_interval(second, first)
    low, high = both.ends()
    assert expected.half_width is not None
    assert (high - low) / 2 == pytest.approx(expected.half_width / 2)
    assert math.isclose(both.estimate, (sum(first) + sum(second)) / 6)


def test_larger_effect_outweighs_a_smaller_one() -> None:
    design = pl.DataFrame(
        {
            WORKERS: [8, 32, 8, 32],
            STORES: [1, 1, 3, 3],
            "throughput": [100.0, 200.0, 90.0, 190.0],
            "throughput_half": [5.0] * 4,
            "repetitions": 3,
        }
    )
    assert outweighs(WORKERS, STORES)(design) == ("100 and 10.0", "same")
    assert outweighs(STORES, WORKERS)(design)[1] == "different"


def test_missing_level_is_an_error() -> None:
    with pytest.raises(ValueError, match="no point has"):
        grows({CLIENTS: 9}, ONE)(points([1.0, 2.0], 0.1))


def test_all_shapes_find_their_points() -> None:
    """A statement on points that no table has is an error."""
    assert {row["experiment"] for row in judged(PAGE.parent / "points")} == set(SHAPES)
