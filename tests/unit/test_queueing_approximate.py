"""The approximations against exact solutions, where they are exact, and that they say so when they do not settle."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn

from knee.queueing import (
    ApproximateSolution,
    ArgumentError,
    ConvergenceError,
    Delay,
    LoadDependent,
    Network,
    Queue,
    bard_schweitzer,
    linearizer,
    solve_classes,
    solve_closed,
)

Method = Callable[..., ApproximateSolution]
METHODS = [bard_schweitzer, linearizer]
DEMANDS = st.tuples(*[st.floats(0.1, 1.0)] * 2)


def networks(servers: int) -> st.SearchStrategy[Network]:
    def made(demands: list[tuple[float, float]], think_time: float) -> Network:
        queues = [Queue(f"{k}", demand, servers=servers, discipline="ps") for k, demand in enumerate(demands)]
        return Network([*queues, Delay("net", 0.3)], think_time, ("get", "set"))

    return st.builds(made, st.lists(DEMANDS, min_size=1, max_size=4), st.sampled_from([0.0, 1.0, 10.0]))


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=drawn(40), deadline=None)
@given(networks(2), st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_laws_hold(method: Method, network: Network, populations: tuple[int, int]) -> None:
    solution = method(network, populations)
    cycle = network.think_times + solution.response_time
    assert solution.throughput * cycle == pytest.approx(populations, rel=1e-9)
    assert solution.queue_length == pytest.approx(solution.throughput * solution.residence_time)
    assert solution.utilisation[:-1] == pytest.approx((network.demands @ solution.throughput / 2)[:-1])
    assert np.isnan(solution.utilisation[-1])


# The worst of docs/methods/approximate-mva.md, with something to spare.
@pytest.mark.parametrize(("method", "worst"), [(bard_schweitzer, 0.25), (linearizer, 0.03)])
@settings(max_examples=drawn(40), deadline=None)
@given(networks(1), st.tuples(st.integers(1, 12), st.integers(1, 12)))
def test_close_to_exact(method: Method, worst: float, network: Network, populations: tuple[int, int]) -> None:
    exact = solve_classes(network, populations).throughput[populations]
    assert method(network, populations).throughput == pytest.approx(exact, rel=worst)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=drawn(30), deadline=None)
@given(networks(3), st.tuples(st.integers(1, 12), st.integers(1, 12)))
def test_several_servers_are_as_close_as_their_stand_in(
    method: Method, network: Network, populations: tuple[int, int]
) -> None:
    exact = solve_classes(network, populations).throughput[populations]
    assert method(network, populations).throughput == pytest.approx(exact, rel=0.3)


@pytest.mark.parametrize("method", METHODS)
def test_single_customer_never_waits(method: Method) -> None:
    network = Network([Queue("a", 1.0), Queue("b", 2.0), Delay("net", 3.0)], 4.0)
    assert method(network, [1]).throughput == pytest.approx([0.1], rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_balanced_networks_are_exact(method: Method) -> None:
    # A customer finds the same at each of K equal queues, (N − 1)/K, so there is nothing to estimate.
    network = Network([Queue(f"{k}", 0.5) for k in range(4)])
    assert method(network, [30]).throughput[0] == pytest.approx(solve_closed(network, 30).throughput[-1], rel=1e-9)


def test_linearizer_is_closer() -> None:
    times = {"a": (1.0, 0.4), "b": (0.6, 0.9), "c": (0.2, 0.8)}
    network = Network([Queue(name, time, discipline="ps") for name, time in times.items()], 2.0, ("get", "set"))
    exact = solve_classes(network, [6, 9]).throughput[6, 9]
    rough, close = (np.abs(method(network, [6, 9]).throughput / exact - 1).max() for method in METHODS)
    assert close < rough / 5


def test_linearizer_settles_with_20_classes_20_stations_and_1000_customers() -> None:
    random = np.random.default_rng(1)
    queues = [Queue(f"{k}", tuple(random.uniform(0.1, 1.0, 20)), discipline="ps") for k in range(20)]
    network = Network(queues, 1.0, [f"class {c}" for c in range(20)])
    solution = linearizer(network, [50] * 20)
    assert solution.throughput * (network.think_times + solution.response_time) == pytest.approx([50] * 20, rel=1e-9)
    assert solution.iterations < 5_000
    with pytest.raises(
        ConvergenceError, match="raise iterations_max or tolerance, or take bard_schweitzer or simulate"
    ):
        linearizer(network, [50] * 20, iterations_max=20)


@pytest.mark.parametrize("method", METHODS)
def test_unsettled_approximation_is_an_error(method: Method) -> None:
    network = Network([Queue("a", 1.0), Queue("b", 0.999999)])
    with pytest.raises(ConvergenceError, match="after 7 iterations") as failure:
        method(network, [10_000], iterations_max=7)
    assert failure.value.change > 0
    assert failure.value.iterations == 7


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan, 10.0])
def test_useless_tolerance_is_refused(method: Method, tolerance: float) -> None:
    with pytest.raises(ArgumentError, match="tolerance"):
        method(Network([Queue("a", 1.0), Queue("b", 0.1)]), [10], tolerance=tolerance)
    with pytest.raises(ArgumentError, match="iterations_max"):
        method(Network([Queue("a", 1.0), Queue("b", 0.1)]), [10], iterations_max=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("network", "populations", "argument"),
    [
        (Network([Queue("a", 1.0)]), [-1], "populations"),
        (Network([Queue("a", 1.0)]), [10**9], "populations"),
        (Network([Queue("a", 1.0)]), [1, 1], "populations"),
        (Network([LoadDependent("a", [1.0, 2.0])]), [3], "network"),
        (Network([Queue("a", 0.0)]), [3], "network"),
    ],
)
def test_refused(method: Method, network: Network, populations: list[int], argument: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        method(network, populations)
    assert refusal.value.argument == argument
