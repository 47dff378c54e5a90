"""The simulator against exact results, by its own intervals, and against its own bookkeeping.

Every seed is fixed, so a test either fails or does not. What the tolerances would let pass by chance: `agrees` takes
intervals at 99.99 %, so that of the 110 or so estimates one would miss with a probability of 1 % under another seed.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats
from soak import SOAK

from knee.queueing import (
    MG1,
    MM1,
    ArgumentError,
    Delay,
    Deterministic,
    Erlang,
    Estimates,
    Exponential,
    HyperExponential,
    LoadDependent,
    Lognormal,
    MMm,
    MMmK,
    Network,
    Quantiles,
    Queue,
    QueueingError,
    Samples,
    Shape,
    Simulation,
    UnstableError,
    engset,
    simulate,
    solve_classes,
    solve_closed,
    solve_mixed,
    solve_open,
)
from knee.queueing.rounds import plan_rounds

LEVEL = 0.9999
ONE = Network([Queue("q", 1.0)])
FOUR = Network([Queue("q", 1.0, servers=4)])


def agrees(estimates: Estimates, exact: ArrayLike) -> bool:
    """Whether every interval at 99.99 % holds what is exact; where that is NaN, so is the estimate."""
    right = np.broadcast_to(np.asarray(exact, np.float64), estimates.estimate.shape)
    unknown = np.isnan(right)
    again = Estimates.of(estimates.replications, LEVEL, estimates.estimate)
    # What cannot scatter, such as a share of 0 or a delay of exactly its mean, has an interval without width.
    room = 1e-9 * np.abs(right)
    within = (again.low - room <= right) & (right <= again.high + room)
    return bool(np.where(unknown, np.isnan(estimates.estimate), within).all())


# One station


@pytest.mark.parametrize("model", [MM1(0.8, 1.0), MMm(3.2, 1.0, 4)])
def test_a_single_station_is_as_the_formulas_say(model: MM1 | MMm) -> None:
    servers = model.servers if isinstance(model, MMm) else 1
    station = Queue("q", 1.0, servers=servers)
    result = simulate(Network([station]), arrival_rates=model.arrival_rate, replications=20, rounds=50_000, seed=1)
    assert agrees(result.throughput, model.arrival_rate)
    assert agrees(result.response_time, model.mean_response)
    assert agrees(result.residence_time, model.mean_response)
    assert agrees(result.queue_length, model.arrival_rate * model.mean_response)
    assert agrees(result.utilisation, model.utilisation)
    for probability in (0.5, 0.9, 0.99):
        assert agrees(result.response_quantile(probability), model.response_quantile(probability))
    assert (result.lost.estimate == 0).all() and (result.refused.estimate == 0).all()


def test_finite_queue_loses_as_by_formula() -> None:
    model = MMmK(5.0, 1.0, 4, 10)
    result = simulate(FOUR, arrival_rates=5.0, places={"q": 10}, warmup=500, rounds=40_000, replications=20, seed=3)
    assert agrees(result.refused, model.loss_probability)
    assert agrees(result.lost, model.loss_probability)
    assert agrees(result.response_time, model.mean_response)
    assert agrees(result.throughput, 5.0 * (1 - model.loss_probability))


@pytest.mark.parametrize("shape", [Deterministic(), Erlang(3), HyperExponential(4.0), Lognormal(2.0), Exponential()])
def test_a_general_server_waits_as_pollaczek_and_khinchine_say(shape: Shape) -> None:
    model = MG1(0.7, 1.0, shape.scv)
    result = simulate(
        ONE, arrival_rates=0.7, service={"q": shape}, warmup=3_000, rounds=50_000, replications=30, seed=4
    )
    assert agrees(result.response_time, model.mean_response)
    assert agrees(result.queue_length, 0.7 * model.mean_response)


def test_regular_arrivals_wait_as_in_a_gi_m_1() -> None:
    # D/M/1: an arrival finds a customer with the probability σ = e^(−(1 − σ)/ρ), and stays 1/(1 − σ) (Kleinrock 1975,
    # §6.4).
    rho = sigma = 0.7
    for _ in range(200):
        sigma = math.exp(-(1 - sigma) / rho)
    result = simulate(ONE, arrival_rates=rho, arrivals=Deterministic(), warmup=2_000, rounds=50_000, seed=5)
    assert agrees(result.response_time, 1 / (1 - sigma))


def test_intervals_cover_at_their_rate() -> None:
    """As many of the intervals at 90 % hold the truth as chance allows with a probability of 99.95 %."""
    exact, trials, held = MM1(0.5, 1.0).mean_response, 300 if SOAK else 60, 0
    for seed in range(trials):
        result = simulate(ONE, arrival_rates=0.5, warmup=200, rounds=4_000, replications=8, seed=seed, level=0.9)
        interval = result.response_time.interval(0)
        assert interval.low is not None and interval.high is not None
        held += interval.low <= exact <= interval.high
    assert stats.binom.ppf(2.5e-4, trials, 0.9) <= held <= stats.binom.isf(2.5e-4, trials, 0.9)


# Networks


def test_a_closed_network_is_as_solved() -> None:
    network = Network(
        [
            Queue("net threads", 1.0, visits=1.5),
            Queue("workers", 3.0, servers=4),
            LoadDependent("store", [1.0, 1.5, 1.8], visits=0.5),
            Delay("wire", 2.0, visits=2.0),
        ],
        think_time=10.0,
    )
    exact = solve_closed(network, 20)
    result = simulate(network, populations=20, replications=20, rounds=40_000, seed=6)
    assert agrees(result.throughput, exact.throughput[-1])
    assert agrees(result.response_time, exact.response_time[-1])
    assert agrees(result.residence_time, exact.residence_time[-1][:, np.newaxis])
    assert agrees(result.queue_length, exact.queue_length[-1][:, np.newaxis])
    assert agrees(result.utilisation, exact.utilisation[-1])


def test_an_open_network_with_a_loop_is_as_jackson_says() -> None:
    routing = [[0.0, 1.0, 0.0], [0.4, 0.1, 0.5], [0.0, 1.0, 0.0]]
    network = Network([Queue("cpu", 1.0, visits=2.5), Queue("disk", 1.5, visits=1.25, servers=2)])
    exact = solve_open(network, 0.3)
    result = simulate(network, arrival_rates=0.3, routing=routing, replications=20, rounds=40_000, seed=7)
    assert agrees(result.response_time, exact.response_time)
    assert agrees(result.residence_time, exact.residence_time)
    assert agrees(result.utilisation, exact.utilisation)


def test_several_closed_classes_are_as_solved() -> None:
    network = Network(
        [Queue("q", 1.0, visits=(1.0, 3.0)), Delay("d", (2.0, 5.0)), Queue("m", 2.0, servers=2, visits=(1.0, 0.0))],
        think_time=(6.0, 9.0),
        classes=("get", "set"),
    )
    exact = solve_classes(network, [5, 3])
    result = simulate(network, populations=[5, 3], replications=20, rounds=40_000, seed=8)
    assert agrees(result.throughput, exact.throughput[5, 3])
    assert agrees(result.response_time, exact.response_time[5, 3])
    assert agrees(result.residence_time, exact.residence_time[5, 3])
    assert agrees(result.utilisation, exact.utilisation[5, 3])


def test_open_and_closed_classes_together_are_as_solved() -> None:
    network = Network([Queue("q", 1.0), Delay("d", 2.0)], think_time=4.0, classes=("closed", "open"))
    exact = solve_mixed(network, [4, None], [None, 0.3])
    result = simulate(network, populations=[4, None], arrival_rates=[None, 0.3], replications=20, rounds=40_000, seed=9)
    assert agrees(result.throughput, exact.throughput[4])
    assert agrees(result.residence_time, exact.residence_time[4])


@pytest.mark.parametrize("shape", [Deterministic(), HyperExponential(9.0)])
def test_delays_and_thinking_matter_by_their_mean_only(shape: Shape) -> None:
    network = Network([Queue("q", 1.0), Delay("d", 3.0)], think_time=5.0)
    exact = solve_closed(network, 6)
    result = simulate(
        network, populations=6, service={"d": shape}, thinking=shape, replications=20, rounds=40_000, seed=10
    )
    assert agrees(result.throughput, exact.throughput[-1])


# Forks


@pytest.mark.parametrize("siblings", [2, 8])
def test_the_slowest_of_exponential_siblings_takes_a_harmonic_number(siblings: int) -> None:
    names = [f"server {index}" for index in range(siblings)]
    network = Network([Delay(name, 2.0) for name in names])
    result = simulate(network, arrival_rates=1.0, forks=[names], warmup=0, rounds=20_000, seed=11)
    assert agrees(result.response_time, 2.0 * sum(1 / k for k in range(1, siblings + 1)))
    assert agrees(result.residence_time, 2.0)


def test_two_siblings_at_queues_are_as_flatto_and_hahn_say() -> None:
    # Two M/M/1 queues: R = (12 − ρ) / 8 · 1 / (μ − λ) (Flatto & Hahn 1984; Nelson & Tantawi 1988).
    network = Network([Queue("a", 1.0), Queue("b", 1.0)])
    result = simulate(
        network, arrival_rates=0.6, forks=[("a", "b")], warmup=2_000, rounds=50_000, replications=20, seed=12
    )
    assert agrees(result.response_time, (12 - 0.6) / 8 / (1 - 0.6))


def test_fork_stands_at_its_first_station() -> None:
    network = Network([Queue("in", 0.1), Queue("a", 1.0), Delay("out", 0.5), Queue("b", 1.0)])
    assert plan_rounds(network, [("b", "a")], None).steps == [[], [0], [3, 1], [2]]
    chain = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    by_order, by_matrix = (
        simulate(
            network, arrival_rates=0.5, forks=[("a", "b")], routing=routing, warmup=100, rounds=5_000, replications=2
        )
        for routing in (None, chain)
    )
    assert np.array_equal(by_order.response_time.replications, by_matrix.response_time.replications)


def test_sets_go_to_all_stores_while_gets_go_to_one() -> None:
    names = ("store 1", "store 2", "store 3")
    network = Network([Delay(name, (1.0, 2.0), visits=(1.0, 1 / 3)) for name in names], classes=("set", "get"))
    anywhere = [[0, 1 / 3, 1 / 3, 1 / 3], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    result = simulate(
        network,
        arrival_rates=[0.5, 1.5],
        forks={"set": [names]},
        routing={"get": anywhere},
        warmup=0,
        rounds=40_000,
        seed=19,
    )
    assert agrees(result.response_time, [1 + 1 / 2 + 1 / 3, 2.0])
    assert agrees(result.residence_time, [[1.0, 2.0 / 3]] * 3)
    assert agrees(result.throughput, [0.5, 1.5])


def test_visits_are_passes_and_a_fractional_one() -> None:
    network = Network([Delay("d", 1.0, visits=2.25), Delay("e", 10.0, visits=0.5), Delay("f", 1.0, visits=0.0)])
    result = simulate(
        network,
        arrival_rates=1.0,
        service=dict.fromkeys("def", Deterministic()),
        warmup=0,
        rounds=50_000,
        replications=4,
    )
    shares = {2.0: 0.375, 3.0: 0.125, 12.0: 0.375, 13.0: 0.125}
    counts = dict.fromkeys(shares, 0.0)
    for histogram in result.histograms:
        for begin, end, count in histogram[0]:
            # Buckets are 0.4 % wide, and sums of times are rounded.
            nearest = min(shares, key=lambda time: abs((begin + end) / 2 - time))
            assert abs((begin + end) / 2 / nearest - 1) < 0.005
            counts[nearest] += count
    total = sum(counts.values())
    assert total == 200_000
    # Five standard deviations of a share.
    assert all(abs(counts[time] / total - share) < 5 * 0.5 / math.sqrt(total) for time, share in shares.items())


# What is given as measured times


def test_samples_and_quantiles_keep_mean_and_scatter() -> None:
    times = [0.2, 0.4, 0.4, 5.0]
    samples = Samples(times)
    assert samples.mean == pytest.approx(1.5)
    assert samples.scv == pytest.approx(np.var(times) / 1.5**2)
    uniform = Quantiles([0.0, 0.5, 1.0], [0.0, 2.0, 4.0])
    assert (uniform.mean, uniform.scv) == (pytest.approx(2.0), pytest.approx(1 / 3))
    for shape in (samples, uniform):
        rate = 0.6 / shape.mean
        result = simulate(
            Network([Queue("q", shape.mean)]),
            arrival_rates=rate,
            service={"q": shape},
            warmup=3_000,
            rounds=50_000,
            replications=20,
            seed=13,
        )
        assert agrees(result.response_time, MG1(rate, 1 / shape.mean, shape.scv).mean_response)
        if shape is samples:
            least = min(begin for classes in result.histograms for begin in classes[0][:, 0])
            assert 0.19 < least <= 0.2


# The accounts of every replication


def test_flows_balance_and_littles_law_holds_in_every_replication() -> None:
    """Exactly but for who is there at both ends; the kernel's own tests hold the books to the last digit."""
    network = Network([Queue("q", 1.0, visits=1.5), Delay("d", 2.0), LoadDependent("l", [2.0, 3.0])], think_time=3.0)
    result = simulate(
        network, populations=8, service={"q": Lognormal(3.0)}, warmup=100, rounds=20_000, replications=5, seed=14
    )
    inside = result.queue_length.replications.sum(axis=(1, 2))
    thinking = 8 - inside
    by_law = (result.throughput.replications * result.response_time.replications)[:, 0]
    # 8 customers of 20,000 rounds were on their way at either end, for at most a few response times each.
    assert inside == pytest.approx(by_law, rel=8 / 20_000 * 3)
    assert (thinking > 0).all()
    assert result.throughput.replications[:, 0] * result.duration == pytest.approx(20_000)
    residence = result.residence_time.replications.sum(axis=1)[:, 0]
    assert residence == pytest.approx(result.response_time.replications[:, 0], rel=0.02)


