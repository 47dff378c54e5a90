"""What a store's log took over time, in words."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.timeline import load_per_second, what_the_log_took


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


def test_a_second_in_which_nothing_was_answered_is_a_second() -> None:
    dataset = synthetic_dataset(System(), (2, 8), seconds=30)
    dataset.windows = dataset.windows.filter((pl.col("elapsed_s") < 18) | (pl.col("point") == 0))
    seconds = load_per_second(dataset).filter((pl.col("point") == 1) & (pl.col("middle_s") > 18))
    assert seconds.height == 3 * (30 - 18)
    assert seconds["throughput"].to_list() == [0.0] * seconds.height
    assert seconds["response_ms"].null_count() == seconds.height


def test_what_is_of_unknown_time_did_not_take_none() -> None:
    dataset = synthetic_dataset(System(), (8,), seconds=30)
    timed = load_per_second(dataset)
    failed = dataset.windows.filter(role="load").with_columns(
        op=pl.lit("remove"), response_sum_ns=pl.lit(None, pl.Int64)
    )
    dataset.windows = pl.concat([dataset.windows, failed])
    assert load_per_second(dataset)["response_ms"].to_list() == timed["response_ms"].to_list()
    dataset.windows = dataset.windows.with_columns(response_sum_ns=pl.lit(None, pl.Int64))
    untimed = load_per_second(dataset)
    assert untimed["response_ms"].null_count() == untimed.height
    assert untimed["throughput"].min() > 0  # type: ignore[operator]
