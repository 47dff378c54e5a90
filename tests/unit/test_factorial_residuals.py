"""Which model the data ask for, and what the intervals take for granted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from designs import LEVELS, full_design, noisy
from soak import SOAK

from knee.errors import DesignError
from knee.factorial import analyse, analyse_model, design_of
from knee.factorial.box_cox import box_cox
from knee.factorial.residuals import Residuals
from knee.factorial.transform import responses


@pytest.fixture
def table() -> pl.DataFrame:
    return noisy()


# Which model


def test_box_cox_finds_the_true_scale() -> None:
    truth = responses([6, 0.8, -0.4, 0.1, 1.0, 0, 0, 0])
    rng = np.random.default_rng(5)
    table = full_design(LEVELS, truth.tolist(), repetitions=5).with_columns(
        throughput=np.exp(np.repeat(truth, 5) + 0.1 * rng.standard_normal(40))
    )
    hint = box_cox(design_of(table, list(LEVELS), "throughput"))
    assert hint.fit == "multiplicative"
    assert hint.low is not None and hint.high is not None and hint.low <= 0 <= hint.high < 1
    found = analyse(table, list(LEVELS), "throughput")
    assert found.analysis.model == "multiplicative"
    assert found.other is not None and found.other.model == "additive"
    squared = table.with_columns(throughput=pl.col("throughput").log())
    assert box_cox(design_of(squared, list(LEVELS), "throughput")).fit in ("additive", "either")


@pytest.mark.parametrize(("means", "fit"), [((10, 20, 30, 40), "additive"), ((10, 20, 30, 60), "multiplicative")])
def test_box_cox_with_proportional_noise_asks_where_interactions_vanish(means: tuple[float, ...], fit: str) -> None:
    rng = np.random.default_rng(0)
    levels = dict.fromkeys("ab", (0, 1))
    design = design_of(full_design(levels, means, repetitions=3), list(levels), "throughput")
    found = []
    for _ in range(20):
        values = design.values * (1 + 0.05 * rng.standard_normal(12))
        found.append(box_cox(replace(design, values=values)).fit)
    # The noise alone would often call an additive system multiplicative.
    assert found.count(fit) >= 17
    assert set(found) <= {fit, "neither"}


def test_far_powers_beyond_a_rejected_range_do_not_count() -> None:
    levels = dict.fromkeys("ab", (0, 1))
    cells = [[5.3, 9.6, 7.5], [17.1, 17.8, 18.7], [32.5, 36.3, 29.2], [50.9, 34.7, 42.8]]
    design = design_of(full_design(levels, [0.0] * 4, repetitions=3), list(levels), "throughput")
    hint = box_cox(replace(design, values=np.array(cells).ravel()))
    # Powers below −2 fit again; −0.5 does not.
    assert hint.low is not None and 0 < hint.low < 1
    assert hint.fit == "additive"


def test_box_cox_without_repetitions_asks_where_interactions_vanish() -> None:
    main = [3, 0.8, -0.6, 0, 1.0, 0, 0, 0, 0.5, *[0] * 7]
    rng = np.random.default_rng(2)
    levels = dict.fromkeys("abcd", (0, 1))
    products = np.exp(responses(main) + 0.01 * rng.standard_normal(16))
    assert (
        box_cox(design_of(full_design(levels, products.tolist()), list(levels), "throughput")).fit == "multiplicative"
    )


@pytest.mark.parametrize("scale", [1e12, 1e-12])
def test_box_cox_does_not_depend_on_the_unit(table: pl.DataFrame, scale: float) -> None:
    plain = box_cox(design_of(table, list(LEVELS), "throughput"))
    scaled = box_cox(design_of(table.with_columns(pl.col("throughput") * scale), list(LEVELS), "throughput"))
    assert (scaled.best, scaled.low, scaled.high) == pytest.approx((plain.best, plain.low, plain.high))


def test_box_cox_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = known = 0
    for seed in range(40):
        noisy = full_design(LEVELS, responses([50, 20, 5, 0, 10, 0, 0, 0]).tolist(), repetitions=3, noise=2, seed=seed)
        hint = box_cox(design_of(noisy, list(LEVELS), "throughput"), 0.8)
        if hint.low is not None and hint.high is not None:
            known += 1
            held += hint.low <= 1 <= hint.high
    # 0.8 within two and a half standard errors; with three times the degrees of freedom it would be 0.57.
    assert known >= 35
    assert 0.65 < held / known < 1


def test_box_cox_does_not_judge_where_the_likelihood_has_no_top() -> None:
    # Seed 001, figure 4: three large responses beside five small ones that hardly differ.
    levels = {"connections": (20, 40), "threads": (20, 40), "database": (0, 1)}
    figure = full_design(levels, [4810, 4791, 4695, 4609, 7511, 7443, 6687, 7684])
    found = analyse(figure, list(levels), "throughput")
    assert found.box_cox.fit == "cannot tell" and found.analysis.model == "additive"


def test_box_cox_refuses_overflowing_powers() -> None:
    apart = pl.DataFrame({"f": [1, 1, 1, 2, 2, 2], "y": [1e-90, 2e-90, 3e-90, 1e90, 3e90, 4e90]})
    hint = box_cox(design_of(apart, ["f"], "y"))
    assert hint.fit == "cannot tell" and "orders of magnitude" in hint.sentence


# Residuals


def checks_of(
    values: np.ndarray[Any, Any], predicted: Any = None, order: Any = None, repetitions: int = 3
) -> dict[str, str]:
    cells = np.arange(values.size) // repetitions
    predicted = cells.astype(float) if predicted is None else predicted
    return {check.question: check.verdict for check in Residuals(values, predicted, cells, order).checks}


@pytest.mark.parametrize("repetitions", [2, 4])
@pytest.mark.parametrize("randomised", [True, False], ids=["random order", "in rounds"])
def test_good_residuals_are_doubted_as_rarely_as_the_checks_say(
    repetitions: int, randomised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knee.factorial.residuals.ROUNDS_MAX", 100)
    rng = np.random.default_rng(repetitions)
    trials, doubted = 120 if SOAK else 30, {"normality": 0, "spread": 0, "run order": 0}
    for _ in range(trials):
        values = rng.standard_normal((8, repetitions))
        residuals = (values - values.mean(axis=1, keepdims=True)).ravel()
        rounds = np.arange(8 * repetitions).reshape(repetitions, 8).T.ravel()
        order = rng.permutation(residuals.size) if randomised else rounds
        for question, verdict in checks_of(residuals, None, order.astype(float), repetitions).items():
            doubted[question] += verdict == "doubtful"
    # 5 % each, and four standard errors of that. Normality is not tested with two repetitions.
    assert max(doubted.values()) / trials < 0.05 + 4 * math.sqrt(0.05 * 0.95 / trials)
    assert (
        not SOAK or min(count for question, count in doubted.items() if repetitions > 2 or question != "normality") > 0
    )


def test_drift_is_unknown_where_repetitions_follow_each_other() -> None:
    # Residuals of a cell add up to zero, so d is about 2.7 here without any disturbance.
    rng = np.random.default_rng(0)
    for _ in range(5 if SOAK else 2):
        values = rng.standard_normal((8, 3))
        residuals = (values - values.mean(axis=1, keepdims=True)).ravel()
        assert checks_of(residuals, order=np.arange(24.0))["run order"] == "cannot tell"


def test_too_few_arrangements_of_the_runs_say_nothing_about_drift() -> None:
    # Two cells of two runs: four arrangements, so that none is rarer than one in four.
    assert checks_of(np.array([1.0, -1, 2, -2, 0.5, -0.5]), order=np.array([0.0, 3, 1, 4, 2, 5]), repetitions=2)[
        "run order"
    ] == ("cannot tell")


def test_an_outlier_is_not_normal() -> None:
    values = np.random.default_rng(0).standard_normal(24)
    values[5] = 12
    assert checks_of(values)["normality"] == "doubtful"


def test_growing_noise_is_noticed() -> None:
    predicted = np.repeat(np.arange(1.0, 9.0), 3)
    values = np.random.default_rng(0).standard_normal(24) * predicted**2
    assert checks_of(values, predicted)["spread"] == "doubtful"


def test_a_drift_is_noticed_only_in_the_order_of_the_runs() -> None:
    order = np.random.default_rng(4).permutation(24).reshape(8, 3).astype(float)
    drift = (order - order.mean(axis=1, keepdims=True)).ravel()
    assert checks_of(drift, order=order.ravel())["run order"] == "doubtful"
    assert checks_of(drift)["run order"] == "cannot tell"
    other = np.random.default_rng(5).permutation(24).astype(float)
    assert checks_of(drift, order=other)["run order"] == "nothing against it"


def test_two_repetitions_say_nothing_about_normality(table: pl.DataFrame) -> None:
    two = table.filter(pl.col("repetition") < 3)
    analysis = analyse_model(design_of(two, list(LEVELS), "throughput"))
    assert analysis.residuals is not None
    assert analysis.residuals.checks[0].verdict == "cannot tell"


def test_the_order_of_runs_is_read_from_its_column(table: pl.DataFrame) -> None:
    timed = table.with_columns(run_order=pl.int_range(pl.len(), 0, -1) * 60)
    analysis = analyse_model(design_of(timed, list(LEVELS), "throughput", run_order="run_order"))
    assert analysis.residuals is not None and analysis.residuals.order is not None
    assert analysis.residuals.order.tolist() == list(range(24, 0, -1))
    with pytest.raises(DesignError, match="orders the runs"):
        design_of(timed.with_columns(run_order=None), list(LEVELS), "throughput", run_order="run_order")
