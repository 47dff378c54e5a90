"""Which levels of the only factor are enough, on tables whose answer is plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest

from knee.levels import levels


def table(samples: Mapping[int | str, Sequence[float]], response: str, think_ms: float | None = 0.0) -> pl.DataFrame:
    """A row per repetition of each level of the workers."""
    rows = [(level, value) for level, values in samples.items() for value in values]
    frame = pl.DataFrame(rows, schema=["workers", response], orient="row")
    return frame.with_columns(think_ms=pl.lit(think_ms, pl.Float64), clients=8)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (
            {1: (100.0, 101.0), 2: (199.9, 200.1), 4: (249.9, 250.1), 8: (249.0, 250.0)},
            "Throughput is largest with workers = 4: 250.0 ± 1.3 requests/s. With 8 it may be as large. "
            "It is surely less with 1 (60%), 2 (20%).",
        ),
        # What surely differs may still be too little to matter.
        (
            {1: (100.0, 100.1), 2: (101.0, 101.1)},
            "largest with workers = 2: 101.0 ± 0.6 requests/s. With 1 it is within 2% of that.",
        ),
        (
            {"none": (10.0, 10.1), "needed": (100.0, 101.0)},
            "workers = needed: 100.5 ± 6.4 requests/s. It is surely less with none (90%).",
        ),
        # What was measured once is not crowned, however large, and silences nobody else.
        (
            {1: (100.0, 100.1), 2: (200.0, 200.1), 4: (900.0,), 8: (1.0,)},
            "Of the levels with repetitions, throughput is largest with workers = 2: 200.1 ± 0.6 requests/s. It is "
            "surely less with 1 (50%). Of 4, 8 nothing can be told: measured once.",
        ),
        (
            {1: (100.0,), 2: (200.0, 201.0), 4: (300.0,)},
            "What workers does to throughput cannot be told without repetitions: measure 1, 4 more than once.",
        ),
        (
            {1: (100.0,), 2: (200.0,)},
            "What workers does to throughput cannot be told without repetitions: measure every level more than once.",
        ),
    ],
    ids=["found", "hardly", "names", "some once", "all but one once", "once"],
)
def test_the_best_level_is_named_and_which_others_are_enough(
    samples: Mapping[int | str, Sequence[float]], says: str
) -> None:
    found = levels(table(samples, "throughput"), ["workers"])
    assert found is not None and says in found.sentence


def test_the_choice_of_the_best_is_paid_for() -> None:
    found = levels(table({1: (1.0, 1.1), 2: (2.0, 2.1), 4: (3.0, 3.1), 8: (4.0, 4.1)}, "throughput"), ["workers"])
    assert found is not None
    # Four levels are six pairs, any of which might have had the best.
    assert [share.level for _, share in found.behind] == pytest.approx([1 - 0.05 / 6] * 3)


def test_in_an_open_loop_it_is_the_response_time_that_levels_move() -> None:
    samples = {1: (20.0, 20.2), 2: (10.0, 10.1), 4: (10.0, 10.4)}
    found = levels(table(samples, "response_ms", think_ms=None), ["workers"])
    assert found is not None
    assert found.sentence == (
        "The response time is shortest with workers = 2: 10.05 ± 0.64 ms. With 4 it may be as short. "
        "It is surely longer with 1 (100%)."
    )


def test_there_is_none_of_several_factors_of_the_load_or_without_values() -> None:
    found = table({1: (10.0, 10.0), 2: (20.0, 20.0)}, "throughput")
    assert levels(found, ["workers"]) is not None
    assert levels(found, ["workers", "cache"]) is None
    assert levels(found, []) is None
    assert levels(found.with_columns(clients="workers"), ["workers"]) is None, "the knee tells of clients"
    assert levels(found.rename({"workers": "rate"}), ["rate"]) is None
    assert levels(found.rename({"throughput": "queue_length"}), ["workers"]) is None
    assert levels(found.with_columns(throughput=pl.lit(0.0)), ["workers"]) is None


def test_a_closed_and_an_open_loop_are_not_compared() -> None:
    closed = table({1: (10.0, 10.0), 2: (20.0, 20.0)}, "throughput")
    assert levels(closed, ["workers"]) is not None
    both = closed.with_columns(think_ms=pl.when(pl.col("workers") == 1).then(0.0))
    assert levels(both, ["workers"]) is None
