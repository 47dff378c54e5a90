"""Closed networks of several classes: against every state of small ones, and where they meet networks of one class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn
from state_space import StateSpace

from knee.queueing import (
    ArgumentError,
    Delay,
    LoadDependent,
    Network,
    Queue,
    SizeError,
    Station,
    solve_classes,
    solve_closed,
)

CLASSES = ("get", "set")
TIMES = st.tuples(*[st.floats(0.01, 10)] * 2)
VISITS = st.tuples(*[st.sampled_from([0.0, 1.0, 2.5])] * 2)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    made: list[Station] = [Queue("always", draw(TIMES), discipline="ps")]
    for index in range(draw(st.integers(0, 2))):
        name, visits = f"station {index}", draw(VISITS)
        match draw(st.integers(0, 3)):
            case 0:
                made.append(Queue(name, draw(TIMES), visits=visits, discipline="ps"))
            case 1:
                servers = draw(st.integers(2, 4))
                made.append(Queue(name, draw(TIMES), servers=servers, visits=visits, discipline="ps"))
            case 2:
                made.append(Delay(name, draw(TIMES), visits=visits))
            case _:
                rates = draw(st.lists(st.floats(0.05, 10), min_size=1, max_size=5))
                made.append(LoadDependent(name, rates, visits=visits))
    if draw(st.booleans()):
        made = made[::-1]
    return Network(made, draw(st.sampled_from([0.0, 3.0])), CLASSES)


@settings(max_examples=drawn(120), deadline=None)
@given(networks(), st.tuples(st.integers(1, 3), st.integers(1, 2)))
def test_every_state(network: Network, populations: tuple[int, int]) -> None:
    solution, exact = solve_classes(network, populations), StateSpace(network, populations)
    assert solution.throughput[populations] == pytest.approx([float(x) for x in exact.throughput], rel=1e-12)
    lengths = np.array(exact.queue_length[:-1], dtype=float)
    assert solution.queue_length[populations] == pytest.approx(lengths, rel=1e-12, abs=1e-15)
    for index, station in enumerate(network.stations):
        if isinstance(station, LoadDependent):
            busy = float(exact.busy[index])
            assert solution.utilisation[(*populations, index)] == pytest.approx(busy, rel=1e-12, abs=0)
        else:
            assert np.isnan(solution.utilisation[(*populations, index)]) == isinstance(station, Delay)


@settings(max_examples=drawn(40), deadline=None)
@given(networks(), st.tuples(st.integers(1, 12), st.integers(1, 9)))
def test_laws_hold_in_every_state(network: Network, populations: tuple[int, int]) -> None:
    solution = solve_classes(network, populations)
    for state in np.ndindex(*(n + 1 for n in populations)):
        held = solution.queue_length[state].sum(axis=0) + solution.throughput[state] * solution.think_time
        assert held == pytest.approx(state, rel=1e-11, abs=1e-11)
        assert (solution.throughput[state][[customers == 0 for customers in state]] == 0).all()


@settings(max_examples=drawn(40), deadline=None)
@given(networks(), st.integers(1, 6), st.integers(1, 6))
def test_equal_classes_are_one_class(network: Network, first: int, second: int) -> None:
    alike = [replace(station, visits=1.0) for station in network.stations]
    for index, station in enumerate(alike):
        if not isinstance(station, LoadDependent):
            alike[index] = replace(station, service_time=np.ravel(station.service_time)[0])
    one = solve_closed(Network(alike, network.think_time), first + second)
    two = solve_classes(Network(alike, network.think_time, CLASSES), (first, second))
    assert two.throughput[first, second].sum() == pytest.approx(one.throughput[-1], rel=1e-12)
    assert two.queue_length[first, second].sum(axis=1) == pytest.approx(one.queue_length[-1], rel=1e-11)


def test_one_class_is_the_network_of_one_class() -> None:
    network = Network([Queue("a", 0.0005), Queue("b", 0.008, servers=8), Queue("c", 0.015, servers=16)], 1.0)
    one, lattice = solve_closed(network, 3000), solve_classes(network, [3000])
    assert lattice.throughput[1:, 0] == pytest.approx(one.throughput, rel=1e-13)
    assert lattice.queue_length[1:, :, 0] == pytest.approx(one.queue_length, rel=1e-12)
    assert lattice.utilisation[1:] == pytest.approx(one.utilisation, rel=1e-12)


def test_too_many_states_are_counted() -> None:
    network = Network([Queue("disk", 1.0)], classes=("a", "b", "c", "d"))
    with pytest.raises(SizeError, match=r"104,060,401 states .* linearizer") as refusal:
        solve_classes(network, [100] * 4)
    assert refusal.value.states == 101**4


def test_many_load_dependent_stations() -> None:
    stations = [Queue(f"{k}", 0.3 + 0.1 * k, servers=2 + k % 3) for k in range(20)]
    solution = solve_classes(Network(stations, classes=CLASSES), [20, 10])
    alone = solve_closed(Network(stations), 30)
    assert solution.throughput[20, 10].sum() == pytest.approx(alone.throughput[-1], rel=1e-13)
    assert solution.queue_length[20, 10].sum(axis=1) == pytest.approx(alone.queue_length[-1], rel=1e-12)


def test_too_many_terms_are_counted() -> None:
    falling = LoadDependent("usl", [2.0, 1.0])
    with pytest.raises(SizeError):
        solve_classes(Network([falling]), [200_000])


def test_nearly_idle_station_keeps_its_digits() -> None:
    network = Network([LoadDependent("usl", [1e12, 2e12, 1.5e12])], 1.0, CLASSES)
    solution = solve_classes(network, [2, 1])
    # Three customers who think for 1, each there for 1e-12.
    assert solution.utilisation[2, 1, 0] == pytest.approx(3e-12, rel=1e-11)


def test_class_without_service_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'set'"):
        solve_classes(Network([Queue("disk", (1.0, 0.0), discipline="ps")], classes=CLASSES), [1, 1])
