"""Fits: the model behind the data is found again, its parameters and predictions lie within their intervals, and
what cannot be fitted or asked is named."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from loops import COUNTS, SLOTS, fitted, table
from soak import SOAK
from synthetic import System, elsewhere, pooled, synthetic_dataset

from knee.data import measurements
from knee.errors import FitError
from knee.fit import (
    FittedSystem,
    Model,
    Scenario,
    Stage,
    candidates,
    curve_of,
    fit_model,
    fit_systems,
    outlooks,
    parameter_sentence,
    render_text,
    select,
    stage_demands,
)
from knee.fit.models import ClosedNetwork, LoadDependentNetwork, OpenMM1, OpenMMm, ScalabilityLaw
from knee.fit.scenario import scenario_of
from knee.fit.text import forecast_lines, quantity_between
from knee.laws.tables import stations
from knee.queueing import solve_closed
from knee.stats.intervals import Floats, Interval

TRUE: tuple[tuple[Model, tuple[float, ...]], ...] = (
    (OpenMM1(), (4.0, 0.5)),
    (OpenMMm(), (3.0, 5.0)),
    (ClosedNetwork(slots=False), (5.0, 0.4)),
    (ClosedNetwork(slots=True), (3.0, 4.0, 0.1)),
    (LoadDependentNetwork(onset=False), (3.0, 4.0, 0.08)),
    (LoadDependentNetwork(onset=True), (3.0, 4.0, 0.1, 6.0)),
    (ScalabilityLaw(), (6.0, 0.05, 0.0008)),
)


@pytest.mark.parametrize(("model", "values"), TRUE, ids=lambda value: getattr(value, "name", ""))
def test_parameters_are_found_again_without_noise(model: Model, values: tuple[float, ...]) -> None:
    fit = fit_model(model, curve_of(table(model, values)))
    assert fit.error < 1e-4
    if model.name != "closed network with worker slots":  # only their queues distinguish outside and slot
        assert fit.values == pytest.approx(values, rel=0.05)


@pytest.mark.parametrize("think_ms", [0.0, 40.0])
@pytest.mark.parametrize(
    ("model", "values", "slots"),
    [
        (model, values, slots)
        for model, values in TRUE
        if isinstance(model, ClosedNetwork | LoadDependentNetwork)
        for slots in (1.0, 16.0, 500.0, *[float("nan")] * (not model.needs_slots))
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_model_with_stations_equals_exact_solution(
    model: Model, values: tuple[float, ...], slots: float, think_ms: float
) -> None:
    network = model.network(np.array(values), 300, think_ms, slots)
    assert network is not None
    asked = np.array([300.0, 1.0, 7.0, 40.0, 7.0])
    exact = asked / solve_closed(network, 300).throughput[asked.astype(int) - 1]
    np.testing.assert_allclose(model.cycle_ms(np.array(values), asked, think_ms, slots), exact, rtol=1e-12)


@pytest.mark.parametrize("onset", [False, True])
def test_million_clients_of_uncounted_slots_saturate(onset: bool) -> None:
    """Without a number of slots as many rates as clients: no solution may take a step for every pair."""
    values = np.array((3.0, 4.0, 0.08, 6.0)[: 4 if onset else 3])
    cycle = LoadDependentNetwork(onset=onset).cycle_ms(values, np.array([1e6]), 0.0, float("nan"))
    assert cycle == pytest.approx(1e6 * 4.0 * 0.08, rel=1e-4)


@pytest.mark.parametrize(("model", "values"), TRUE, ids=lambda value: getattr(value, "name", ""))
def test_the_chosen_model_predicts_as_well_as_the_true_one(model: Model, values: tuple[float, ...]) -> None:
    """With 1 % of noise, at client counts between those that were shown and at twice the largest."""
    rows = table(model, values, 0.01, seed=1, repetitions=3)
    selection = select(curve_of(rows))
    between = (3, 12, 40, 128)
    truth = curve_of(table(model, values, counts=between))
    throughput, _ = selection.chosen.fit.predict(truth)
    # The law's throughput falls beyond its peak, by what the last counts hardly show.
    assert np.abs(throughput / truth.throughput - 1)[:3].max() < 0.03, selection.chosen.model.name
    assert np.abs(throughput / truth.throughput - 1)[3] < 0.08, selection.chosen.model.name


def test_simpler_of_two_tied_models_is_chosen() -> None:
    """A closed network is a load-dependent one whose contention has every slot wait for one server: both fit."""
    selection = select(curve_of(table(ClosedNetwork(slots=False), (5.0, 0.4), 0.02, seed=3, repetitions=3)))
    assert len(selection.chosen.model.parameters) == 2
    assert len(selection.trials) > 3
    assert any(
        len(trial.model.parameters) > 2 and trial.score < 2 * selection.chosen.score for trial in selection.trials
    )


ROWS = table(ClosedNetwork(slots=False), (5.0, 0.4), 0.01)

FEW = (1, 4, 16, 64)
"""Client counts enough for a model, where it does not matter which one."""

FEW_ROWS = table(ClosedNetwork(slots=False), (5.0, 0.4), 0.01, counts=FEW)

SEEDS = range(4 if SOAK else 2)


@pytest.fixture(scope="module")
def systems() -> list[FittedSystem]:
    return [
        fitted(table(ClosedNetwork(slots=False), (5.0, 0.4), 0.03, seed=seed, repetitions=3), resamples=100)
        for seed in SEEDS
    ]


def test_prediction_intervals_cover_at_their_level(systems: list[FittedSystem]) -> None:
    """95 % of further runs, 2 x 5 of each system, at counts between and at twice the largest; at least 85 %."""
    asked = (6, 12, 20, 40, 128)
    covered = 0
    for seed, system in zip(SEEDS, systems, strict=True):
        forecasts = system.forecasts([Scenario(float(count), 1.0, 0.0, float(SLOTS)) for count in asked])
        for again in (1000, 2000):
            further = table(ClosedNetwork(slots=False), (5.0, 0.4), 0.03, seed=again + seed, counts=asked)
            for forecast, throughput in zip(forecasts, further["throughput"], strict=True):
                low, high = forecast.throughput.low, forecast.throughput.high
                assert low is not None and high is not None
                covered += low <= throughput <= high
    assert covered >= 8.5 * len(SEEDS)
    widths = [
        forecast.throughput.high / forecast.throughput.low  # type: ignore[operator]
        for system in systems
        for forecast in system.forecasts([Scenario(20.0, 1.0, 0.0, float(SLOTS))])
    ]
    assert np.median(widths) < 1.3, "an interval that covers everything says nothing"


def test_parameter_intervals_cover_at_their_level(systems: list[FittedSystem]) -> None:
    """Of those systems for which the true model was chosen: 95 % expected, three quarters at the very least."""
    own = [system for system in systems if system.selection.chosen.model.name == "closed network"]
    assert own
    inside = [
        low <= value <= high
        for system in own
        for value, (low, high) in zip(
            (5.0, 0.4),
            ((interval.low or 0, interval.high or 0) for interval in system.parameters.values()),
            strict=True,
        )
    ]
    assert np.mean(inside) >= 0.75


def test_predictions_beyond_the_measured_say_how_far(systems: list[FittedSystem]) -> None:
    asked = [Scenario(clients, 1.0, 0.0, float(SLOTS)) for clients in (32.0, 640.0, 64_000.0)]
    assert [forecast.outside for forecast in systems[0].forecasts(asked)] == [
        (),
        ("clients = 640 is 10 times the largest value measured",),
        ("clients = 64,000 is 1,000 times the largest value measured",),
    ]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.0, 3.0, "2.00 ms (1.00 to 3.00)"),
        (0.0, 1999.0, "2.00 ms (0 to 2,000)"),
        (3e-14, 1.35e21, "2.00 ms (less than 0.00200 to more than 2,000)"),
        (3e-14, math.inf, "2.00 ms (less than 0.00200 to more than 2,000)"),
    ],
)
def test_interval_ends_are_cut_at_a_thousandfold(low: float, high: float, text: str) -> None:
    assert quantity_between(Interval(2.0, low, high, 0.95, 3), "ms") == text


def test_a_single_worker_slot_is_one(systems: list[FittedSystem]) -> None:
    (forecast,) = systems[0].forecasts([Scenario(16.0, 1.0, 0.0, 1.0)])
    assert forecast_lines(systems[0], forecast)[0].startswith("At 16 clients, 1 worker slot: ")


def test_unmeasured_pipelines_are_outside() -> None:
    """As many in flight as were measured with more clients, but not by so few."""
    ((system, scenario),) = fit_systems(FEW_ROWS, [], {"clients": 16, "pipeline": 2}, resamples=2)
    assert scenario is not None
    (said,) = system.forecast(scenario).outside
    assert said.startswith("requests in flight per client = 2, but only 1 was measured")
    ((system, scenario),) = fit_systems(FEW_ROWS.with_columns(pipeline=pl.lit(1)), [], {"clients": 16}, resamples=2)
    assert scenario is not None and not system.forecast(scenario).outside


def test_of_several_think_times_one_must_be_asked_for() -> None:
    def cycle(think_ms: float) -> pl.DataFrame:
        model = ClosedNetwork(slots=False)
        rows = table(model, (5.0, 0.4), counts=FEW)
        solved = model.cycle_ms(np.array((5.0, 0.4)), rows["clients"].cast(float).to_numpy(), think_ms, float("nan"))
        return rows.with_columns(
            throughput=1000 * pl.col("clients") / pl.Series(solved),
            response_ms=pl.Series(solved) - think_ms,
            think_ms=pl.lit(think_ms),
        )

    rows = pl.concat([cycle(0.0), cycle(20.0).with_columns(pl.col("point") + 20)])
    with pytest.raises(FitError, match="the think time was a factor: choose one"):
        scenario_of(rows, curve_of(rows), {"clients": 16})
    assert scenario_of(rows, curve_of(rows), {"clients": 16, "think_ms": 20}).think_ms == 20


def two_levels_of_workers() -> pl.DataFrame:
    """A system of 16 slots, and with 8."""
    model, values = LoadDependentNetwork(onset=False), (3.0, 4.0, 0.02)
    rows = table(model, values, 0.01, repetitions=2, view="middleware")
    cycle = model.cycle_ms(np.array(values), rows["clients"].cast(float).to_numpy(), 0.0, 8.0)
    inside = pl.Series(cycle) - values[0]
    fewer = rows.with_columns(
        point=pl.col("point") + 100,
        workers=pl.lit(8),
        throughput=1000 * pl.col("clients") / pl.Series(cycle),
        queueing_ms=inside / 2,
        service_ms=inside / 2,
    )
    return pl.concat([rows.with_columns(pl.col("workers").cast(pl.Int32)), fewer.select(rows.columns)])


def test_more_workers_need_models_with_slots() -> None:
    ((system, scenario),) = fit_systems(two_levels_of_workers(), [], {"workers": 32, "clients": 128})
    assert all("slots" in t.model.name or t.model.name.startswith(("M/M/m", "load")) for t in system.selection.trials)
    assert scenario is not None and scenario.slots == 32
    true = LoadDependentNetwork(onset=False).cycle_ms(np.array((3.0, 4.0, 0.02)), np.array([128.0]), 0.0, 32.0)
    forecast = system.forecast(scenario)
    assert forecast.throughput.estimate == pytest.approx(128_000 / true[-1], rel=0.05)
    assert "worker slots = 32 is 2.0 times the largest value measured" in render_text(system, forecast)


def test_one_number_of_workers_predicts_no_other() -> None:
    rows = two_levels_of_workers().filter(pl.col("workers") == 16)
    with pytest.raises(
        FitError, match=r"^worker slots: only 16 were measured, .*: measure a second number, such as 32"
    ):
        fit_systems(rows, [], {"workers": 32, "clients": 128}, resamples=2)
    ((_, scenario),) = fit_systems(rows, [], {"workers": 16, "clients": 128}, resamples=2)
    assert scenario is not None and scenario.slots == 16


def test_throughput_that_still_rises_may_stop_or_go_on() -> None:
    """Twice the largest count, where throughput still rises: as much as was measured, or twice as much."""
    rows = table(ClosedNetwork(slots=False), (5.0, 0.05), 0.01, repetitions=3, counts=(1, 2, 4, 8, 16, 32))
    system = fitted(rows.drop("workers", "middlewares"))
    most = rows.filter(pl.col("clients") == 32)["throughput"].mean()
    at, beyond = system.forecasts([Scenario(clients, 1.0, 0.0, float("nan")) for clients in (32.0, 64.0)])
    assert not at.may_fall and beyond.may_fall
    x, r = beyond.throughput, beyond.response_ms
    assert x.low is not None and x.high is not None and r.low is not None and r.high is not None
    assert isinstance(most, float) and x.low <= most < x.estimate < x.high <= 2.1 * most
    assert r.low < r.estimate < 64_000 / most <= r.high
    said = forecast_lines(system, beyond)[1]
    assert "The intervals cover a new limit above 32 clients, but no fall of throughput" in said


def test_measured_falls_are_extrapolated() -> None:
    rows = table(ScalabilityLaw(), (6.0, 0.05, 0.0008), 0.01, repetitions=3, counts=(*COUNTS, 96))
    system = fitted(rows.drop("workers", "middlewares"))
    beyond = system.forecast(Scenario(192.0, 1.0, 0.0, float("nan")))
    true = ScalabilityLaw().cycle_ms(np.array((6.0, 0.05, 0.0008)), np.array([192.0]), 0.0, float("nan"))[0]
    assert not beyond.may_fall
    assert beyond.throughput.low is not None and beyond.throughput.high is not None
    assert beyond.throughput.low <= 192_000 / true <= beyond.throughput.high
    assert "do not cover a new bottleneck" in forecast_lines(system, beyond)[1]


def test_models_that_miss_hidden_counts_are_named() -> None:
    """Throughput up and down by half from count to count follows no model."""
    rows = table(ClosedNetwork(slots=False), (5.0, 0.4))
    luck = pl.when(pl.col("point") % 2 == 0).then(1.5).otherwise(0.7)
    uneven = rows.with_columns(pl.col("throughput") * luck, pl.col("response_ms") / luck)
    system = fitted(uneven)
    assert system.selection.is_unfit
    assert "No model describes these measurements: the best one, the " in render_text(system, None)
    assert not fitted(rows).selection.is_unfit and "No model" not in render_text(fitted(rows), None)


def test_labels_of_think_times_are_short_and_name_no_unknown_slots() -> None:
    rows = table(ClosedNetwork(slots=False), (5.0, 0.4)).drop("workers", "middlewares")
    short, long = (
        rows.with_columns(
            pl.col("point") + first,
            think_ms=think,
            throughput=1000 * pl.col("clients") / (pl.col("response_ms") + think),
        )
        for first, think in ((0, 0.99630880293), (100, 7.98234567891))
    )
    found = outlooks(pl.concat([short, long]), [], configurations_max=8)
    assert [one.label for one in found.shown] == ["think_ms = 0.9963", "think_ms = 7.982"]


def test_parameter_below_a_nanosecond_is_zero() -> None:
    """The search cannot reach zero: its parameters are logarithms."""
    rows = table(ClosedNetwork(slots=False), (1e-12, 0.4)).with_columns(think_ms=pl.lit(2.0))
    assert "intervals: delay outside the queues 0 ms; service time" in parameter_sentence(fitted(rows))


def test_scattered_think_times_are_one() -> None:
    rows = table(ClosedNetwork(slots=False), (5.0, 0.4)).with_columns(think_ms=pl.lit(2.0) + 0.01 * pl.col("point") / 9)
    assert len(curve_of(rows).alike) == 1
    assert "universal scalability law" in {model.name for model in candidates(curve_of(rows))}
    apart = rows.with_columns(think_ms=pl.when(pl.col("point") > 4).then(10.0).otherwise(0.0))
    assert len(curve_of(apart).alike) == 2
    assert "universal scalability law" not in {model.name for model in candidates(curve_of(apart))}


def test_declared_think_times_group_scattered_ones() -> None:
    taken = (1.8, 2.0, 2.2)
    rows = table(ClosedNetwork(slots=False), (5.0, 0.4))
    rows = rows.with_columns(think_ms=pl.Series([taken[n % 3] for n in range(rows.height)]))
    assert len(curve_of(rows).alike) == 3
    (alike,) = curve_of(rows.with_columns(declared_think_ms=2.0)).alike
    assert alike[0] == pytest.approx(rows["think_ms"].mean())
    declared = pl.when(pl.col("think_ms") < 2.1).then(1.0).otherwise(3.0)
    asked = sorted(think_ms for think_ms, _, _ in curve_of(rows.with_columns(declared_think_ms=declared)).alike)
    assert asked == pytest.approx([1.9, 2.2], abs=0.02)


def test_declared_think_time_means_the_measured_one() -> None:
    dataset = synthetic_dataset(System(think_ms=3.0), (4, 8, 16, 32, 64))
    # Random times, few in each run: a tenth apart, and 7 % short together.
    taken_ns = pl.when(pl.col("repetition") == 1).then(400 * 2_600_000).otherwise(400 * 2_890_000).cast(pl.Int64)
    load = pl.col("role") == "load"
    dataset.stations = dataset.stations.with_columns(
        pl.when(load).then(pl.lit(400, pl.Int64)).alias("thinks"), pl.when(load).then(taken_ns).alias("think_sum_ns")
    )
    found = measurements.of_run(dataset)
    ((system, scenario),) = fit_systems(found.table, found.factors, {"clients": 32}, resamples=2)
    ((same, asked),) = fit_systems(found.table, found.factors, {"clients": 32, "think_ms": 3}, resamples=2)
    assert scenario is not None and asked is not None
    assert [scenario.think_ms, asked.think_ms] == pytest.approx([(2.6 + 2 * 2.89) / 3] * 2)
    assert [trial.model.name for trial in system.selection.trials] == [t.model.name for t in same.selection.trials]
    assert "think time" not in render_text(same, same.forecast(asked))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (ROWS.head(2), "3 client counts or more"),
        (ROWS.with_columns(think_ms=pl.lit(None, pl.Float64)), "open loop"),
        (ROWS.drop("response_ms"), "response_ms, or queueing_ms and service_ms"),
        (ROWS.drop("clients"), "column clients"),
        (ROWS.with_columns(throughput=pl.lit(float("nan"))), "3 client counts or more"),
        (ROWS.with_columns(response_ms=pl.lit(float("nan"))), "3 client counts or more"),
        (ROWS.with_columns(request_type=pl.Series(["read", "write"] * 4 + ["read"])), "request_type all"),
        (ROWS.with_columns(pl.col("clients") * 10**9), "clients: .*at most 1,000,000, not 64,000,000,000"),
        (ROWS.with_columns(pl.col("clients") * 10**9, pipeline=pl.lit(10**9)), "clients: .*at most 1,000,000"),
        (ROWS.with_columns(workers=pl.Series(["few", "many", "more"] * 3)), "workers: the number differs"),
        (ROWS.with_columns(middlewares=pl.lit("two")), "middlewares: expected a number in every row"),
        (ROWS.with_columns(pl.col("response_ms") / 1000), "one closed loop: .* 0.001 times clients / throughput"),
        (ROWS.with_columns(think_ms=pl.lit(500.0)), "one closed loop"),
    ],
    ids=[
        "two counts",
        "open loop",
        "no response",
        "no clients",
        "NaN throughput",
        "NaN response",
        "no total",
        "billions",
        "billions times billions",
        "workers in words",
        "middlewares in words",
        "seconds",
        "thinking that was not",
    ],
)
def test_unfit_tables_are_named(rows: pl.DataFrame, says: str) -> None:
    with pytest.raises(FitError, match=says):
        fit_systems(rows, [])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"clients": 10**9}, "from 1 to 1,000,000, not 1000000000"),
        ({"clients": 0}, "clients: expected a whole number"),
        ({"clients": 2.5}, "clients: expected a whole number"),
        ({"clients": float("nan")}, "clients: expected a whole number"),
        ({"clients": float("inf")}, "clients: expected a whole number"),
        ({"clients": True}, "clients: expected a whole number"),
        ({"clients": "many"}, "clients: expected a whole number .* not 'many'"),
        ({"clients": ""}, "clients: expected a whole number .* not ''"),
        ({"clients": 4, "workers": 600_000}, "workers × middlewares: expected at most 1,000,000, not 1,200,000"),
        ({"think_ms": -1}, "think_ms: expected a number from 0"),
        ({"think_ms": 1e300}, "think_ms: expected a number from 0 to"),
        ({"clients": 10**400}, "clients: expected a whole number"),
        ({"clients": 4, "load.clients": 5}, "are the same"),
        ({"clients": 1000, "pipeline": 10_000}, "clients × pipeline: expected at most"),
        ({"colour": 4}, "^colour: no such setting: expected one of clients, workers, think_ms, pipeline, disk"),
        ({"load.clints": 32}, r"^load\.clints: no such setting: did you mean load\.clients\?"),
        ({"midleware.workers": 8}, r"did you mean middleware\.workers\?"),
        ({"disc": "ssd"}, r"did you mean disk\?"),
        # Settings that a table need not have: no misspelling of those that it has, however like them.
        ({"middleware.hosts": 2}, r"^middleware\.hosts: not in these measurements: expected one of load\.clients"),
        ({"workload.keys": 100}, r"^workload\.keys: not in these measurements: expected one of"),
        ({"workload.protocol": "kv"}, r"^workload\.protocol: not in these measurements: expected one of"),
        # Said of no configuration, whatever it was.
        ({"measure.seed": 3}, r"^measure\.seed is the same in all configurations: set one of load\.clients"),
        ({"experiment.name": "x"}, r"^experiment\.name is the same in all configurations: set one of load\."),
        ({"measure.sed": 3}, r"^measure\.sed: no such setting"),
        ({"load.hosts": 2}, r"expected one of load\.clients, middleware\.workers, workload\.think_ms, .*, disk"),
        ({"disk": "tape"}, "disk = tape was not measured.*the measured levels are hdd, ssd"),
    ],
)
def test_impossible_settings_are_named(settings: dict[str, int | float | str | bool], says: str) -> None:
    rows = ROWS.with_columns(middlewares=2)
    rows = pl.concat([rows.with_columns(disk=pl.lit("ssd")), rows.with_columns(disk=pl.lit("hdd"))])
    with pytest.raises(FitError, match=says):
        fit_systems(rows, ["disk"], settings, resamples=2)


def test_another_think_time_is_not_asked_of_the_scalability_law() -> None:
    """It has none: the throughput would stay, and the response time be what the thinking leaves of the cycle."""
    rows = table(ScalabilityLaw(), (6.0, 0.05, 0.0008), 0.01, counts=(1, 2, 8, 16, 32, 64))
    ((system, scenario),) = fit_systems(rows, [], {"clients": 32, "think_ms": 500}, resamples=20)
    assert "universal scalability law" not in {trial.model.name for trial in system.selection.trials}
    assert scenario is not None
    forecast = system.forecast(scenario)
    assert forecast.response_ms.estimate > 5
    assert forecast.throughput.estimate == pytest.approx(32_000 / (500 + forecast.response_ms.estimate))
    ((same, _),) = fit_systems(rows, [], {"clients": 32, "think_ms": 0}, resamples=2)
    assert "universal scalability law" in {trial.model.name for trial in same.selection.trials}


def test_a_level_is_a_number_however_it_is_written() -> None:
    rows = pl.concat([FEW_ROWS.with_columns(disks=pl.lit(2.0)), FEW_ROWS.with_columns(disks=pl.lit(2.5))])
    ((system, _),) = fit_systems(rows, ["disks"], {"disks": 2}, resamples=2)
    assert system.label == "disks = 2.0"


def test_measured_level_chooses_its_rows() -> None:
    slow = table(ClosedNetwork(slots=False), (5.0, 0.8), 0.01, counts=FEW)
    rows = pl.concat([FEW_ROWS.with_columns(disk=pl.lit("ssd")), slow.with_columns(disk=pl.lit("hdd"))])
    ((system, scenario),) = fit_systems(rows, ["disk"], {"disk": "hdd", "clients": 200}, resamples=20)
    assert scenario is not None and system.label == "disk = hdd"
    assert system.forecast(scenario).throughput.estimate == pytest.approx(1250, rel=0.05)


def test_closed_loop_beside_open_ones_is_chosen_by_name() -> None:
    opened = FEW_ROWS.with_columns(pl.lit(100).alias("rate"), think_ms=pl.lit(None, pl.Float64))
    rows = pl.concat([FEW_ROWS.with_columns(pl.lit(None, pl.Int32).alias("rate")), opened])
    ((_, scenario),) = fit_systems(rows, ["rate"], {"clients": 16, "rate": "none"}, resamples=2)
    assert scenario is not None and scenario.customers == 16
    with pytest.raises(FitError, match=r"rate = 300 was not measured, .*: the measured levels are none, 100$"):
        fit_systems(rows, ["rate"], {"clients": 16, "rate": 300}, resamples=2)


def test_every_stage_of_a_run_has_its_demand() -> None:
    dataset = synthetic_dataset(System(), (4, 16, 24, 48), repetitions=3)
    found = stage_demands(measurements.of_run(dataset).table, stations(dataset))
    names = [stage.name for stage in found.found]
    assert "worker slots" in names and "client–middleware network" in names
    slots = next(stage for stage in found.found if stage.name == "worker slots")
    assert slots.utilization is not None and 0 < slots.utilization <= 1.05
    assert slots.demand_ms.low is not None and slots.demand_ms.high is not None
    assert slots.demand_ms.low <= slots.demand_ms.estimate <= slots.demand_ms.high
    for stage in found.found:
        assert (stage.servers is None) == (stage.utilization is None)


def test_missing_stages_are_named() -> None:
    found = stage_demands(ROWS)
    assert found.found == ()
    assert "Network threads: need the CPU times" in found.missing and "Stores: need the CPU times" in found.missing


def test_a_run_folder_without_servers_is_not_taken_for_a_table() -> None:
    dataset = elsewhere(synthetic_dataset(System(), (4, 16, 24, 48), repetitions=3), "store")
    found = stage_demands(measurements.of_run(dataset).table, stations(dataset))
    assert "Stores: there is no store, or some store does not report the CPU time of its threads." in found.missing
    assert "run folder" not in found.missing and "Net-threads" not in found.missing


def test_a_tier_has_no_part_of_a_demand() -> None:
    dataset = synthetic_dataset(System(), (4, 16, 24, 48), workers=(4, 8))
    one = pl.col("process") == "middleware-0"
    observed = measurements.of_run(dataset).table

    def net_threads() -> tuple[list[Stage], str]:
        found = stage_demands(observed, stations(dataset))
        return [stage for stage in found.found if stage.name == "network threads"], found.missing

    ((both,), _) = net_threads()
    assert both.servers == 2
    whole, spared = dataset.stations, pl.col("threads_cpu_s")

    # Of two alike, with one just above what counts as much and the other just below; at one number of workers only.
    dataset.stations = whole.with_columns(
        pl.when(~pl.col("point").is_in([0, 2, 4, 6]))
        .then(pl.when(one).then(0.101).otherwise(0.099) * spared)
        .alias("beside_cpu_s")
    )
    assert net_threads()[0] == []
    assert "Network threads: other threads do much of the middlewares' work." in net_threads()[1]

    # A process without any report: in some runs, where the others have one, or in all.
    unknown = pl.when(one & (pl.col("repetition") == 1)).then(None).otherwise(pl.col("threads")).alias("threads")
    dataset.stations = whole.with_columns(unknown)
    ((others,), _) = net_threads()
    assert (others.servers, others.demand_ms.estimate) == (2, pytest.approx(both.demand_ms.estimate, rel=1e-3))
    dataset.stations = whole.with_columns(pl.when(one).then(None).otherwise(pl.col("threads")).alias("threads"))
    assert net_threads()[0] == []
    assert "Network threads: there is no middleware, or some middleware does not report" in net_threads()[1]


def test_configurations_without_a_model_do_not_hide_those_with_one() -> None:
    rows = pl.concat([FEW_ROWS.with_columns(disk=pl.lit("ssd")), FEW_ROWS.head(2).with_columns(disk=pl.lit("hdd"))])
    found = outlooks(rows, ["disk"], configurations_max=8)
    assert [one.label for one in found.shown] == ["disk = ssd"]
    assert len(found.unfitted) == 1 and found.unfitted[0].startswith("No model of disk = hdd: a model needs 3")
    asked = np.array([forecast.scenario.customers for forecast in found.shown[0].forecasts])
    assert (np.diff(asked) > 0).all() and asked[-1] == 128


def test_configuration_without_model_offers_the_others() -> None:
    rows = pl.concat([FEW_ROWS.with_columns(disk=pl.lit("ssd")), FEW_ROWS.head(2).with_columns(disk=pl.lit("hdd"))])
    with pytest.raises(FitError, match=r"^disk = hdd: .*measure more; or choose another with --set disk=…$"):
        fit_systems(rows, ["disk"], {"clients": 16}, resamples=2)
    with pytest.raises(FitError, match=r"^disk = hdd: .*measure more$"):
        fit_systems(rows, ["disk"], {"clients": 16, "disk": "hdd"}, resamples=2)
    few = pl.concat([FEW_ROWS.head(2).with_columns(disk=pl.lit(disk)) for disk in ("ssd", "hdd")])
    with pytest.raises(FitError, match=r"^disk = ssd: .*measure more$"):
        fit_systems(few, ["disk"], {"clients": 16}, resamples=2)


@pytest.mark.parametrize("settings", [None, {"clients": 16}, {"workload.rate": 100}, {"workload.rate": 300}])
def test_of_an_open_loop_no_rate_is_offered(settings: dict[str, int] | None) -> None:
    rates = pl.concat([ROWS.with_columns(pl.lit(rate).alias("workload.rate")) for rate in (100, 200)])
    with pytest.raises(FitError, match=r"^the load is an open loop, .*: measure with a think time instead$"):
        fit_systems(rates.with_columns(think_ms=pl.lit(None, pl.Float64)), ["workload.rate"], settings, resamples=2)


def test_constant_setting_differs_from_unknown_name() -> None:
    constant = {"workload.protocol": "queue", "workload.ttl_s": None}

    def refusal(settings: dict[str, int | float | str | bool]) -> str:
        with pytest.raises(FitError) as refused:
            fit_systems(FEW_ROWS, [], settings, constant=constant, resamples=2)
        return str(refused.value)

    what = "and no model predicts other values: measure this value, or set one of load.clients, "
    assert refusal({"workload.protocol": "kv"}).startswith(f"workload.protocol was queue throughout, {what}")
    assert refusal({"workload.ttl_s": 9}).startswith(f"workload.ttl_s was not set, {what}")
    assert refusal({"workload.protocl": "kv"}) == "workload.protocl: no such setting: did you mean workload.protocol?"
    assert refusal({"throughput": 9}).startswith("throughput is the same in all configurations: set one of cl")
    ((_, scenario),) = fit_systems(
        FEW_ROWS, [], {"clients": 16, "workload.protocol": "queue"}, constant=constant, resamples=2
    )
    assert scenario is not None and scenario.customers == 16


@pytest.mark.parametrize("settings", [{"workload.mix": "read:1"}, {"workload.arrivals": "poisson"}])
def test_inapplicable_settings_have_no_value(settings: dict[str, int | float | str]) -> None:
    messages = measurements.of_run(pooled(System(), 16, clients=(2, 8, 32)))
    with pytest.raises(FitError, match=r"^workload\.\w+: not in these measurements: expected one of load\.clients"):
        fit_systems(messages.table, [], settings, constant=messages.constant, resamples=2)


def bands(found: FittedSystem) -> Floats:
    forecasts = found.forecasts([Scenario(float(count), 1.0, 0.0, float(SLOTS)) for count in (16, 64, 65, 128)])
    return np.array([(one.throughput.high or 0) / (one.throughput.low or 1) for one in forecasts])


def test_intervals_never_narrow_beyond_the_measured(systems: list[FittedSystem]) -> None:
    for system in systems[:5]:
        widths = bands(system)
        assert widths[2] >= widths[1] * 0.999
        further = [Scenario(float(count), 1.0, 0.0, float(SLOTS)) for count in (65, 128, 640, 6_400, 64_000)]
        for quantity in ("throughput", "response_ms"):
            found = [getattr(forecast, quantity) for forecast in system.forecasts(further)]
            ratios = [one.high / one.low for one in found]
            assert (np.diff(ratios) >= -0.001 * np.array(ratios[:-1])).all(), ratios
        assert ratios[-1] > ratios[0], "a thousand times the largest count is no surer than the next one"
