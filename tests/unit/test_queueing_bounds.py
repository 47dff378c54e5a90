"""The bounds hold the exact throughput, and the geometric ones are the tightest without think time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn
from test_queueing_approximate import networks

from knee.queueing import (
    ArgumentError,
    Delay,
    LoadDependent,
    Network,
    Queue,
    Station,
    class_bounds,
    closed_bounds,
    solve_classes,
    solve_closed,
)

DEMANDS = st.lists(st.floats(0.01, 10), min_size=1, max_size=6)
THINK_TIMES = st.sampled_from([0.0, 0.5, 30.0, 1000.0])
POPULATIONS = st.integers(1, 300)
ROUNDING = 1e-9


@settings(max_examples=drawn(300), deadline=None)
@given(DEMANDS, THINK_TIMES, POPULATIONS)
def test_exact_throughput_is_inside(demands: list[float], think_time: float, population: int) -> None:
    network = Network([Queue(f"{k}", demand) for k, demand in enumerate(demands)], think_time)
    throughput = solve_closed(network, population).throughput[-1]
    bounds = closed_bounds(network, population)
    assert bounds.geometric is not None
    for low, high in (bounds.asymptotic, bounds.balanced, bounds.geometric):
        assert low <= throughput * (1 + ROUNDING)
        assert throughput <= high * (1 + ROUNDING)


@settings(max_examples=drawn(100), deadline=None)
@given(DEMANDS, POPULATIONS)
def test_the_lower_geometric_bound_is_the_tightest_without_thinking(demands: list[float], population: int) -> None:
    bounds = closed_bounds(Network([Queue(f"{k}", demand) for k, demand in enumerate(demands)]), population)
    assert bounds.geometric is not None
    assert bounds.geometric[0] >= bounds.balanced[0] * (1 - ROUNDING)
    assert bounds.geometric[0] >= bounds.asymptotic[0] * (1 - ROUNDING)


def test_an_upper_geometric_bound_may_be_above_the_balanced_one() -> None:
    bounds = closed_bounds(Network([Queue("a", 2.0), Queue("b", 3.0)]), 3)
    assert bounds.geometric is not None
    # R = 5 + 3 · 2 − (3 − 2)(y + y²) with y = 2/3, and 5 + 2 · 5/2.
    assert (bounds.geometric[1], bounds.balanced[1]) == (pytest.approx(3 / (11 - 10 / 9)), pytest.approx(0.3))


def test_geometric_bounds_are_close_where_the_bottleneck_is_alone() -> None:
    network = Network([Queue("a", 1.0), Queue("b", 0.7), Queue("c", 0.4)], 5.0)
    bounds = closed_bounds(network, 60)
    assert bounds.geometric is not None
    assert bounds.geometric[1] - bounds.geometric[0] < 0.2 * (bounds.balanced[1] - bounds.balanced[0])


def test_almost_equal_demands() -> None:
    network = Network([Queue("a", 1.0), Queue("b", 1.0 - 1e-16), Queue("c", 1.0 - 2e-16)])
    throughput = solve_closed(network, 100).throughput[-1]
    assert closed_bounds(network, 100).geometric == pytest.approx((throughput, throughput), rel=1e-9)


def test_bounds_of_huge_think_times_are_finite() -> None:
    bounds = closed_bounds(Network([Queue("a", 2.0), Queue("b", 1.0)], 1e160), 9)
    assert bounds.geometric == pytest.approx((9e-160, 9e-160), rel=1e-9)


def test_every_bound_of_huge_think_times_holds_the_exact_throughput() -> None:
    for think_time in (1e160, 1e300):
        network = Network([Queue("a", 2.0), Queue("b", 1.0)], think_time)
        bounds, exact = closed_bounds(network, 9), solve_closed(network, 9).throughput[-1]
        for low, high in (bounds.asymptotic, bounds.balanced, bounds.geometric or ()):
            assert (low, high) == pytest.approx((exact, exact), rel=1e-12)


def test_bounds_without_customers_are_0() -> None:
    bounds = closed_bounds(Network([Queue("a", 2.0), Queue("b", 1.0)], 3.0), 0)
    assert (bounds.asymptotic, bounds.balanced, bounds.geometric) == ((0, 0), (0, 0), (0, 0))


def test_several_servers_and_delays() -> None:
    network = Network([Queue("pool", 4.0, servers=3), Queue("disk", 0.8), Delay("net", 2.0)], 1.0)
    bounds = closed_bounds(network, 9)
    assert bounds.geometric is None
    throughput = solve_closed(network, 9).throughput[-1]
    assert bounds.balanced[0] < throughput < bounds.balanced[1]


@pytest.mark.parametrize(
    ("stations", "population", "argument"),
    [
        ([LoadDependent("usl", [1.0, 1.5])], 5, "network"),
        ([Delay("net", 1.0)], 5, "network"),
        ([Queue("disk", 1.0)], -1, "population"),
        ([Queue("disk", 1.0)], 10**9, "population"),
    ],
)
def test_refused(stations: list[Station], population: int, argument: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        closed_bounds(Network(stations), population)
    assert refusal.value.argument == argument


@pytest.mark.parametrize("servers", [1, 3])
@settings(max_examples=drawn(150), deadline=None)
@given(st.data(), st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_exact_throughputs_of_classes_are_inside(
    servers: int, data: st.DataObject, populations: tuple[int, int]
) -> None:
    network = data.draw(networks(servers))
    bounds, exact = class_bounds(network, populations), solve_classes(network, populations)
    low, high = bounds.throughput
    throughput, response_time = exact.throughput[populations], exact.response_time[populations]
    assert (low <= throughput * (1 + ROUNDING)).all()
    assert (throughput <= high * (1 + ROUNDING)).all()
    some = np.array(populations) > 0
    fast, slow = bounds.response_time
    assert (fast[some] <= response_time[some] * (1 + ROUNDING) + ROUNDING).all()
    assert (response_time[some] <= slow[some] * (1 + ROUNDING) + ROUNDING).all()
    assert (low[~some] == 0).all() and (high[~some] == 0).all()


def test_bounds_of_one_class_are_no_wider_than_asymptotic_ones() -> None:
    network = Network([Queue("a", 1.0), Queue("b", 0.7), Delay("net", 2.0)], 5.0)
    for population in (1, 2, 9, 60):
        one, classes = closed_bounds(network, population), class_bounds(network, [population])
        low, high = float(classes.throughput[0][0]), float(classes.throughput[1][0])
        # Also as tight as the balanced-job bound from below: it takes the same step from a wider bound at N − 1.
        assert one.asymptotic[0] <= low and one.balanced[0] * (1 - ROUNDING) <= low
        assert high == pytest.approx(one.asymptotic[1], rel=1e-12)


def test_capacity_that_other_classes_need_bounds_a_class() -> None:
    network = Network([Queue("cpu", 1.0)], (0.0, 1.0), ("many", "few"))
    # 98 customers that never think leave little for two that do.
    bounds = class_bounds(network, [98, 2])
    assert bounds.throughput[1][1] <= 1 - bounds.throughput[0][0] < 0.1
    assert bounds.throughput[1][0] == 1.0 - bounds.throughput[0][1]


@pytest.mark.parametrize(
    ("network", "populations", "argument"),
    [
        (Network([LoadDependent("usl", [1.0, 1.5])]), [5], "network"),
        (Network([Queue("disk", (1.0, 2.0))], classes=("a", "b")), [5, 5], "network"),
        (Network([Queue("disk", (1.0, 0.0), discipline="ps")], classes=("a", "b")), [5, 5], "network"),
        (Network([Queue("disk", 1.0)]), [-1], "populations"),
        (Network([Queue("disk", 1.0)]), [1, 2], "populations"),
    ],
)
def test_bounds_of_classes_refused(network: Network, populations: list[int], argument: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        class_bounds(network, populations)
    assert refusal.value.argument == argument
