"""Layered networks with product form: against exact solutions and the simulator, to 1e-9."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from soak import drawn

from knee.queueing import Delay, LoadDependent, Network, Queue, solve_closed
from knee.queueing.layered import Layered, Stage, Tier, solve_layered
from knee.queueing.layered_exact import STEPS_MAX, solve_exactly
from knee.queueing.layered_simulation import simulate_layered

TIMES = st.floats(0.01, 5)
THINKING = st.sampled_from([0.0, 0.5, 20.0])
EXACT = 1e-9


def agree(network: Layered, closed: Network, customers: int) -> None:
    """Throughput and response time equal those of the closed network, for this and for one customer."""
    exact = solve_closed(closed, customers)
    found = solve_layered(network, [1, customers])
    at = [0, customers - 1]
    assert found.throughput == pytest.approx(exact.throughput[at], rel=EXACT)
    assert found.response_time == pytest.approx(exact.response_time[at], rel=EXACT)


def test_threads_in_a_row_are_mean_value_analysis() -> None:
    # Reiser & Lavenberg (1980): R_k(n) = D_k (1 + Q_k(n - 1)).
    demands, lengths, think = np.array([0.3, 0.2, 0.5]), np.zeros(3), 1.0
    tiers = [Tier(f"tier {i}", f"host {i}", 1, float(work)) for i, work in enumerate(demands)]
    hosts = {f"host {i}": 1.0 for i in range(3)}
    network = Layered(hosts, tiers, Stage(dict.fromkeys(["tier 0", "tier 1", "tier 2"], 1.0)), Stage({}), think)
    found = solve_layered(network, list(range(1, 31)))
    for n in range(1, 31):
        times = demands * (1 + lengths)
        throughput = n / (think + times.sum())
        lengths = throughput * times
        assert found.throughput[n - 1] == pytest.approx(throughput, rel=EXACT)
        assert found.busy[n - 1] == pytest.approx(throughput * demands, rel=EXACT)


@settings(max_examples=drawn(100), deadline=None)
@given(
    st.lists(st.tuples(TIMES, st.integers(1, 4), st.floats(0, 1)), min_size=1, max_size=4),
    TIMES,
    THINKING,
    st.integers(1, 60),
    st.sampled_from([None, 1, 2, 3]),
)
@example([(1.0, 1, 0.0)], 1.0, 0.0, 1, 1)
def test_threads_with_cores_of_their_own_are_queues(
    tiers: list[tuple[float, int, float]], delay: float, think: float, customers: int, pools: int | None
) -> None:
    # With as many slots as customers, slots hold no request back.
    made, inside, outside, queues = [], {}, {}, []
    for i, (work, threads, within) in enumerate(tiers):
        share = 1.0 if threads > 1 else within
        made.append(Tier(f"{i}", "host", threads, work))
        inside[f"{i}"], outside[f"{i}"] = share, 1 - share
        queues += [Queue(f"{i}.{j}", work / threads) for j in range(threads)]
    hosts = {"host": float(sum(threads for _, threads, _ in tiers))}
    slots = None if pools is None else customers
    network = Layered(hosts, made, Stage(outside, delay), Stage(inside), think, pools or 1, slots)
    agree(network, Network([*queues, Delay("delay", delay)], think), customers)


@settings(max_examples=drawn(100), deadline=None)
@given(st.floats(1, 6), st.lists(TIMES, min_size=1, max_size=3), THINKING, st.integers(1, 40))
def test_host_with_a_thread_for_each_customer_is_processor_sharing(
    cores: float, works: list[float], think: float, customers: int
) -> None:
    tiers = [Tier(f"{i}", "host", customers, work) for i, work in enumerate(works)]
    network = Layered({"host": cores}, tiers, Stage({tier.name: 1.0 for tier in tiers}), Stage({}), think)
    rates = [min(j, cores) / sum(works) for j in range(1, 8)]
    exact = solve_closed(Network([LoadDependent("host", rates)], think), customers)
    found = solve_layered(network, customers)
    assert found.throughput[0] == pytest.approx(exact.throughput[-1], rel=EXACT)
    assert found.host_busy[0, 0] == pytest.approx(exact.throughput[-1] * sum(works) / cores, rel=EXACT)


@settings(max_examples=drawn(100), deadline=None)
@given(TIMES, TIMES, st.integers(1, 8), TIMES, st.booleans(), THINKING, st.integers(1, 60))
def test_slots_in_front_of_delays_are_a_queue(
    work: float, pause: float, slots: int, store: float, queued: bool, think: float, customers: int
) -> None:
    # Each slot has its own thread. The other tier is a queue outside of the slots.
    tiers = [Tier("slot", "far", slots, work, by_slot=True), Tier("store", "near", 1, store)]
    outside = Stage({"store": 1.0} if queued else {}, 0.1)
    network = Layered(
        {"far": float(slots), "near": 1.0},
        tiers if queued else tiers[:1],
        outside,
        Stage({"slot": 1.0}, pause),
        think,
        1,
        slots,
    )
    queues = [Queue("slots", work + pause, servers=slots), *([Queue("store", store)] if queued else [])]
    closed = Network([*queues, Delay("delay", 0.1)], think)
    exact, found = solve_closed(closed, customers), solve_layered(network, customers)
    assert found.throughput[0] == pytest.approx(exact.throughput[-1], rel=EXACT)
    assert found.inside[0] == pytest.approx(work + pause, rel=EXACT)
    assert found.waiting[0] == pytest.approx(exact.residence_time[-1, 0] - work - pause, rel=1e-6, abs=1e-6)


@settings(max_examples=drawn(50), deadline=None)
@given(TIMES, st.integers(1, 8), st.integers(2, 5), THINKING, st.integers(1, 60))
def test_pools_in_front_of_delays_share_the_customers(
    pause: float, slots: int, pools: int, think: float, customers: int
) -> None:
    tiers = [Tier("slot", "far", pools * slots, 0.1, by_slot=True)]
    hosts = {"far": float(pools * slots)}
    network = Layered(hosts, tiers, Stage({}, 0.2), Stage({"slot": 1.0}, pause), think, pools, slots)
    closed = Network([Queue("slots", pause + 0.1, servers=slots), Delay("delay", 0.2)], think)
    shares = [customers // pools + (i < customers % pools) for i in range(pools)]
    exact = sum(solve_closed(closed, share).throughput[-1] for share in shares if share)
    assert solve_layered(network, customers).throughput[0] == pytest.approx(exact, rel=EXACT)


@pytest.mark.parametrize(("slots", "cores"), [(1, 1.0), (4, 2.0), (3, 1.5), (2, 4.0)])
def test_slots_in_front_of_one_host_are_its_queue(slots: int, cores: float) -> None:
    tiers = [Tier("slot", "far", slots, 0.5, by_slot=True), Tier("front", "near", 1, 0.05)]
    network = Layered({"far": cores, "near": 1.0}, tiers, Stage({"front": 1.0}), Stage({"slot": 1.0}), 2.0, 1, slots)
    rates = [min(j, cores, slots) / 0.5 for j in range(1, 6)]
    agree(network, Network([LoadDependent("slot", rates), Queue("front", 0.05)], 2.0), 12)
    found, simulated = solve_layered(network, 12), simulate_layered(network, 12, rounds=40_000)
    for name in ("throughput", "inside", "waiting"):
        assert getattr(found, name)[0] == pytest.approx(getattr(simulated, name).estimate, rel=0.02, abs=0.005)
    assert found.busy[0] == pytest.approx(simulated.busy.estimate, abs=0.01)


ONE = [Tier("store", "far", 1, 0.5)]


@pytest.mark.parametrize("slots", [1, 4])
def test_slots_in_front_of_one_thread_are_its_queue(slots: int) -> None:
    network = Layered({"far": 1.0}, ONE, Stage({}, 1.0), Stage({"store": 1.0}), 3.0, 1, slots)
    agree(network, Network([Queue("store", 0.5), Delay("delay", 1.0)], 3.0), 20)


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(
            Layered({"far": 1.0}, [Tier("store", "far", 1, 0.5, 0.1)], Stage({"store": 1.0}), Stage({})), id="wake-ups"
        ),
        pytest.param(Layered({"far": 1.0}, ONE, Stage({"store": 1.0}, 0.1, 0.9), Stage({})), id="a stretch"),
        pytest.param(Layered({"far": 1.0}, ONE, Stage({"store": 0.5}), Stage({})), id="work of no request"),
        pytest.param(
            Layered({"far": 1.0}, [Tier("store", "far", 2, 0.5)], Stage({}), Stage({"store": 1.0})), id="a shared core"
        ),
        pytest.param(
            Layered({"far": 2.0}, [Tier("store", "far", 2, 0.5)], Stage({"store": 1.0}), Stage({})),
            id="threads of some customers",
        ),
        pytest.param(Layered({"far": 1.0}, ONE, Stage({}), Stage({"store": 1.0}, 0.1), 1.0, 1, 2), id="a held delay"),
        pytest.param(
            Layered({"far": 1.0}, ONE, Stage({}), Stage({"store": 1.0}), 1.0, 2, 2), id="pools in front of a queue"
        ),
    ],
)
def test_network_without_product_form_is_not_solved_exactly(network: Layered) -> None:
    assert solve_exactly(network, 12) is None
    assert solve_layered(network, 12).throughput[0] > 0


def test_exact_solution_is_quick_and_large_ones_are_left_out() -> None:
    tiers = [Tier("slot", "far", 64, 0.5, by_slot=True)]
    network = Layered({"far": 64.0}, tiers, Stage({}), Stage({"slot": 1.0}), 2.0, 1, 64)
    solve_exactly(network, 1000)
    began = perf_counter()
    assert solve_exactly(network, 1000) is not None
    assert perf_counter() - began < 0.1
    assert solve_exactly(network, STEPS_MAX) is None
