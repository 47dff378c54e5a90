"""Every model of a single station: what holds for all of them, where they meet, and how exact they are.

Means, distributions and variances come from different formulas, so that they can contradict each other here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import poisson
from soak import drawn

from knee.queueing import (
    MG1,
    MH21,
    MM1,
    GGm,
    MMInfinity,
    MMm,
    MMmK,
    SingleStation,
    SolvedStation,
    engset,
    erlang_b,
    erlang_c,
)
from knee.queueing.errors import ArgumentError, UnstableError

SOLVED = [
    MM1(0.5, 1.0),
    MM1(0.97, 1.0),
    MMm(0.5, 1.0, 1),
    MMm(1.0, 1.0, 2),  # θ = μ, where the two exponentials of the response time become one
    MM1(0.0, 2.0),
    MMm(0.0, 0.8, 5),
    MMInfinity(0.0, 0.5),
    MMmK(0.0, 1.0, 3, 12),
    MH21(0.0, (4.0, 0.5), 0.8),
    MH21(0.0, (1.0, 1.0), 0.8),
    MMm(3.2, 0.8, 5),
    MMm(55.0, 0.9, 64),
    MMInfinity(7.5, 0.5),
    MMInfinity(0.01, 1.0),
    MMmK(0.7, 1.0, 1, 1),
    MMmK(0.7, 1.0, 1, 4),
    MMmK(9.0, 1.0, 3, 12),
    MMmK(3.0, 1.0, 3, 40),
    MMmK(4.0, 0.5, 10, 10),
    MMmK(1.9, 1.0, 2, 1500),
    MH21(0.4, (4.0, 0.5), 0.8),
    MH21(0.4, (0.5, 4.0), 0.2),
    MH21(2.0, (2.5, 4.5), 0.5),  # λ = μ₁ − μ₂
    MH21(0.5, (1.0, 1.0), 0.3),
    MH21.balanced(0.9, 1.0, 16.0),
]
STATIONS: list[SingleStation] = [
    *SOLVED,
    MG1(0.8, 1.0, 0.0),
    MG1(0.0, 1.0, 3.5, 4.0),
    GGm(0.0, 1.0, 8, 0.5, 2.0),
    MG1(0.8, 1.0, 3.5, 4.0),
    GGm(6.0, 1.0, 8, 0.5, 2.0),
    GGm(0.9, 1.0, 1, 0.0, 0.0),
]


def name(station: SingleStation) -> str:
    return repr(station).replace("service_", "").replace("arrival_", "")


def integral(station: SolvedStation, tail: object, power: int) -> float:
    """E[T^power] of a time T, from its tail: ∫ power t^(power − 1) P(T > t) dt, piece by piece."""
    assert callable(tail)
    scale = station.mean_response
    edges = [scale * edge for edge in (0, 0.1, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)]
    pieces = (
        quad(lambda t: power * t ** (power - 1) * tail(t), low, high, epsabs=0, epsrel=1e-10, limit=200)[0]
        for low, high in pairwise(edges)
        if tail(low) > 1e-30
    )
    return math.fsum(pieces)


@pytest.mark.parametrize("station", STATIONS, ids=name)
def test_means_obey_the_operational_laws(station: SingleStation) -> None:
    assert station.mean_response == pytest.approx(station.mean_waiting + station.service_time)
    assert station.mean_customers == pytest.approx(station.throughput * station.mean_response, rel=1e-11)
    assert station.mean_queue == pytest.approx(station.throughput * station.mean_waiting, rel=1e-11, abs=1e-300)
    busy = station.utilisation * station.servers if math.isfinite(station.servers) else station.offered_load
    assert station.mean_customers - station.mean_queue == pytest.approx(busy)
    assert 0 <= station.utilisation <= 1
    assert 0 <= station.probability_waiting <= 1
    assert station.mean_waiting >= 0


@pytest.mark.parametrize("station", SOLVED, ids=name)
def test_the_distribution_of_customers_has_the_means_and_variances(station: SolvedStation) -> None:
    most = int(station.mean_customers + 60 * math.sqrt(station.variance_customers)) + 60
    p = [station.probability(customers) for customers in range(most)]
    assert p[0] == station.probability_idle
    assert math.fsum(p) == pytest.approx(1, rel=1e-12)
    mean = math.fsum(n * share for n, share in enumerate(p))
    assert mean == pytest.approx(station.mean_customers, rel=1e-10)
    assert math.fsum((n - mean) ** 2 * share for n, share in enumerate(p)) == pytest.approx(
        station.variance_customers, rel=1e-9
    )
    queue = [max(0.0, n - station.servers) for n in range(most)]
    waiting = math.fsum(n * share for n, share in zip(queue, p, strict=True))
    assert waiting == pytest.approx(station.mean_queue, rel=1e-10, abs=1e-300)
    assert math.fsum((n - waiting) ** 2 * share for n, share in zip(queue, p, strict=True)) == pytest.approx(
        station.variance_queue, rel=1e-9
    )
    # Arrivals see what time sees, and those that are lost are not served.
    lost = station.loss_probability if isinstance(station, MMmK) else 0.0
    free = math.fsum(share for n, share in enumerate(p) if n < station.servers)
    assert 1 - free / (1 - lost) == pytest.approx(station.probability_waiting, abs=1e-12)


@pytest.mark.parametrize("station", SOLVED, ids=name)
def test_the_distributions_of_times_have_the_means_and_variances(station: SolvedStation) -> None:
    assert station.response_tail(0.0) == pytest.approx(1)
    assert station.waiting_tail(0.0) == pytest.approx(station.probability_waiting)
    assert integral(station, station.response_tail, 1) == pytest.approx(station.mean_response, rel=1e-8)
    assert integral(station, station.waiting_tail, 1) == pytest.approx(station.mean_waiting, rel=1e-8)
    for tail, mean, variance in (
        (station.response_tail, station.mean_response, station.variance_response),
        (station.waiting_tail, station.mean_waiting, station.variance_waiting),
    ):
        assert integral(station, tail, 2) - mean**2 == pytest.approx(variance, rel=1e-7)


@pytest.mark.parametrize("station", SOLVED, ids=name)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99, 0.99999])
def test_quantiles_undo_the_distributions(station: SolvedStation, share: float) -> None:
    response, waiting = station.response_quantile(share), station.waiting_quantile(share)
    assert station.response_tail(response) == pytest.approx(1 - share, rel=1e-9)
    if waiting > 0:
        assert station.waiting_tail(waiting) == pytest.approx(1 - share, rel=1e-9)
    else:
        assert station.probability_waiting <= (1 - share) * (1 + 1e-12)
    assert waiting <= response


def same(station: SolvedStation, other: SolvedStation, rel: float = 1e-11) -> None:
    """All answers of two models agree."""
    for attribute in (
        *("throughput", "utilisation", "probability_waiting", "probability_idle", "mean_waiting", "mean_response"),
        *("mean_queue", "mean_customers", "variance_customers", "variance_queue", "variance_waiting"),
        *("variance_response", "variance_service"),
    ):
        assert getattr(station, attribute) == pytest.approx(getattr(other, attribute), rel=rel), attribute
    for share in (0.3, 0.95, 0.999):
        assert station.response_quantile(share) == pytest.approx(other.response_quantile(share), rel=rel * 100)
        assert station.waiting_quantile(share) == pytest.approx(other.waiting_quantile(share), rel=rel * 100)
    for customers in (0, 1, 2, 7, 30):
        assert station.probability(customers) == pytest.approx(other.probability(customers), rel=rel)


rates = st.floats(0.01, 100)
loads = st.floats(0.01, 0.99)


@given(rate=rates, load=loads)
def test_mm1_has_its_closed_forms(rate: float, load: float) -> None:
    station = MM1(load * rate, rate)
    rho, spare = station.utilisation, rate - load * rate
    assert station.mean_response == pytest.approx(1 / spare)
    assert station.probability(3) == pytest.approx((1 - rho) * rho**3)
    assert station.response_tail(1 / spare) == pytest.approx(math.exp(-1))
    assert station.waiting_tail(1 / spare) == pytest.approx(rho * math.exp(-1))
    assert station.response_quantile(0.9) == pytest.approx(math.log(10) / spare)


@given(rate=rates, load=st.floats(0.01, 0.9), servers=st.integers(1, 40))
@settings(max_examples=drawn(30))
def test_room_enough_makes_mmmk_an_mmm(rate: float, load: float, servers: int) -> None:
    arrivals = load * rate * servers
    same(MMmK(arrivals, rate, servers, servers + 500), MMm(arrivals, rate, servers), rel=1e-9)


@given(rate=rates, load=loads, probability=st.floats(0.001, 0.999))
def test_equal_kinds_of_service_make_mh21_an_mm1(rate: float, load: float, probability: float) -> None:
    station, other = MH21(load * rate, (rate, rate), probability), MM1(load * rate, rate)
    # p / μ + (1 − p) / μ is rounded, which counts 1 / (1 − ρ)-fold.
    same(station, other, rel=1e-10)
    same(MH21.balanced(load * rate, rate, 1.0), other, rel=1e-10)


def test_enough_servers_are_a_delay() -> None:
    station, delay = MMm(7.5, 0.5, 200), MMInfinity(7.5, 0.5)
    assert station.mean_response == pytest.approx(delay.mean_response)
    for customers in (0, 10, 15, 40):
        assert station.probability(customers) == pytest.approx(delay.probability(customers), rel=1e-12)


@given(rate=rates, load=loads, servers=st.integers(1, 200))
@settings(max_examples=drawn(30))
def test_a_full_loss_system_loses_by_erlang_b(rate: float, load: float, servers: int) -> None:
    station = MMmK(load * rate * servers, rate, servers, servers)
    assert station.loss_probability == pytest.approx(erlang_b(servers, station.offered_load), rel=1e-12)
    assert station.mean_waiting == station.mean_queue == station.waiting_quantile(0.99) == 0
    assert station.response_quantile(0.99) == pytest.approx(-math.log(0.01) / rate)


@given(rate=rates, load=loads, first=rates, second=rates, probability=st.floats(0.01, 0.99))
def test_mh21_is_an_mg1(rate: float, load: float, first: float, second: float, probability: float) -> None:
    """Pollaczek's and Khinchine's moments know nothing of the poles that MH21 is made of."""
    service = Fraction(probability) / Fraction(first) + (1 - Fraction(probability)) / Fraction(second)
    station = MH21(load / float(service), (first, second), probability)
    scv = station.variance_service / station.service_time**2
    third = 6 * (probability / first**3 + (1 - probability) / second**3) / station.service_time**3
    general = MG1(station.arrival_rate, 1 / station.service_time, scv, (third - 1 - 3 * scv) / scv**1.5)
    for attribute in (
        *("mean_waiting", "mean_response", "mean_queue", "mean_customers", "probability_waiting", "probability_idle"),
        *("variance_waiting", "variance_response", "variance_queue", "variance_customers"),
    ):
        assert getattr(station, attribute) == pytest.approx(getattr(general, attribute), rel=1e-9), attribute


@given(rate=rates, scv=st.floats(1, 1e6))
def test_balanced_kinds_have_the_moments_asked_for_and_equal_work(rate: float, scv: float) -> None:
    station = MH21.balanced(0.5 * rate, rate, scv)
    assert station.service_time == pytest.approx(1 / rate)
    assert station.variance_service * rate**2 == pytest.approx(scv)
    first, second = station.service_rates
    assert station.first_probability / first == pytest.approx((1 - station.first_probability) / second, rel=1e-9)


@given(rate=rates, load=loads, servers=st.integers(1, 100))
def test_exponential_service_makes_the_general_models_exact(rate: float, load: float, servers: int) -> None:
    exact = MMm(load * rate * servers, rate, servers)
    assert GGm(load * rate * servers, rate, servers, 1.0, 1.0).mean_waiting == pytest.approx(exact.mean_waiting)
    single, general = MM1(load * rate, rate), MG1(load * rate, rate, 1.0, 2.0)
    for attribute in ("mean_waiting", "mean_customers", "variance_waiting", "variance_customers", "variance_queue"):
        assert getattr(general, attribute) == pytest.approx(getattr(single, attribute), rel=1e-11), attribute


@given(rate=rates, load=loads, scv=st.floats(0, 50))
def test_approximation_is_exact_for_mg1(rate: float, load: float, scv: float) -> None:
    exact = MG1(load * rate, rate, scv)
    assert GGm(load * rate, rate, 1, 1.0, scv).mean_waiting == pytest.approx(exact.mean_waiting, rel=1e-11)


def test_constant_service_waits_half_as_long_and_needs_no_skewness() -> None:
    constant, exponential = MG1(0.8, 1.0, 0.0), MM1(0.8, 1.0)
    assert constant.mean_waiting == pytest.approx(exponential.mean_waiting / 2)
    # Var[W] of M/D/1, ρ (4 − ρ) / (12 (1 − ρ)²) S²
    assert constant.variance_waiting == pytest.approx(0.8 * (4 - 0.8) / 12 / 0.2**2)


# Exactness.


def erlang_c_exactly(servers: int, load: Fraction) -> Fraction:
    """Erlang's second formula with the factorials it is printed with (Jain 1991, box 31.2)."""
    rho = load / servers
    all_busy = load**servers / math.factorial(servers) / (1 - rho)
    return all_busy / (all_busy + sum(load**n / math.factorial(n) for n in range(servers)))


