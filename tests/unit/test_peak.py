"""The largest throughput, on tables whose answer is plain, and how often what is said of it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from cases import cases, samples
from soak import drawn

from knee.verdict import words
from knee.verdict.peak import Peak, peak

TRIALS = drawn(200)
LEAST = 0.95 - 4 * (0.95 * 0.05 / TRIALS) ** 0.5
"""Nominally 95 %; four standard errors below it."""

Samples = Mapping[tuple[int, ...], Sequence[float]]


def table(measured: Samples) -> pl.DataFrame:
    """A row per repetition of every combination of clients and connections."""
    rows = [(*at, value) for at, values in measured.items() for value in values]
    frame = pl.DataFrame(rows, schema=["clients", "connections", "throughput"], orient="row")
    return frame.with_columns(think_ms=pl.lit(0.0))


def found(measured: Samples) -> Peak:
    largest = peak(table(measured), ["clients", "connections"])
    assert largest is not None
    return largest


# By clients and connections.
PEAKS = """
1,2: 100 101; 8,2: 300 303; 8,4: 302 304; 16,4: 250 251
  → Throughput is largest with clients = 8, connections = 4: 303 requests/s (95% interval: 298 to 308).
  → Throughput may be as large with clients = 8, connections = 2. With the 2 others, throughput is surely lower.
  → The largest of 4 means is more often too high than too low: expect less from another run. The interval accounts
    for this choice.
1,2: 100 101; 8,4: 302 304; 16,4: 900
  → Among the configurations with repetitions, throughput is largest with clients = 8, connections = 4: 303
    requests/s (95% interval: 295 to 311).
  → With the other, throughput is surely lower. 1 further configuration cannot be judged from one measurement.
  → The interval accounts for choosing the largest of 2 means.
1,2: 100 101; 8,2: 300 303; 8,4: 304 304; 16,4: 250 251
  → connections = 4: 304 requests/s (95% interval: 297 to 311).
  → may be as large with clients = 8, conn
1,2: 100 101; 8,2: 200 300; 8,4: 304 304; 16,4: 250 250.001
  → Throughput was largest with clients = 8, connections = 4: 304 requests/s. With so few repetitions the error of
    this mean is unknown (cannot tell from two repetitions). Repeat more often.
  → Throughput may be as large with clients = 16, connections = 4; clients = 8
