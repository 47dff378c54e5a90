"""Closed networks of one class: against every state of small ones, against the laws, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn
from state_space import StateSpace

from knee.queueing import (
    POPULATION_MAX,
    ArgumentError,
    ClosedSolution,
    Delay,
    LoadDependent,
    Network,
    Queue,
    SizeError,
    Station,
    solve_classes,
    solve_closed,
)

TIMES = st.floats(0.001, 10)
RATES = st.lists(st.floats(0.01, 20), min_size=1, max_size=7)
VISITS = st.sampled_from([0.0, 0.25, 1.0, 3.5])


@st.composite
def stations(draw: st.DrawFn, growing: bool = False) -> list[Station]:
    made: list[Station] = []
    for index in range(draw(st.integers(1, 4))):
        name, visits = f"station {index}", draw(VISITS) if index else 1.0
        match draw(st.integers(0, 3)):
            case 0:
                made.append(Queue(name, draw(TIMES), visits=visits))
            case 1:
                made.append(Queue(name, draw(TIMES), servers=draw(st.integers(2, 5)), visits=visits))
            case 2:
                made.append(Delay(name, draw(TIMES), visits=visits))
            case _:
                rates = draw(RATES)
                made.append(LoadDependent(name, sorted(rates) if growing else rates, visits=visits))
    return made


NETWORKS = st.builds(Network, stations(), st.sampled_from([0.0, 0.5, 20.0]))


@settings(max_examples=drawn(150), deadline=None)
@given(NETWORKS, st.integers(1, 6))
def test_every_state(network: Network, population: int) -> None:
    solution, exact = solve_closed(network, population), StateSpace(network, [population])
    assert solution.throughput[-1] == pytest.approx(float(exact.throughput[0]), rel=1e-13)
    lengths = [float(row[0]) for row in exact.queue_length[:-1]]
    assert solution.queue_length[-1] == pytest.approx(lengths, rel=1e-12, abs=0)
    for index, station in enumerate(network.stations):
        if isinstance(station, LoadDependent) or (isinstance(station, Queue) and station.servers == 1):
            assert solution.utilisation[-1, index] == pytest.approx(float(exact.busy[index]), rel=1e-12, abs=0)


def hold_laws(network: Network, solution: ClosedSolution) -> None:
    population, throughput = solution.populations, solution.throughput
    cycle = solution.think_time + solution.response_time
    assert throughput * cycle == pytest.approx(population, rel=1e-10)  # interactive
    assert solution.queue_length == pytest.approx(throughput[:, None] * solution.residence_time, rel=1e-12)  # Little
    demands = network.demands[:, 0]
    for index, station in enumerate(network.stations):
        if isinstance(station, Queue):
            expected = throughput * demands[index] / station.servers
            assert solution.utilisation[:, index] == pytest.approx(expected, rel=1e-12)
            assert (expected < 1 + 1e-12).all()
        if isinstance(station, Delay):
            assert np.isnan(solution.utilisation[:, index]).all()
            assert (solution.residence_time[:, index] == demands[index]).all()


@settings(max_examples=drawn(60), deadline=None)
@given(NETWORKS, st.integers(1, 3000))
def test_laws_hold(network: Network, population: int) -> None:
    hold_laws(network, solve_closed(network, population))


@settings(max_examples=drawn(60), deadline=None)
@given(st.builds(Network, stations(growing=True), st.sampled_from([0.0, 5.0])), st.integers(2, 2000))
def test_throughput_grows_with_customers_where_rates_do(network: Network, population: int) -> None:
    throughput = solve_closed(network, population).throughput
    assert (np.diff(throughput) >= -1e-14 * throughput[1:]).all()


def test_throughput_falls_where_rates_fall() -> None:
    network = Network([LoadDependent("thrashing", [1.0, 1.9, 2.5, 2.0, 1.2, 0.5])], think_time=1.0)
    throughput = solve_closed(network, 400).throughput
    assert throughput.max() > 1.6
    assert throughput[-1] == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("think_time", [0.0, 3.0])
def test_single_servers_follow_the_recursion_of_mean_values(think_time: float) -> None:
    demands = np.array([0.3, 0.02, 0.29])
    solution = solve_closed(Network([Queue(f"{d}", d) for d in demands], think_time), 500)
    queue_length = np.zeros(3)
    for row in range(500):
        residence_time = demands * (1 + queue_length)
        throughput = (row + 1) / (think_time + residence_time.sum())
        queue_length = throughput * residence_time
        assert solution.throughput[row] == pytest.approx(throughput, rel=1e-13)
        assert solution.queue_length[row] == pytest.approx(queue_length, rel=1e-12)


def test_servers_without_waiting_are_a_delay() -> None:
    many = solve_closed(Network([Queue("pool", 2.0, servers=50), Queue("disk", 0.1)]), 50)
    delay = solve_closed(Network([Delay("pool", 2.0), Queue("disk", 0.1)]), 50)
    assert many.throughput == pytest.approx(delay.throughput, rel=1e-14)
    assert many.utilisation[:, 0] == pytest.approx(many.queue_length[:, 0] / 50, rel=1e-12)


def test_a_server_more_than_customers_changes_nothing() -> None:
    just, more = (solve_closed(Network([Queue("pool", 2.0, servers=m), Queue("disk", 0.1)]), 20) for m in (19, 20))
    assert just.throughput[:19] == pytest.approx(more.throughput[:19], rel=1e-14)
    assert just.throughput[19] < more.throughput[19]


def test_the_largest_population() -> None:
    network = Network([Queue("bottleneck", 1.0), Queue("other", 0.5, servers=2)], think_time=10.0)
    solution = solve_closed(network, POPULATION_MAX)
    assert solution.throughput[-1] == pytest.approx(1.0, rel=1e-14)
    assert solution.queue_length[-1, 0] == pytest.approx(POPULATION_MAX - 10 - 8 / 15, rel=1e-9)


NETWORK = Network([Queue("disk", 1.0)])


@pytest.mark.parametrize(
    ("network", "population", "argument"),
    [
        (NETWORK, -3, "population"),
        (NETWORK, 10**9, "population"),
        (NETWORK, 2.5, "population"),
        (NETWORK, math.nan, "population"),
        (Network([Queue("disk", 0.0)]), 5, "network"),
        (Network([Queue("disk", 1.0, visits=0.0), Delay("net", 0.0)]), 5, "network"),
        (Network([Queue("disk", 1.0)], classes=("get", "set")), 5, "network"),
    ],
)
def test_refused(network: Network, population: int, argument: str) -> None:
    with pytest.raises(ArgumentError, match=argument) as refusal:
        solve_closed(network, population)
    assert refusal.value.argument == argument


def test_too_many_different_rates() -> None:
    network = Network([LoadDependent("usl", [1 + n / 10**6 for n in range(200_000)]), Queue("disk", 1.0)])
    with pytest.raises(SizeError, match="200,000 states") as refusal:
        solve_closed(network, 200_000)
    assert refusal.value.values > refusal.value.limit


def test_more_stations_than_memory() -> None:
    for station in (Queue("k", 1.0), Delay("k", 1.0)):
        network = Network([replace(station, name=f"{k}") for k in range(50)], 1.0)
        with pytest.raises(SizeError, match="1,000,000 states"):
            solve_closed(network, POPULATION_MAX)
    classes = [f"{c}" for c in range(20)]
    with pytest.raises(SizeError, match="1,048,576 states"):
        solve_classes(Network([Queue(f"{k}", 1.0) for k in range(15)], 1.0, classes), [1] * 20)


def test_a_population_for_every_class() -> None:
    for populations in ([], [1, 2], [-1], [10**9]):
        with pytest.raises(ArgumentError, match="populations"):
            solve_classes(NETWORK, populations)
