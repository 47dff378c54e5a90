"""Customers that change their class: against Markov chains of small networks, and against classes that do not."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from knee.queueing import (
    ArgumentError,
    Chains,
    Delay,
    LoadDependent,
    Network,
    Queue,
    Station,
    solve_classes,
    solve_closed,
    solve_open,
)

Place = tuple[str, str | None]
Routing = Mapping[Place, Mapping[Place, float]]

CLASSES = ("cold", "warm", "other")
STATIONS: list[Station] = [
    Queue("cpu", (1.0, 0.4, 0.7), discipline="ps"),
    Queue("disk", (2.0, 0.9, 1.3), servers=2, discipline="ps"),
]
#: A cold request warms up with 0.3 at the disk; a warm one cools down with 0.2 outside. Others stay what they are.
ROUTING: Routing = {
    ("cold", None): {("cold", "cpu"): 1.0},
    ("cold", "cpu"): {("cold", "disk"): 1.0},
    ("cold", "disk"): {("cold", None): 0.7, ("warm", None): 0.3},
    ("warm", None): {("warm", "cpu"): 0.8, ("cold", "cpu"): 0.2},
    ("warm", "cpu"): {("warm", None): 0.9, ("warm", "disk"): 0.1},
    ("warm", "disk"): {("warm", "cpu"): 1.0},
    ("other", None): {("other", "disk"): 1.0},
    ("other", "disk"): {("other", None): 1.0},
}
THINK_TIMES = (3.0, 1.5, 2.0)


def markov_chain(populations: Mapping[str, int]) -> tuple[dict[Place, float], dict[Place, float]]:
    """Mean numbers of customers at each place, and the flow out of each place; populations by first class."""
    places = list(ROUTING)
    service = {
        (name, station.name): np.broadcast_to(station.service_time, 3)[number]
        for station in STATIONS
        for number, name in enumerate(CLASSES)
    }
    servers = {station.name: station.servers for station in STATIONS if isinstance(station, Queue)}

    def flows(state: tuple[int, ...]) -> dict[tuple[int, int], float]:
        found: dict[tuple[int, int], float] = {}
        for index, (name, station) in enumerate(places):
            if not state[index]:
                continue
            if station is None:
                rate = state[index] / THINK_TIMES[CLASSES.index(name)]
            else:
                there = sum(n for n, place in zip(state, places, strict=True) if place[1] == station)
                rate = min(there, servers[station]) * state[index] / there / service[name, station]
            for to, probability in ROUTING[places[index]].items():
                found[index, places.index(to)] = rate * probability
        return found

    start = tuple(populations.get(name, 0) if station is None else 0 for name, station in places)
    states, todo = {start: 0}, [start]
    edges: list[tuple[int, int, float]] = []
    while todo:
        state = todo.pop()
        for (out, into), rate in flows(state).items():
            after = list(state)
            after[out] -= 1
            after[into] += 1
            if tuple(after) not in states:
                states[tuple(after)] = len(states)
                todo.append(tuple(after))
            edges.append((states[state], states[tuple(after)], rate))
    rates = np.zeros((len(states), len(states)))
    for before, after_, rate in edges:
        rates[before, after_] += rate
        rates[before, before] -= rate
    balance = np.vstack([rates.T[:-1], np.ones(len(states))])
    steady = np.linalg.solve(balance, np.eye(len(states))[-1])
    numbers, out_of = defaultdict(float), defaultdict(float)
    for state, number in states.items():
        for place, there in zip(places, state, strict=True):
            numbers[place] += float(steady[number]) * there
        for (out, _), rate in flows(state).items():
            out_of[places[out]] += float(steady[number]) * rate
    return numbers, out_of


def test_chains_are_as_the_markov_chain() -> None:
    chains = Chains.of(STATIONS, CLASSES, ROUTING, think_time=THINK_TIMES)
    assert chains.network.classes == ("cold + warm", "other")
    point = solve_classes(chains.network, [3, 2]).at([3, 2])
    numbers, flows = markov_chain({"cold": 3, "other": 2})
    rounds = flows["cold", None] + flows["warm", None]
    assert point.by_class["cold + warm"].throughput == pytest.approx(rounds, rel=1e-9)
    assert point.by_class["other"].throughput == pytest.approx(flows["other", None], rel=1e-9)
    by_class = chains.by_class(point)
    for name, station in itertools.product(CLASSES, ("cpu", "disk")):
        found = by_class[name][station]
        assert found.queue_length == pytest.approx(numbers[name, station], rel=1e-9, abs=1e-15)
        assert found.residence_time == pytest.approx(numbers[name, station] / by_class[name].throughput, rel=1e-9)
    assert sum(by_class[name]["cpu"].utilisation for name in CLASSES) == pytest.approx(point["cpu"].utilisation)


def test_classes_that_never_change_are_their_own_chains() -> None:
    stations: list[Station] = [Queue("cpu", 0.5), Delay("wire", (1.0, 2.0)), LoadDependent("usl", [1.0, 1.7])]
    routing: Routing = (
        {(name, None): {(name, "cpu"): 1.0} for name in ("a", "b")}
        | {(name, "cpu"): {(name, "wire"): 0.5, (name, "usl"): 0.5} for name in ("a", "b")}
        | {(name, station): {(name, None): 1.0} for name in ("a", "b") for station in ("wire", "usl")}
    )
    chains = Chains.of(stations, ("a", "b"), routing, think_time=(1.0, 4.0))
    plain = Network(
        [Queue("cpu", 0.5), Delay("wire", (1.0, 2.0), visits=0.5), LoadDependent("usl", [1.0, 1.7], visits=0.5)],
        (1.0, 4.0),
        ("a", "b"),
    )
    one, other = (solve_classes(network, [4, 3]) for network in (chains.network, plain))
    assert one.throughput == pytest.approx(other.throughput, rel=1e-14)
    assert chains.by_class(one.at([4, 3]))["a"]["usl"].queue_length == pytest.approx(other.queue_length[4, 3, 2, 0])


def test_one_chain_is_a_network_of_one_class_for_every_solver() -> None:
    # Rounds alternate between two classes, whose service at the queue in order of arrival is equal.
    stations = [Queue("cpu", 0.3), Delay("wire", (1.0, 5.0))]
    routing: Routing = {
        ("odd", None): {("odd", "cpu"): 1.0},
        ("odd", "cpu"): {("odd", "wire"): 1.0},
        ("odd", "wire"): {("even", None): 1.0},
        ("even", None): {("even", "cpu"): 1.0},
        ("even", "cpu"): {("even", "wire"): 1.0},
        ("even", "wire"): {("odd", None): 1.0},
    }
    chains = Chains.of(stations, ("odd", "even"), routing, think_time=(2.0, 4.0))
    plain = Network([Queue("cpu", 0.3), Delay("wire", 3.0)], 3.0)
    assert solve_closed(chains.network, 9).throughput == pytest.approx(solve_closed(plain, 9).throughput, rel=1e-14)
    point = solve_closed(chains.network, 9).at(9)
    even = chains.by_class(point)["even"]
    assert even["cpu"].queue_length == pytest.approx(point["cpu"].queue_length / 2)
    assert even["wire"].residence_time == pytest.approx(2.5)
    assert solve_open(chains.network, 1.0)["cpu"].utilisation == pytest.approx(0.3)


ONE: Routing = {("a", None): {("a", "cpu"): 1.0}, ("a", "cpu"): {("a", None): 1.0}}


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("routing", lambda: Chains.of([Queue("cpu", 1.0)], ("a", "b"), ONE)),
        ("routing", lambda: Chains.of([Queue("cpu", 1.0)], ("a",), {**ONE, ("a", "disk"): {}})),
        ("routing", lambda: Chains.of([Queue("cpu", 1.0)], ("a",), {**ONE, ("a", "cpu"): {("a", None): 0.5}})),
        ("routing", lambda: Chains.of([Queue("cpu", 1.0)], ("a",), {("a", "cpu"): {("a", "cpu"): 1.0}})),
        ("routing", lambda: Chains.of([Queue("cpu", 1.0)], ("a",), {("a", None): {("a", "cpu"): 1.0}})),
        ("routing", lambda: Chains.of([Queue("cpu", 1.0)], ("a",), {**ONE, ("a", "cpu"): {("a", None): math.nan}})),
        ("think_time", lambda: Chains.of([Queue("cpu", 1.0)], ("a",), ONE, think_time=-1.0)),
        (
            "network",
            lambda: Chains.of([Queue("cpu", (1.0, 2.0, 1.0)), STATIONS[1]], CLASSES, ROUTING, think_time=THINK_TIMES),
        ),
    ],
)
def test_impossible_routing_is_refused(argument: str, call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentError) as refusal:
        call()
    assert refusal.value.argument == argument