1,2: 100 101 100 101; 8,4: 10 10 10 10000
  → 4: 2,510 requests/s. With so few repetitions the error of this mean is unknown (
1,2: 100 101 100 101; 8,4: 10 10 10 10 10000
  → 4: 2,010 requests/s. Repetitions scatter too much to tell the error of this mean (
1,2: 100 101 100 101 100 101 100 101 100 101; 8,4: 10 10 10 10 10 10 10 10 10 10000
  → 4: 1,010 requests/s. Repetitions scatter too much to tell the error of this mean (
1,2: 100 100; 8,2: 300 300; 8,4: 200 200
  → Throughput was largest with clients = 8, connections = 2: 300 requests/s. Cannot tell which configuration is
    best: all repetitions are equal, so the noise is unknown.
1,2: 0 0; 8,2: 0 0; 8,4: 302 304; 16,4: 250 251
  → Throughput is largest with clients = 8, connections = 4: 303
  → With 1 of the 3 others, throughput is surely lower. With 2 of the 3 others, no request was answered.
1,2: 0 0; 8,2: 0 0; 8,4: 900 900; 16,4: 1000
  → Among the configurations with repetitions, throughput was largest with clients = 8, connections = 4: 900
    requests/s.
  → With the 2 others, no request was answered. 1 further configuration cannot be judged from one measurement.
1,2: 100 100; 8,2: 200 200; 8,4: 900
  → Among the configurations with repetitions, throughput was largest with clients = 8, connections = 2: 200
    requests/s. Cannot tell which configuration is best: all repetitions are equal, so the noise is unknown. 1
    further configuration cannot be judged from one measurement.
1,2: 0 0; 8,2: 0 0; 8,4: 900
  → Throughput was largest with clients = 8, connections = 4: 900 requests/s. Cannot tell without repetitions which
    configuration is best: 1 configuration of 3 was measured once.
1,2: 0 0; 8,4: 302 304
  → Throughput is largest with clients = 8, connections = 4: 303
  → With the other, no request was answered.
1,1: 100 200; 1,2: 100 200; 1,4: 100 200; 2,1: 100 200; 2,2: 100 200; 2,4: 100 200; 4,1: 100 200; 4,2: 100 200; 4,4:
100 200
  → largest with clients = 1, connections = 1: 150
  → Throughput may be as large with each of the 8 others.
0,1: 20 90; 1,1: 21 89; 2,1: 22 88; 3,1: 23 87; 4,1: 24 86; 5,1: 25 85; 6,1: 26 84; 7,1: 27 83; 1,2: 0 0
  → largest with clients = 0, connections = 1: 55
  → ; clients = 6, connections = 1 and 1 more. With the other, no request was answered.
1,2: 100; 8,2: 300; 8,4: 200 201
  → Throughput was largest with clients = 8, connections = 2: 300 requests/s. Cannot tell without repetitions which
    configuration is best: 2 configurations of 3 were measured once.
"""


@pytest.mark.parametrize(("throughputs", "says"), cases(PEAKS))
def test_the_largest_is_named_with_those_that_may_be_as_large(throughputs: str, says: list[str]) -> None:
    by_levels = {tuple(map(int, at.split(","))): values for at, values in samples(throughputs).items()}
    largest = found(by_levels)
    sentences = words.peak(largest)
    for sentence, said in zip(sentences, says, strict=False):
        assert said in sentence
    assert any("more often too high" in sentence for sentence in sentences) is bool(largest.as_large)


def test_peak_without_two_closed_loop_configurations_is_none() -> None:
    factors = ["clients", "connections"]
    both = table({(1, 2): (100.0, 101.0), (8, 4): (300.0, 303.0)})
    assert peak(both, factors) is not None
    assert peak(both, ["clients"]) is None, "clients have a knee"
    assert peak(both.filter(pl.col("clients") == 1), factors) is None
    assert peak(both.with_columns(think_ms=pl.lit(None, pl.Float64)), factors) is None
    assert peak(both.with_columns(throughput=pl.lit(0.0)), factors) is None
    assert peak(both.drop("throughput"), factors) is None


def test_requests_of_one_type_are_no_throughput_of_all() -> None:
    both = table({(1, 2): (100.0, 101.0), (8, 4): (300.0, 303.0)})
    types = pl.concat([both.with_columns(request_type=pl.lit(name)) for name in ("get", "all")])
    doubled = types.with_columns(pl.col("throughput") * pl.when(pl.col("request_type") == "get").then(9).otherwise(1))
    largest = peak(doubled, ["clients", "connections", "request_type"])
    assert largest is not None and largest.compared == 2 and largest.throughput.estimate == pytest.approx(301.5)


def test_requests_that_fail_fast_crown_no_configuration() -> None:
    measured = {(8, 2): (100.0, 100.2), (8, 4): (900.0, 901.0), (16, 2): (300.0, 300.2)}
    failing = table(measured).with_columns(
        observed_s=10.0, errors=pl.Series([0, 0, 8964, 8974, 1, 2]), load_total=9000, response_ms=1.0
    )
    factors = ["clients", "connections"]
    largest = peak(failing, factors)
    assert largest is not None
    assert words.peak(largest)[0].startswith("Throughput is largest with clients = 16, connections = 2: 300 requests/s")
    assert words.peak(largest)[1] == "With the 2 others, throughput is surely lower."
    left_out = "This comparison leaves out failed requests, which occurred with clients = 8, connections = 4 (99.6%)."
    assert words.peak(largest)[-1] == left_out
    once = peak(failing.gather_every(2), factors)
    assert once is not None and once.factors == largest.factors and words.peak(once)[-1] == left_out


def test_configurations_with_more_keys_a_request_are_compared_by_keys() -> None:
    measured = {(1, 2): (300.0, 303.0), (1, 4): (290.0, 291.0), (9, 2): (100.0, 101.0), (9, 4): (50.0, 51.0)}
    asked = table(measured).rename({"clients": "workload.multiget"})
    factors = ["workload.multiget", "connections"]
    assert peak(asked, factors) is None, "the keys are unknown"
    # One set for every multi-get, and a tenth of the requests fails.
    each = (1 + pl.col("workload.multiget")) / 2
    asked = asked.with_columns(observed_s=10.0, load_total=9000, errors=pl.col("throughput"))
    largest = peak(asked.with_columns(items=pl.col("throughput") * 10 * each), factors)
    assert largest is not None
    said = words.peak(largest)
    assert said[0].startswith("Throughput is largest with workload.multiget = 9, connections = 2: 452 keys/s (")
    assert said[1] == "With the 3 others, throughput is surely lower."
    assert (
        said[-1].startswith("This comparison leaves out failed requests, which occurred with") and "(10.0%)" in said[-1]
    )


def test_served_alike_is_equal_whatever_failed_beside_it() -> None:
    served = table({(8, 2): (900.0, 900.0), (8, 4): (899.0, 899.0), (16, 2): (300.0, 300.0)})
    errors = pl.Series([100, 50, 102, 59, 7, 3])
    failing = served.with_columns(
        throughput=(pl.col("throughput") + errors) / 60, observed_s=60.0, errors=errors, load_total=9000
    )
    largest = peak(failing, ["clients", "connections"])
    assert largest is not None and largest.throughput.low is None


@pytest.mark.parametrize("repetitions", [2, 3])
def test_best_is_named_and_interval_pays_for_the_choice(repetitions: int) -> None:
    rng = np.random.default_rng(repetitions)
    truth = {(n, m): 1000.0 + 10 * (n == 7) for n in range(10) for m in range(2)}
    kept, covered, alone = 0, 0, 0
    for _ in range(TRIALS):
        largest = found({at: mean * (1 + 0.05 * rng.standard_normal(repetitions)) for at, mean in truth.items()})
        kept += any(at.get("clients") == 7 for at in (largest.factors, *(at for at, _ in largest.as_large)))
        chosen = truth[largest.factors["clients"], largest.factors["connections"]]  # type: ignore[index]
        low, high = largest.throughput.low, largest.throughput.high
        assert low is not None and high is not None
        covered += low <= chosen <= high
        alone += largest.throughput.estimate - 1.96 * 50 / repetitions**0.5 <= chosen
    assert min(kept, covered) >= LEAST * TRIALS
    assert alone < 0.8 * TRIALS, "an interval that does not know of the choice is too high"


@pytest.mark.parametrize("repetitions", [2, 3])
def test_noisier_configuration_has_its_own_variance(repetitions: int) -> None:
    rng = np.random.default_rng(repetitions)
    truth = {(n, m): 980.0 if (n, m) == (4, 1) else 1000.0 for n in range(5) for m in range(2)}
    kept, covered = 0, 0
    for _ in range(TRIALS):
        noise = {at: 0.1 if mean < 1000 else 0.003 for at, mean in truth.items()}
        largest = found({at: mean * (1 + noise[at] * rng.standard_normal(repetitions)) for at, mean in truth.items()})
        named = [tuple(at.values()) for at in (largest.factors, *(at for at, _ in largest.as_large))]
        kept += (0, 0) in named
        low, high = largest.throughput.low, largest.throughput.high
        assert low is not None and high is not None
        covered += low <= truth[named[0]] <= high  # type: ignore[index]
    assert min(kept, covered) >= LEAST * TRIALS
