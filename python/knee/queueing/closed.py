"""Exact solutions of closed networks, for every population up to the given one.

One class: ratios of successive normalising constants; several: mean value analysis on the lattice of populations. The
kernels are in crates/kernels. Docs: docs/methods/closed-networks.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from knee import _kernels
from knee.queueing.arguments import checked_whole
from knee.queueing.errors import ArgumentError, QueueingError, SizeError
from knee.queueing.network import Delay, Floats, LoadDependent, Network, Queue, refuse_timeless, refuse_unequal_service
from knee.queueing.single.arguments import check_share, check_time
from knee.queueing.single.line import Line
from knee.queueing.single.station import inverted
from knee.queueing.solution import (
    NetworkPoint,
    Solution,
    StationPoint,
    class_point,
    class_table,
    index_of,
    servers,
    shares,
)

POPULATION_MAX: int = _kernels.POPULATION_MAX
#: Of one array of a solution: 320 MB.
VALUES_MAX = 40_000_000


@dataclass(frozen=True)
class ClosedStation(StationPoint):
    """A station of a closed network of one class, at one population."""

    network: Network = field(repr=False)
    population: int

    @cached_property
    def queue_length_probabilities(self) -> Floats:
        """p(0), …, p(N): the share of time with so many customers there, waiting or served, (N + 1).

        p(j) / p(j − 1) = X₋ₖ(N − j + 1) D / μ(j), because all other stations together act on this one like a single
        station. X₋ₖ is the throughput of the network without this station, and μ(j) its speed with j customers (Chandy,
        Herzog & Woo 1975; Bolch, Greiner, de Meer & Trivedi 2006, ch. 8).
        """
        return _probabilities(self.network, self.name, self.population)

    def response_tail(self, time: float) -> float:
        """P(R > t) of one visit to a queue with first come, first served and exponential service.

        An arrival sees the network with one customer less (Sevcik & Mitrani 1981; Lavenberg & Reiser 1980). If n ≥ m
        others are there, it waits for n − m + 1 departures. Visits of one round are not independent: for quantiles of a
        whole round, simulate it.

        Raises ArgumentError for other kinds of stations, and without customers or service time.
        """
        check_time(time)
        return self._line.response_tail(time)

    def response_quantile(self, share: float) -> float:
        """The time that a `share` of the visits takes at most; raises as `response_tail`."""
        check_share(share)
        return inverted(self._line.response_tail, share, 1 / self._line.service_rate)

    @cached_property
    def _line(self) -> Line:
        station = self.network.stations[index_of(self.name, self.network.names)]
        if not isinstance(station, Queue) or station.discipline != "fcfs":
            raise ArgumentError("station", f"{self.name!r} is no queue with discipline='fcfs': simulate the network")
        time = float(np.ravel(station.service_time)[0])
        if self.population == 0 or time == 0:
            raise ArgumentError("station", f"{self.name!r} has no customers or no service time, and so no quantiles")
        found = _probabilities(self.network, self.name, self.population - 1)
        return Line(found[station.servers :], station.servers, 1 / time)


@dataclass(frozen=True)
class ClosedSolution(Solution):
    """A network with one class of N = 1, …, `populations[-1]` customers; row N - 1 is population N. If it was solved
    for 0 customers, its only row is population 0.

    Without customers there is no throughput, and residence times are those of a customer that comes alone: its
    demands.

    populations     N, (N)
    throughput      X, rounds per unit of time, (N)
    residence_time  V_k W_k, time of a round at each station, (N, K)
    queue_length    Q_k, the mean number of customers at each station, waiting or served, (N, K)
    utilisation     for a queue the mean share of busy servers, for a load-dependent station the share of time with any
                    customer, for a delay NaN, (N, K)
    """

    populations: np.ndarray[tuple[int], np.dtype[np.int64]]
    throughput: Floats
    residence_time: Floats
    queue_length: Floats
    utilisation: Floats

    @property
    def think_time(self) -> float:
        """Z."""
        return float(self.network.think_times[0])

    @property
    def response_time(self) -> Floats:
        """R, from the end of a think time to the start of the next, (N)."""
        return np.asarray(self.residence_time.sum(axis=1))

    def at(self, population: int) -> NetworkPoint[ClosedStation]:
        """The solution for a population from 0 on: `solution.at(20)["disk"].utilisation`.

        Raises ArgumentError for a population above the largest.
        """
        customers = checked_whole("population", population, 0, int(self.populations[-1]))
        if customers < self.populations[0]:
            return _unvisited(self.network).at(0)
        row = customers - int(self.populations[0])
        rows = zip(self.residence_time[row], self.queue_length[row], self.utilisation[row], strict=True)
        stations = tuple(
            ClosedStation(name, float(time), float(length), float(busy), self.network, customers)
            for name, (time, length, busy) in zip(self.stations, rows, strict=True)
        )
        return NetworkPoint(float(self.throughput[row]), float(self.response_time[row]), stations, {})

    def table(self) -> pl.DataFrame:
        """A row for each population and station: `customers` N, `station`, `throughput` X, `response_time` R,
        `residence_time`, `queue_length` and `utilisation` (null at delays)."""
        rows, stations = self.residence_time.shape
        columns = {
            "customers": np.repeat(self.populations, stations),
            "station": list(self.stations) * rows,
            "throughput": np.repeat(self.throughput, stations),
            "response_time": np.repeat(self.response_time, stations),
            "residence_time": self.residence_time.ravel(),
            "queue_length": self.queue_length.ravel(),
            "utilisation": self.utilisation.ravel(),
        }
        return pl.DataFrame(columns).with_columns(pl.col("utilisation").fill_nan(None))


@dataclass(frozen=True)
class LatticeSolution(Solution):
    """A network with several classes of customers, for every combination of populations from 0 on.

    The first axes are the populations of each closed class: `throughput[3, 2, 0]` is class 0's with three customers of
    class 0 and two of class 1. A class without customers has no throughput. Its residence times are those of one
    additional customer, which sees the network's present customers at each arrival (Sevcik & Mitrani 1981; Lavenberg &
    Reiser 1980).

    closed          names of the closed classes, in the order of the first axes
    throughput      X_c, rounds per unit of time, (N_1 + 1, …, N_C + 1, C)
    residence_time  V_kc W_kc, time of a round at each station, (N_1 + 1, …, N_C + 1, K, C)
    utilisation     for a queue the mean share of busy servers, for a load-dependent station the share of time with any
                    customer, for a delay NaN, (N_1 + 1, …, N_C + 1, K)
    """

    closed: tuple[str, ...]
    throughput: Floats
    residence_time: Floats
    utilisation: Floats

    @property
    def think_time(self) -> Floats:
        """Z_c, (C)."""
        return self.network.think_times

    @property
    def response_time(self) -> Floats:
        """R_c, (N_1 + 1, …, N_C + 1, C)."""
        return np.asarray(self.residence_time.sum(axis=-2))

    @property
    def queue_length(self) -> Floats:
        """Q_kc, the mean number of each class at each station, (N_1 + 1, …, N_C + 1, K, C)."""
        return np.asarray(self.residence_time * self.throughput[..., np.newaxis, :])

    def at(self, populations: Sequence[int] | Mapping[str, int]) -> NetworkPoint[StationPoint]:
        """The solution for a population of each closed class, in their order or by name:
        `solution.at({"get": 3, "set": 2}).by_class["get"]["disk"].residence_time`.

        Raises ArgumentError for a missing or unknown class, and a population above the largest.
        """
        expected = f"expected one for each of {list(self.closed)}, not {populations!r}"
        if isinstance(populations, Mapping):
            if set(populations) != set(self.closed):
                raise ArgumentError("populations", expected)
            populations = [populations[name] for name in self.closed]
        if len(populations) != len(self.closed):
            raise ArgumentError("populations", expected)
        state = tuple(
            checked_whole("populations", customers, 0, states - 1)
            for customers, states in zip(populations, self.throughput.shape, strict=False)
        )
        return class_point(self.network, self.throughput[state], self.residence_time[state], self.utilisation[state])

    def table(self) -> pl.DataFrame:
        """A row for each combination of populations, station and class: `NAME_customers` of each closed class,
        `station`, `class`, `throughput` X_c, `response_time` R_c, `residence_time`, `queue_length` and `utilisation`
        (X_c D_kc / m_k; with several classes, null at stations other than queues)."""
        customers = np.indices(self.throughput.shape[:-1])
        keys = {f"{name}_customers": numbers for name, numbers in zip(self.closed, customers, strict=True)}
        return class_table(keys, self.network, self.throughput, self.residence_time, self.utilisation)


def solve_closed(network: Network, population: int) -> ClosedSolution:
    """Solves a closed network of one class exactly, for all populations 1, …, N in one pass, or for 0.

    Up to 100,000 customers, measured relative errors are at most 6e-15 for throughput and 2e-14 for queue lengths
    (docs/methods/closed-networks.md).

    Raises
    ------
    ArgumentError
        If the population is below 0 or above `POPULATION_MAX`, if the network has several classes, or if it has neither
        demand nor think time.
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
    refuse_timeless(network.classes, network.think_times + network.demands.sum(axis=0))
    if population == 0:
        return _unvisited(network)
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
    populations = np.arange(1, population + 1)
    return ClosedSolution(network, populations, throughput, residence_time, queue_length, utilisation)


