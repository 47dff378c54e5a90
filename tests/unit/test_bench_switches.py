"""The page of switches: its sentences and the lines of its tables."""

from __future__ import annotations

from bench.switches import Row, sentences

from knee.stats.intervals import Interval, mean_interval


def row(clients: int, batch_max: str, measured: Interval, predicted: float | None, *, is_fitted: bool = False) -> Row:
    levels = {"load.clients": str(clients), "store.batch_max": batch_max}
    return Row("kv-batching", "throughput (requests/s)", levels, measured, predicted, is_fitted)


def test_sentences_pair_points_that_differ_in_the_switch_only() -> None:
    rows = [
        row(1, "1", mean_interval([100.0]), None, is_fitted=True),
        row(16, "1", mean_interval([100.0]), 110.0),
        row(16, "4", mean_interval([350.0]), None),
        row(1, "all", mean_interval([90.0]), None),
        row(16, "all", mean_interval([800.0]), 400.0),
    ]
    assert sentences(rows, "1", "all") == (
        "`store.batch_max` = all in place of 1 multiplies the throughput (requests/s) by 0.900 to 8.00. "
        "The predictions of the throughput (requests/s) miss by 30.0% in the median, and by 50.0% at most."
    )


def test_line_has_ratio_only_beside_a_prediction() -> None:
    measured = mean_interval([99.0, 100.0, 101.0])
    setting = "| load.clients = 1, store.batch_max = 1 | 100 ± 2.5 |"
    assert row(1, "1", measured, 200.0).line == f"{setting} 200 | 0.50 |"
    assert row(1, "1", measured, None).line == f"{setting} – | – |"
    assert row(1, "1", measured, None, is_fitted=True).line == f"{setting} fitted | – |"