@pytest.mark.parametrize("servers", [1, 2, 7, 20, 128, 400])
@pytest.mark.parametrize("idle", [0.9, 0.5, 0.05, 1e-3, 1e-9])
def test_mmm_to_twelve_digits_of_rational_arithmetic(servers: int, idle: float) -> None:
    rate = 0.3003
    arrivals = servers * rate * (1 - idle)
    station = MMm(arrivals, rate, servers)
    load = Fraction(arrivals) / Fraction(rate)
    delay = erlang_c_exactly(servers, load)
    spare = servers * Fraction(rate) - Fraction(arrivals)
    assert station.probability_waiting == pytest.approx(float(delay), rel=1e-12)
    assert station.mean_waiting == pytest.approx(float(delay / spare), rel=1e-12)
    assert station.mean_customers == pytest.approx(float(load + Fraction(arrivals) * delay / spare), rel=1e-12)
    empty = delay * (1 - load / servers) * math.factorial(servers) / load**servers
    for customers in (0, 1, servers // 2, servers, servers + 3):
        p = empty * load**customers / math.factorial(min(customers, servers))
        p /= servers ** max(0, customers - servers)
        assert station.probability(customers) == pytest.approx(float(p), rel=1e-12)


@pytest.mark.parametrize(("servers", "load"), [(20, 19.6), (1000, 990.0), (100_000, 99_990.0), (1_000_000, 999_999.5)])
def test_erlang_to_twelve_digits_of_the_recursion_in_fifty(servers: int, load: float) -> None:
    with localcontext() as context:
        context.prec = 50
        offered, inverse = Decimal(load), Decimal(1)
        for n in range(1, servers + 1):
            inverse = 1 + inverse * n / offered
        loss = 1 / inverse
        delay = loss / (1 - offered / servers * (1 - loss))
    assert erlang_b(servers, load) == pytest.approx(float(loss), rel=1e-12, abs=0)
    assert erlang_c(servers, load) == pytest.approx(float(delay), rel=1e-12, abs=0)


@pytest.mark.parametrize(("servers", "capacity"), [(1, 1), (1, 30), (3, 3), (5, 100), (40, 200)])
@pytest.mark.parametrize("load", [0.01, 0.7, 1.0, 1.3, 50.0])
def test_mmmk_to_twelve_digits_of_rational_arithmetic(servers: int, capacity: int, load: float) -> None:
    arrivals, rate = load * servers * 1.7, 1.7
    offered = Fraction(arrivals) / Fraction(rate)
    weights = [Fraction(1)]
    for n in range(1, capacity + 1):
        weights.append(weights[-1] * offered / min(n, servers))
    whole = sum(weights)
    station = MMmK(arrivals, rate, servers, capacity)
    queue = sum(max(0, n - servers) * weight for n, weight in enumerate(weights)) / whole
    served = Fraction(arrivals) * (1 - weights[-1] / whole)
    assert station.loss_probability == pytest.approx(float(weights[-1] / whole), rel=1e-12, abs=0)
    assert station.throughput == pytest.approx(float(served), rel=1e-12)
    assert station.mean_queue == pytest.approx(float(queue), rel=1e-12, abs=0)
    assert station.mean_waiting == pytest.approx(float(queue / served), rel=1e-12, abs=0)


@pytest.mark.parametrize("load", [0.01, 15.0, 700.0, 10_000.0])
def test_customers_of_a_delay_are_poisson(load: float) -> None:
    station = MMInfinity(load, 1.0)
    with localcontext() as context:
        context.prec = 50
        for customers in (0, 1, int(load), int(load) + 1, int(1.2 * load) + 3):
            p = (-Decimal(load)).exp()
            for n in range(1, customers + 1):
                p *= Decimal(load) / n
            assert station.probability(customers) == pytest.approx(float(p), rel=1e-11, abs=0)


# How far the approximation is off: docs/methods/single-stations.md has these numbers.


def waiting_of_gm1(transform: Callable[[float], float]) -> float:
    """W of G/M/1 with S = 1: σ / (1 − σ), where σ is the transform of the times between arrivals at 1 − σ."""
    sigma = brentq(lambda x: transform(1 - x) - x, 0.0, 1 - 1e-6)
    return sigma / (1 - sigma)


def waiting_of_mdm(load: float, servers: int) -> float:
    """W of M/D/m with S = 1: who is in service now has gone one service time later (Crommelin 1932)."""
    most = servers + 400
    arrivals = poisson.pmf(np.arange(most), load)
    balance = np.zeros((most, most))
    for there in range(most):
        stay = max(there - servers, 0)
        balance[stay:, there] = arrivals[: most - stay]
    balance -= np.eye(most)
    balance[-1] = 1
    p = np.linalg.solve(balance, np.eye(most)[-1])
    return float(p[servers:] @ np.arange(most - servers)) / load


@pytest.mark.parametrize(
    ("rho", "constant", "erlang"), [(0.3, 4.03, 1.21), (0.5, 0.96, 0.44), (0.8, 0.18, 0.10), (0.95, 0.036, 0.021)]
)
def test_the_approximation_waits_too_long_for_regular_arrivals(rho: float, constant: float, erlang: float) -> None:
    for scv, error, transform in (
        (0.0, constant, lambda s: math.exp(-s / rho)),
        (0.25, erlang, lambda s: (4 * rho / (4 * rho + s)) ** 4),
    ):
        approximate = GGm(rho, 1.0, 1, scv, 1.0).mean_waiting
        assert approximate / waiting_of_gm1(transform) - 1 == pytest.approx(error, abs=0.006)


@pytest.mark.parametrize(
    ("servers", "half", "four_fifths", "nearly"),
    [(1, 0.0, 0.0, 0.0), (2, -0.06, -0.02, -0.003), (8, -0.21, -0.06, -0.012), (32, -0.39, -0.14, -0.027)],
)
def test_approximation_underestimates_many_constant_servers(
    servers: int, half: float, four_fifths: float, nearly: float
) -> None:
    for rho, error in ((0.5, half), (0.8, four_fifths), (0.95, nearly)):
        approximate = GGm(rho * servers, 1.0, servers, 1.0, 0.0).mean_waiting
        assert approximate / waiting_of_mdm(rho * servers, servers) - 1 == pytest.approx(error, abs=0.005)


@given(arrivals=rates, rate=rates)
def test_the_closed_quantile_of_waiting_is_the_inverted_one(arrivals: float, rate: float) -> None:
    servers = math.floor(arrivals / rate) + 1
    station = MMm(arrivals, rate, servers)
    for share in (0.5, 0.999999):
        inverted = SolvedStation.waiting_quantile(station, share)
        assert station.waiting_quantile(share) == pytest.approx(inverted, rel=1e-9)


def test_a_million_servers_near_saturation_have_finite_answers() -> None:
    station = MMm(999_999.5, 1.0, 1_000_000)
    assert 0.99 < station.probability_waiting < 1
    assert station.mean_queue == pytest.approx(station.probability_waiting * 999_999.5 / 0.5)
    assert station.probability(1_000_000) > 0
    assert station.probability_idle == 0  # about exp(−10⁶), which no float can hold
    assert station.response_quantile(0.5) > station.mean_response / 2


def test_crowded_loss_system_loses_the_excess() -> None:
    station = MMmK(1e6, 1.0, 100, 100_000)
    assert station.throughput == pytest.approx(100.0)
    assert station.utilisation == pytest.approx(1.0)
    assert station.mean_customers == pytest.approx(100_000, rel=1e-6)
    assert station.waiting_quantile(0.5) == pytest.approx(99_900 / 100, rel=1e-3)


def test_tails_far_out_are_zero_and_cheap() -> None:
    for station in SOLVED:
        for time in (1e9, 1e308):
            assert station.response_tail(time) == station.waiting_tail(time) == 0
    for fast in (MMm(5.0, 10.0, 2), MMmK(5.0, 10.0, 2, 5), MMmK(5.0, 10.0, 1, 5), MH21(5.0, (10.0, 20.0), 0.5)):
        assert fast.response_tail(1e308) == fast.waiting_tail(1e308) == 0


# Bad input.


@pytest.mark.parametrize(
    ("model", "arguments", "rho"),
    [
        (MM1, (1.0, 1.0), "1"),
        (MM1, (3.0, 2.0), "1.5"),
        (MMm, (19.63710, 1.0, 19), "1.03353"),
        (MMm, (4.0, 2.0, 2), "1"),
        (MG1, (2.0, 1.0, 0.0), "2"),
        (GGm, (2.0, 1.0, 2, 1.0, 1.0), "1"),
        (MH21, (2.0, (1.0, 2.0), 0.5), "1.5"),
    ],
)
def test_unstable_stations_are_refused_with_their_rho(
    model: Callable[..., SingleStation], arguments: tuple[object, ...], rho: str
) -> None:
    with pytest.raises(UnstableError, match=f"rho = {rho}:") as raised:
        model(*arguments)
    assert raised.value.rho >= 1


def test_erlang_c_is_unstable_from_as_many_erlangs_as_servers() -> None:
    with pytest.raises(UnstableError, match="rho = 1:"):
        erlang_c(3, 3.0)
    assert erlang_b(3, 3.0) == pytest.approx(float(Fraction(27, 6) / (1 + 3 + Fraction(9, 2) + Fraction(27, 6))))


def test_last_stable_rate_differs_from_first_unstable() -> None:
    """m μ rounds: 3 · 0.1 is more than 0.3, and 0.3 less than three times the float 0.1."""
    assert MMm(0.3, 0.1, 3).utilisation <= 1
    with pytest.raises(UnstableError):
        MMm(3 * 0.1 * (1 + 1e-15), 0.1, 3)


@pytest.mark.parametrize(("servers", "sources", "load"), [(1, 2, 0.3), (3, 10, 0.7), (40, 90, 2.5), (5, 6, 100.0)])
def test_engset_is_its_sum_in_fractions(servers: int, sources: int, load: float) -> None:
    weights = [math.comb(sources - 1, n) * Fraction(load) ** n for n in range(servers + 1)]
    assert engset(servers, sources, load) == pytest.approx(float(weights[-1] / sum(weights)), rel=1e-13)


def test_engset_with_many_sources_is_erlang_and_without_too_many_none_is_lost() -> None:
    assert engset(50, 10_000_000, 45e-7) == pytest.approx(erlang_b(50, 45.0), rel=1e-4)
    assert engset(4, 4, 9.0) == engset(4, 9, 0.0) == 0.0


def test_stations_without_arrivals_are_idle() -> None:
    for station in STATIONS:
        if station.arrival_rate == 0:
            assert (station.throughput, station.utilisation, station.mean_queue, station.mean_waiting) == (0, 0, 0, 0)
            assert station.mean_response == station.service_time
    assert erlang_b(3, 0.0) == erlang_c(3, 0.0) == 0.0


BAD = [-1.0, 0.0, math.nan, math.inf, 1e-300]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("model", "rest"), [(MM1, ()), (MMm, (2,)), (MMInfinity, ()), (MMmK, (2, 5)), (MG1, (1.0,)), (GGm, (2, 1.0, 1.0))]
)
def test_impossible_rates_are_named(model: Callable[..., SingleStation], rest: tuple[object, ...], bad: float) -> None:
    with pytest.raises(ArgumentError, match="arrival_rate") as raised:
        model(bad or -0.1, 1.0, *rest)
    assert raised.value.argument == "arrival_rate"
    with pytest.raises(ArgumentError, match="service_rate"):
        model(1.0, bad, *rest)


