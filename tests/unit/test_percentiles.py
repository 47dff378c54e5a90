"""The simulation of layered networks against exact solutions, and quantiles against systems with a known scatter."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.unit.synthetic import System, synthetic_dataset
from tests.unit.test_layered import CALIBRATION, LITTLE, TRUE, runs, setup

from knee import fit
from knee.errors import FitError
from knee.fit.layered import LayeredSystem, Setup, layered_system
from knee.fit.percentiles import COLUMNS, Scatter, with_quantiles
from knee.queueing import Delay, Exponential, HyperExponential, Network, Queue, QueueingError, layered, solve_closed
from knee.queueing.layered import Layered, Stage, Tier, solve_layered
from knee.queueing.layered_simulation import simulate_layered


@pytest.mark.parametrize("slots", [1, 4, 64])
def test_simulated_slots_without_contention_are_the_repairman(slots: int) -> None:
    tiers = [Tier("store", "far", 1, LITTLE)]
    network = Layered({"far": 1.0}, tiers, Stage({}, delay=0.5), Stage({}, delay=2.0), 1.0, 1, slots)
    exact = solve_closed(Network([Queue("slots", 2.0, servers=slots), Delay("outside", 0.5)], 1.0), 20)
    found = simulate_layered(network, 20)
    # Constant times with a slot: between the exponential ones and the bound.
    assert found.throughput.estimate == pytest.approx(exact.throughput[-1], rel=0.06)
    assert found.inside.estimate == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("clients", [1, 4, 20])
def test_simulated_threads_are_an_exact_product_form_network(clients: int) -> None:
    tiers = [Tier("front", "near", 1, 0.3), Tier("store", "far", 1, 0.5)]
    network = Layered(
        {"near": 1.0, "far": 1.0}, tiers, Stage({"front": 1.0}, delay=0.4), Stage({"store": 1.0}), 2.0, 1, None
    )
    exact = solve_closed(Network([Queue("front", 0.3), Queue("store", 0.5), Delay("wire", 0.4)], 2.0), clients)
    found = simulate_layered(network, clients, replications=20)
    assert found.throughput.low <= exact.throughput[-1] <= found.throughput.high
    assert found.busy.estimate == pytest.approx(exact.throughput[-1] * np.array([0.3, 0.5]), rel=0.02)


def test_solver_is_near_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layered, "TOGETHER", 0.0)
    errors = []
    for workers in (1, 2, 8, None):
        for clients in (2, 8, 32, 128):
            network = TRUE.network(replace(setup(clients), slots=workers))
            solved, found = solve_layered(network, clients), simulate_layered(network, clients, rounds=20_000)
            pairs = (solved.throughput, found.throughput), (solved.response_time, found.response_time)
            errors.append([float(one[0] / other.estimate) - 1 for one, other in pairs])
    x, r = np.abs(errors).T
    assert x.mean() < 0.02 and x.max() < 0.08
    assert r.mean() < 0.05 and r.max() < 0.25


def test_backends_of_slots_wait_for_no_thread() -> None:
    tiers = [Tier("store", "far", 4, 1.0, by_slot=True)]
    network = Layered({"far": 8.0}, tiers, Stage({}, delay=0.5), Stage({"store": 1.0}), 1.0, 1, 4)
    exact = solve_closed(Network([Queue("slots", 1.0, servers=4), Delay("outside", 0.5)], 1.0), 10)
    found = simulate_layered(network, 10, replications=20)
    assert found.throughput.low <= exact.throughput[-1] <= found.throughput.high


def test_impossible_simulation_is_refused() -> None:
    network = TRUE.network(setup(8))
    with pytest.raises(QueueingError, match="replications"):
        simulate_layered(network, 8, replications=0)
    with pytest.raises(QueueingError, match="rounds"):
        simulate_layered(network, 8, rounds=10**30)


@cache
def scattered(work: HyperExponential) -> LayeredSystem:
    """A system fitted to runs whose quantiles come from a simulation with these processor times."""
    data = runs(CALIBRATION, repetitions=2)
    quantiles = []
    for each in CALIBRATION:
        found = simulate_layered(TRUE.network(each), int(each.customers), work=work, rounds=20_000, seed=5)
        mean = found.response_time.estimate
        own = solve_layered(TRUE.network(each), each.customers).response_time[0]
        quantiles += 2 * [[found.response_quantile(share).estimate / mean * own for share in (0.5, 0.95, 0.99)]]
    return layered_system(data, level=0.95, seed=0, quantiles=np.array(quantiles))


def test_scatter_of_processor_times_is_found_and_predicts_quantiles() -> None:
    work = HyperExponential(4.0)
    system, simulator = scattered(work), fit.Simulator()
    scatter = simulator.scatter(system)
    assert scatter.work == work
    asked = setup(64, workers=4)
    found = simulator(system, system.forecast(asked))
    truth = simulate_layered(TRUE.network(asked), 64, work=work, seed=9)
    for share, quantile in found.quantiles_ms.items():
        wanted = truth.response_quantile(share).estimate / truth.response_time.estimate
        assert quantile.estimate / found.response_ms.estimate == pytest.approx(wanted, rel=0.1)
        assert quantile.low < quantile.estimate < quantile.high


def test_corrected_quantiles_stay_in_their_order() -> None:
    system = scattered(HyperExponential(4.0))
    simulator = fit.Simulator(HyperExponential(4.0), rounds=5000, replications=2)
    # Corrections that would put the quantile of 99 % below the median.
    simulator._scatters[system] = Scatter(HyperExponential(4.0), np.array([[1.0, 0.0, -9.0], [1.0, 0.0, -9.0]]))
    found = simulator(system, system.forecast(setup(64)))
    low, middle, high = found.quantiles_ms.values()
    assert low.estimate <= middle.estimate <= high.estimate
    assert (low.low or 0) <= (middle.low or 0) <= (high.low or 0)


def test_quantiles_contain_the_difference_of_the_simulation_to_the_model() -> None:
    system = scattered(HyperExponential(4.0))
    found = fit.Simulator(rounds=5000, replications=2)(system, replace(system.forecast(setup(64)), quantiles_ms={}))
    assert found.simulated_ms is not None
    apart = abs(np.log(found.simulated_ms / found.response_ms.estimate))
    for quantile in found.quantiles_ms.values():
        assert np.log((quantile.high or 0) / quantile.estimate) >= apart


def test_list_of_settings_has_quantiles_and_the_goal_in_its_table() -> None:
    system, simulator = scattered(HyperExponential(4.0)), fit.Simulator(rounds=5000, replications=2)
    forecasts = [simulator(system, system.forecast(setup(clients))) for clients in (8, 64)]
    head, first, second, *_ = fit.render_layered(
        "", system, forecasts, fit.Goal.parse("p99 < 1 ms"), simulator
    ).splitlines()
    assert all(name in head for name in ("p50 ms", "p95 ms", "p99 ms", "p99 < 1.0"))
    assert {first.split()[0], second.split()[0]} == {"8", "64"}
    assert " no " in second


def test_quantiles_without_measured_ones_are_exponential() -> None:
    system = layered_system(runs(CALIBRATION), level=0.95, seed=0)
    scatter = fit.Simulator().scatter(system)
    assert isinstance(scatter, Scatter) and scatter.work == Exponential() and not scatter.is_measured


def test_limited_places_have_no_layered_simulation() -> None:
    system = layered_system(runs(CALIBRATION), level=0.95, seed=0)
    with pytest.raises(FitError, match="--places"):
        fit.Simulator(places=4)(system, system.forecast(setup(8)))


def test_goal_of_a_quantile_is_sought_and_reported() -> None:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8, 16, 32), seconds=15)
    systems = fit.layered_systems(dataset, [], level=0.95, seed=0, has_quantiles=True)
    simulator, goal = fit.Simulator(rounds=2000, replications=2), fit.Goal.parse("p99 < 12 ms")
    ((label, system, sought),) = fit.seek_settings(systems, {}, "clients", goal, simulator)
    assert sought.likely is not None
    likely, found = sought.likely
    assert found.quantiles_ms[0.99].estimate < 12
    ((_, _, (missed,)),) = fit.layered_forecasts(systems, {"clients": likely + 1}, simulator)
    assert missed.quantiles_ms[0.99].estimate >= 12
    text = fit.render_sought(label, system, sought, simulator)
    assert f"p99 < 12.0: the largest value of clients is {likely}" in text
    assert "Response times: 50% within " in text and "processor times" in text
    assert fit.goal_sentence(goal, missed) == "p99 < 12.0: the estimate does not meet it."


def test_measured_quantiles_are_those_of_the_windows() -> None:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4), seconds=15)
    table = with_quantiles(dataset, dataset.points)
    assert all(table[name].null_count() == 0 for name in COLUMNS)
    p50, p99 = table[COLUMNS[0]], table[COLUMNS[-1]]
    assert (p50 <= p99).all()


def test_fraction_of_a_request_is_not_simulated() -> None:
    system = layered_system(runs(CALIBRATION), level=0.95, seed=0)
    asked: Setup = setup(8.5)
    with pytest.raises(FitError, match="whole number"):
        fit.Simulator()(system, system.forecast(asked))
