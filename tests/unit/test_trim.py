"""Trimming on read, and MSER-5."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.data.trim import steady_state, trim
from knee.stats.mser5 import mser5
from knee.verdict import words
from knee.verdict.health import unsteady

RUN = {"point": 0, "repetition": 1, "status": "done", "seconds": 10, "warmup_s": 2, "cooldown_s": 3}


def test_only_seconds_wholly_between_warm_up_and_cool_down_stay() -> None:
    frame = pl.DataFrame(
        {
            "point": [0] * 13,
            "repetition": [1] * 13,
            "elapsed_s": [float(s) for s in range(-1, 12)],
            "seconds": [1.0] * 13,
        }
    )
    assert trim(frame, pl.DataFrame([RUN]))["elapsed_s"].to_list() == [2, 3, 4, 5, 6]


def test_line_across_warm_up_is_cut_off() -> None:
    frame = pl.DataFrame({"point": [0] * 2, "repetition": [1] * 2, "elapsed_s": [2.0, 5.0], "seconds": [3.0, 3.0]})
    assert trim(frame, pl.DataFrame([RUN]))["elapsed_s"].to_list() == [2.0]


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_runs_that_did_not_finish_are_left_out(status: str) -> None:
    frame = pl.DataFrame({"point": [0], "repetition": [1], "elapsed_s": [4.0], "seconds": [1.0]})
    assert trim(frame, pl.DataFrame([RUN | {"status": status}])).is_empty()


def test_mser_finds_the_end_of_a_transient() -> None:
    rng = np.random.default_rng(0)
    series = np.concatenate([np.linspace(10, 95, 15), np.full(85, 100.0)]) + rng.normal(0, 1, 100)
    found = mser5(series)
    assert found.windows == 15
    assert not found.boundary


def test_mser_cuts_nothing_from_a_constant() -> None:
    assert mser5(np.ones(60)).windows == 0


def test_mser_of_a_drifting_series_is_at_the_boundary() -> None:
    assert mser5(np.linspace(0, 100, 100)).boundary


@pytest.mark.parametrize(("length", "windows"), [(19, None), (20, 0)])
def test_mser_refuses_short_series(length: int, windows: int | None) -> None:
    assert mser5(np.ones(length)).windows == windows


def _verdicts(**settings: int) -> set[str]:
    dataset = synthetic_dataset(System(), (8, 32), seconds=60, repetitions=2, **settings)
    return set(steady_state(dataset.windows, dataset.points)["verdict"])


def test_a_warm_up_that_is_cut_off_is_no_trouble() -> None:
    assert _verdicts(warming_s=5) == {"steady"}


def test_a_warm_up_that_is_not_cut_off_is_warned_about() -> None:
    dataset = synthetic_dataset(System(), (8, 32), seconds=60, repetitions=2, warming_s=15)
    steadiness = steady_state(dataset.windows, dataset.points)
    late = steadiness.filter(pl.col("series") == "throughput")
    assert set(late["verdict"]) == {"longer warm-up"}
    assert set(late["suggested_s"]) == {15}
    (warning,) = unsteady(steadiness, dataset.points)
    assert "Raise measure.warmup_s to 15." in words.warning(warning)


def test_untimed_seconds_are_not_in_the_steady_state_test() -> None:
    dataset = synthetic_dataset(System(), (8,), seconds=60)
    untimed = pl.when((pl.col("elapsed_s") < 10) | (pl.col("elapsed_s") >= 50)).then("response_sum_ns")
    dataset.windows = dataset.windows.with_columns(response_sum_ns=untimed)
    judged = steady_state(dataset.windows, dataset.points).filter(pl.col("series") == "response time")
    assert (judged["windows"].unique().to_list(), judged["verdict"].unique().to_list()) == ([15], ["cannot tell"])


def test_short_runs_give_a_warning() -> None:
    dataset = synthetic_dataset(System(), (8,), seconds=12, warmup_s=1, cooldown_s=1)
    steadiness = steady_state(dataset.windows, dataset.points)
    assert set(steadiness["verdict"]) == {"cannot tell"}
    (warning,) = unsteady(steadiness, dataset.points)
    assert words.warning(warning) == (
        "Runs of 12 s are too short to check that warm-up was long enough. Use at least 21 s."
    )


def test_steady_runs_raise_no_warning() -> None:
    dataset = synthetic_dataset(System(), (8,), seconds=60)
    assert unsteady(steady_state(dataset.windows, dataset.points), dataset.points) == []
