"""Failed requests: named by operation, and noted where numbers contain them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from synthetic import System, configured, synthetic_dataset
from versioned import versioned_dataset

from knee.data import Dataset
from knee.data.hdr import Histogram
from knee.report.page import html
from knee.stats.intervals import percent
from knee.verdict import analyse, words
from knee.verdict.distributions import merged
from knee.verdict.failures import failures, requests

pytestmark = pytest.mark.usefixtures("scriptless")


def failing(dataset: Dataset, **shares: float) -> Dataset:
    """The same run, had so much of each operation failed."""
    share = pl.col("op").replace_strict(shares, default=0.0, return_dtype=pl.Float64)
    errors = pl.when(pl.col("role") == "load").then((pl.col("count") * share).round().cast(pl.Int64))
    dataset.windows = dataset.windows.with_columns(errors=errors.otherwise("errors"))
    return dataset


def warned(dataset: Dataset) -> str:
    """What is said of requests that failed."""
    found = failures(dataset)
    return words.warning(found) if found.errors else ""


def test_failures_are_named_by_operation() -> None:
    dataset = failing(versioned_dataset((1, 2)), put=0.5, read_missing=0.2)
    asked = requests(dataset)
    assert asked.columns == ["point", "repetition", "op", "count", "errors"]
    # Four of six seconds, two repetitions, 1000 and 2000 requests a second; half of the puts, 89 of 900 reads.
    assert asked["op"].unique().sort().to_list() == ["put", "read"]
    assert warned(dataset).startswith("3336 of 24000 requests (13.9%) failed: 50.0% of put, 9.89% of read.")


def test_failed_requests_in_response_times_give_a_warning() -> None:
    assert warned(versioned_dataset((1, 2))) == ""
    said = warned(failing(versioned_dataset((1, 2)), put=0.5))
    assert said.startswith(
        "1200 of 24000 requests (5.00%) failed: 50.0% of put. Throughput includes failed requests. These"
    )
    assert "Response times include failed requests." in said


def test_pgbench_times_none_that_failed() -> None:
    dataset = failing(synthetic_dataset(System(), (2, 8)), get=0.5)
    said = warned(configured(dataset, {"load.kind": "pgbench"}))
    assert "Response times leave out failed requests: pgbench does not time them." in said


def test_of_a_single_operation_there_is_nothing_to_tell_apart() -> None:
    dataset = synthetic_dataset(System(), (2, 8))
    dataset.windows = dataset.windows.filter(pl.col("op") == "get")
    assert " failed. Throughput includes failed requests." in warned(failing(dataset, get=0.1))


@pytest.mark.parametrize("points", [(1,), (0, 1)], ids=["one", "all"])
def test_point_without_a_timed_request_is_on_the_page(points: tuple[int, ...]) -> None:
    """As where all that pgbench asks for fails."""
    dataset = versioned_dataset((2, 8))
    failed = (pl.col("role") == "load") & pl.col("point").is_in(points)
    nothing = pl.lit(Histogram(np.zeros(0, dtype=np.int64)).encode())
    dataset.windows = dataset.windows.with_columns(
        pl.when(failed).then("count").otherwise("errors").alias("errors"),
        pl.when(~failed).then("response_sum_ns").alias("response_sum_ns"),
        pl.when(failed).then(nothing).otherwise("response").alias("response"),
    )
    assert {point for point, *_ in merged(dataset)} == {0, 1} - set(points)
    assert ">100%</td>" in html(analyse(dataset))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0%"),
        (1e-12, "0.000000000100%"),
        (0.000012, "0.00120%"),
        (0.021, "2.10%"),
        (0.9994, "99.9%"),
        (0.9996, "more than 99.9%"),
        (99999 / 100001, "more than 99.9%"),
        (1.0, "100%"),
    ],
)
def test_little_is_not_nothing_and_much_is_not_all(share: float, said: str) -> None:
    assert percent(share) == said
