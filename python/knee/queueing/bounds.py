"""Bounds on the throughput of a closed network of one class, without solving it.

Docs: docs/methods/demands-and-bounds.md, docs/methods/closed-networks.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from knee.laws.bounds import throughput_bounds
from knee.queueing.closed import checked_population
from knee.queueing.errors import ArgumentError
from knee.queueing.network import Delay, Floats, LoadDependent, Network, Queue

#: A lower and an upper bound.
Interval = tuple[float, float]


@dataclass(frozen=True)
class ClosedBounds:
    """Bounds on X at a population; the geometric ones are None where a queue has several servers.

    Without think time their lower end is the tightest; elsewhere the balanced-job bounds may be tighter at small
    populations.
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
        For several classes, load-dependent stations, queues at which nothing takes time, or a population below 1.

    References
    ----------
    Zahorjan, Sevcik, Eager & Galler (1982), Communications of the ACM 25(2), for the balanced-job bounds; Casale,
    Muntz & Serazzi (2008), IEEE Transactions on Computers 57(6), for the geometric ones.
    """
    if len(network.classes) != 1:
        raise ArgumentError("network", f"expected one class, not {list(network.classes)}")
    dependent = [station.name for station in network.stations if isinstance(station, LoadDependent)]
    if dependent:
        raise ArgumentError("network", f"{', '.join(map(repr, dependent))}: no bounds for load-dependent stations")
    population = checked_population("population", population)
    demands = network.demands[:, 0]
    delays = np.array([isinstance(station, Delay) for station in network.stations])
    think_time = float(network.think_times[0] + demands[delays].sum())
    servers = [station.servers for station in network.stations if isinstance(station, Queue)]
    queued = demands[~delays]
    if not queued.any():
        raise ArgumentError(
            "network", "no queue takes any time, so that N/Z is the throughput and there is nothing to bound"
        )

    # In milliseconds and per second, which differ by a factor that cancels.
    both = throughput_bounds(population, list(zip(queued.tolist(), servers, strict=True)), think_time)
    return ClosedBounds(
        population,
        (both.asymptotic[0] / 1000, both.asymptotic[1] / 1000),
        (both.balanced[0] / 1000, both.balanced[1] / 1000),
        _geometric(queued, think_time, population) if set(servers) == {1} else None,
    )


def _geometric(demands: Floats, think_time: float, population: int) -> Interval:
    """Casale, Muntz & Serazzi (2008): the recursion of mean values once, from bounds on queue lengths with N − 1.

    With D_max the largest demand, R(N) = D + D_max (N − 1 − Z X(N − 1)) − Σ_k (D_max − D_k) Q_k(N − 1), where the
    queues grow no slower and no faster than geometric sums, and X(N) (N − 1)/N ≤ X(N − 1) ≤ X(N).
    """
    most, total = demands.max(), demands.sum()
    fewer = population - 1
    others = demands[demands < most]

    def throughput(queues: Floats, other_customers: int) -> float:
        cycle = think_time + total + most * fewer - ((most - others) * queues).sum()
        root = cycle * cycle - 4 * think_time * most * other_customers
        return float(2 * population / (cycle + math.sqrt(root))) if root >= 0 else math.inf

    low = throughput(_geometric_sum(others * fewer / (think_time + total + most * fewer), fewer), fewer)
    most_possible = min(1 / most, fewer / (think_time + total))
    high = throughput(_geometric_sum(others * most_possible, fewer), population)
    return low, min(high, float(1 / most), float(population / (think_time + total)))


def _geometric_sum(ratios: Floats, terms: int) -> Floats:
    """y + y² + … + y^n, where y may have been rounded to 1."""
    apart = 1 - ratios
    return np.asarray(ratios * np.where(apart > 0, (1 - ratios**terms) / np.where(apart > 0, apart, 1), terms))
