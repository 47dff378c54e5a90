"""What a store's log took over time, in words."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.intervals import Interval
from knee.timeline import drifts, load_per_second, what_the_log_took, whether_it_stays


@pytest.mark.parametrize(
    ("file_mb", "says"),
    [
        # It fills what it may take, and stays.
        (
            [min(480.0, 20.0 * second) for second in range(60)],
            "took 480 to 480 MB, no more than in the first (480 MB at most). On average 90.0 MB of that were live.",
        ),
        # A little more in every half is more, whether it is much or not.
        (
            [100.0 + second * 0.1 for second in range(60)],
            "took 103 to 106 MB, 2.9% more than in the first (103 MB at most). On",
        ),
        (
            [10.0 * (second + 1) for second in range(60)],
            "took 310 to 600 MB, 100.0% more than in the first (300 MB at most): it may go on growing.",
        ),
    ],
)
def test_whether_a_log_still_grows_is_said(file_mb: list[float], says: str) -> None:
    seconds = [number + 0.5 for number in range(len(file_mb))]
    told = pl.DataFrame({"middle_s": seconds, "file_mb": file_mb, "live_mb": [90.0] * len(file_mb)})
    assert says in what_the_log_took(told)
    assert what_the_log_took(told.head(10)) == ""
    # A store that keeps everything in memory has no file.
    assert what_the_log_took(told.with_columns(file_mb=pl.lit(None, pl.Float64))) == ""


def test_throughput_that_moves_in_the_middle_of_a_run_is_told_from_a_warm_up() -> None:
    dataset = synthetic_dataset(System(), (2, 8), warming_s=5, seconds=30)
    assert all(abs(one.estimate) < 0.01 for one in drifts(dataset).values())
    late = (pl.col("elapsed_s") >= 15) & (pl.col("point") == 1)
    dataset.windows = dataset.windows.with_columns(pl.when(late).then(pl.col("count") // 2).otherwise("count"))
    found = drifts(dataset)
    assert abs(found[0].estimate) < 0.01
    assert found[1].estimate == pytest.approx(-0.5, abs=0.01)
    names = {0: "2 clients", 1: "8 clients"}
    assert whether_it_stays(found, names).startswith(
        "From the first half of a run to the second throughput surely moves: by -50."
    )
    assert " at 8 clients" in whether_it_stays(found, names)


@pytest.mark.parametrize("from_s", [15, 18], ids=["whole half", "part of it"])
def test_seconds_in_which_nothing_was_answered_count(from_s: int) -> None:
    dataset = synthetic_dataset(System(), (2, 8), seconds=30)
    silent = (pl.col("elapsed_s") >= from_s) & (pl.col("point") == 1)
    dataset.windows = dataset.windows.filter(~silent)
    found = drifts(dataset)
    assert found[0].estimate == pytest.approx(0, abs=0.01)
    assert found[1].estimate == pytest.approx((from_s - 15) / 10 - 1, abs=0.01)
    assert "surely moves: by -" in whether_it_stays(found, {0: "2 clients", 1: "8 clients"})
    seconds = load_per_second(dataset).filter((pl.col("point") == 1) & (pl.col("middle_s") > from_s))
    assert seconds.height == 3 * (30 - from_s)
    assert seconds["throughput"].to_list() == [0.0] * seconds.height
    assert seconds["response_ms"].null_count() == seconds.height


def test_of_a_run_that_answered_nothing_at_first_no_share_can_be_told() -> None:
    dataset = synthetic_dataset(System(), (2, 8), seconds=30)
    dataset.windows = dataset.windows.filter((pl.col("elapsed_s") >= 15) | (pl.col("point") == 0))
    found = drifts(dataset)
    assert found[0].half_width is not None
    assert found[1].half_width is None


def test_where_throughput_moves_is_said_as_surely_as_it_is_known() -> None:
    still, less = Interval(0.01, -0.01, 0.03, 0.95, 3), Interval(-0.04, -0.09, 0.01, 0.95, 3)
    gone, vague = Interval(-0.3, -0.4, -0.2, 0.95, 3), Interval(1.5, -700.0, 703.0, 0.95, 2)
    names = {0: "a", 1: "b", 2: "c"}
    # What contains 0 may still reach far from it.
    assert whether_it_stays({0: still, 1: less}, names) == (
        "Nothing shows that throughput moves from the first half of a run to the second: by no more than 9.0% anywhere."
    )
    assert whether_it_stays({0: still, 1: vague, 2: gone}, names).endswith("surely moves: by -30.0% ± 10.0% at c.")
    assert whether_it_stays({2: gone, 1: gone}, names).endswith(", and surely at 1 other point.")
    close = Interval(0.002, -0.014, 0.018, 0.95, 3)
    assert whether_it_stays({0: close}, names).endswith("throughput surely stays as it is, to within 1.8%.")
    assert "cannot be told at 1 of 2 points: the repetitions differ" in whether_it_stays({0: still, 1: vague}, names)
    assert whether_it_stays({0: Interval(0.5, None, None, 0.95, 1)}, names) == ""


def test_points_whose_throughput_nobody_can_judge_are_named() -> None:
    close, gone = Interval(0.002, -0.014, 0.018, 0.95, 3), Interval(-0.3, -0.4, -0.2, 0.95, 3)
    once = Interval(0.5, None, None, 0.95, 1)
    names = {0: "a", 1: "b", 2: "c"}
    assert whether_it_stays({0: close, 1: once, 2: once}, names).endswith(
        "surely stays as it is, to within 1.8%. Of b; c there are too few repetitions to tell."
    )
    assert whether_it_stays({0: gone, 1: once}, names).endswith(" at a. Of b there are too few repetitions to tell.")