def _unvisited(network: Network) -> ClosedSolution:
    demands, nothing = network.demands.T, np.zeros((1, len(network.stations)))
    busy = np.where([isinstance(station, Delay) for station in network.stations], np.nan, nothing)
    return ClosedSolution(network, np.zeros(1, np.int64), np.zeros(1), demands, nothing, busy)


def _probabilities(network: Network, name: str, population: int) -> Floats:
    """p(0), …, p(N) of a station; the network has one class."""
    index = index_of(name, network.names)
    others = [other for other in range(len(network.stations)) if other != index]
    demands = network.demands[:, 0]
    speeds = [station.speeds(population) for station in network.stations]
    queues = [other for other in others if speeds[other] is not None]
    delay = float(network.think_times[0] + sum(demands[other] for other in others if speeds[other] is None))
    if population == 0 or demands[index] == 0:
        return np.asarray(np.eye(1, population + 1)[0])
    if not delay and not demands[queues].any():
        return np.asarray(np.eye(1, population + 1, population)[0])
    arrivals = _solve(population, delay, demands[queues].tolist(), [speeds[other] or [] for other in queues])[0][::-1]
    logarithms = np.log(arrivals) + np.log(demands[index]) - np.log(_every_speed(speeds[index], population))
    # From the likeliest number outwards, so that rounding errors do not add up there.
    sums = np.concatenate(([0.0], np.cumsum(logarithms)))
    mode = int(np.argmax(sums))
    below, above = -np.cumsum(logarithms[:mode][::-1])[::-1], np.cumsum(logarithms[mode:])
    weights = np.exp(np.concatenate((below, [0.0], above)))
    return np.asarray(weights / weights.sum())