def test_a_refused_customer_of_a_closed_class_thinks_again() -> None:
    # Engset's loss system: m servers, no queue, N sources (Kleinrock 1975, §3.10; p_n ∝ C(N, n) a^n).
    network = Network([Queue("q", 1.0, servers=2)], think_time=4.0)
    result = simulate(network, populations=6, places={"q": 2}, warmup=200, rounds=40_000, replications=20, seed=15)
    weights = [math.comb(6, n) * 0.25**n for n in range(3)]
    assert agrees(result.refused, engset(2, 6, 0.25))
    assert agrees(result.lost, engset(2, 6, 0.25))
    assert agrees(result.throughput, 6 * (1 - engset(2, 6, 0.25)) / (4.0 + 1 - engset(2, 6, 0.25)))
    assert agrees(result.queue_length, (weights[1] + 2 * weights[2]) / sum(weights))
    assert agrees(result.response_time, 1.0)


# Priorities and blocking


def test_head_of_the_line_waits_as_cobham_says() -> None:
    # W_c = W_0 / ((1 − σ_{c−1}) (1 − σ_c)), with W_0 = Σ λ_j E[S_j²] / 2 (Cobham 1954; Kleinrock 1976, §3.2).
    network = Network([Queue("q", (1.0, 0.5, 2.0))], classes=("last", "first", "second"))
    rates, means = (0.2, 0.4, 0.15), (1.0, 0.5, 2.0)
    service = {"q": [Exponential(), Deterministic(), Exponential()]}
    residual = 0.2 * 1.0 + 0.4 * 0.5**2 / 2 + 0.15 * 2.0**2
    first, second = 0.4 * 0.5, 0.4 * 0.5 + 0.15 * 2.0
    everything = second + 0.2
    waiting = (
        np.array([1 / (1 - second) / (1 - everything), 1 / (1 - first), 1 / (1 - first) / (1 - second)]) * residual
    )
    result = simulate(
        network,
        arrival_rates=rates,
        service=service,
        priorities={"q": (7, -1, 3.5)},
        warmup=3_000,
        rounds=50_000,
        replications=20,
        seed=30,
    )
    assert agrees(result.response_time, waiting + means)


