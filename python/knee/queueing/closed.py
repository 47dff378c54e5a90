"""Exact solutions of closed networks, for every population up to the given one.

One class: ratios of successive normalising constants; several: mean value analysis on the lattice of populations. The
kernels are in crates/kernels. Docs: docs/methods/closed-networks.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee import _kernels
from knee.queueing.arguments import checked_whole
from knee.queueing.errors import ArgumentError, QueueingError, SizeError
from knee.queueing.network import Floats, LoadDependent, Network, Queue

POPULATION_MAX: int = _kernels.POPULATION_MAX
#: Of one array of a solution: 320 MB.
VALUES_MAX = 40_000_000


@dataclass(frozen=True)
class ClosedSolution:
    """A network with one class of N = 1, …, `populations[-1]` customers; row N - 1 is population N.

    Attributes
    ----------
    stations
        Names of the columns, (K).
    throughput
        X, rounds per unit of time, (N).
    residence_time
        V_k W_k, time of a round at each station, (N, K).
    queue_length
        Q_k, the mean number of customers at each station, waiting or served, (N, K).
    utilisation
        For a queue the mean share of busy servers, for a load-dependent station the share of time with any customer,
        for a delay NaN, (N, K).
    """

    stations: tuple[str, ...]
    think_time: float
    throughput: Floats
    residence_time: Floats
    queue_length: Floats
    utilisation: Floats

    @property
    def populations(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """N, (N)."""
        return np.arange(1, len(self.throughput) + 1)

    @property
    def response_time(self) -> Floats:
        """R, from the end of a think time to the start of the next, (N)."""
        return np.asarray(self.residence_time.sum(axis=1))


@dataclass(frozen=True)
class LatticeSolution:
    """A network with several classes of customers, for every combination of populations from 0 on.

    The first axes are the populations of each class: `throughput[3, 2, 0]` is class 0's with three customers of class
    0 and two of class 1. Values of a class without customers are NaN.

    Attributes
    ----------
    stations, classes
        Names of the last axes, (K) and (C).
    throughput
        X_c, rounds per unit of time, (N_1 + 1, …, N_C + 1, C).
    residence_time
        V_kc W_kc, (N_1 + 1, …, N_C + 1, K, C).
    utilisation
        As in `ClosedSolution`, for all classes together, (N_1 + 1, …, N_C + 1, K).
    """

    stations: tuple[str, ...]
    classes: tuple[str, ...]
    think_time: Floats
    throughput: Floats
    residence_time: Floats
    utilisation: Floats

    @property
    def response_time(self) -> Floats:
        """R_c, (N_1 + 1, …, N_C + 1, C)."""
        return np.asarray(self.residence_time.sum(axis=-2))

    @property
    def queue_length(self) -> Floats:
        """Q_kc, the mean number of each class at each station, (N_1 + 1, …, N_C + 1, K, C)."""
        return np.asarray(np.nan_to_num(self.residence_time) * self.throughput[..., np.newaxis, :])


def solve_closed(network: Network, population: int) -> ClosedSolution:
    """Solves a closed network of one class exactly, for all populations 1, …, N in one pass.

    Up to the largest population, relative errors are about 1e-15 for throughput and below 1e-10 for queue lengths
    (measured in docs/methods/closed-networks.md).

    Raises
    ------
    ArgumentError
        For a population below 1 or above `POPULATION_MAX`, or a network with several classes or without any demand or
        think time.
    SizeError
        If load-dependent stations have so many different rates that the solution would take minutes.

    References
    ----------
    Buzen (1973), Communications of the ACM 16(9); Reiser & Lavenberg (1980), Journal of the ACM 27(2);
    Bolch, Greiner, de Meer & Trivedi (2006), ch. 8.
    """
    if len(network.classes) != 1:
        raise ArgumentError("network", f"expected one class, not {list(network.classes)}; see solve_classes")
    population = checked_population("population", population)
    demands, think_time = network.demands[:, 0], float(network.think_times[0])
    if not (demands.any() or think_time):
        raise ArgumentError("network", "all demands and the think time are zero, so the throughput is unlimited")

    _refuse_size(population, (population, len(demands)), "take fewer customers or stations")
    speeds = [station.speeds(population) for station in network.stations]
    queues = [index for index, speed in enumerate(speeds) if speed is not None]
    delays = [index for index, speed in enumerate(speeds) if speed is None]
    throughput, lengths, busy = _solve(
        population,
        think_time + float(demands[delays].sum()),
        demands[queues].tolist(),
        [speed for speed in speeds if speed is not None],
    )

    queue_length = throughput[:, np.newaxis] * demands
    queue_length[:, queues] = lengths.reshape(len(queues), population).T
    residence_time = queue_length / throughput[:, np.newaxis]
    residence_time[:, delays] = demands[delays]
    utilisation = throughput[:, np.newaxis] * demands / servers(network)
    for row, index in enumerate(queues):
        if isinstance(network.stations[index], LoadDependent):
            utilisation[:, index] = busy.reshape(len(queues), population)[row]
    return ClosedSolution(network.names, think_time, throughput, residence_time, queue_length, utilisation)


def closed_throughput(population: int, delay: float, queues: Sequence[tuple[float, int]]) -> Floats:
    """X(1), …, X(N) of a closed network of delays and queues, as :func:`solve_closed` but without its checks.

    For searches that solve a network thousands of times. `queues` holds (demand, servers); all times are above 0.
    """
    waiting = [(demand, servers) for demand, servers in queues if servers == 1 or population > servers]
    delay += sum(demand for demand, servers in queues if servers > 1 and population <= servers)
    speeds = [[float(busy) for busy in range(1, servers + 1)] for _, servers in waiting]
    return _solve(population, delay, [demand for demand, _ in waiting], speeds)[0]


def _solve(
    population: int, delay: float, demands: list[float], speeds: list[list[float]]
) -> tuple[Floats, Floats, Floats]:
    """For each population: throughput, and for each queue its length and the probability that it is not empty."""
    try:
        throughput, lengths, busy = _kernels.closed(population, delay, demands, speeds)
    except _kernels.TooLargeError as error:
        values, limit = error.args
        raise SizeError(
            population, values, limit, "give stations fewer different rates, or take fewer customers"
        ) from None
    except ValueError as error:
        raise QueueingError(str(error)) from None
    return np.frombuffer(throughput), np.frombuffer(lengths), np.frombuffer(busy)


def solve_classes(network: Network, populations: Sequence[int]) -> LatticeSolution:
    """Solves a closed network exactly for every combination of populations up to these, one for each class.

    Raises
    ------
    ArgumentError
        If a class lacks a population of at least 1, or has neither demand nor think time.
    SizeError
        If there are too many states for an exact solution.

    References
    ----------
    Reiser & Lavenberg (1980), Journal of the ACM 27(2), for single servers; Baskett, Chandy, Muntz & Palacios (1975),
    Journal of the ACM 22(2), for the product form that load-dependent stations are multiplied into.
    """
    customers = checked_populations(network, populations)
    demands, think_times = network.demands, network.think_times
    speeds = [station.speeds(sum(customers)) for station in network.stations]
    throughput, arrival, busy = solve_states(customers, think_times, demands, speeds, network.classes)

    residence_time = residence_times(arrival, demands)
    utilisation = shares(network, throughput, busy)
    return LatticeSolution(network.names, tuple(network.classes), think_times, throughput, residence_time, utilisation)


def solve_states(
    populations: Sequence[int],
    think_times: Floats,
    demands: Floats,
    speeds: Sequence[Sequence[float] | None],
    classes: Sequence[str],
) -> tuple[Floats, Floats, Floats]:
    """Throughputs, (N_1 + 1, …, C); for each station the time per unit of demand of an arrival, and the share of time
    with any customer. The latter two are (N_1 + 1, …, K); at delays the share is NaN.

    Raises ArgumentError, SizeError.
    """
    idle = [name for name, time in zip(classes, think_times + demands.sum(axis=0), strict=True) if time == 0]
    if idle:
        raise ArgumentError("network", f"all demands and the think time are zero for {', '.join(map(repr, idle))}")
    queues = [index for index, speed in enumerate(speeds) if speed is not None]
    delays = [index for index, speed in enumerate(speeds) if speed is None]
    shape = tuple(population + 1 for population in populations)
    _refuse_size(math.prod(shape), (*shape, *demands.shape), "take linearizer() or fewer customers")
    try:
        throughput, arrival, busy = _kernels.lattice(
            list(populations),
            (think_times + demands[delays].sum(axis=0)).tolist(),
            demands[queues].tolist(),
            [list(speed) for speed in speeds if speed is not None],
        )
    except _kernels.TooLargeError as error:
        values, limit = error.args
        raise SizeError(math.prod(shape), values, limit, "take linearizer() or fewer customers") from None
    except ValueError as error:
        raise QueueingError(str(error)) from None
    taken, held = np.ones((*shape, len(demands))), np.full((*shape, len(demands)), np.nan)
    taken[..., queues] = np.frombuffer(arrival).reshape(*shape, len(queues))
    held[..., queues] = np.frombuffer(busy).reshape(*shape, len(queues))
    return np.frombuffer(throughput).reshape(*shape, len(populations)), taken, held


def _refuse_size(states: int, residence_times: tuple[int, ...], remedy: str) -> None:
    """Raises SizeError if the residence times alone exceed the size limit."""
    values = math.prod(residence_times)
    if values > VALUES_MAX:
        raise SizeError(states, values, VALUES_MAX, remedy)


def residence_times(arrival: Floats, demands: Floats) -> Floats:
    """The residence times from the values at an arrival, with one customer of its class less, (…, K, C); NaN without a
    customer."""
    found = np.full((*arrival.shape, demands.shape[1]), np.nan)
    for index in range(demands.shape[1]):
        fewer = (slice(None),) * index + (slice(None, -1),)
        more = (slice(None),) * index + (slice(1, None),)
        found[(*more, ..., index)] = arrival[fewer]
    return np.asarray(found * demands)


def shares(network: Network, throughput: Floats, busy: Floats) -> Floats:
    """The utilisation of every station, from throughputs by class and the shares of time with any customer, (…, K)."""
    dependent = [isinstance(station, LoadDependent) for station in network.stations]
    return np.where(dependent, busy, throughput @ network.demands.T / servers(network))


def servers(network: Network) -> Floats:
    """m_k of queues, (K); NaN for other stations."""
    return np.array([station.servers if isinstance(station, Queue) else np.nan for station in network.stations])


def checked_populations(network: Network, populations: Sequence[int]) -> list[int]:
    """A population for each class. Raises ArgumentError."""
    if not isinstance(populations, Sequence | np.ndarray) or len(populations) != len(network.classes):
        raise ArgumentError("populations", f"expected one for each of {list(network.classes)}, not {populations!r}")
    return [checked_population("populations", population) for population in populations]


def checked_population(argument: str, population: int) -> int:
    """The population, checked against the limit. Raises ArgumentError."""
    return checked_whole(argument, population, 1, POPULATION_MAX)
