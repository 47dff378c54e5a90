"""Bounds on the throughput of a closed network, without solving it.

The asymptotic bounds hold for any distributions; the balanced-job and geometric bounds are tighter and require a
product-form network (exponential service at queues with first come, first served). Docs:
docs/methods/demands-and-bounds.md, docs/methods/closed-networks.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.queueing.closed import checked_population, checked_populations
from knee.queueing.errors import ArgumentError
from knee.queueing.network import (
    Delay,
    Floats,
    Network,
    Queue,
    refuse_load_dependent,
    refuse_timeless,
    refuse_unequal_service,
)

#: A lower and an upper bound.
Interval = tuple[float, float]


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bounds at N clients; throughputs in requests/s. `think_ms` is Z."""

    clients: float
    think_ms: float
    asymptotic: tuple[float, float]
    balanced: tuple[float, float]

    @property
    def response_ms(self) -> tuple[float, float]:
        """Bounds on the response time from the balanced-job bounds, R = N / X − Z, in ms."""
        low, high = self.balanced
        return 1000 * self.clients / high - self.think_ms, 1000 * self.clients / low - self.think_ms


def throughput_bounds(
    clients: float, demands: Sequence[tuple[float, float]], think_ms: float = 0.0, *, elsewhere_ms: float = 0.0
) -> Bounds:
    """Bounds on X(N), from every station's demand D_k = V_k S_k (ms) and its number of servers m_k.

    With single servers the asymptotic bounds are N / (N D + Z) ≤ X ≤ min(1 / D_max, N / (D + Z)), the balanced-job
    bounds N / (D + Z + (N − 1) D_max / (1 + Z / (N D))) and N / (D + Z + (N − 1) D_avg / (1 + Z / D)) (Zahorjan,
    Sevcik, Eager & Galler 1982; Lazowska et al. 1984, table 5.2; Jain 1991, §34.4).

    For the upper bounds, a station with m servers counts as a delay with capacity m / D. For the lower bounds, it
    counts as one server of demand D / m behind a delay of D (m − 1) / m (Seidmann, Schweitzer & Shalev-Oren 1987). The
    first replacement is never slower, and the second never faster; throughput grows with the rates of a product-form
    network.

    Parameters
    ----------
    elsewhere_ms
        Response time without waiting outside the stations. For the upper bounds it is a delay; for the lower bounds it
        is in queues that are less loaded than the busiest station.

    Raises
    ------
    ValueError
        For fewer than one client, a negative or non-finite time, fewer than one server, or demands that are all zero.
    """
    times = [think_ms, elsewhere_ms, *(demand for demand, _ in demands)]
    if not (
        1 <= clients < math.inf and all(0 <= time < math.inf for time in times) and all(m >= 1 for _, m in demands)
    ):
        raise ValueError("expected one client or more, times from 0, and one server or more at each station")
    total = sum(demand for demand, _ in demands) + elsewhere_ms
    if total == 0:
        raise ValueError("demands: all are zero, so nothing limits the throughput")
    most = max((demand / servers for demand, servers in demands), default=0.0)
    capacity = 1 / most if most else math.inf
    single = [demand for demand, servers in demands if servers == 1 and demand]
    queued, delayed = sum(single), think_ms + total - sum(single)
    fewest = (clients - 1) * queued / len(single) / (1 + delayed / queued) if single else 0.0
    # One server in place of m, and a delay for the rest.
    behind = think_ms + sum(demand * (servers - 1) / servers for demand, servers in demands)
    one = sum(demand / servers for demand, servers in demands) + elsewhere_ms
    longest = (clients - 1) * most / (1 + behind / (clients * one)) if most else (clients - 1) * one
    return Bounds(
        clients,
        think_ms,
        (1000 * clients / (clients * one + behind), 1000 * min(capacity, clients / (total + think_ms))),
        (1000 * clients / (one + behind + longest), 1000 * min(capacity, clients / (total + think_ms + fewest))),
    )


@dataclass(frozen=True)
class ClosedBounds:
    """Bounds on X at a population; 0 without customers. The geometric bounds are None if a queue has several servers.

    Without think time, the geometric lower bound is the tightest. With think time, the balanced-job bounds may be
    tighter at small populations.
    """

    population: int
    asymptotic: Interval
    balanced: Interval
    geometric: Interval | None


def closed_bounds(network: Network, population: int) -> ClosedBounds:
    """Asymptotic, balanced-job and geometric bounds on the throughput of a closed network of one class.

    Raises
    ------
    ArgumentError
        For several classes, load-dependent stations, queues without any demand, or a negative population.

    References
    ----------
    Zahorjan, Sevcik, Eager & Galler (1982), Communications of the ACM 25(2), for the balanced-job bounds; Casale,
    Muntz & Serazzi (2008), IEEE Transactions on Computers 57(6), for the geometric ones.
    """
    if len(network.classes) != 1:
        raise ArgumentError("network", f"expected one class, not {list(network.classes)}")
    refuse_load_dependent(network, "no bounds for load-dependent stations")
    population = checked_population("population", population)
    demands = network.demands[:, 0]
    delays = np.array([isinstance(station, Delay) for station in network.stations])
    think_time = float(network.think_times[0] + demands[delays].sum())
    servers = [station.servers for station in network.stations if isinstance(station, Queue)]
    queued = demands[~delays]
    if not queued.any():
        raise ArgumentError("network", "all queues have zero demand, so the throughput is N/Z and needs no bounds")

    has_geometric = set(servers) == {1}
    if population == 0:
        return ClosedBounds(0, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0) if has_geometric else None)
    # In milliseconds and per second, which differ by a factor that cancels.
    both = throughput_bounds(population, list(zip(queued.tolist(), servers, strict=True)), think_time)
    return ClosedBounds(
        population,
        (both.asymptotic[0] / 1000, both.asymptotic[1] / 1000),
        (both.balanced[0] / 1000, both.balanced[1] / 1000),
        _geometric(queued, think_time, population) if has_geometric else None,
    )


