"""Up to which arrival rate throughput follows, on tables whose answer is plain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from cases import cases, samples
from synthetic import open_loop

from knee.data.observations import observations
from knee.verdict import words
from knee.verdict.arrivals import Arrivals, arrivals


def line(
    *levels: tuple[float, Sequence[float]], limited: Sequence[int] = (), **columns: float | Sequence[float]
) -> Arrivals:
    """What comes of rates with the throughputs of their repetitions, a point each, and other columns of their rows."""
    rows = [
        (point, point, rate, throughput)
        for point, (rate, throughputs) in enumerate(levels)
        for throughput in throughputs
    ]
    table = pl.DataFrame(rows, schema=["point", "setting", "rate", "throughput"], orient="row", strict=False)
    more = {name: pl.lit(of) if isinstance(of, float) else pl.Series(of) for name, of in columns.items()}
    (found,) = arrivals(table.with_columns(**more), ["setting"], limited)
    return found


THROUGHPUTS = """
100: 99.8 100.4; 200: 199.5 200.1; 400: 249.9 250.1
  → follows the arrival rate up to 200 requests/s. At 400 requests/s, throughput is 250.0 ± 1.3
100: 92 98; 200: 199.5 200.1; 400: 249.9 250.1
  → follows the arrival rate up to 200 requests/s. At 400 requests/s, throughput is 250.0 ± 1.3 requests/s. Cannot
    tell whether throughput follows a lower rate: at 100 requests/s, throughput is 95 ± 38 requests/s.
50: 40; 100: 10; 200: 199.9; 400: 250
  → Cannot tell whether throughput follows 2 lower rates: at 100 requests/s, throughput is 10.0 requests/s.
1000: 999 1001; 1500: 1499 1501
  → up to 1,500 requests/s, the largest measured. Measure higher rates
100: 49.9 50.1; 200: 49.9 50.1
  → none of the measured arrival rates: at 100 requests/s, throughput is 50.0 ± 1.3 requests/s. Measure lower rates.
100: 99.8 100.4; 200: 100 300
  → up to 100 requests/s. Cannot tell whether it follows higher rates: at 200 requests/s, throughput is 200 ± 1,271
100: 100; 200: 150
  → up to 100 requests/s. Cannot tell whether it follows higher rates
100: 50 90; 200: 90 150
  → Cannot tell whether throughput follows the arrival rate: at 200
0.5: 0.5 0.5; 1.5: 1.5 1.5
  → up to 1.5 requests/s, the largest measured