def test_equal_priorities_change_nothing() -> None:
    network = Network([Queue("q", 1.0, servers=2)], 1.0, ("a", "b"))
    one, other = (
        simulate(network, populations=[3, 2], priorities=given, warmup=0, rounds=2_000, replications=2)
        for given in (None, {"q": (1, 1)})
    )
    assert (one.response_time.replications == other.response_time.replications).all()


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_blocking_after_service_is_as_its_markov_chain(ratio: float) -> None:
    # Customers at the second station, and the one that waits for it in the first station's server, are a birth–death
    # chain with ratio ρ = μ_a / μ_b (Akyildiz 1987: two stations that block are a larger one that does not).
    network = Network([Queue("a", 1 / ratio), Queue("b", 1.0)])
    weights = ratio ** np.arange(4)
    probabilities = weights / weights.sum()
    result = simulate(
        network, populations=5, places={"b": 2}, blocking=["b"], warmup=500, rounds=40_000, replications=20, seed=31
    )
    at_b = float(probabilities @ [0, 1, 2, 2])
    assert agrees(result.throughput, 1 - probabilities[0])
    assert agrees(result.queue_length, [[5 - at_b], [at_b]])
    # The first station always has a customer; its server is busy while it waits.
    assert agrees(result.utilisation, [1.0, 1 - probabilities[0]])
    assert (result.lost.estimate == 0).all()