@pytest.mark.parametrize(
    ("model", "arguments", "named"),
    [
        *((MMm, (1.0, 1.0, servers), "servers") for servers in (0, -1, 2.5, math.nan, 10**9)),
        *((MMmK, (1.0, 1.0, servers, 5), "servers") for servers in (0, 1.5)),
        *((MMmK, (1.0, 1.0, 2, capacity), "capacity") for capacity in (1, 0, -3, 2.5, 10**9)),
        (MMmK, (1e9, 1.0, 2, 5), "arrival_rate"),
        (MMInfinity, (1e9, 1.0), "arrival_rate"),
        *((MG1, (0.5, 1.0, scv), "service_scv") for scv in (-0.1, math.nan, math.inf)),
        *((MG1, (0.5, 1.0, 4.0, skewness), "service_skewness") for skewness in (1.49, math.nan, math.inf)),
        (MG1, (0.5, 1.0, 0.0, 1.0), "service_skewness"),
        *((GGm, (0.5, 1.0, 1, scv, 1.0), "arrival_scv") for scv in (-0.1, math.nan)),
        (GGm, (0.5, 1.0, 1, 1.0, -1.0), "service_scv"),
        (GGm, (0.5, 1.0, 0, 1.0, 1.0), "servers"),
        (MH21, (math.nan, (1.0, 2.0), 0.5), "arrival_rate"),
        *((MH21, (0.1, rates, 0.5), "service_rates") for rates in ((1.0,), (1.0, 0.0), (math.nan, 1.0))),
        *((MH21, (0.1, (1.0, 2.0), p), "first_probability") for p in (0.0, 1.0, -0.2, math.nan)),
        *((MH21.balanced, (0.1, 1.0, scv), "service_scv") for scv in (0.99, math.nan, math.inf)),
        *((erlang_b, (servers, 1.0), "servers") for servers in (0, 1.5)),
        *((engset, (servers, 5, 1.0), "servers") for servers in (0, 1.5)),
        *((engset, (2, sources, 1.0), "sources") for sources in (0, 2.5)),
        *((engset, (2, 5, load), "offered_load") for load in (-1.0, math.nan)),
        *((erlang_c, (2, load), "offered_load") for load in (-1.0, math.nan, math.inf)),
    ],
)
def test_impossible_arguments_are_named(
    model: Callable[..., SingleStation], arguments: tuple[object, ...], named: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{named}: ") as raised:
        model(*arguments)
    assert raised.value.argument == named


@pytest.mark.parametrize("station", SOLVED, ids=name)
def test_impossible_questions_are_named(station: SolvedStation) -> None:
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ArgumentError, match="share"):
            station.response_quantile(share)
        with pytest.raises(ArgumentError, match="share"):
            station.waiting_quantile(share)
    for time in (-1.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="time"):
            station.response_tail(time)
        with pytest.raises(ArgumentError, match="time"):
            station.waiting_tail(time)
    for customers in (-1, 1.5):
        with pytest.raises(ArgumentError, match="customers"):
            station.probability(customers)  # type: ignore[arg-type]


def test_variance_needing_a_third_moment_asks_for_it() -> None:
    with pytest.raises(ArgumentError, match="service_skewness"):
        _ = MG1(0.5, 1.0, 2.0).variance_customers


def test_a_model_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        SOLVED[0].arrival_rate = 0.1
