"""Which model is chosen: by what it says of client counts that it has not seen, and by nothing that chance decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from knee.data import csv
from knee.fit import Curve, Model, candidates, curve_of, fit_model, fit_systems, select, selection_sentence
from knee.fit.models import ClosedNetwork, CollapsingNetwork, LoadDependentNetwork, OpenMM1, ScalabilityLaw

DATA = Path(__file__).parents[1] / "data"


def seed000_table(number: int) -> Curve:
    return curve_of(csv.read(DATA / f"seed000_table{number}.csv").table)


def predicted(model: Model, curve: Curve, count: float) -> tuple[float, float]:
    """What cross-validation predicted of a client count, from what it says the error was."""
    (trial,) = select(curve, [model]).trials
    index = trial.left_out.index(count)
    (row,) = np.flatnonzero(curve.customers == count)
    return (
        float((1 + trial.throughput_error[index]) * curve.throughput[row]),
        float((1 + trial.response_error[index]) * curve.response_ms[row]),
    )


@pytest.mark.parametrize("model", candidates(seed000_table(15)), ids=lambda model: model.name)
def test_hidden_count_has_no_say_in_its_prediction(model: Model) -> None:
    curve = seed000_table(15)
    for count in curve.counts[1:]:
        other = np.where(curve.customers == count, 1.3, 1.0)
        otherwise = curve.measured(curve.throughput * other, curve.response_ms / other)
        np.testing.assert_allclose(predicted(model, curve, count), predicted(model, otherwise, count), rtol=1e-12)


def test_limiting_slots_are_found() -> None:
    """Table 22: from a start where the server limits, the search ends at an error of 0.05."""
    fit = fit_model(ClosedNetwork(slots=True), seed000_table(22))
    assert fit.error < 0.02
    _, slot_ms, server_ms = fit.values
    assert 16 / slot_ms == pytest.approx(2.97, rel=0.02)  # requests/ms: eight workers on each of two middlewares
    assert server_ms < slot_ms / 16


def test_of_equally_many_parameters_rounding_chooses_nothing() -> None:
    """Table 13 without its third count: two models of three parameters are as good as each other."""
    curve = seed000_table(13)
    curve = curve.where(curve.customers != 24)
    slots, load_dependent = ClosedNetwork(slots=True), LoadDependentNetwork(onset=False)
    errors = [select(curve, [model]).chosen.score for model in (slots, load_dependent)]
    assert max(errors) < 1.05 * min(errors)
    assert select(curve, [slots, load_dependent]).chosen.model is slots
    assert select(curve, [load_dependent, slots]).chosen.model is load_dependent


def test_of_measurements_without_scatter_rounding_chooses_nothing() -> None:
    """One server that is always busy: every model but M/M/1 predicts it to the last digits, with two parameters or
    three."""
    rows = pl.DataFrame({"point": range(4), "clients": [1, 2, 4, 8], "throughput": 10.0, "think_ms": 0.0})
    selection = select(curve_of(rows.with_columns(response_ms=1000 * pl.col("clients") / pl.col("throughput"))))
    exact = [trial for trial in selection.trials if trial.score < 1e-3]
    assert {len(trial.model.parameters) for trial in exact} == {2, 3}
    assert selection.chosen.model.name == "closed network"


def test_of_equally_many_parameters_the_better_is_chosen() -> None:
    """Table 23 without its largest count: the closed network is one part in five worse, which fewer would excuse."""
    curve = seed000_table(23)
    chosen = select(curve.where(curve.customers < 72), [ClosedNetwork(slots=False), OpenMM1()]).chosen
    assert chosen.model.name == "M/M/1"


def test_simpler_models_come_first() -> None:
    for number in (15, 21):
        sizes = [len(model.parameters) for model in candidates(seed000_table(number))]
        assert sizes == sorted(sizes)


def three_counts_of_four_workers() -> pl.DataFrame:
    """Throughput that contention limits, as in the quickstart with four levels of workers."""
    true, values = LoadDependentNetwork(onset=False), np.array((0.5, 0.2, 0.06))
    counts, rng = np.array([8.0, 32.0, 128.0]), np.random.default_rng(5)
    rows = []
    for workers in (1, 2, 4, 8):
        for count, cycle in zip(counts, true.cycle_ms(values, counts, 0.0, float(2 * workers)), strict=True):
            response = cycle * np.exp(rng.normal(0, 0.01))
            row = {"point": len(rows), "clients": int(count), "workers": workers, "middlewares": 2, "think_ms": 0.0}
            rows.append(row | {"repetition": 1, "throughput": 1000 * count / response, "response_ms": response})
    return pl.DataFrame(rows)


def test_three_counts_of_four_workers_are_twelve_points() -> None:
    """Client counts alone would leave two facts, and M/M/m, which knows nothing of contention."""
    rows = three_counts_of_four_workers()
    names = {model.name for model in candidates(curve_of(rows))}
    assert {"M/M/m", "closed network with worker slots", "load-dependent network with onset"} <= names
    few = rows.filter(pl.col("workers") == 1)
    assert {len(model.parameters) for model in candidates(curve_of(few))} == {2}
    ((system, scenario),) = fit_systems(rows, [], {"clients": 512, "workers": 16}, resamples=20)
    assert scenario is not None
    forecast = system.forecast(scenario).throughput
    true = LoadDependentNetwork(onset=False).cycle_ms(np.array((0.5, 0.2, 0.06)), np.array([512.0]), 0.0, 32.0)
    assert forecast.estimate == pytest.approx(512_000 / true[-1], rel=0.1)


def test_a_level_of_workers_is_predicted_from_the_smaller_ones() -> None:
    rows = three_counts_of_four_workers()
    shown, asked = curve_of(rows.filter(pl.col("workers") < 8)), curve_of(rows.filter(pl.col("workers") == 8))
    throughput, _ = select(shown).chosen.fit.predict(asked)
    assert np.abs(throughput / asked.throughput - 1).max() < 0.1


def saturating(*levels: float, counts: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128)) -> Curve:
    """Throughputs at these client counts, three runs each within 1 %."""
    rows = [
        (point, counts[point], throughput * luck, 1000 * counts[point] / throughput / luck, 0.0)
        for point, throughput in enumerate(levels)
        for luck in (0.99, 1.0, 1.01)
    ]
    columns = ["point", "clients", "throughput", "response_ms", "think_ms"]
    return curve_of(pl.DataFrame(rows, schema=columns, orient="row"))


def test_falling_models_are_chosen_only_after_a_measured_fall() -> None:
    """The law fits this bend best, because its throughput is about to fall."""
    law = ScalabilityLaw().cycle_ms(np.array((6.0, 0.05, 0.0008)), 2.0 ** np.arange(7), 0.0, float("nan"))
    throughput = 1000 * 2.0 ** np.arange(7) / law
    before, after = select(saturating(*throughput[:6])), select(saturating(*throughput))
    assert min(before.trials, key=lambda trial: trial.score).model.name == "universal scalability law"
    assert not before.chosen.falls and not before.best.falls
    assert "The universal scalability law is closer (error " in selection_sentence(before)
    assert before.passed_over is not None and after.passed_over is None
    assert after.chosen.model.name == "universal scalability law"


@pytest.mark.parametrize(
    ("last", "falls"), [((1600, 1600), False), ((1600, 1590), False), ((1600, 1500), True), ((1400, 1600), False)]
)
def test_a_fall_is_measured_at_the_largest_count(last: tuple[float, float], falls: bool) -> None:
    assert saturating(200, 400, 800, *last).falls == falls


@pytest.mark.parametrize("power", [1, 2])
def test_collapsing_systems_are_predicted_at_twice_the_clients(power: int) -> None:
    """The models without a collapse predict at least one and a half times as much."""
    counts, values = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64), np.array((2.0, 1.0, 12.0, 0.02))
    model, every = CollapsingNetwork(power), np.array([*counts, 128.0])
    throughput = 1000 * every / model.cycle_ms(values, every, 0.0, float("nan"))
    selection = select(saturating(*throughput[:-1], counts=counts))
    twice = {
        trial.model.name: 128_000 / float(trial.model.cycle_ms(trial.fit.values, every[-1:], 0.0, float("nan"))[0])
        for trial in selection.trials
    }
    assert selection.chosen.falls
    assert twice[selection.chosen.model.name] == pytest.approx(throughput[-1], rel=0.15)
    assert min(twice[trial.model.name] for trial in selection.trials if not trial.falls) > 1.5 * throughput[-1]