@dataclass(frozen=True)
class ClassBounds:
    """Lower and upper bounds on X_c at a population of each class, and on R_c = N_c / X_c − Z_c; (C) each. The bounds
    on R_c are NaN for a class without customers."""

    populations: tuple[int, ...]
    throughput: tuple[Floats, Floats]
    response_time: tuple[Floats, Floats]


def class_bounds(network: Network, populations: Sequence[int]) -> ClassBounds:
    """Bounds on the throughput of each class of a closed product-form network.

    Upper bounds: no customer waits, X_c ≤ N_c / (Z_c + D_c); and no station is busier than its servers with the lower
    bounds of the other classes, X_c ≤ (m_k − Σ_{j≠c} X_j D_kj) / D_kc (the composite bounds' idea, Kerola 1986).

    Lower bounds: an arrival sees the network with one customer less (Reiser & Lavenberg 1980; Sevcik & Mitrani 1981),
    and n others at a station delay it by at most n D_kc / m_k. Of the N − 1 others, Σ_j X_j T_j are at no queue, where
    T_j is Z_j with the delays. So R_c ≤ D_c + max_k (D_kc / m_k) (N − 1 − Σ_j X_j T_j). The X_j at that population are
    lower bounds, too, and take all others to be at queues.

    Raises
    ------
    ArgumentError
        For a class without a population or without any demand or think time, for load-dependent stations, and if a
        queue serves first come, first served with another service time for each class.

    References
    ----------
    Kerola (1986), Performance Evaluation 6(1); Lazowska, Zahorjan, Graham & Sevcik (1984), ch. 5.
    """
    customers = np.array(checked_populations(network, populations), dtype=float)
    refuse_load_dependent(network, "no bounds for load-dependent stations")
    refuse_unequal_service(network)
    demands, think_times = network.demands, network.think_times
    refuse_timeless(network.classes, demands.sum(axis=0) + think_times)
    queues = [index for index, station in enumerate(network.stations) if isinstance(station, Queue)]
    servers = np.array([station.servers for station in network.stations if isinstance(station, Queue)], dtype=float)
    delayed = think_times + np.delete(demands, queues, axis=0).sum(axis=0)
    queued = demands[queues]
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = delayed + queued.sum(axis=0)
        most = (queued / servers[:, np.newaxis]).max(axis=0, initial=0.0)

        def low(customers: Floats, elsewhere: Floats) -> Floats:
            others = np.maximum(customers.sum() - 1 - elsewhere, 0)
            return np.asarray(np.where(customers > 0, customers / (alone + most * others), 0.0))

        fewer = np.maximum(customers - np.eye(len(customers)), 0)
        nothing = np.zeros(len(customers))
        lower = low(customers, np.array([low(one, nothing) @ delayed for one in fewer]))
        load = queued * lower
        spare = servers[:, np.newaxis] - (load.sum(axis=1, keepdims=True) - load)
        saturated = np.where(queued > 0, spare / queued, np.inf).min(axis=0, initial=np.inf)
        upper = np.maximum(np.minimum(customers / alone, saturated), lower)
        response = customers / upper - think_times, customers / lower - think_times
    return ClassBounds(tuple(map(int, customers)), (lower, upper), response)


def _geometric(demands: Floats, think_time: float, population: int) -> Interval:
    """Casale, Muntz & Serazzi (2008): one step of mean value analysis, from bounds on queue lengths with N − 1
    customers.

    With D_max the largest demand, R(N) = D + D_max (N − 1 − Z X(N − 1)) − Σ_k (D_max − D_k) Q_k(N − 1). The queue
    lengths lie between two geometric sums, and X(N) (N − 1)/N ≤ X(N − 1) ≤ X(N).
    """
    most, total = demands.max(), demands.sum()
    fewer = population - 1
    others = demands[demands < most]

    def throughput(queues: Floats, other_customers: int) -> float:
        cycle = think_time + total + most * fewer - ((most - others) * queues).sum()
        # Shares of the cycle: squares of times overflow.
        root = 1 - 4 * (think_time / cycle) * (most / cycle) * other_customers
        return float(2 * population / cycle / (1 + math.sqrt(root))) if root >= 0 else math.inf

    low = throughput(_geometric_sum(others * fewer / (think_time + total + most * fewer), fewer), fewer)
    most_possible = min(1 / most, fewer / (think_time + total))
    high = throughput(_geometric_sum(others * most_possible, fewer), population)
    return low, min(high, float(1 / most), float(population / (think_time + total)))


def _geometric_sum(ratios: Floats, terms: int) -> Floats:
    """y + y² + … + y^n; y may be 1 by rounding."""
    apart = 1 - ratios
    return np.asarray(ratios * np.where(apart > 0, (1 - ratios**terms) / np.where(apart > 0, apart, 1), terms))
