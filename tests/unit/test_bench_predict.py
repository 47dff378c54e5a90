"""The baselines beside the layered model's predictions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from bench.baselines import NAMES, Seen, baselines, usl
from bench.predict import BOUND, MODEL, Held, beside

from knee.fit.layered import Setup

CLIENTS, WORKERS = (2.0, 8.0, 32.0), (1.0, 2.0, 4.0, 8.0)


def law(size: float, alpha: float = 0.1, beta: float = 0.002) -> float:
    return 100 * size / (1 + alpha * (size - 1) + beta * size * (size - 1))


def seen(*levels: tuple[float, float], name: str = "middleware.workers") -> Seen:
    """Two repetitions at each level, pairs of the factor's level and the throughput per client in requests/s."""
    rows = np.array([(n, level, n * each) for n, (level, each), _ in product(CLIENTS, levels, range(2))])
    customers, factor, throughput = rows.T
    return Seen(
        (name,), np.arange(len(rows)) // 2, customers, np.full(len(rows), 5.0), factor[:, np.newaxis], throughput
    )


def test_law_is_found_from_its_own_points() -> None:
    sizes = np.array([1.0, 2, 8, 32, 64])
    asked = np.array([16.0, 128])
    assert usl(sizes, law(sizes), asked) == pytest.approx(law(asked), rel=1e-9)


def test_one_level_predicts_no_change_of_the_response_time() -> None:
    one = seen((1.0, 10.0))
    found = baselines(one, one, 8.0, 5.0, np.array([4.0]))
    assert [found["USL"], found["line"]] == pytest.approx([80, 80])
    # 8 customers at 80 requests/s take 100 ms, and 5 of them are think time.
    found = baselines(one, one, 8.0, 15.0, np.array([4.0]))
    assert [found["USL"], found["line"]] == pytest.approx([8 / 0.11, 8 / 0.11])
    assert np.isnan([found["USL, other levels"], found["line, other levels"]]).all()


@pytest.mark.parametrize(("asked", "expected"), [(2.0, 160.0), (3.0, 240.0), (8.0, 400.0), (0.5, 40.0)])
def test_line_goes_through_the_two_nearest_levels(asked: float, expected: float) -> None:
    each = seen((1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (4.0, 34.0))
    found = baselines(each.take(each.levels[:, 0] == 1), each, 8.0, 5.0, np.array([asked]))
    if asked == 3.0:
        expected = (160 + 272) / 2
    elif asked == 2.0:
        expected = (80 + 240) / 2
    assert found["line, other levels"] == pytest.approx(expected)


def test_law_over_servers_sees_all_levels_but_the_asked_one() -> None:
    each = seen(*((workers, law(workers)) for workers in WORKERS))
    wrong = each.levels[:, 0] == 8
    each.throughput[wrong] *= 3
    found = baselines(each.take(each.levels[:, 0] == 1), each, 8.0, 5.0, np.array([8.0]))
    assert found["USL, other levels"] == pytest.approx(8 * law(8.0), rel=1e-9)


def test_law_does_not_describe_think_times() -> None:
    each = seen((1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (4.0, 40.0), name="workload.think_ms")
    assert np.isnan(baselines(each, each, 8.0, 5.0, np.array([4.0]))["USL, other levels"])


def test_table_says_where_nothing_changed_and_what_is_missing() -> None:
    setup = Setup(8, 5.0, 1, (1, 1, 1), (1, 1, 1), 2.0)
    others = dict(zip(NAMES, (50.0, 80.0, float("nan"), float("nan")), strict=True))
    held = Held(
        "workers", setup, 100.0, 75.0, 110.0, 70.0, 90.0, 120.0, 2, 2, True, 200.0, 80.0, 1.0, 1.0, 2, 1, others
    )
    table = list(beside([held]))
    assert [cell.strip() for cell in table[0].split("|")[4:6]] == [MODEL, BOUND]
    # The response time is 8 / X - 5 ms: 67.7, 35, 155 and 95 ms, and 75 measured.
    assert table[2] == (
        "| workers | 1 | 1: no change | 10.0% / 10% | 100.0% / 53% | 50.0% / 107% | 20.0% / 27% | – | – |"
    )
