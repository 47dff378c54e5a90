"""Whether throughput moves in the middle of a run, on runs and changes whose answer is plain."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from cases import cases
from synthetic import System, synthetic_dataset

from knee.data import Dataset
from knee.stats.intervals import LEVEL, Interval
from knee.verdict import words
from knee.verdict.drift import Drift, change_intervals, drifts

NAMES = {0: "2 clients", 1: "8 clients"}


def scattering(dataset: Dataset) -> Dataset:
    """The same runs, were one request more or less answered in each second of their second halves."""
    late = (pl.col("elapsed_s") >= 15) & (pl.col("role") == "load")
    luck = pl.when(late).then(pl.col("repetition") - 2).otherwise(0)
    dataset.windows = dataset.windows.with_columns(pl.col("count") + luck)
    return dataset


def test_change_in_the_middle_differs_from_a_warm_up() -> None:
    dataset = synthetic_dataset(System(), (2, 8), warming_s=5, seconds=30)
    assert all(abs(one.change.estimate) < 0.01 for one in drifts(dataset, NAMES).values())
    late = (pl.col("elapsed_s") >= 15) & (pl.col("point") == 1)
    dataset.windows = dataset.windows.with_columns(pl.when(late).then(pl.col("count") // 2).otherwise("count"))
    found = drifts(dataset, NAMES)
    assert abs(found[0].change.estimate) < 0.01
    assert found[1].change.estimate == pytest.approx(-0.5, abs=0.01)
    assert words.drift(found, NAMES).startswith(f"{HALVES} changes by -50.")
    assert " at 8 clients" in words.drift(found, NAMES)


def test_seconds_without_an_answer_count() -> None:
    dataset = scattering(synthetic_dataset(System(), (2, 8), seconds=30))
    dataset.windows = dataset.windows.filter((pl.col("elapsed_s") < 18) | (pl.col("point") == 0))
    found = drifts(dataset, NAMES)
    assert found[0].change.estimate == pytest.approx(0, abs=0.01)
    assert found[1].change.estimate == pytest.approx(-0.7, abs=0.01)
    assert "throughput changes by -" in words.drift(found, NAMES)


def test_requests_that_are_refused_at_once_are_no_throughput() -> None:
    dataset = synthetic_dataset(System(), (2, 8), seconds=30)
    late, count = (pl.col("elapsed_s") >= 15) & (pl.col("point") == 1), pl.col("count")
    dataset.windows = dataset.windows.with_columns(
        pl.when(late).then(10 * count).otherwise(count).alias("count"),
        pl.when(late).then(10 * count - count // 2).otherwise("errors").alias("errors"),
    )
    found = drifts(dataset, NAMES)
    assert abs(found[0].change.estimate) < 0.01
    assert found[1].change.estimate == pytest.approx(-0.5, abs=0.01)


def test_a_half_of_nothing_but_errors_is_silent() -> None:
    dataset = synthetic_dataset(System(), (2, 8), seconds=30)
    late = (pl.col("elapsed_s") >= 15) & (pl.col("point") == 1)
    dataset.windows = dataset.windows.with_columns(errors=pl.when(late).then("count").otherwise("errors"))
    found = drifts(dataset, NAMES)
    assert [(one.silent, one.runs) for one in found.values()] == [(0, 3), (3, 3)]
    said = words.drift(found, NAMES)
    assert said.endswith("In 3 of 3 runs at 8 clients, no request succeeded during the first or the second half.")


@pytest.mark.parametrize("half", ["first", "second"])
def test_run_silent_for_half_of_the_time_is_named(half: str) -> None:
    dataset = scattering(synthetic_dataset(System(), (2, 8), seconds=30))
    silent = (pl.col("elapsed_s") < 15) if half == "first" else (pl.col("elapsed_s") >= 15)
    dead = silent & (pl.col("point") == 1) & (pl.col("repetition") == 2)
    dataset.windows = dataset.windows.filter(~dead)
    found = drifts(dataset, NAMES)
    assert [(one.silent, one.runs) for one in found.values()] == [(0, 3), (1, 3)]
    said = words.drift(found, NAMES)
    assert "throughput stays the same to within" in said
    assert said.endswith("In 1 of 3 runs at 8 clients, no request succeeded during the first or the second half.")


def test_only_points_that_are_judged_are_paid_for() -> None:
    dataset = synthetic_dataset(System(), (2, 8, 16, 32), seconds=30)
    dataset.points = dataset.points.filter((pl.col("repetition") == 1) | (pl.col("point") < 2))
    levels = {one.change.level for one in drifts(dataset, range(4)).values()}
    assert levels == {1 - (1 - LEVEL) / 2}
    assert {one.change.level for one in drifts(dataset, [0]).values()} == {LEVEL}


def test_the_number_of_points_alone_leaves_nothing_in_doubt() -> None:
    random = np.random.default_rng(1)
    changes = dict(enumerate(random.normal(0, 0.01, (60, 3))))
    assert max(one.half_width or 1.0 for one in change_intervals(changes, LEVEL).values()) < 0.025
    # One that scatters has its own interval, and widens no other.
    alone = change_intervals(changes | {60: np.array([0.0, 0.0, -0.9])}, LEVEL)
    assert sum((one.half_width or 0.0) > 0.025 for one in alone.values()) == 1
    assert (alone[60].half_width or 0.0) > 1


def test_equal_changes_have_the_noise_of_those_that_scatter() -> None:
    same, others = np.array([-0.05, -0.05 + 1e-15]), np.array([0.01, 0.02, 0.03])
    alone = change_intervals({0: same, 1: same, 2: np.zeros(3)}, LEVEL)
    assert [(one.low, one.high, one.repetitions) for one in alone.values()] == [(None, None, n) for n in (2, 2, 3)]
    beside = change_intervals({0: same, 1: others}, LEVEL)
    assert beside[0].half_width == pytest.approx(beside[1].half_width * (3 / 2) ** 0.5)
    # How many others are equal does not make it less.
    more = change_intervals({0: same, 1: others, **dict.fromkeys(range(2, 9), same)}, LEVEL)
    assert more[0].half_width is not None and more[0].half_width > beside[0].half_width  # type: ignore[operator]


def test_equal_halves_seldom_differ() -> None:
    random = np.random.default_rng(2)
    wrong = 0
    for _ in range(300):
        found = change_intervals(dict(enumerate(random.normal(0, 0.01, (20, 3)))), LEVEL)
        wrong += any(
            one.low is not None and one.high is not None and not one.low <= 0 <= one.high for one in found.values()
        )
    assert wrong / 300 < 0.08


HALVES = "From the first half of a run to the second, throughput"


def drift(estimate: float, half_width: float | None, silent: int = 0, repetitions: int = 3) -> Drift:
    low, high = (None, None) if half_width is None else (estimate - half_width, estimate + half_width)
    return Drift(Interval(estimate, low, high, 0.95, repetitions), silent, 3)


CHANGES = """
0.01±0.02; -0.04±0.05
  → No measurement shows that throughput changes from the first half of a run to the second. Any change is at most
    9.0% at all points.
