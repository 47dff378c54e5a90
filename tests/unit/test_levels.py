"""Which levels of the only factor are enough, on tables whose answer is plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from cases import cases, samples

from knee.data import csv
from knee.verdict import analyse, words
from knee.verdict.levels import levels
from knee.verdict.text import render_text


def table(measured: Mapping[int | str, Sequence[float]], response: str, think_ms: float | None = 0.0) -> pl.DataFrame:
    """A row per repetition of each level of the workers."""
    rows = [(point, level, value) for point, (level, values) in enumerate(measured.items()) for value in values]
    frame = pl.DataFrame(rows, schema=["point", "workers", response], orient="row", strict=False)
    return frame.with_columns(think_ms=pl.lit(think_ms, pl.Float64), clients=8)


THROUGHPUTS = """
1: 100 101; 2: 199.9 200.1; 4: 249.9 250.1; 8: 249 250
  → Throughput is largest with workers = 4: 250.0 ± 1.3 requests/s. Throughput may be as large with 8. Throughput is
    surely lower with 1 (by 60%), 2 (by 20%).
1: 0 0; 2: 1000 1001; 4: 2000 2001 nan
  → with workers = 4: 2,000 ± 6 requests/s. Throughput is surely lower with 1 (by 100%), 2 (by 50%).
1: nan; 2: 1000 1001; 4: 2000 2001
  → largest with workers = 4: 2,000 ± 6 requests/s. Throughput is surely lower with 2 (by 50%). There are no
    measurements with 1.
1: 100 100.1; 2: 101 101.1
  → largest with workers = 2: 101.0 ± 0.6 requests/s. Throughput is lower by 2% or less with 1.
none: 10 10.1; needed: 100 101
  → workers = needed: 100.5 ± 6.4 requests/s. Throughput is surely lower with none (by 90%).
1: 100 100; 2: 200 200; 4: 0 0
  → Throughput was largest with workers = 2: 200 requests/s. Cannot tell whether throughput is lower with 1: all
    repetitions are equal, so the noise is unknown. With 4, no request was answered.
1: 15 15; 2: 0 0
  → Throughput was largest with workers = 1: 15.0 requests/s. With 2, no request was answered.
1: 30 0; 2: 0 0
  → Throughput is largest with workers = 1: 15 ± 191 requests/s. Throughput may be as large with 2.
1: 100 100; 2: 110 110; 4: 50 52
  → largest with workers = 2: 110 requests/s. Throughput may be as large with 1. Throughput is surely lower with 4
    (by 54%).
1: 100 100.1; 2: 200 200.1; 4: 900; 8: 1
  → Among the values with repetitions, throughput is largest with workers = 2: 200.1 ± 0.6 requests/s. Throughput is
    surely lower with 1 (by 50%). Cannot judge 4, 8: only one measurement.
1: 100; 2: 200 201; 4: 300
  → Cannot tell without repetitions how workers changes throughput. Measure 1, 4 more than once.
1: 100; 2: 200
  → Cannot tell without repetitions how workers changes throughput. Measure every value more than once.
