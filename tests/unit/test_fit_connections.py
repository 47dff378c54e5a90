"""What more connections to a database would give, of systems that are none of the models and of runs."""

from __future__ import annotations

from copy import copy

import numpy as np
import polars as pl
import pytest
from soak import SOAK
from synthetic import System, configured, pooled

from knee.data import measurements
from knee.data.observations import observations
from knee.errors import FitError
from knee.fit import Scenario, fit_systems, outlooks, render_text, stage_demands
from knee.fit.curve import curve_of
from knee.fit.scenario import outside_of, scenario_of
from knee.fit.stages import Stage
from knee.queueing import Delay, LoadDependent, Network, Queue, solve_closed

COUNTS = (1, 2, 4, 8, 16, 32, 64)
WORKERS = 40
CONNECTIONS = (2, 4, 8, 16)


def measured(seed: int) -> pl.DataFrame:
    """Runs of a database of a disk without a queue and two kinds of servers, behind each number of connections.

    A request keeps its slot and its connection for as long as it is there; both middlewares have slots enough for all.
    """
    rng = np.random.default_rng(seed)
    outside, disk = rng.uniform(0.5, 2), rng.uniform(1, 4)
    servers = [int(rng.choice([1, 2, 4])) for _ in range(2)]
    queues = [Queue(f"s{k}", m * rng.uniform(0.03, 0.25), servers=m) for k, m in enumerate(servers)]
    behind = solve_closed(Network([Delay("disk", disk), *queues]), max(CONNECTIONS)).throughput
    rows = []
    for connections in CONNECTIONS:
        network = Network([Delay("outside", outside), LoadDependent("connections", behind[:connections].tolist())])
        throughput = solve_closed(network, COUNTS[-1]).throughput
        for clients in COUNTS:
            for repetition in range(2):
                x = 1000 * throughput[clients - 1] * np.exp(rng.normal(0, 0.015))
                point = len(rows) // 2
                rows.append((point, repetition, clients, connections, x, 1000 * clients / x, 0.0, WORKERS, 2))
    columns = ["point", "repetition", "clients", "connections", "throughput", "response_ms", "think_ms", "workers"]
    return pl.DataFrame(rows, schema=[*columns, "middlewares"], orient="row")


def off(rows: pl.DataFrame, connections: int) -> list[float]:
    """Relative errors of throughput at every client count with so many connections, predicted from fewer and more."""
    shown = rows.filter(pl.col("connections") != connections)
    settings = {"connections": connections, "clients": COUNTS[-1]}
    ((system, scenario),) = fit_systems(shown, ["connections"], settings, resamples=2)
    assert scenario is not None and (scenario.slots, scenario.servers) == (connections, "connections")
    found = rows.filter(pl.col("connections") == connections).group_by("clients").agg(pl.col("throughput").mean())
    return [
        system.forecast(Scenario(clients, 1.0, 0.0, connections, "connections")).throughput.estimate / x - 1
        for clients, x in found.sort("clients").iter_rows()
    ]


def test_connections_between_measured_ones_are_predicted() -> None:
    errors = np.abs([off(measured(seed), 4) for seed in range(2 if SOAK else 1)])
    assert np.median(errors) < 0.02
    assert errors.max() < 0.08


def test_more_connections_than_measured_are_outside() -> None:
    shown = measured(1).filter(pl.col("connections") < 16)
    ((system, scenario),) = fit_systems(shown, ["connections"], {"connections": 16, "clients": 64}, resamples=20)
    assert scenario is not None
    forecast = system.forecast(scenario)
    further = measured(1).filter(pl.col("connections") == 16, pl.col("clients") == 64)["throughput"]
    assert forecast.throughput.estimate == pytest.approx(further.mean(), rel=0.06)
    # What lies behind may have been at its limit already.
    at_most = measured(1).filter(pl.col("connections") == 8, pl.col("clients") == 64)["throughput"].min()
    assert forecast.throughput.low is not None and forecast.throughput.high is not None
    assert forecast.throughput.low <= at_most < further.min() <= further.max() <= forecast.throughput.high  # type: ignore[operator]
    text = render_text(system, forecast)
    assert "At 64 clients, 16 connections: " in text
    assert "connections = 16 is 2.0 times the largest value measured" in text


def test_another_limit_is_outside_by_its_own_measured_number() -> None:
    def outside(rows: pl.DataFrame, **settings: int) -> list[str]:
        curve = curve_of(rows)
        return outside_of(curve, (1.0,), scenario_of(rows, curve, {**settings, "clients": 64}))

    few = measured(1).filter(pl.col("connections").is_in([4, 8])).with_columns(workers=8)
    assert outside(few, connections=32) == [
        "requests served at a time (limited by worker slots instead of connections) = 16 is 2.0 times the largest "
        "value measured"
    ]
    assert outside(few.with_columns(workers=3), workers=8, connections=16) == [
        "requests served at a time (limited by worker slots) = 16 is 2.7 times the largest value measured"
    ]


