"""What happened second by second: to all requests, to each operation, and to a store's log."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset
from versioned import OUTCOMES, SECONDS, versioned_dataset

from knee.verdict import words
from knee.verdict.timeline import load_per_second, log_growth, operations_per_second


@pytest.mark.parametrize(
    ("file_mb", "says"),
    [
        # It fills what it may take, and stays.
        (
            [min(480.0, 20.0 * second) for second in range(60)],
            "took 480 to 480 MB. Their largest size did not exceed that of the first half (480 MB). On average, 90.0 "
            "MB of the logs were live",
        ),
        # A little more in every half is more, whether it is much or not.
        (
            [100.0 + second * 0.1 for second in range(60)],
            "took 103 to 106 MB. Their largest size was 2.9% above that of the first half (103 MB). On",
        ),
        (
            [10.0 * (second + 1) for second in range(60)],
            "took 310 to 600 MB. Their largest size was 100.0% above that of the first half (300 MB). They may grow "
            "further. On",
        ),
    ],
)
def test_growing_log_is_named(file_mb: list[float], says: str) -> None:
    seconds = [number + 0.5 for number in range(len(file_mb))]
    stores = pl.DataFrame({"middle_s": seconds, "file_mb": file_mb, "live_mb": [90.0] * len(file_mb)})
    growth = log_growth(stores)
    assert growth is not None
    assert says in words.log_growth(growth)
    assert log_growth(stores.head(10)) is None
    # A store that keeps everything in memory has no file.
    assert log_growth(stores.with_columns(file_mb=pl.lit(None, pl.Float64))) is None


def test_second_without_an_answer_has_throughput_zero() -> None:
    dataset = synthetic_dataset(System(), (2, 8), seconds=30)
    dataset.windows = dataset.windows.filter((pl.col("elapsed_s") < 18) | (pl.col("point") == 0))
    seconds = load_per_second(dataset).filter((pl.col("point") == 1) & (pl.col("middle_s") > 18))
    assert seconds.height == 3 * (30 - 18)
    assert seconds["throughput"].to_list() == [0.0] * seconds.height
    assert seconds["response_ms"].null_count() == seconds.height


def test_untimed_requests_have_no_response_time() -> None:
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


def test_each_operation_has_its_own_response_time_in_each_second() -> None:
    dataset = versioned_dataset((1,))
    # From the third second on a put takes ten times as long: of all requests together that is the smallest part.
    slow = pl.when((pl.col("op") == "put") & (pl.col("elapsed_s") >= 3)).then(10).otherwise(1)
    dataset.windows = dataset.windows.with_columns(pl.col("response_sum_ns") * slow)
    seconds = operations_per_second(dataset)
    assert seconds.group_by("op").len().sort("op").rows() == [("put", 2 * SECONDS), ("read", 2 * SECONDS)]
    put = seconds.filter((pl.col("op") == "put") & (pl.col("repetition") == 1))["response_ms"]
    assert put.to_list() == pytest.approx([put[0]] * 3 + [10 * put[0]] * 3)
    read = seconds.filter(pl.col("op") == "read")["response_ms"]
    weights = {"read_missing": 445, "read": 446, "read_large": 9}
    mean = sum(count * OUTCOMES[op] for op, count in weights.items()) / 900
    assert read.to_list() == pytest.approx([mean * put[0]] * read.len(), rel=1e-3)


def test_second_without_timed_operation_has_no_response_time() -> None:
    dataset = versioned_dataset((1,))
    is_put = pl.col("op") == "put"
    dataset.windows = dataset.windows.filter(~is_put | (pl.col("elapsed_s") < 3)).with_columns(
        pl.when(is_put & (pl.col("elapsed_s") == 1)).then(None).otherwise("response_sum_ns").alias("response_sum_ns")
    )
    puts = operations_per_second(dataset).filter((pl.col("op") == "put") & (pl.col("repetition") == 1))
    assert puts["middle_s"].to_list() == [second + 0.5 for second in range(SECONDS)]
    assert puts["response_ms"].is_not_null().to_list() == [True, False, True] + [False] * (SECONDS - 3)


def test_second_without_any_operation_is_kept() -> None:
    dataset = versioned_dataset((1,))
    dataset.windows = dataset.windows.filter((pl.col("role") != "load") | (pl.col("elapsed_s") != 3))
    stalled = operations_per_second(dataset).filter((pl.col("middle_s") == 3.5) & (pl.col("repetition") == 1))
    assert stalled.select("op", "response_ms").rows() == [("put", None), ("read", None)]


def test_operation_never_timed_is_left_out() -> None:
    dataset = versioned_dataset((1, 2))
    untimed = (pl.col("op") == "put") & (pl.col("point") == 1)
    dataset.windows = dataset.windows.with_columns(pl.when(~untimed).then("response_sum_ns").alias("response_sum_ns"))
    seconds = operations_per_second(dataset)
    assert seconds.select("point", "op").unique().sort("point", "op").rows() == [(0, "put"), (0, "read"), (1, "read")]
