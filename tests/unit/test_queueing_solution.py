"""Points of solutions by name, tables, distributions of queue lengths, and networks without customers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from soak import drawn
from test_queueing_closed import NETWORKS
from test_queueing_simulate import agrees

from knee.queueing import (
    ArgumentError,
    Delay,
    LoadDependent,
    MMm,
    Network,
    Queue,
    Station,
    bard_schweitzer,
    linearizer,
    simulate,
    solve_classes,
    solve_closed,
    solve_mixed,
    solve_open,
)

NETWORK = Network([Queue("slots", 2.0, servers=3), Queue("store", 0.4), Delay("wire", 1.0)], think_time=5.0)
PS = Network([Queue("q", 1.0, discipline="ps")])
CLASSES = ("get", "set")
SHARED = Network(
    [Queue("cpu", (1.0, 0.5), discipline="ps"), LoadDependent("usl", [1.0, 1.5]), Delay("wire", 1.0)], 2.0, CLASSES
)


# By name


def test_point_of_a_solution_is_its_row() -> None:
    solution = solve_closed(NETWORK, 30)
    point = solution.at(20)
    assert (point.throughput, point.response_time) == (solution.throughput[19], solution.response_time[19])
    assert point["slots"].utilisation == solution.utilisation[19, 0]
    assert point["store"].queue_length == solution.queue_length[19, 1]
    assert point["wire"].residence_time == 1.0
    assert math.isnan(point["wire"].utilisation)
    assert [station.name for station in point.stations] == ["slots", "store", "wire"]


def test_point_of_several_classes_adds_them() -> None:
    solution = solve_classes(SHARED, [4, 3])
    point = solution.at({"set": 2, "get": 3})
    throughput, residence_time = solution.throughput[3, 2], solution.residence_time[3, 2]
    assert solution.at([3, 2]).throughput == point.throughput == pytest.approx(throughput.sum())
    assert point["cpu"].queue_length == pytest.approx(solution.queue_length[3, 2, 0].sum(), rel=1e-14)
    # Little's law holds for all classes together.
    assert point["cpu"].residence_time == pytest.approx(point["cpu"].queue_length / point.throughput, rel=1e-14)
    assert point["usl"].utilisation == solution.utilisation[3, 2, 1]
    sets = point.by_class["set"]
    assert sets["usl"].residence_time == residence_time[1, 1]
    assert (sets.throughput, sets.response_time) == (throughput[1], pytest.approx(residence_time[:, 1].sum()))
    assert sets["cpu"].utilisation == pytest.approx(0.5 * throughput[1], rel=1e-14)
    assert math.isnan(sets["usl"].utilisation)
    together = [point.by_class[name]["cpu"].utilisation for name in CLASSES]
    assert sum(together) == pytest.approx(point["cpu"].utilisation, rel=1e-14)


def test_open_and_approximate_solutions_have_stations_by_name() -> None:
    opened = solve_open(SHARED, (0.2, 0.3))
    assert opened["cpu"].queue_length == pytest.approx(opened.queue_length[0].sum())
    assert opened.by_class["get"]["cpu"].residence_time == opened.residence_time[0, 0]
    single = solve_open(Network([Queue("disk", 0.5)]), 1.0)
    assert single["disk"].residence_time == pytest.approx(1.0)
    near = linearizer(NETWORK, [20])
    assert near["slots"].queue_length == pytest.approx(near.queue_length[0, 0])
    mixed = solve_mixed(Network([Queue("disk", 1.0)], 1.0, CLASSES), (3, None), (None, 0.2))
    assert mixed.at({"get": 2}).by_class["set"].throughput == 0.2


def test_table_has_a_row_for_every_population_and_station() -> None:
    solution = solve_closed(NETWORK, 4)
    table = solution.table()
    assert table.columns == [
        "customers",
        "station",
        "throughput",
        "response_time",
        "residence_time",
        "queue_length",
        "utilisation",
    ]
    expected = list(itertools.product([1, 2, 3, 4], ["slots", "store", "wire"]))
    assert table.select("customers", "station").rows() == expected
    for row, (customers, station) in zip(table.iter_rows(named=True), expected, strict=True):
        point = solution.at(customers)
        assert (row["throughput"], row["response_time"]) == (point.throughput, point.response_time)
        assert row["queue_length"] == point[station].queue_length
        assert row["utilisation"] == (None if station == "wire" else point[station].utilisation)


def test_table_of_classes_has_a_row_for_every_state_station_and_class() -> None:
    solution = solve_classes(SHARED, [2, 1])
    table = solution.table()
    keys = ["get_customers", "set_customers", "station", "class"]
    expected = list(itertools.product([0, 1, 2], [0, 1], ["cpu", "usl", "wire"], CLASSES))
    assert table.select(keys).rows() == expected
    for row, (gets, sets, station, name) in zip(table.iter_rows(named=True), expected, strict=True):
        point = solution.at([gets, sets]).by_class[name]
        found = [row[column] for column in ("throughput", "response_time", "residence_time", "queue_length")]
        there = point[station]
        assert found == [point.throughput, point.response_time, there.residence_time, there.queue_length]
        assert row["utilisation"] == (there.utilisation if station == "cpu" else None)
    assert solve_open(SHARED, 0.1).table().select("station", "class").rows() == [row[2:] for row in expected[:6]]


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("station", lambda: solve_closed(NETWORK, 3).at(2)["tape"]),
        ("station", lambda: solve_open(NETWORK, 0.1)["tape"]),
        ("population", lambda: solve_closed(NETWORK, 3).at(4)),
        ("population", lambda: solve_closed(NETWORK, 3).at(1.5)),  # type: ignore[arg-type]
        ("populations", lambda: solve_classes(SHARED, [2, 1]).at([2])),
        ("populations", lambda: solve_classes(SHARED, [2, 1]).at([2, 2])),
        ("populations", lambda: solve_classes(SHARED, [2, 1]).at({"get": 2})),
        # Delays, other disciplines and stations without customers have no quantiles.
        ("station", lambda: solve_closed(NETWORK, 3).at(2)["wire"].response_tail(1.0)),
        ("station", lambda: solve_closed(PS, 3).at(2)["q"].response_quantile(0.5)),
        ("station", lambda: solve_closed(NETWORK, 3).at(0)["store"].response_quantile(0.5)),
        ("time", lambda: solve_closed(NETWORK, 3).at(2)["store"].response_tail(-1.0)),
        ("share", lambda: solve_closed(NETWORK, 3).at(2)["store"].response_quantile(1.0)),
    ],
)
def test_impossible_question_is_refused(argument: str, call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentError) as refusal:
        call()
    assert refusal.value.argument == argument


# Distributions of queue lengths


def speed(station: Station, customers: int) -> float:
    match station:
        case Queue():
            return min(customers, station.servers)
        case LoadDependent():
            return station.rates[min(customers, len(station.rates)) - 1] / station.rates[0]
        case _:
            return customers


def markov_chain(network: Network, population: int) -> list[np.ndarray]:
    """p(0), …, p(N) of each station of a cycle, from the balance equations of all states; the last station thinks."""
    stations = [*network.stations, Delay("thinking", network.think_time)]
    demands = [*network.demands[:, 0], network.think_times[0]]
    states = [
        state for state in itertools.product(range(population + 1), repeat=len(stations)) if sum(state) == population
    ]
    numbers = {state: number for number, state in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for state in states:
        for index, there in enumerate(state):
            if there:
                after = list(state)
                after[index] -= 1
                after[(index + 1) % len(stations)] += 1
                rate = speed(stations[index], there) / demands[index]
                rates[numbers[state], numbers[tuple(after)]] += rate
                rates[numbers[state], numbers[state]] -= rate
    # Σ p = 1 in place of one of the balance equations.
    balance = np.vstack([rates.T[:-1], np.ones(len(states))])
    steady = np.linalg.solve(balance, np.eye(len(states))[-1])
    return [
        np.array(
            [
                sum(p for p, state in zip(steady, states, strict=True) if state[index] == n)
                for n in range(1 + population)
            ]
        )
        for index in range(len(network.stations))
    ]


@pytest.mark.parametrize(
    "network",
    [
        NETWORK,
        Network([Queue("a", 1.0), Queue("b", 1.0)], think_time=0.5),
        Network([LoadDependent("usl", [1.0, 1.8, 0.6]), Queue("pool", 3.0, servers=2)], think_time=2.0),
        Network([Queue("many", 2.0, servers=9), Queue("a", 0.7)], think_time=1.0),
    ],
)
def test_probabilities_are_those_of_the_markov_chain(network: Network) -> None:
    point = solve_closed(network, 6).at(6)
    for station, exact in zip(point.stations, markov_chain(network, 6), strict=True):
        assert station.queue_length_probabilities == pytest.approx(exact, rel=1e-9, abs=1e-12)


@settings(max_examples=drawn(60), deadline=None)
@given(NETWORKS, st.integers(1, 300))
def test_probabilities_have_the_mean_of_the_solution(network: Network, population: int) -> None:
    point = solve_closed(network, population).at(population)
    for place, station in zip(network.stations, point.stations, strict=True):
        probabilities = station.queue_length_probabilities
        assert len(probabilities) == population + 1
        assert probabilities.sum() == pytest.approx(1, rel=1e-12)
        assert probabilities @ np.arange(population + 1) == pytest.approx(station.queue_length, rel=1e-9)
        if isinstance(place, Queue):
            busy = probabilities @ np.minimum(np.arange(population + 1), place.servers) / place.servers
            assert busy == pytest.approx(station.utilisation, rel=1e-9)


def test_probabilities_of_a_large_population_have_its_mean() -> None:
    network = Network([Queue("bottleneck", 1.0), Queue("same", 1.0), Queue("pool", 9.0, servers=10)], think_time=50.0)
    point = solve_closed(network, 100_000).at(100_000)
    for station in point.stations:
        mean = station.queue_length_probabilities @ np.arange(100_001)
        assert mean == pytest.approx(station.queue_length, rel=1e-9)


def test_probabilities_where_all_customers_are_at_one_station() -> None:
    point = solve_closed(Network([Queue("a", 1.0), Queue("never", 1.0, visits=0.0)]), 3).at(2)
    assert point["a"].queue_length_probabilities.tolist() == [0, 0, 1]
    assert point["never"].queue_length_probabilities.tolist() == [1, 0, 0]


def test_open_stations_have_the_probabilities_of_single_ones() -> None:
    network = Network([Queue("one", 0.3), Queue("pool", 1.5, servers=4), Delay("wire", 3.0)])
    solution = solve_open(network, 2.0)
    pool = MMm(2.0, 1 / 1.5, 4)
    for customers in (0, 1, 3, 4, 5, 20):
        assert solution["one"].probability(customers) == pytest.approx(0.4 * 0.6**customers, rel=1e-12)
        assert solution["pool"].probability(customers) == pytest.approx(pool.probability(customers), rel=1e-12)
        poisson = math.exp(-6.0) * 6.0**customers / math.factorial(customers)
        assert solution["wire"].probability(customers) == pytest.approx(poisson, rel=1e-12)
    with pytest.raises(ArgumentError, match="customers"):
        solution["one"].probability(-1)


# Quantiles of one visit


def test_visit_times_have_the_mean_of_the_solution() -> None:
    for network in (NETWORK, Network([Queue("slots", 2.0, servers=3, visits=2.5)], think_time=1.0)):
        for population in (1, 3, 4, 25):
            point = solve_closed(network, population).at(population)
            mean, _ = quad(point["slots"].response_tail, 0, np.inf, epsrel=1e-10)
            visits = float(np.ravel(network.stations[0].visits)[0])
            assert mean * visits == pytest.approx(point["slots"].residence_time, rel=1e-8)


def test_visit_times_of_a_lone_customer_are_its_service() -> None:
    store = solve_closed(NETWORK, 5).at(1)["store"]
    assert store.response_tail(1.0) == pytest.approx(math.exp(-1 / 0.4), rel=1e-12)
    assert store.response_quantile(0.9) == pytest.approx(-0.4 * math.log(0.1), rel=1e-12)


@pytest.mark.parametrize("servers", [1, 3])
def test_quantiles_of_visits_are_those_of_the_simulation(servers: int) -> None:
    # One visit is the whole round.
    network = Network([Queue("store", 1.0, servers=servers)], think_time=4.0)
    store = solve_closed(network, 12).at(12)["store"]
    result = simulate(network, populations=12, warmup=500, rounds=40_000, replications=20, seed=23)
    for share in (0.1, 0.5, 0.9, 0.99):
        assert agrees(result.response_quantile(share), store.response_quantile(share))


# Nothing comes


def test_network_without_customers_is_idle_and_answers_at_once() -> None:
    none, some = solve_closed(NETWORK, 0), solve_closed(NETWORK, 7)
    assert none.populations.tolist() == [0]
    assert none.throughput[-1] == 0
    assert none.response_time[-1] == pytest.approx(3.4)
    assert none.queue_length.tolist() == [[0, 0, 0]]
    assert none.utilisation[0, :2].tolist() == [0, 0]
    for point in (none.at(0), some.at(0)):
        assert (point.throughput, point.response_time) == (0, pytest.approx(3.4))
        assert [station.residence_time for station in point.stations] == [2.0, 0.4, 1.0]
        assert point["slots"].queue_length_probabilities.tolist() == [1.0]
    assert none.table()["customers"].to_list() == [0, 0, 0]
    # The first customer comes to an idle network, too.
    assert some.residence_time[0] == pytest.approx(none.residence_time[0])


@pytest.mark.parametrize("solve", [bard_schweitzer, linearizer])
def test_class_without_customers_sees_the_network_as_it_is(solve: Callable[..., object]) -> None:
    network = Network([Queue("cpu", (1.0, 0.5), discipline="ps"), Queue("disk", 0.8), Delay("wire", 1.0)], 2.0, CLASSES)
    exact = solve_classes(network, [6, 0])
    # An arrival of an open class without arrivals is one customer more, too.
    mixed = solve_mixed(network, (6, None), (None, 0.0))
    assert exact.residence_time[6, 0, :, 1] == pytest.approx(mixed.residence_time[6, :, 1], rel=1e-12)
    assert exact.throughput[6, 0] == pytest.approx(mixed.throughput[6], rel=1e-12)
    near = solve(network, [6, 0])
    assert near.throughput[1] == 0  # type: ignore[attr-defined]
    assert near.residence_time[:, 1] == pytest.approx(exact.residence_time[6, 0, :, 1], rel=0.1)  # type: ignore[attr-defined]
    nothing = solve(network, [0, 0])
    assert nothing.residence_time == pytest.approx(network.demands)  # type: ignore[attr-defined]


def test_customer_beyond_the_servers_of_a_full_station_waits() -> None:
    # Two gets on two servers: a set that came would wait for half a service.
    network = Network([Queue("pool", 2.0, servers=2), LoadDependent("usl", [1.0, 2.0, 0.5])], 0.0, CLASSES)
    exact = solve_classes(network, [2, 0])
    mixed = solve_mixed(network, (2, None), (None, 0.0))
    assert exact.residence_time[2, 0, :, 1] == pytest.approx(mixed.residence_time[2, :, 1], rel=1e-12)
    assert exact.residence_time[2, 0, 0, 1] > 2.0


def test_no_arrivals_leave_stations_idle() -> None:
    solution = solve_open(SHARED, (0.0, 0.0))
    assert solution.throughput.tolist() == [0, 0]
    assert solution.residence_time == pytest.approx(SHARED.demands)
    assert solution.utilisation == pytest.approx([0, 0, math.nan], nan_ok=True)
    assert solution["cpu"].probability(0) == 1.0
    assert solution["cpu"].probability(1) == 0.0
    assert math.isnan(solution["cpu"].residence_time)
    alone = solve_open(NETWORK, 0.0)
    assert alone["store"].residence_time == 0.4


def test_simulation_without_customers_is_idle() -> None:
    for given_ in ({"populations": 0}, {"arrival_rates": 0.0}):
        result = simulate(NETWORK, **given_)  # type: ignore[arg-type]
        assert result.throughput.estimate.tolist() == [0]
        assert result.utilisation.estimate[:2].tolist() == [0, 0]
        assert result.queue_length.estimate.tolist() == [[0], [0], [0]]
        assert np.isnan(result.response_time.estimate).all()
    both = simulate(SHARED, populations=[3, None], arrival_rates=[None, 0.0], warmup=0, rounds=500, seed=1)
    same = simulate(SHARED, populations=[3, 0], warmup=0, rounds=500, seed=1)
    assert both.throughput.estimate[1] == same.throughput.estimate[1] == 0
    assert both.throughput.estimate[0] == same.throughput.estimate[0] > 0