def test_slots_serve_where_they_are_fewer_than_connections() -> None:
    rows = measured(0).filter(pl.col("connections") == 8)
    assert (curve_of(rows).slots[0], curve_of(rows).servers) == (8, "connections")
    few = rows.with_columns(workers=2)
    assert (curve_of(few).slots[0], curve_of(few).servers) == (4, "worker slots")
    unknown = rows.drop("workers")
    assert np.isnan(curve_of(unknown).slots).all(), "what has connections may be anything"
    assert limit(rows, connections=100, workers=30) == (60, "worker slots")


def limit(rows: pl.DataFrame, **settings: int) -> tuple[float, str]:
    """What serves in a scenario of 64 clients."""
    scenario = scenario_of(rows, curve_of(rows), {**settings, "clients": 64})
    return scenario.slots, scenario.servers


def test_unset_connections_follow_the_slots() -> None:
    rows = measured(0).filter(pl.col("connections") == 8).with_columns(workers=4, connections_follow=True)
    assert limit(rows, workers=8) == (16, "worker slots")
    assert limit(rows, workers=8, connections=8) == (8, "connections")
    fewer = measured(0).filter(pl.col("connections") == 4).with_columns(workers=2, connections_follow=True)
    assert limit(pl.concat([fewer, rows]), workers=8) == (16, "worker slots"), "the workers alone were a factor"


def test_given_connections_stay_when_slots_change() -> None:
    rows = measured(0).filter(pl.col("connections") == 8).with_columns(workers=4)
    for given in (rows, rows.with_columns(connections_follow=False)):
        assert limit(given, workers=8) == (8, "connections")
        assert limit(given, workers=8, connections=16) == (16, "worker slots")


def test_connections_as_a_factor_must_be_named() -> None:
    rows = measured(0)
    with pytest.raises(FitError, match="the number of connections was a factor: choose one"):
        scenario_of(rows, curve_of(rows), {"clients": 8})
    with pytest.raises(FitError, match="expected a whole number from 1"):
        scenario_of(rows, curve_of(rows), {"connections": 0})


def test_uncounted_connections_stay_a_configuration() -> None:
    rows = measured(0).filter(pl.col("connections") > 4)
    words = rows.with_columns(
        connections=pl.when(pl.col("connections") == 8).then(pl.lit("few")).otherwise(pl.lit("many"))
    )
    ((system, scenario),) = fit_systems(words, ["connections"], {"connections": "few", "clients": 8}, resamples=2)
    assert system.label == "connections = few"
    assert scenario is not None and (scenario.slots, scenario.servers) == (2 * WORKERS, "worker slots")


def test_a_page_draws_a_line_for_each_number_of_connections() -> None:
    shown = outlooks(measured(0).filter(pl.col("connections") < 8), ["connections"], configurations_max=8).shown
    assert [one.label for one in shown] == ["connections = 2", "connections = 4"]


def test_connection_hold_time_is_a_stage() -> None:
    def named(workers: int) -> dict[str, Stage]:
        table = measurements.of_run(pooled(System(), workers=workers)).table
        return {stage.name: stage for stage in stage_demands(table).found}

    stage = named(12)["connections"]
    assert stage.servers == System().slots
    assert stage.demand_ms.estimate == pytest.approx(System().service_ms, rel=0.02)
    assert stage.utilization == pytest.approx(1, rel=0.02)
    assert "connections" not in named(8), "as many as slots are the same station"


def test_a_run_tells_its_connections_unless_requests_share_them() -> None:
    dataset = pooled(System(), workers=12)
    assert set(observations(dataset)["connections"]) == {System().slots}
    assert set(observations(dataset)["connections_follow"]) == {False}
    assert curve_of(measurements.of_run(dataset).table).slots[0] == System().slots
    of_each_worker = configured(copy(dataset), {"middleware.connections": None})
    assert set(observations(of_each_worker)["connections"]) == {12 * System().middlewares}
    assert set(observations(of_each_worker)["connections_follow"]) == {True}
    configured(dataset, {"middleware.combine": 16})
    assert observations(dataset)["connections"].is_null().all()
    assert observations(dataset)["connections_follow"].is_null().all()
    assert curve_of(measurements.of_run(dataset).table).slots[0] == 12 * System().middlewares
