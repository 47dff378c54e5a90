"""What each operation took: alone, beside others, and of many keys at once."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from synthetic import System, configured, synthetic_dataset
from versioned import EXPERIMENT, SECONDS, throughput, versioned_dataset

from knee.data import Dataset
from knee.data.observations import observations
from knee.report.operations import section
from knee.report.sheet import Sheet
from knee.spec import parse
from knee.stats.comparisons import scattered_mean
from knee.stats.intervals import mean_interval
from knee.verdict import analyse
from knee.verdict.distributions import merged
from knee.verdict.operations import Operation, apart_from_mix, operations
from knee.verdict.words.operations import beside_others, together_or_alone

PUTS = (pl.col("role") == "load") & (pl.col("op") == "put")


def operation(name: str, *means_ms: float, items: int = 1, failed: float = 0.0) -> Operation:
    mean_ms, per_s = scattered_mean(np.array(means_ms)), mean_interval([1000 / one for one in means_ms])
    return Operation(name, items, per_s, failed, mean_ms, means_ms[0], means_ms[0])


def test_reads_are_one_operation_whatever_came_of_them() -> None:
    dataset = versioned_dataset((1, 8))
    found = operations(merged(dataset), observations(dataset), dataset)
    assert list(found) == [0, 1]
    for point, clients in enumerate((1, 8)):
        assert sorted(found[point]) == ["put", "read"]
        together = sum(one.per_s.estimate for one in found[point].values())
        assert together == pytest.approx(throughput(clients), rel=0.01)
        waited = sum(one.per_s.estimate * one.mean_ms.estimate / 1000 for one in found[point].values())
        assert waited == pytest.approx(clients, rel=0.01)
        assert found[point]["read"].per_s.repetitions == 2


def test_constant_response_time_has_no_interval() -> None:
    dataset = versioned_dataset((2,))
    read = operations(merged(dataset), observations(dataset), dataset)[0]["read"]
    assert (read.mean_ms.repetitions, read.mean_ms.low) == (2, None)
    assert read.per_s.low is not None


def test_a_repetition_without_an_operation_had_none_a_second() -> None:
    dataset = versioned_dataset((2,))
    seen = operations(merged(dataset), observations(dataset), dataset)[0]["put"]
    dataset.windows = dataset.windows.filter(~PUTS | (pl.col("repetition") == 1))
    rest = operations(merged(dataset), observations(dataset), dataset)[0]["put"]
    assert (rest.per_s.repetitions, rest.mean_ms.repetitions) == (2, 1)
    assert rest.per_s.estimate == pytest.approx(seen.per_s.estimate / 2, rel=0.05)


def test_the_keys_of_a_request_are_those_that_its_point_asks_for() -> None:
    dataset = versioned_dataset((2,))
    text = EXPERIMENT.format(clients=[2], seconds=SECONDS)
    text = text.replace('mix = "read:90,put:10"', 'mix = "read:90,bulk_put:10"\nbulk_keys = 50')
    dataset.spec = parse(text, "versioned")
    dataset.windows = dataset.windows.with_columns(pl.col("op").replace("put", "bulk_put"))
    found = operations(merged(dataset), observations(dataset), dataset)
    assert (found[0]["bulk_put"].items, found[0]["read"].items) == (50, 1)
    assert "<th>keys</th>" in table(dataset)


def test_numbers_beside_words_are_levels() -> None:
    """The table of points has both as words, and the experiment file has numbers."""
    dataset = versioned_dataset((2,))
    text = EXPERIMENT.format(clients=[2], seconds=SECONDS)
    dataset.spec = parse(text.replace("[factors]", '[factors]\n"store.batch_max" = [1, "all"]'), "versioned")
    dataset.factors = list(dataset.spec.factors)
    dataset.points = dataset.points.with_columns(pl.lit("1").alias("store.batch_max"))
    found = operations(merged(dataset), observations(dataset), dataset)
    assert sorted(found[0]) == ["put", "read"]


def test_multiget_has_its_number_of_keys() -> None:
    dataset = synthetic_dataset(System(), (2,))
    dataset.windows = dataset.windows.with_columns(pl.col("op").replace("get", "multiget"))
    configured(dataset, {"workload.multiget": 10})
    found = operations(merged(dataset), observations(dataset), dataset)[0]
    assert (found["multiget"].items, found["set"].items) == (10, 1)


TEN_AT_A_TIME = (
    EXPERIMENT[: EXPERIMENT.index("[system]")]
    + """
[system]
load  = {{ kind = "pgbench" }}
store = {{ kind = "postgresql" }}

[workload]
protocol = "queue"
level = 3

