"""The operational laws on measurements that obey them, and on ones that were spoilt in a known way."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.intervals import Interval
from knee.laws import check_laws, judge, render_text
from knee.observations import observations, observations_by_operation

CLIENTS = (4, 16, 64)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return observations(synthetic_dataset(System(think_ms=3.0), CLIENTS))


def test_every_law_holds_on_an_exact_system(table: pl.DataFrame) -> None:
    report = check_laws(table)
    assert {(c.clients, c.view) for c in report.interactive} == {
        (n, view) for n in CLIENTS for view in ("client", "middleware")
    }
    assert {c.station for c in report.little} == {"queue", "workers"}
    checks = [*report.interactive, *report.little, *report.conservation]
    assert {check.verdict for check in checks} == {"holds"}
    assert report.worst is not None and report.worst.residual < 0.005


def test_the_middlewares_view_takes_the_round_trip_as_think_time(table: pl.DataFrame) -> None:
    seen = {c.clients: c for c in check_laws(table).interactive if c.view == "middleware"}
    # 3 ms of thinking and the 0.5 ms gap; at few clients nothing else lies between.
    assert seen[64].think_ms.estimate == pytest.approx(3.5, rel=0.02)


def test_observations_weight_operations_by_their_requests(table: pl.DataFrame) -> None:
    dataset = synthetic_dataset(System(), (8,))
    split = observations_by_operation(dataset)
    whole = observations(dataset)
    assert split["throughput"].sum() == pytest.approx(whole["throughput"].sum())
    assert set(split["op"]) == {"get", "set"}


def test_think_times_that_were_taken_count_not_the_declared_ones() -> None:
    dataset = synthetic_dataset(System(think_ms=3.0), (8,))
    load = pl.col("role") == "load"
    # 400 clients' think times a second that came out 5 % short, as random ones may.
    dataset.stations = dataset.stations.with_columns(
        pl.when(load).then(pl.lit(400, pl.Int64)).alias("thinks"),
        pl.when(load).then(pl.lit(400 * 2_850_000, pl.Int64)).alias("think_sum_ns"),
    )
    assert observations(dataset)["think_ms"].to_list() == pytest.approx([2.85] * 3)


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        # A tenth of the clients never started: too few requests for the response time they saw.
        ({"throughput": pl.col("throughput") * 0.9, "clients_connected": pl.col("clients") - 1}, "clients started"),
        # Errors are answered at once and shorten the response time.
        ({"response_ms": pl.col("response_ms") * 0.8, "errors": pl.lit(17)}, "answered with an error"),
        # The generator fell behind.
        ({"throughput": pl.col("throughput") * 0.9, "late_sends": pl.lit(5)}, "late sends"),
        # Without evidence, the direction of the residual decides what to suspect.
        ({"throughput": pl.col("throughput") * 0.9}, "not all clients were running"),
        ({"throughput": pl.col("throughput") * 1.2}, "more requests in flight"),
        ({"middleware_response_ms": pl.col("response_ms") * 1.5}, "clocks that disagree"),
    ],
)
def test_a_violation_names_its_likely_cause(table: pl.DataFrame, spoil: dict[str, pl.Expr], cause: str) -> None:
    report = check_laws(table.with_columns(**spoil))
    broken = [check for check in report.interactive if check.verdict == "violated"]
    assert broken
    assert any(cause in " ".join(check.causes) for check in broken)
    assert "violated" in report.sentences[0]


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(0.01, 0.005, 0.015, 0.95, 3), "holds"),
        (Interval(0.01, -0.01, 0.03, 0.95, 3), "cannot tell"),
        (Interval(0.03, 0.019, 0.041, 0.95, 3), "cannot tell"),
        (Interval(0.05, 0.03, 0.07, 0.95, 3), "violated"),
        (Interval(-0.05, -0.07, -0.03, 0.95, 3), "violated"),
        (Interval(0.01, None, None, 0.95, 1), "holds"),
        (Interval(0.03, None, None, 0.95, 1), "violated"),
        (Interval(float("nan"), None, None, 0.95, 0), "cannot tell"),
    ],
)
def test_a_residual_is_judged_by_its_whole_interval(interval: Interval, verdict: str) -> None:
    assert judge(interval, 0.02) == verdict


def test_an_open_loop_is_not_judged(table: pl.DataFrame) -> None:
    report = check_laws(table.with_columns(think_ms=pl.lit(None, dtype=pl.Float64), rate=pl.lit(1000.0)))
    assert {check.verdict for check in report.interactive} == {"does not apply"}
    assert report.worst is None
    assert "open loop" in report.sentences[0]


def test_requests_that_bypass_the_middleware_break_conservation(table: pl.DataFrame) -> None:
    report = check_laws(table.with_columns(middleware_total=(pl.col("middleware_total") * 0.99).cast(pl.Int64)))
    assert {check.verdict for check in report.conservation} == {"violated"}
    assert "1.00%" in report.sentences[-1]


def test_a_queue_measured_wrongly_breaks_littles_law(table: pl.DataFrame) -> None:
    report = check_laws(table.with_columns(queue_length=pl.col("queue_length") * 1.1))
    crowded = [c for c in report.little if c.station == "queue" and c.clients == 64]
    assert [check.verdict for check in crowded] == ["violated"]


def test_without_a_middleware_only_the_clients_view_is_checked(table: pl.DataFrame) -> None:
    bare = table.select("point", "repetition", "clients", "think_ms", "throughput", "response_ms")
    report = check_laws(bare)
    assert {check.view for check in report.interactive} == {"client"}
    assert not report.little and not report.conservation


def test_the_text_has_a_row_per_point_and_view(table: pl.DataFrame) -> None:
    lines = render_text(check_laws(table)).splitlines()
    assert sum(line.endswith("holds") for line in lines) == 2 * len(CLIENTS)