0.002±0.016
  → HALVES stays the same to within 1.8% at all points.
0.003±0.001
  → HALVES stays the same to within 0.4% at all points.
0.003±0.001; 0.02±0.01
  → HALVES changes by +2.0% ± 1.0% at b. The change may be smaller than 2%.
0.01±0.02; 1.5±700; -0.3±0.1
  → HALVES changes by -30.0% ± 10.0% at c. Cannot tell at b. Measure longer, with more repetitions.
-0.3±0.1; -0.2±0.1; 0.5 once
  → HALVES changes by -30.0% ± 10.0% at a, and changes at 1 other point. There are too few repetitions to tell at c.
0.002±0.016; 1.5±700
  → HALVES stays the same to within 1.8% at all points that can be judged. Cannot tell at b. Measure longer, with
    more repetitions.
0.002±0.016; 0.5 once
  → HALVES stays the same to within 1.8% at all points that can be judged. There are too few repetitions to tell at
    b.
0.002±0.016; -0.12±0.11
  → HALVES changes by -12.0% ± 11.0% at b. The change may be smaller than 2%.
1.5±700; 0.5 once
  → Cannot tell whether throughput changes from the first half of a run to the second at a. Measure longer, with
    more repetitions. There are too few repetitions to tell at b.
0.002±0.016; 0.5 once silent
  → HALVES stays the same to within 1.8% at all points that can be judged. In 2 of 3 runs at b, no request succeeded
    during the first or the second half.
1.5±700; 1.5±700
  → At no measured point can Knee tell whether throughput changes from the first half of a run to the second. Measure
    longer, with more repetitions.
-0.05; 0
  → Cannot tell whether throughput changes from the first half of a run to the second at a; b: all repetitions are
    equal, so the noise is unknown.
"""
"""At the points a, b and c, with their half widths where these are known; HALVES is how most sentences begin."""


@pytest.mark.parametrize(("changes", "says"), [*cases(CHANGES), ("0.5 once", [""])])
def test_drift_is_as_sure_as_repetitions_allow(changes: str, says: list[str]) -> None:
    found = []
    for change in changes.split("; "):
        estimate, *notes = change.replace("±", " ± ").split(" ")
        half_width = float(notes[1]) if "±" in notes else None
        silent = 2 if "silent" in notes else 0
        found.append(drift(float(estimate), half_width, silent, repetitions=1 if "once" in notes else 3))
    said = words.drift(dict(enumerate(found)), {0: "a", 1: "b", 2: "c"})
    assert said == says[0].replace("HALVES", HALVES)
