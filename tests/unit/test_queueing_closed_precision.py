"""How exact closed networks of large populations are, against arithmetic with 60 digits.

The reference takes the generating functions of the stations in another form, a polynomial over one pole,
F(z) = P(z)/(1 − sz) with P = Σ_{j<m} (a^j/j!) (1 − j/m) z^j, and queue lengths from their definition
Q = Σ_j j f_j g_{N−j} / G with g the normalising constants without the station.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from itertools import pairwise

import pytest
from soak import SOAK

from knee.queueing import LoadDependent, Network, Queue, QueueingError, solve_closed

CONTEXT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def multiplied(series: list[Decimal], demand: Decimal, servers: int) -> list[Decimal]:
    pole, product, carried = demand / servers, [], Decimal(0)
    for coefficient in series:
        carried = coefficient + pole * carried
        product.append(carried)
    if servers == 1:
        return product
    polynomial, power = [], Decimal(1)
    for j in range(servers):
        polynomial.append(power * (servers - j) / servers)
        power = power * demand / (j + 1)
    return [
        sum((p * product[n - j] for j, p in enumerate(polynomial[: n + 1])), Decimal(0)) for n in range(len(product))
    ]


def exact(think_time: float, stations: list[tuple[float, int]], population: int) -> tuple[list[Decimal], list[Decimal]]:
    """Throughput for every population, and queue lengths for the last."""
    with decimal.localcontext(CONTEXT):
        delay = [Decimal(1)]
        for n in range(1, population + 1):
            delay.append(delay[-1] * Decimal(think_time) / n)
        lengths, whole = [], delay
        for index, (demand, servers) in enumerate(stations):
            without = delay
            for other, (their_demand, their_servers) in enumerate(stations):
                if other != index:
                    without = multiplied(without, Decimal(their_demand), their_servers)
            if index == 0:
                whole = multiplied(without, Decimal(demand), servers)
            length, factor = Decimal(0), Decimal(1)
            for j in range(1, population + 1):
                factor = factor * Decimal(demand) / min(j, servers)
                length += j * factor * without[population - j]
            lengths.append(length / whole[-1])
        return [before / after for before, after in pairwise(whole)], lengths


def errors(think_time: float, stations: list[tuple[float, int]], population: int) -> tuple[float, float]:
    """The largest relative errors of throughputs and of queue lengths."""
    solution = solve_closed(
        Network([Queue(f"{index}", demand, servers=m) for index, (demand, m) in enumerate(stations)], think_time),
        population,
    )
    throughput, lengths = exact(think_time, stations, population)
    ours = zip(
        [*solution.throughput.tolist(), *solution.queue_length[-1].tolist()], [*throughput, *lengths], strict=True
    )
    each = [abs(float(Decimal(value) / reference - 1)) for value, reference in ours]
    return max(each[:population]), max(each[population:])


# Issue 4: textbook recursions return a negative throughput here, or one that is 6 % off.
ISSUE_CASE = [(0.0005, 1), (0.008, 8), (0.015, 16)]


def test_the_case_at_which_textbook_recursions_break_down() -> None:
    network = Network([Queue(f"{m}", demand, servers=m) for demand, m in ISSUE_CASE], think_time=1.0)
    assert solve_closed(network, 1000).throughput[-1] == pytest.approx(957.76, abs=0.005)
    of_throughput, of_lengths = errors(1.0, ISSUE_CASE, 1000)
    assert of_throughput < 1e-14
    assert of_lengths < 1e-13


@pytest.mark.parametrize(
    "stations",
    [
        pytest.param(ISSUE_CASE, id="one bottleneck"),
        # All three saturate together, where queue lengths are the most sensitive: each holds a third.
        pytest.param([(0.001, 1), (0.008, 8), (0.016, 16)], id="three bottlenecks"),
    ],
)
def test_many_customers(stations: list[tuple[float, int]]) -> None:
    of_throughput, of_lengths = errors(1.0, stations, 100_000 if SOAK else 10_000)
    assert of_throughput < 1e-12
    assert of_lengths < 1e-10


@pytest.mark.parametrize(
    ("think_time", "stations"),
    [
        (0.0, [(1e-9, 1), (1e9, 4)]),
        (1e12, [(1.0, 1), (3.0, 3)]),
        (1e-12, [(1.0, 2), (1.0, 2), (1.0, 2)]),
        (0.0, [(700.0, 700), (0.9, 1)]),  # partial sums leave the range of numbers and come back
        (5.0, [(40.0, 900)]),
        (0.0, [(1.0, 1)]),
    ],
)
def test_extreme_networks(think_time: float, stations: list[tuple[float, int]]) -> None:
    of_throughput, of_lengths = errors(think_time, stations, 1500)
    assert of_throughput < 1e-13
    assert of_lengths < 1e-11


def test_servers_given_as_rates_are_the_same_station() -> None:
    as_servers = solve_closed(Network([Queue("pool", 0.02, servers=40), Queue("disk", 0.0004)], 1.0), 5000)
    as_rates = solve_closed(
        Network([LoadDependent("pool", [n / 0.02 for n in range(1, 41)]), Queue("disk", 0.0004)], 1.0), 5000
    )
    assert as_servers.throughput == pytest.approx(as_rates.throughput, rel=1e-14)
    assert as_servers.queue_length == pytest.approx(as_rates.queue_length, rel=1e-11)


def power_series(rates: list[float], population: int) -> list[Decimal]:
    coefficients = [Decimal(1)]
    for there in range(1, population + 1):
        coefficients.append(coefficients[-1] / Decimal(rates[min(there, len(rates)) - 1]))
    return coefficients


def product(one: list[Decimal], other: list[Decimal]) -> list[Decimal]:
    return [sum((one[j] * other[n - j] for j in range(n + 1)), Decimal(0)) for n in range(len(one))]


def universal(population: int, rate: float, contention: float, coherency: float) -> list[float]:
    """Rates by the Universal Scalability Law, which fall behind their peak."""
    return [rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1)) for n in range(1, population + 1)]


@pytest.mark.parametrize(
    ("think_time", "rates"),
    [
        (0.0, [universal(500, 10.0, 0.02, 1e-4), [1000.0]]),
        (10.0, [universal(500, 1.0, 0.05, 2e-3), [7.0]]),
        (1.0, [[*[1.0] * 400, 1e-4], [1.0]]),
        (50.0, [[*[3.0] * 300, *[0.5] * 100], [2.0, 1e-7], [1.0]]),
        (0.0, [universal(500, 1.0, 0.1, 0.01)]),
    ],
)
def test_steeply_falling_rates_are_solved(think_time: float, rates: list[list[float]]) -> None:
    population = 500
    network = Network([LoadDependent(f"{index}", each) for index, each in enumerate(rates)], think_time)
    solution = solve_closed(network, population)
    with decimal.localcontext(CONTEXT):
        thinking = [Decimal(1)]
        for n in range(1, population + 1):
            thinking.append(thinking[-1] * Decimal(think_time) / n)
        without = thinking
        for others in rates[1:]:
            without = product(without, power_series(others, population))
        alone = power_series(rates[0], population)
        whole = product(without, alone)
        throughput = [before / after for before, after in pairwise(whole)]
        there = [j * alone[j] * without[population - j] / whole[-1] for j in range(population + 1)]
        assert solution.throughput == pytest.approx([float(x) for x in throughput], rel=1e-13)
        assert solution.queue_length[-1, 0] == pytest.approx(float(sum(there)), rel=1e-12)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(QueueingError, match="orders of magnitude"):
        solve_closed(Network([Queue("disk", 1e-310)]), 5)