def test_customers_wait_outside_for_a_place_within_their_response_time() -> None:
    # One place behind an unlimited outside is a queue in order of arrival.
    model = MM1(0.7, 1.0)
    result = simulate(
        ONE, arrival_rates=0.7, places={"q": 1}, blocking=("q",), warmup=3_000, rounds=50_000, replications=20, seed=32
    )
    assert agrees(result.response_time, model.mean_response)
    assert agrees(result.residence_time, 1.0)
    with pytest.raises(UnstableError):
        simulate(ONE, arrival_rates=1.2, places={"q": 1}, blocking=("q",))


def test_customers_that_wait_for_each_other_are_an_error_with_a_remedy() -> None:
    routing = [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    network = Network([Queue("a", 1.0, visits=2.0), Queue("b", 1.0)], think_time=1.0)
    full = {"a": 1, "b": 1}
    with pytest.raises(QueueingError, match="wait for each other for ever: give these stations more places"):
        simulate(network, populations=3, routing=routing, places=full, blocking=full, warmup=0, rounds=10_000)
    # A customer alone has no other to wait for.
    simulate(network, populations=1, routing=routing, places=full, blocking=full, warmup=0, rounds=1_000)


def observed(result: Simulation) -> list[float]:
    return [*result.duration.tolist(), *result.queue_length.replications.ravel().tolist()]


def test_the_seed_decides_everything() -> None:
    def run(seed: int, replications: int = 4) -> list[float]:
        return observed(simulate(FOUR, arrival_rates=3.0, warmup=0, rounds=500, replications=replications, seed=seed))

    assert run(1) == run(1)
    assert not set(run(1)) & set(run(2))
    assert len(set(run(1))) == 8
    # A replication does not depend on how many others there are.
    assert run(1)[:4] == run(1, 9)[:4]


def test_time_is_as_good_as_rounds() -> None:
    result = simulate(FOUR, arrival_rates=3.0, time=20_000.0, warmup=500.0, replications=10, seed=16)
    assert result.duration == pytest.approx(20_000.0)
    assert agrees(result.response_time, MMm(3.0, 1.0, 4).mean_response)
    assert agrees(result.throughput, 3.0)
    found = simulate(FOUR, arrival_rates=3.0, time=20_000.0, replications=10, seed=16)
    assert 0 <= found.warmup <= 10_000.0
    assert agrees(found.response_time, MMm(3.0, 1.0, 4).mean_response)


def test_overload_fills_at_the_excess_rate() -> None:
    result = simulate(ONE, arrival_rates=1.5, time=10_000.0, warmup=0.0, replications=10, seed=17)
    assert agrees(result.throughput, 1.0)
    # It grows by ½ per unit of time, from nothing.
    assert result.queue_length.estimate[0, 0] == pytest.approx(2_500, rel=0.05)


def test_warm_up_from_empty_is_found() -> None:
    # 400 customers come out of their thinking within 10 and fill the queue of a network that has room for 20.
    network = Network([Queue("q", 1.0)], think_time=10.0)
    result = simulate(network, populations=400, rounds=20_000, replications=10, seed=18)
    # Response times rise until the first one has gone round: for 400 rounds.
    assert 300 <= result.warmup <= 3_000
    assert agrees(result.response_time, solve_closed(network, 400).response_time[-1])


def test_without_a_steady_state_none_is_made_up() -> None:
    with pytest.raises(QueueingError, match="drift"):
        simulate(ONE, arrival_rates=2.0, time=5_000.0)
    with pytest.raises(ArgumentError, match=r"^warmup: a run is too short"):
        simulate(ONE, arrival_rates=0.5, rounds=10)


def test_one_replication_has_no_interval() -> None:
    result = simulate(ONE, arrival_rates=0.5, warmup=100, rounds=1_000, replications=1)
    assert np.isnan(result.response_time.half_width).all()
    interval = result.response_time.interval(0)
    assert interval.low is None and interval.estimate == result.response_time.estimate[0]


def test_a_million_clients_can_be_simulated() -> None:
    network = Network([Queue("store", 1.0, servers=64)], think_time=20_000.0)
    result = simulate(network, populations=1_000_000, warmup=0, rounds=100_000, replications=1)
    # They ask for 50 of 64 servers.
    assert result.throughput.estimate[0] == pytest.approx(50.0, rel=0.02)
    assert result.utilisation.estimate[0] == pytest.approx(50 / 64, rel=0.02)


def test_nearly_total_loss_is_given_up() -> None:
    network = Network([Queue("store", 4000.0)])
    with pytest.raises(QueueingError, match=r"99\.9\d* % of the rounds were lost.* time= .*more places"):
        simulate(network, arrival_rates=1.0, places={"store": 1}, warmup=0, rounds=1000, replications=2)
    result = simulate(network, arrival_rates=1.0, places={"store": 1}, warmup=0, time=1_000_000.0, replications=2)
    assert result.lost.estimate[0] == pytest.approx(4000 / 4001, abs=1e-4)


def test_an_interrupt_ends_it() -> None:
    class StopError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StopError

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        with pytest.raises(StopError):
            # Of this process's own time: it passes while it simulates, and hardly before.
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
            simulate(ONE, arrival_rates=0.5, warmup=0, rounds=10_000_000_000)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


# What cannot be

TWO_CLASSES = Network([Queue("q", 1.0), Queue("r", 1.0)], classes=("a", "b"), think_time=1.0)
EQUAL = Network([Queue("q", 1.0), Queue("r", 1.0)], think_time=1.0)
SHARED = Network([Queue("q", 1.0), Queue("r", 1.0, discipline="ps")], think_time=1.0)
PAIR = Network([Queue("q", 1.0), Queue("r", 1.0, visits=2.0), Delay("d", 1.0)], think_time=1.0)


SHORT = simulate(ONE, arrival_rates=0.5, warmup=0, rounds=50)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("populations, arrival_rates", lambda: simulate(ONE)),
        ("populations, arrival_rates", lambda: simulate(ONE, populations=3, arrival_rates=0.5)),
        ("populations", lambda: simulate(PAIR, populations=-1)),
        ("populations", lambda: simulate(PAIR, populations=1_000_000_000)),
        ("populations", lambda: simulate(TWO_CLASSES, populations=3)),
        ("arrival_rates", lambda: simulate(ONE, arrival_rates=-0.5)),
        ("arrival_rates", lambda: simulate(ONE, arrival_rates=math.nan)),
        ("service", lambda: simulate(ONE, arrival_rates=0.5, service={"p": Erlang(2)})),
        ("service", lambda: simulate(TWO_CLASSES, populations=[1, 1], service={"q": [Erlang(2)]})),
        ("thinking", lambda: simulate(PAIR, populations=2, thinking=[Erlang(2), Erlang(3)])),
        ("arrivals", lambda: simulate(ONE, arrival_rates=0.5, arrivals=())),
        ("places", lambda: simulate(ONE, arrival_rates=0.5, places={"p": 3})),
        ("places", lambda: simulate(FOUR, arrival_rates=0.5, places={"q": 3})),
        ("places", lambda: simulate(PAIR, populations=3, places={"d": 3})),
        ("places", lambda: simulate(ONE, populations=3, places={"q": 1})),
        ("blocking", lambda: simulate(PAIR, populations=3, blocking=["q"])),
        ("blocking", lambda: simulate(SHARED, populations=3, places={"q": 3}, blocking=["q"])),
        ("blocking", lambda: simulate(EQUAL, populations=3, places={"q": 3}, blocking=["q"], forks=[["q", "r"]])),
        ("priorities", lambda: simulate(TWO_CLASSES, populations=[1, 1], priorities={"p": (1, 2)})),
        ("priorities", lambda: simulate(TWO_CLASSES, populations=[1, 1], priorities={"q": (1,)})),
        ("priorities", lambda: simulate(TWO_CLASSES, populations=[1, 1], priorities={"q": (1, math.nan)})),
        ("priorities", lambda: simulate(SHARED, populations=3, priorities={"r": (1,)})),
        ("priorities", lambda: simulate(PAIR, populations=3, priorities={"d": (1,)})),
        ("forks", lambda: simulate(PAIR, populations=3, forks=[["q"]])),
        ("forks", lambda: simulate(PAIR, populations=3, forks=[["q", "nowhere"]])),
        ("forks", lambda: simulate(PAIR, populations=3, forks=[["q", "q"]])),
        ("forks", lambda: simulate(PAIR, populations=3, forks=[["q", "r"]])),
        ("forks", lambda: simulate(TWO_CLASSES, populations=[1, 1], forks=[["q", "r"], ["r", "q"]])),
        ("forks", lambda: simulate(TWO_CLASSES, populations=[1, 1], forks={"c": [["q", "r"]]})),
        ("routing", lambda: simulate(TWO_CLASSES, populations=[1, 1], routing={"c": [[0, 1], [1, 0]]})),
        ("routing", lambda: simulate(ONE, arrival_rates=0.5, routing=[[0, 1, 0], [0, 0, 1], [1, 0, 0]])),
        ("routing", lambda: simulate(ONE, arrival_rates=0.5, routing=[[0, 1], [0.5, 0.5]])),
        ("routing", lambda: simulate(ONE, arrival_rates=0.5, routing=[[0, 1], [0.5, 0.4]])),
        ("visits", lambda: simulate(Network([Delay("d", 1.0, visits=1e9)]), arrival_rates=0.5)),
        ("rounds", lambda: simulate(ONE, arrival_rates=0.5, rounds=0)),
        ("rounds", lambda: simulate(ONE, arrival_rates=0.5, rounds=1.5)),  # type: ignore[arg-type]
        ("time", lambda: simulate(ONE, arrival_rates=0.5, time=-1.0)),
        ("time", lambda: simulate(ONE, arrival_rates=0.5, rounds=10, time=10.0)),
        ("warmup", lambda: simulate(ONE, arrival_rates=0.5, warmup=-1)),
        ("warmup", lambda: simulate(ONE, arrival_rates=0.5, warmup=0.5)),
        ("warmup", lambda: simulate(ONE, arrival_rates=0.5, warmup=1e300)),
        ("replications", lambda: simulate(ONE, arrival_rates=0.5, replications=0)),
        ("seed", lambda: simulate(ONE, arrival_rates=0.5, seed=-1)),
        ("level", lambda: simulate(ONE, arrival_rates=0.5, level=95)),
        ("network", lambda: simulate(Network([Delay("d", 0.0)]), populations=3)),
        ("stages", lambda: Erlang(0)),
        ("scv", lambda: HyperExponential(0.5)),
        ("scv", lambda: Lognormal(-1.0)),
        ("times", lambda: Samples([])),
        ("times", lambda: Samples([1.0, -1.0])),
        ("times", lambda: Samples([0.0, 0.0])),
        ("times", lambda: Samples([1e308, 1e308])),
        ("times", lambda: Quantiles([0.0, 1.0], [1e308, 1e308])),
        ("times", lambda: Quantiles([0.0, 1.0], [2.0, 1.0])),
        ("probabilities", lambda: Quantiles([0.1, 1.0], [1.0, 2.0])),
        ("probabilities", lambda: Quantiles([0.0, 0.5, 1.0], [1.0, 2.0])),
        ("probability", lambda: SHORT.response_quantile(1.0)),
    ],
)
def test_a_wrong_argument_is_named(argument: str, call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("service_time", "think_time"),
    # Without the clock's limit: 5e-9 instead of 1e-6, 0, and a throughput of 0.
    [(1e-6, 1e9), (1e-17, 1.0), (1e307, 0.0)],
)
def test_times_below_the_clock_are_refused(service_time: float, think_time: float) -> None:
    network = Network([Queue("q", service_time)], think_time=think_time)
    with pytest.raises(ArgumentError, match=r"^network: a round of 'customers' takes"):
        simulate(network, populations=3, warmup=0, rounds=20_000, replications=2)


def test_an_overload_without_an_end_names_rho_and_the_station() -> None:
    with pytest.raises(UnstableError, match=r"rho = 1\.25: station 'q'") as caught:
        simulate(FOUR, arrival_rates=5.0)
    assert caught.value.rho == pytest.approx(1.25)
    # A queue that is finite cannot outgrow anything.
    simulate(FOUR, arrival_rates=5.0, places={"q": 10}, warmup=0, rounds=100)


def test_too_many_customers_are_refused_early() -> None:
    names = [f"{index}" for index in range(17)]
    network = Network([Delay("d", 1.0)], classes=names)
    with pytest.raises(QueueingError, match="more than 16777216 requests"):
        simulate(network, populations=[1_000_000] * 17)