def _every_speed(speeds: Sequence[float] | None, population: int) -> Floats:
    """μ(1), …, μ(N), relative to μ(1)."""
    if speeds is None:
        return np.arange(1.0, population + 1)
    return np.array(speeds)[np.minimum(np.arange(population), len(speeds) - 1)]


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
        If a class has no population from 0 to `POPULATION_MAX`, or neither demand nor think time; if a queue with first
        come, first served has different service times for different classes.
    SizeError
        If there are too many states for an exact solution.

    References
    ----------
    Reiser & Lavenberg (1980), Journal of the ACM 27(2), for single servers; Baskett, Chandy, Muntz & Palacios (1975),
    Journal of the ACM 22(2), for the product form, with load-dependent stations as factors.
    """
    customers = checked_populations(network, populations)
    refuse_unequal_service(network)
    demands, think_times = network.demands, network.think_times
    # The residence times of an empty class are those of an additional customer.
    most = sum(customers) + (0 in customers)
    speeds = [station.speeds(most) for station in network.stations]
    throughput, arrival, busy = solve_states(customers, think_times, demands, speeds, network.classes)

    residence_time = residence_times(arrival, demands)
    utilisation = shares(network, throughput, busy)
    return LatticeSolution(network, tuple(network.classes), throughput, residence_time, utilisation)


def solve_states(
    populations: Sequence[int],
    think_times: Floats,
    demands: Floats,
    speeds: Sequence[Sequence[float] | None],
    classes: Sequence[str],
) -> tuple[Floats, Floats, Floats]:
    """Throughputs, (N_1 + 1, …, C); for each station, an arrival's residence time per unit of its demand, and the share
    of time with any customer. The latter two are (N_1 + 1, …, K); at delays the share is NaN.

    Raises ArgumentError, SizeError.
    """
    refuse_timeless(classes, think_times + demands.sum(axis=0))
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
    """The residence times, (…, K, C), from the values at an arrival. A customer sees the network with one customer of
    its class less; an additional customer of an empty class sees it as it is."""
    found = np.empty((*arrival.shape, demands.shape[1]))
    for index in range(demands.shape[1]):
        none, fewer, more = ((slice(None),) * index + (part,) for part in (slice(1), slice(-1), slice(1, None)))
        found[(*none, ..., index)] = arrival[none]
        found[(*more, ..., index)] = arrival[fewer]
    return np.asarray(found * demands)


def checked_populations(network: Network, populations: Sequence[int]) -> list[int]:
    """A population for each class. Raises ArgumentError."""
    if len(populations) != len(network.classes):
        raise ArgumentError("populations", f"expected one for each of {list(network.classes)}, not {populations!r}")
    return [checked_population("populations", population) for population in populations]


def checked_population(argument: str, population: int) -> int:
    """The population, checked against the limit. Raises ArgumentError."""
    return checked_whole(argument, population, 0, POPULATION_MAX)