"""


@pytest.mark.parametrize(("throughputs", "says"), cases(THROUGHPUTS))
def test_best_level_is_named_with_levels_as_good(throughputs: str, says: list[str]) -> None:
    by_level = {int(at) if at.isdigit() else at: values for at, values in samples(throughputs).items()}
    found = levels(table(by_level, "throughput"), ["workers"])
    assert found is not None and says[0] in words.levels(found)


def test_levels_of_keys_a_request_are_compared_by_keys() -> None:
    asked = table({1: (300.0, 303.0), 3: (200.0, 201.0), 9: (60.0, 61.0)}, "throughput")
    asked = asked.rename({"workers": "workload.multiget"})
    assert levels(asked, ["workload.multiget"]) is None, "the keys are unknown"
    items = pl.col("throughput") * 10 * pl.col("workload.multiget").cast(pl.Int64)
    known = asked.with_columns(observed_s=10.0, load_total=9000, errors=0, items=items)
    found = levels(known, ["workload.multiget"])
    assert found is not None
    assert words.levels(found).startswith("Throughput is largest with workload.multiget = 3: 602 ± 19 keys/s.")


@pytest.mark.parametrize(("one", "other", "is_compared"), [("whole", "sharded", True), ("1", "9", False)])
def test_factor_multiget_of_a_table_sets_the_keys_if_it_is_a_number(one: str, other: str, is_compared: bool) -> None:
    rows = [f"{at},8,{rate},{8000 / rate}" for at, rates in ((one, (300, 303)), (other, (200, 201))) for rate in rates]
    found = analyse(csv.parse("\n".join(["multiget,clients,throughput,response_ms", *rows]), "t.csv"))
    assert (found.levels is not None) is is_compared
    assert ("names no largest throughput" in " ".join(render_text(found).split())) is not is_compared


def test_open_loop_levels_are_compared_by_response_time() -> None:
    measured = {1: (20.0, 20.2), 2: (10.0, 10.1), 4: (10.0, 10.4)}
    found = levels(table(measured, "response_ms", think_ms=None), ["workers"])
    assert found is not None
    assert words.levels(found) == (
        "The response time is shortest with workers = 2: 10.05 ± 0.64 ms. The response time may be as short with 4. "
        "The response time is surely longer with 1 (by 100%)."
    )


def test_level_many_times_slower_is_printed_in_times() -> None:
    found = levels(table({1: (2000.0, 2001.0), 2: (1.0, 1.01), 4: (1.8, 1.81)}, "response_ms", None), ["workers"])
    assert found is not None
    assert words.levels(found).endswith("The response time is surely longer with 1 (2,000 times as long), 4 (by 80%).")


def test_level_with_unfollowed_rate_is_not_compared() -> None:
    # An overloaded pool answers the few requests that it takes on in no time.
    measured = {1: (1.0, 1.1), 2: (3.0, 3.1), 4: (6.0, 6.1), 8: (5.0, 5.1)}
    found = table(measured, "response_ms", None).with_columns(throughput=1000.0)
    keeps_up = {0: False, 1: None, 2: True, 3: True}
    crowned = levels(found, ["workers"], keeps_up)
    assert crowned is not None and words.levels(crowned) == (
        "Among the values that can be compared, the response time is shortest with workers = 8: 5.05 ± 0.64 ms. The "
        "response time is surely longer with 4 (by 20%). With 1, throughput does not follow the arrival rate: the "
        "response time has no steady value. With 2, throughput may not follow the arrival rate: the response time may "
        "have no steady value."
    )
    alone = levels(found, ["workers"], {0: False, 1: False, 2: False, 3: True})
    assert alone is not None and words.levels(alone) == (
        "The response time can be judged only with workers = 8: 5.05 ± 0.64 ms. With 1, 2, 4, throughput does not "
        "follow the arrival rate: the response time has no steady value."
    )


def test_levels_with_unfollowed_rates_are_compared_by_throughput() -> None:
    measured = {1: (301.0, 302.0), 2: (500.0, 501.0)}
    found = table(measured, "throughput", None).with_columns(response_ms=pl.col("workers").cast(pl.Float64))
    compared = levels(found, ["workers"], {0: False, 1: False})
    assert compared is not None and words.levels(compared) == (
        "At every value of workers, throughput falls behind the arrival rate. Throughput is largest with workers = 2: "
        "500.5 ± 6.4 requests/s. Throughput is surely lower with 1 (by 40%)."
    )


@pytest.mark.parametrize(
    ("think_ms", "says"),
    [
        (
            0.0,
            "Throughput is largest with workers = 4: 299.9 ± 0.6 requests/s. Throughput is surely lower with 1 (by "
            "67%), 2 (by 99%). This comparison leaves out failed requests, which occurred with 2 (99.6%).",
        ),
        (
            None,
            "Among the values that can be compared, the response time is shortest with workers = 4: 2.05 ± 0.64 ms. "
            "The response time is surely longer with 1 (by 37%). With 2 (99.6%), requests failed: the response time "
            "cannot be compared.",
        ),
    ],
    ids=["closed", "open"],
)
def test_a_level_that_fails_fast_is_not_crowned(think_ms: float | None, says: str) -> None:
    found = table({1: (100.0, 100.2), 2: (900.0, 901.0), 4: (300.0, 300.2)}, "throughput", think_ms).with_columns(
        response_ms=pl.Series([2.8, 2.82, 0.1, 0.11, 2.0, 2.1]),
        observed_s=10.0,
        errors=pl.Series([0, 0, 8964, 8974, 1, 2]),
        load_total=9000,
    )
    compared = levels(found, ["workers"], {} if think_ms is not None else dict.fromkeys(range(3), True))
    assert compared is not None and says in words.levels(compared)


@pytest.mark.parametrize(
    ("keeps_up", "says"),
    [
        ((True, False), "At every value of workers, throughput falls behind the arrival rate, or requests fail."),
        ((True, None), "At every value of workers, throughput may fall behind the arrival rate, or requests fail."),
        ((None, False), "At every value of workers, throughput may fall behind the arrival rate."),
        # Throughput that follows is not doubted.
        ((True, True), "Throughput is largest"),
    ],
)
def test_a_rate_that_is_followed_by_failing_is_followed(keeps_up: Sequence[bool | None], says: str) -> None:
    found = table({1: (1000.0, 1000.5), 2: (700.0, 700.5)}, "throughput", None).with_columns(
        response_ms=1.0, observed_s=10.0, errors=pl.Series([500, 500, 400, 400]), load_total=9000
    )
    compared = levels(found, ["workers"], dict(enumerate(keeps_up)))
    assert compared is not None
    assert words.levels(compared).startswith(says)
    assert "Throughput is largest with workers = 1: 950.2" in words.levels(compared)


def test_served_alike_is_equal_whatever_failed_beside_it() -> None:
    """900 and 900, 899 and 899 requests: their rates differ in the last digit, in which there is no noise."""
    counts, errors = pl.Series([1000, 950, 1001, 958]), pl.Series([100, 50, 102, 59])
    found = table({1: (0.0, 0.0), 2: (0.0, 0.0)}, "throughput").with_columns(
        throughput=counts / 60.0, observed_s=60.0, errors=errors, load_total=9000
    )
    compared = levels(found, ["workers"])
    assert compared is not None and "requests/s. Cannot tell whether throughput is lower with 2:" in words.levels(
        compared
    )


def test_a_level_that_a_row_lacks_has_a_name() -> None:
    found = table({"one": (1.0, 1.1), "two": (2.0, 2.1)}, "throughput")
    lacking = found.with_columns(workers=pl.col("workers").replace("one", None))
    compared = levels(lacking, ["workers"])
    assert compared is not None and words.levels(compared).endswith("Throughput is surely lower with none (by 49%).")


def test_levels_of_several_factors_or_the_load_are_none() -> None:
    found = table({1: (10.0, 10.0), 2: (20.0, 20.0)}, "throughput")
    assert levels(found, ["workers"]) is not None
    assert levels(found, ["workers", "cache"]) is None
    assert levels(found, []) is None
    assert levels(found.with_columns(clients="workers"), ["workers"]) is None, "clients have a knee"
    assert levels(found.rename({"workers": "rate"}), ["rate"]) is None
    assert levels(found.rename({"throughput": "queue_length"}), ["workers"]) is None
    assert levels(found.with_columns(throughput=pl.lit(0.0)), ["workers"]) is None


def test_a_closed_and_an_open_loop_are_not_compared() -> None:
    closed = table({1: (10.0, 10.0), 2: (20.0, 20.0)}, "throughput")
    assert levels(closed, ["workers"]) is not None
    both = closed.with_columns(think_ms=pl.when(pl.col("workers") == 1).then(0.0))
    assert levels(both, ["workers"]) is None