"""
    + EXPERIMENT[EXPERIMENT.index("[factors]") :]
)


def test_pgbench_operation_has_its_number_of_messages() -> None:
    dataset = versioned_dataset((2,))
    dataset.spec = parse(TEN_AT_A_TIME.format(clients=[2], seconds=SECONDS), "ten at a time")
    dataset.windows = dataset.windows.filter(role="load").with_columns(
        pl.when(PUTS).then(pl.lit("send")).otherwise(pl.lit("remove")).alias("op")
    )
    found = operations(merged(dataset), observations(dataset), dataset)[0]
    assert (found["send"].items, found["remove"].items) == (10, 1)
    assert "<th>messages</th>" in table(dataset)


def test_requests_about_one_thing_each_need_no_column_for_it() -> None:
    assert '<th class="text">operation</th><th>requests/s</th>' in table(versioned_dataset((2,)))


def table(dataset: Dataset) -> str:
    """The page's section of operations."""
    return section(Sheet(analyse(dataset)))


def test_failed_requests_are_not_in_the_rate() -> None:
    dataset = versioned_dataset((2,))
    dataset.windows = dataset.windows.with_columns(errors=pl.when(PUTS).then(pl.col("count") // 4).otherwise("errors"))
    found = operations(merged(dataset), observations(dataset), dataset)[0]
    assert (found["put"].failed, found["read"].failed) == (0.25, 0.0)
    assert found["put"].per_s.estimate == pytest.approx(0.75 * 0.1 * throughput(2))
    assert found["read"].per_s.estimate == pytest.approx(0.9 * throughput(2))
    assert (found["put"].is_comparable, found["read"].is_comparable) == (False, True)


def test_operation_that_always_failed_is_kept() -> None:
    dataset = versioned_dataset((2,))
    dataset.windows = dataset.windows.with_columns(
        pl.when(PUTS).then("count").otherwise("errors").alias("errors"),
        *(pl.when(~PUTS).then(name).alias(name) for name in ("response", "response_sum_ns")),
    )
    put = operations(merged(dataset), observations(dataset), dataset)[0]["put"]
    assert (put.failed, put.per_s.estimate, put.is_comparable) == (1.0, 0.0, False)
    assert math.isnan(put.mean_ms.estimate) and math.isnan(put.p99_ms)


@pytest.mark.parametrize(
    ("alone_ms", "beside_ms", "expected"),
    [
        ((1.0, 1.1, 0.9), (3.0, 3.1, 2.9), "with x = 1, 3.0 times as long (2."),
        ((1.0, 1.1, 0.9), (1.0, 1.4, 0.9), ", so perhaps equally long) with x = 2."),
        ((1.0,), (3.0,), "3.0 times as long (with one repetition the error is unknown) with x = 2."),
        # Equal repetitions do not show the noise.
        (
            (1.0, 1.0),
            (3.0, 3.0),
            "took 1.00 ms with x = 1, 3.0 times as long (all repetitions are equal, so the error is unknown) with x "
            "= 2.",
        ),
        (
            (1.0, 1.1),
            (3.15, 3.15),
            "3.0 times as long (all repetitions are equal, so the error is unknown) with x = 2.",
        ),
    ],
)
def test_operation_beside_others_is_as_sure_as_repetitions(
    alone_ms: tuple[float, ...], beside_ms: tuple[float, ...], expected: str
) -> None:
    pair = [("x = 1", operation("read", *alone_ms)), ("x = 2", operation("read", *beside_ms))]
    sentence = beside_others("read", pair, "8 clients")
    assert sentence.startswith("At 8 clients, read took 1.0")
    assert expected in sentence


def test_failing_operation_is_not_compared() -> None:
    full = ("disk = full", operation("send", 1.0, 1.1, 0.9, failed=0.4))
    ample, ampler = (("disk = ample", operation("send", 40.0, 41.0, 39.0)), ("disk = ampler", operation("send", 41.0)))
    fails = "At 8 clients, send failed with disk = full (40.0%): the response times of send cannot be compared."
    assert beside_others("send", [full, ample], "8 clients") == fails
    said = beside_others("send", [full, ample, ampler], "8 clients")
    assert said.startswith("At 8 clients, send took 40.0 ± 2.5 ms with disk = ample, 1.0 times")
    assert said.endswith(fails)
    # Few that fail do not move it.
    assert "failed" not in beside_others("send", [ample, ("x", operation("send", 41.0, failed=0.01))], "8 clients")


BULK = operation("bulk_put", 2.0, 2.2, 1.8, items=100)
BULK_ALONE = {"bulk_put": BULK}
PUT = operation("put", 0.2, 0.21, 0.19)
REFUSED = operation("bulk_put", 0.1, items=100, failed=0.5)


def test_bulk_put_is_compared_with_as_many_puts() -> None:
    (sentence,) = together_or_alone([("", None, {"bulk_put": BULK, "put": PUT})], "1 client")
    assert "one bulk_put of 100 keys took 2.00 ± 0.50 ms, or 0.0200 ± 0.0050 ms per key. One put took 0.200" in sentence
    assert "with one put after the other takes 10 times as long (8." in sentence
    assert together_or_alone([("", None, {"put": PUT})], "1 client") == []


def test_bulk_put_without_puts_is_compared_with_other_mixes() -> None:
    both, alone, slow = {"bulk_put": BULK, "put": PUT}, {"put": PUT}, {"put": operation("put", 7.0)}
    (beside,) = together_or_alone([("x = 1", "a", slow), ("x = 2", "a", both)], "1 client")
    assert "of 100 keys with x = 2 took" in beside and "One put took 0.200 " in beside and "7.00" not in beside
    (other,) = together_or_alone([("x = 1", "a", BULK_ALONE), ("x = 2", "a", alone), ("x = 3", "a", slow)], "1 client")
    assert "of 100 keys with x = 1 took" in other
    assert "One put with x = 2 took 0.200 " in other and "One put with x = 3 took 7.00 ms: writing" in other
    # Puts that fail may fail fast.
    full = {"put": operation("put", 0.01, failed=0.1)}
    (other,) = together_or_alone([("x = 1", "a", BULK_ALONE), ("x = 2", "a", full), ("x = 3", "a", alone)], "1 client")
    assert "One put with x = 3 took 0.200 " in other and "x = 2" not in other


def test_bulk_put_with_other_settings_is_not_compared() -> None:
    for alone in ({"put": PUT}, {"put": operation("put", 0.2, failed=0.1)}):
        (sentence,) = together_or_alone([("x = 1", "a", BULK_ALONE), ("x = 2", "b", alone)], "1 client")
        assert sentence.endswith(
            " ms per key. How much time this saves is unknown: no configuration that differs only in the mix of "
            "operations has a put of one key."
        )
    alike = [("x = 1", "a", BULK_ALONE), ("x = 2", "b", {"put": operation("put", 7.0)}), ("x = 3", "a", {"put": PUT})]
    (sentence,) = together_or_alone(alike, "1 client")
    assert "One put with x = 3 took 0.200 " in sentence and "x = 2" not in sentence


def test_configurations_with_other_mixes_are_equal_apart() -> None:
    dataset = versioned_dataset((1, 8))
    apart = apart_from_mix(dataset)
    assert apart[0] != apart[1], "they differ in clients"
    text = EXPERIMENT.format(clients=[8, 8], seconds=SECONDS)
    mixes = ["read:1,put:1", "read:1,bulk_put:1"]
    text = text.replace(
        text[text.index("[factors]") : text.index("[measure]")], f'[factors]\n"workload.mix" = {mixes}\n'
    )
    dataset.spec = parse(text, "versioned")
    dataset.factors = ["workload.mix"]
    dataset.points = dataset.points.with_columns(pl.Series("workload.mix", mixes * (len(dataset.points) // 2)).sort())
    apart = apart_from_mix(dataset)
    assert apart[0] == apart[1]


def test_failing_bulk_put_is_not_compared() -> None:
    full = {"put": operation("put", 0.2, failed=0.1)}
    rest = "failed, so how much time a bulk_put saves is unknown."
    assert together_or_alone([("", None, {"bulk_put": REFUSED, "put": PUT})], "1 client") == [
        f"At 1 client, 50.0% of bulk_put {rest}"
    ]
    # Each in the configuration in which it did.
    assert together_or_alone([("x = 1", "a", {"bulk_put": REFUSED}), ("x = 2", "a", full)], "1 client") == [
        f"At 1 client, 50.0% of bulk_put with x = 1, 10.0% of put with x = 2 {rest}"
    ]
    assert together_or_alone([("x = 1", "a", BULK_ALONE), ("x = 2", "a", full)], "1 client") == [
        f"At 1 client, 10.0% of put with x = 2 {rest}"
    ]


def test_bulk_put_without_any_put_has_its_own_time() -> None:
    (sentence,) = together_or_alone([("", None, {"bulk_put": BULK})], "1 client")
    assert sentence.endswith(" ms per key. How much time this saves is unknown: no configuration has a put of one key.")
    (sentence,) = together_or_alone([("", None, {"bulk_put": REFUSED})], "1 client")
    assert sentence.startswith("At 1 client, 50.0% of bulk_put failed, ")
    assert together_or_alone([("", None, {"bulk_put": operation("bulk_put", math.nan)})], "1 client") == []


def test_failing_bulk_put_stands_on_the_page() -> None:
    dataset = versioned_dataset((2,))
    bulk = pl.when(PUTS).then(pl.lit("bulk_put")).otherwise("op").alias("op")
    errors = pl.when(PUTS).then(pl.col("count") // 2).otherwise("errors").alias("errors")
    dataset.windows = dataset.windows.with_columns(bulk, errors)
    assert "<p>At 2 clients, 50.0% of bulk_put failed, so how" in table(dataset)
