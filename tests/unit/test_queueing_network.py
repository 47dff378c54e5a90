"""What a network may be, and how visits follow from routing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn

from knee.queueing import (
    ArgumentError,
    Delay,
    LoadDependent,
    Network,
    Queue,
    bard_schweitzer,
    linearizer,
    solve_classes,
    visits_from_routing,
)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Network([]), "stations"),
        (lambda: Network([Queue("a", 1), Queue("a", 2)]), "stations"),
        (lambda: Network([Queue("a", 1)], classes=()), "classes"),
        (lambda: Network([Queue("a", 1)], classes=("x", "x")), "classes"),
        (lambda: Network([Queue("a", 1)], think_time=-1.0), "think_time"),
        (lambda: Network([Queue("a", 1)], think_time=math.nan), "think_time"),
        (lambda: Network([Queue("a", 1)], think_time=(1, 2)), "think_time"),
        (lambda: Network([Queue("a", (1, 2, 3))], classes=("x", "y")), "a.service_time"),
        (lambda: Network([Queue("a", 1, visits=(1,))], classes=("x", "y")), "a.visits"),
        (lambda: Queue("a", -1.0), "a.service_time"),
        (lambda: Queue("a", math.nan), "a.service_time"),
        (lambda: Queue("a", math.inf), "a.service_time"),
        (lambda: Queue("a", (1.0, -1.0)), "a.service_time"),
        (lambda: Queue("a", 1.0, visits=-0.5), "a.visits"),
        (lambda: Queue("a", 1.0, discipline="lifo"), "a.discipline"),  # type: ignore[arg-type]
        (lambda: Queue("a", 1.0, discipline=["ps"]), "a.discipline"),  # type: ignore[arg-type]
        (lambda: Queue("a", 1.0, servers=0), "a.servers"),
        (lambda: Queue("a", 1.0, servers=10**9), "a.servers"),
        (lambda: LoadDependent("a", [1e-320]), "a.rates"),
        (lambda: Network([Queue("a", 1e300, visits=1e300)]), "a.visits"),
        (lambda: Network([Delay("a", 1e-300, visits=1e-300)]), "a.visits"),
        (lambda: Queue("a", 1.0, servers=2.5), "a.servers"),  # type: ignore[arg-type]
        (lambda: Delay("a", math.nan), "a.service_time"),
        (lambda: LoadDependent("a", []), "a.rates"),
        (lambda: LoadDependent("a", [1.0, 0.0]), "a.rates"),
        (lambda: LoadDependent("a", [1.0, -1.0]), "a.rates"),
        (lambda: LoadDependent("a", [math.nan]), "a.rates"),
        (lambda: LoadDependent("a", [[1.0, 2.0]]), "a.rates"),  # type: ignore[list-item]
        (lambda: LoadDependent("a", [1.0], visits=math.inf), "a.visits"),
    ],
)
def test_refused(make: object, argument: str) -> None:
    assert callable(make)
    with pytest.raises(ArgumentError) as refusal:
        make()
    assert refusal.value.argument == argument
    assert str(refusal.value).startswith(argument)


def test_demands_are_visits_times_service_times() -> None:
    network = Network(
        [
            Queue("a", (2.0, 3.0), visits=(1.0, 0.5)),
            Delay("b", 4.0, visits=2),
            LoadDependent("c", [8.0, 9.0], visits=2),
        ],
        classes=("get", "set"),
    )
    assert network.demands.tolist() == [[2.0, 1.5], [8.0, 8.0], [0.25, 0.25]]
    assert network.think_times.tolist() == [0.0, 0.0]


def test_a_network_is_a_value() -> None:
    assert Network([Queue("a", [1.0, 2.0])], classes=["x", "y"]) == Network([Queue("a", (1, 2))], classes=("x", "y"))
    assert hash(Network([LoadDependent("a", [1, 2])])) == hash(Network((LoadDependent("a", (1.0, 2.0)),)))


def test_whole_float_of_servers_is_accepted() -> None:
    assert Queue("a", 1.0, servers=2.0).speeds(3) == [1.0, 2.0]  # type: ignore[arg-type]


def test_central_server() -> None:
    # Outside, cpu, disk, net: Jain (1991), figure 32.5, has this shape.
    routing = [[0, 1, 0, 0], [0.1, 0, 0.6, 0.3], [0, 1, 0, 0], [0, 1, 0, 0]]
    assert visits_from_routing(["cpu", "disk", "net"], routing) == pytest.approx({"cpu": 10, "disk": 6, "net": 3})


def test_visits_for_one_to_a_station() -> None:
    routing = [[0.1, 0.6, 0.3], [1, 0, 0], [1, 0, 0]]
    visits = visits_from_routing(["cpu", "disk", "net"], routing, "disk")
    assert visits == pytest.approx({"cpu": 1 / 0.6, "disk": 1.0, "net": 0.5})


@settings(max_examples=drawn(60), deadline=None)
@given(st.lists(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), min_size=4, max_size=4))
def test_flow_is_balanced(weights: list[list[float]]) -> None:
    routing = np.array(weights)
    routing /= routing.sum(axis=1, keepdims=True)
    visits = np.array([1.0, *visits_from_routing(["a", "b", "c"], routing).values()])
    assert visits @ routing == pytest.approx(visits, rel=1e-9)


@pytest.mark.parametrize(
    ("routing", "reference", "words"),
    [
        ([[0, 1], [1, 0]], None, r"the outside.*not \(2, 2\)"),
        ([0.5, 0.5], "cpu", r"not \(2,\)"),
        ([[0, 1], [0.9, 0]], "cpu", "row of 'disk' sums to 0.9"),
        ([[0, 1], [0.7, 0.4]], "cpu", "row of 'disk' sums to 1.1"),
        ([[0, 1], [1.5, -0.5]], "cpu", "probabilities"),
        ([[0, 1], [math.nan, 1]], "cpu", "probabilities"),
        ([[1, 0], [1, 0]], "cpu", "'disk': no path leads there from 'cpu'"),
        ([[0.5, 0.5], [0, 1]], "cpu", "'disk': no path leads back to 'cpu'"),
        ([[0, 1, 0], [1e-12, 0, 1], [0, 1, 0]], None, "so few customers return to 'the outside'"),
        ([[0, 1, 0], [1e-14, 1 - 1e-14, 0], [1, 0, 0]], None, "no path leads there"),
        ([[0, 1, 0], [1, 0, 0], [1, 0, 0]], None, "'disk': no path leads there from 'the outside'"),
    ],
)
def test_routing_refused(routing: object, reference: str | None, words: str) -> None:
    with pytest.raises(ArgumentError, match=words) as refusal:
        visits_from_routing(["cpu", "disk"], routing, reference)  # type: ignore[arg-type]
    assert refusal.value.argument == "routing"


def test_repeated_station_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="stations: 'cpu' occurs more than once"):
        visits_from_routing(["cpu", "cpu"], [[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]])


def test_unknown_reference() -> None:
    with pytest.raises(ArgumentError, match="'tape'"):
        visits_from_routing(["cpu"], [[1.0]], "tape")


DISK = Network([Queue("disk", 1.0)])


@pytest.mark.parametrize("wrong", [3.5, math.nan, math.inf, -1])
def test_population_is_a_whole_number(wrong: int) -> None:
    for solve in (solve_classes, bard_schweitzer, linearizer):
        with pytest.raises(ArgumentError, match="whole number"):
            solve(DISK, [wrong])