"""
"""By arrival rate."""


@pytest.mark.parametrize(("throughputs", "says"), cases(THROUGHPUTS))
def test_last_followed_rate_is_named(throughputs: str, says: list[str]) -> None:
    levels = ((float(rate), values) for rate, values in samples(throughputs).items())
    assert says[0] in words.arrivals(line(*levels))


def test_limiting_generator_at_unfollowed_rate_is_named() -> None:
    levels = [(100, (99.8, 100.4)), (200, (149.9, 150.1))]
    named = "The load generator was itself a limit at this rate."
    assert words.arrivals(line(*levels, limited=[1])).endswith(named)
    assert named not in words.arrivals(line(*levels, limited=[0]))


def test_each_combination_of_other_factors_has_arrivals() -> None:
    rows = [
        (point, workers, rate, f"{rate}/s", min(rate, 40 * workers))
        for point, (workers, rate) in enumerate((workers, rate) for workers in (4, 8) for rate in (300, 100, 200))
    ]
    table = pl.DataFrame(rows, schema=["point", "workers", "rate", "load", "throughput"], orient="row")
    four, eight = arrivals(table, ["workers", "rate", "load"])
    assert (four.factors, eight.factors) == ({"workers": 4}, {"workers": 8})
    assert (four.rates, eight.rates) == ({1: 100, 2: 200, 0: 300}, {4: 100, 5: 200, 3: 300})
    assert (four.follows, eight.follows) == (100, 300)


def test_single_rate_is_followed_or_not() -> None:
    follows = "Throughput follows the arrival rate: at 100 requests/s, throughput is 100.1 ± 3.8 requests/s."
    assert words.arrivals(line((100, (99.8, 100.4)))) == follows
    assert (
        "none of the measured arrival rates: at 100 requests/s, throughput is 50.0 ± 1.3 requests/s"
        in words.arrivals(line((100, (49.9, 50.1))))
    )


def test_point_keeps_up_by_its_own_throughput() -> None:
    found = line((100, (92.0, 98.0)), (200, (199.5, 200.1)), (300, (280.0, 299.0)), (400, (249.9, 250.1)))
    # A rate that scatters by chance may not keep up, though throughput follows a higher one.
    assert [found.keeps_up(point) for point in range(4)] == [None, True, None, False]


def test_random_arrivals_below_a_followed_rate_are_no_doubt() -> None:
    rates = (10, (8.8, 9.1, 10.2)), (100, (85.0, 99.0, 98.0)), (1000, (999.0, 1000.0, 1001.0))
    assert [line(*rates).keeps_up(point) for point in range(3)] == [None, None, True]
    # Of 900 requests 843 came, which is chance; that of 9,000 only 8,460 did is none.
    assert [line(*rates, observed_s=30.0).keeps_up(point) for point in range(3)] == [True, None, True]
    # Without a higher rate that is followed, as many may be missing for another reason.
    assert line(*rates[:2], observed_s=30.0).keeps_up(0) is None


def test_throughput_with_all_due_requests_over_follows() -> None:
    scattered = (10, (8.6, 9.1, 10.2))
    assert line(scattered).keeps_up(0) is None
    assert line(scattered, completed_share=0.999).keeps_up(0) is True
    assert words.arrivals(line(scattered, completed_share=0.999)) == (
        "Throughput follows the arrival rate: at 10 requests/s, throughput is 9.3 ± 2.0 requests/s. 99.9% of the "
        "due requests got an answer or failed before the end of the run."
    )
    assert line(scattered, completed_share=0.9).keeps_up(0) is None
    assert line((100, (50.0, 50.1)), completed_share=[0.5, 0.501]).keeps_up(0) is False
    # One that was over at the end of the warm-up had come due before.
    assert line((100, (101.0, 101.1)), completed_share=[0.97, 0.971]).keeps_up(0) is True


def test_a_low_rate_that_loses_nothing_is_seldom_in_doubt() -> None:
    random = np.random.default_rng(1)
    doubts = 0
    for _ in range(100):
        counts = [random.poisson(30 * rate, 3) / 30 for rate in (10, 20, 50, 100, 3200)]
        found = line(*zip((10, 20, 50, 100, 3200), counts, strict=True), observed_s=30.0)
        doubts += sum(found.keeps_up(point) is not True for point in range(5))
    assert doubts / 500 < 0.05


def test_dip_below_a_followed_rate_is_named() -> None:
    reached, above = (300, (299.9, 300.1)), (400, (249.9, 250.1))
    found = line((100, (49.9, 50.1)), (200, (199.5, 200.1)), reached, above, limited=[0])
    assert [found.keeps_up(point) for point in range(4)] == [False, True, True, False]
    assert words.arrivals(found).startswith("Throughput follows the arrival rate up to 300 requests/s. At 400")
    assert words.arrivals(found).endswith(
        "But throughput falls behind at a lower rate: at 100 requests/s, throughput is 50.0 ± 1.3 requests/s. "
        "The load generator was itself a limit at this rate."
    )
    twice = words.arrivals(line((100, (49.9, 50.1)), (200, (149.9, 150.1)), reached))
    assert "the largest measured" in twice
    assert twice.endswith("at 2 lower rates: at 100 requests/s, throughput is 50.0 ± 1.3 requests/s.")


def test_rows_without_a_rate_take_no_part() -> None:
    table = pl.DataFrame(
        {
            "point": [0, 1, 2],
            "clients": [8, None, None],
            "rate": [None, 100.0, 200.0],
            "throughput": [9.0, 100.0, 200.0],
        }
    )
    (found,) = arrivals(table, ["clients", "rate"])
    assert (found.factors, found.rates) == ({}, {1: 100, 2: 200})
    assert arrivals(table.head(1), ["clients"]) == ()
    assert arrivals(table.drop("rate"), ["clients"]) == ()


def test_response_times_alone_have_rates_and_nothing_to_follow() -> None:
    (found,) = arrivals(pl.DataFrame({"point": [0, 1], "rate": [100, 200], "response_ms": [1.0, 2.0]}), ["rate"])
    assert (found.rates, words.arrivals(found)) == ({0: 100, 1: 200}, "")


def test_completed_share_counts_unsent_requests() -> None:
    dataset = open_loop({2: 50.0})
    assert observations(dataset)["completed_share"].to_list() == [None] * 3, "unsent requests are unknown"
    dataset.summaries = dataset.summaries.with_columns(unsent=pl.lit(0, pl.Int64))
    assert observations(dataset)["completed_share"].to_list() == [1.0] * 3
    late = pl.when(pl.col("elapsed_s") >= 15).then(pl.col("elapsed_s") + 15).otherwise("elapsed_s")
    dataset.windows = dataset.windows.with_columns(elapsed_s=late)
    assert observations(dataset)["completed_share"].to_list() == pytest.approx([0.5] * 3, rel=0.01)
    load = dataset.windows.filter(role="load").group_by("repetition").agg(pl.col("count").sum().alias("unsent"))
    dataset.summaries = dataset.summaries.drop("unsent").join(load, on="repetition")
    assert observations(dataset)["completed_share"].to_list() == pytest.approx([0.25] * 3, rel=0.01)


def test_a_line_that_reaches_beyond_the_end_was_not_over_in_time() -> None:
    dataset = open_loop({2: 50.0})
    dataset.summaries = dataset.summaries.with_columns(unsent=pl.lit(0, pl.Int64))
    # Each was starved, and reported its last three seconds together with three after the end.
    starved = pl.when(pl.col("elapsed_s") == 27).then(6.0).otherwise("seconds")
    dataset.windows = dataset.windows.filter(pl.col("elapsed_s") < 28).with_columns(seconds=starved)
    assert observations(dataset)["completed_share"].to_list() == pytest.approx([27 / 28] * 3, rel=0.01)
