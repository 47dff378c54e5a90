"""Open and mixed networks: against single stations, sums over states, and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gammaln

from knee.queueing import (
    MM1,
    ArgumentError,
    Delay,
    LoadDependent,
    MMm,
    Network,
    Queue,
    Station,
    UnstableError,
    solve_classes,
    solve_mixed,
    solve_open,
)

OPEN_CLOSED = ("background", "clients")


def test_every_station_is_as_if_alone() -> None:
    network = Network([Queue("proxy", 0.2, visits=2), Delay("net", 3.0), Queue("store", 1.5, servers=4)])
    solution = solve_open(network, 2.0)
    proxy, store = MM1(4.0, 5.0), MMm(2.0, 1 / 1.5, 4)
    assert solution.residence_time[:, 0] == pytest.approx([2 * proxy.mean_response, 3.0, store.mean_response])
    assert solution.response_time == pytest.approx(2 * proxy.mean_response + 3.0 + store.mean_response)
    assert solution.queue_length[:, 0] == pytest.approx([4.0, 6.0, 2 * store.mean_response])
    assert solution.utilisation == pytest.approx([0.8, math.nan, 0.75], nan_ok=True)


def test_classes_share_a_station() -> None:
    network = Network([Queue("cpu", (1.0, 0.5), discipline="ps")], classes=("slow", "fast"))
    solution = solve_open(network, (0.3, 0.8))
    assert solution.residence_time == pytest.approx(np.array([[1.0, 0.5]]) / (1 - 0.7))
    assert solution.utilisation == pytest.approx([0.7])


def test_many_servers_close_to_saturation() -> None:
    solution = solve_open(Network([Queue("pool", 1.0, servers=1000)]), 999.0)
    assert solution.response_time[0] == pytest.approx(MMm(999.0, 1.0, 1000).mean_response, rel=1e-11)


def test_load_dependent_station() -> None:
    rates = [1.0, 3.0, 2.0]
    weights = [1.0]
    for n in range(1, 400):
        weights.append(weights[-1] * 1.5 / rates[min(n, 3) - 1])
    mean = sum(n * weight for n, weight in enumerate(weights)) / sum(weights)
    solution = solve_open(Network([LoadDependent("usl", rates, visits=0.5)]), 3.0)
    assert solution.queue_length[0, 0] == pytest.approx(mean, rel=1e-12)
    assert solution.utilisation[0] == pytest.approx(1 - 1 / sum(weights), rel=1e-12)


@pytest.mark.parametrize("rate", [5.0, 5.1, 1e9])
def test_unstable(rate: float) -> None:
    with pytest.raises(UnstableError, match=r"rho = .*station 'proxy'") as refusal:
        solve_open(Network([Delay("net", 1.0), Queue("proxy", 0.8, servers=4)]), rate)
    assert refusal.value.rho == pytest.approx(rate / 5)
    assert refusal.value.station == "proxy"


@pytest.mark.parametrize("rates", [-1.0, math.nan, math.inf, (1.0, 2.0)])
def test_rates_refused(rates: float) -> None:
    with pytest.raises(ArgumentError, match="arrival_rates"):
        solve_open(Network([Queue("disk", 0.1)]), rates)


def sums_over_states(
    station: Station, speed: list[float], rate: float, clients: int
) -> tuple[float, float, float, float]:
    """Throughput of the clients, both classes' mean numbers at a station, and how likely a customer is there.

    Clients think for 1.
    """
    (open_demand, closed_demand) = np.broadcast_to(station.service_time, 2)
    # Customers of the open class beyond these weigh nothing.
    there, others = np.arange(clients + 1)[:, np.newaxis], np.arange(600)
    served = np.cumsum([0.0, *(math.log(speed[min(n, len(speed)) - 1]) for n in range(1, clients + 600))])
    logarithm = gammaln(there + others + 1) - gammaln(there + 1) - gammaln(others + 1) - served[there + others]
    weight = np.exp(logarithm + there * math.log(closed_demand) + others * math.log(rate * open_demand))
    thinking = np.array([1 / math.factorial(clients - there) for there in range(clients + 1)])
    fewer = np.array([1 / math.factorial(clients - 1 - there) for there in range(clients)])
    states = weight * thinking[:, np.newaxis]
    throughput = (weight[:-1] * fewer[:, np.newaxis]).sum() / states.sum()
    closed = (states.sum(axis=1) * np.arange(clients + 1)).sum() / states.sum()
    opened = (states.sum(axis=0) * np.arange(weight.shape[1])).sum() / states.sum()
    return throughput, opened, closed, 1 - states[0, 0] / states.sum()


@pytest.mark.parametrize(
    ("station", "speed"),
    [
        (Queue("cpu", (0.8, 0.4), discipline="ps"), [1.0]),
        (Queue("pool", (2.0, 1.1), servers=3, discipline="ps"), [1.0, 2.0, 3.0]),
        (LoadDependent("usl", [1.0, 3.0, 2.5, 1.4]), [1.0, 3.0, 2.5, 1.4]),
        (LoadDependent("growing", [1.0, 1.1, 2.5]), [1.0, 1.1, 2.5]),
    ],
)
def test_mixed_against_every_state(station: Station, speed: list[float]) -> None:
    rate, clients = 0.9, 6
    solution = solve_mixed(Network([station], 1.0, OPEN_CLOSED), (None, clients), (rate, None))
    throughput, open_there, closed_there, busy = sums_over_states(station, speed, rate, clients)
    assert solution.throughput[clients] == pytest.approx([rate, throughput], rel=1e-10)
    assert solution.queue_length[clients, 0] == pytest.approx([open_there, closed_there], rel=1e-10)
    if isinstance(station, LoadDependent):
        assert solution.utilisation[clients, 0] == pytest.approx(busy, rel=1e-10)
        assert solution.utilisation[0, 0] == pytest.approx(solve_open(Network([station]), rate).utilisation[0])


def test_without_clients_a_mixed_network_is_open() -> None:
    network = Network([Queue("a", 0.4), Queue("b", 1.9, servers=3), Delay("net", 2.0)], 1.0, OPEN_CLOSED)
    mixed = solve_mixed(network, (None, 4), (1.5, None))
    alone = solve_open(Network(network.stations), 1.5)
    assert mixed.residence_time[0, :, 0] == pytest.approx(alone.residence_time[:, 0], rel=1e-12)
    # A client that came would be one more customer.
    one = solve_mixed(network, (None, 4), (1.5, None))
    assert mixed.residence_time[0, :, 1] == pytest.approx(one.residence_time[1, :, 1], rel=1e-12)


def test_hardly_any_arrivals_leave_a_closed_network() -> None:
    stations = [Queue("a", 0.4), Queue("b", 1.9, servers=3)]
    mixed = solve_mixed(Network(stations, 1.0, OPEN_CLOSED), (None, 9), (1e-15, None))
    closed = solve_classes(Network(stations, 1.0), [9])
    assert mixed.throughput[:, 1] == pytest.approx(closed.throughput[:, 0], rel=1e-12)


def test_more_arrivals_slow_clients_down() -> None:
    network = Network([Queue("pool", (1.0, 2.0), servers=8, discipline="ps")], 1.0, OPEN_CLOSED)
    rates = (0.5, 4.0, 7.0, 7.9)
    throughput = [solve_mixed(network, (None, 20), (rate, None)).throughput[20, 1] for rate in rates]
    assert throughput == sorted(throughput, reverse=True)


@pytest.mark.parametrize(
    ("populations", "rates", "words"),
    [
        ((None, 5), (None, None), "background"),
        ((3, 5), (1.0, None), "background"),
        ((3, 5), (None, None), "solve_classes"),
        ((None, None), (0.1, 0.1), "solve_open"),
        ((None, 5), (-1.0, None), "arrival_rates"),
        ((None, -1), (0.1, None), "populations"),
        ((None,), (0.1, None), "one for each"),
    ],
)
def test_mixed_refused(populations: list[int | None], rates: list[float | None], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        solve_mixed(Network([Queue("disk", 1.0)], 1.0, OPEN_CLOSED), populations, rates)


def test_mixed_unstable() -> None:
    with pytest.raises(UnstableError, match="'disk'"):
        solve_mixed(Network([Queue("disk", 1.0)], 1.0, OPEN_CLOSED), (None, 5), (1.0, None))


@pytest.mark.parametrize("rates", [[*[1e5] * 100, 1.0], [*[1e-5] * 100, 1.0]])
def test_mixed_with_rates_too_far_apart(rates: list[float]) -> None:
    with pytest.raises(ArgumentError, match=r"usl\.rates"):
        solve_mixed(Network([LoadDependent("usl", rates)], 1.0, OPEN_CLOSED), (None, 5), (0.5, None))


@pytest.mark.parametrize("rate", [380.0, 399.9])
def test_mixed_with_many_servers_close_to_saturation(rate: float) -> None:
    network = Network([Queue("pool", 1.0, servers=400)], 1.0, OPEN_CLOSED)
    solution = solve_mixed(network, (None, 1000), (rate, None))
    # Without clients the pool is an M/M/m; with a thousand they get what the others leave.
    assert solution.residence_time[0, 0, 0] == pytest.approx(MMm(rate, 1.0, 400).mean_response, rel=1e-10)
    assert solution.throughput[1000, 1] == pytest.approx(400 - rate, rel=1e-6)
    clients = solution.queue_length[1000, 0, 1] + solution.throughput[1000, 1]
    assert clients == pytest.approx(1000, rel=1e-10)


@pytest.mark.parametrize("rate", [1e-10, 1e-17])
def test_hardly_ever_busy(rate: float) -> None:
    solution = solve_open(Network([LoadDependent("usl", [1.0, 2.0]), LoadDependent("one", [1.0])]), rate)
    assert solution.utilisation == pytest.approx([rate, rate], rel=1e-9, abs=0)


def test_mixed_with_too_many_servers() -> None:
    with pytest.raises(ArgumentError, match="pool: expected at most 400"):
        solve_mixed(Network([Queue("pool", 1.0, servers=401)], 1.0, OPEN_CLOSED), (None, 5), (1.0, None))
