"""Exact solution of open networks: with Poisson arrivals, each station behaves like an independent one (Jackson
1957)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from knee.queueing.errors import ArgumentError, UnstableError
from knee.queueing.network import Floats, LoadDependent, Network, PerClass, Queue, refuse_unequal_service
from knee.queueing.single.arguments import check_customers
from knee.queueing.solution import ClassSolution, StationPoint, index_of

#: More customers than any station has servers or rates for.
UNBOUNDED = 2**63


@dataclass(frozen=True)
class OpenStation(StationPoint):
    """A station of an open network.

    offered  a = Σ_c λ_c D_c
    speeds   with 1, 2, … customers, the last one for more; None at a delay
    """

    offered: float
    speeds: Sequence[float] | None = field(repr=False)

    def probability(self, customers: int) -> float:
        """p(n), the share of time with n customers of all classes: p(n) / p(n − 1) = a / μ(n) (Jackson 1957)."""
        check_customers(customers)
        if self.speeds is None:
            logarithm = special.xlogy(customers, self.offered) - self.offered - special.gammaln(customers + 1)
            return math.exp(logarithm)
        weights, spare = _weights(self.offered, np.array(self.speeds))
        geometric = max(0, customers - len(weights) + 1)
        share = weights[min(customers, len(weights) - 1)] * (1 - spare) ** geometric
        return float(share / (weights[:-1].sum() + weights[-1] / spare))


@dataclass(frozen=True)
class OpenSolution(ClassSolution):
    """The solution of an open network. Its throughputs are X_c = λ_c. A class without arrivals has the residence times
    of a single customer that comes in addition."""

    def __getitem__(self, station: str) -> OpenStation:
        """A station by name, for all classes together. Raises ArgumentError for an unknown one."""
        index = index_of(station, self.stations)
        point = super().__getitem__(station)
        return OpenStation(
            point.name,
            point.residence_time,
            point.queue_length,
            point.utilisation,
            float(self.network.demands[index] @ self.throughput),
            self.network.stations[index].speeds(UNBOUNDED),
        )


def solve_open(network: Network, arrival_rates: PerClass) -> OpenSolution:
    """Solves an open network; think times are ignored.

    Parameters
    ----------
    arrival_rates
        λ_c from 0, for all classes or for each, per unit of time.

    Raises
    ------
    ArgumentError
        For rates that are negative or not finite; if a queue serves first come, first served with another service time
        for each class.
    UnstableError
        For the first station whose arrivals exceed its capacity.

    References
    ----------
    Jackson (1957), Operations Research 5(4); Baskett, Chandy, Muntz & Palacios (1975), Journal of the ACM 22(2);
    Bolch, Greiner, de Meer & Trivedi (2006), ch. 7.
    """
    rates = checked_rates("arrival_rates", arrival_rates, network.classes)
    refuse_unequal_service(network)
    demands = network.demands
    offered = demands @ rates
    residence_time = demands.copy()
    utilisation = np.full(len(demands), np.nan)
    for index, station in enumerate(network.stations):
        speeds = station.speeds(UNBOUNDED)
        if speeds is None:
            continue
        refuse_unstable(station.name, offered[index], speeds[-1])
        arrival, busy = alone(offered[index], np.array(speeds))
        residence_time[index] *= arrival
        if isinstance(station, Queue):
            utilisation[index] = offered[index] / station.servers
        elif isinstance(station, LoadDependent):
            utilisation[index] = busy
    return OpenSolution(network, rates, residence_time, utilisation)


def alone(offered: float, speeds: Floats) -> tuple[float, float]:
    """Time per unit of demand of an arriving customer, and the probability that it finds another customer.

    Σ_n (n + 1)/μ(n + 1) p(n) with p(n) ∝ Π_{i≤n} a/μ(i), a geometric series of ratio ρ = a/μ(L) from L − 1 on.
    """
    if offered == 0:
        return 1 / speeds[0], 0.0
    weights, spare = _weights(offered, speeds)
    last = len(speeds)
    total = weights[:-1].sum() + weights[-1] / spare
    taken = (weights[:-1] * np.arange(1, last) / speeds[:-1]).sum()
    taken += weights[-1] / speeds[-1] * (last + (1 - spare) / spare) / spare
    busy = weights[1:-1].sum() + weights[-1] / spare if last > 1 else offered / speeds[0] / spare
    return float(taken / total), float(busy / total)


def _weights(offered: float, speeds: Floats) -> tuple[Floats, float]:
    """Weights of 0, …, L − 1 customers, for all further ones the last times ρ, ρ², …; and 1 − ρ."""
    with np.errstate(divide="ignore"):
        logarithms = np.concatenate(([0.0], np.cumsum(np.log(offered / speeds[:-1]))))
    # A difference of exact values: near saturation, 1 − ρ would lose digits.
    return np.exp(logarithms - logarithms.max()), (speeds[-1] - offered) / speeds[-1]


def refuse_unstable(station: str, offered: float, speed: float) -> None:
    """Raises UnstableError if a station's arrivals exceed its capacity."""
    if not offered < speed:
        raise UnstableError(offered / speed, station)


def refuse_ambiguous(
    classes: Sequence[str], populations: Sequence[int | None], arrival_rates: Sequence[float | None]
) -> None:
    """Raises ArgumentError for a class with both or neither of a population and a rate."""
    for name, population, rate in zip(classes, populations, arrival_rates, strict=True):
        if (population is None) == (rate is None):
            raise ArgumentError(
                "populations, arrival_rates", f"expected a population or a rate for {name!r}, and None for the other"
            )


def checked_rates(argument: str, rates: PerClass, classes: Sequence[str]) -> Floats:
    """Arrival rates, (C). Raises ArgumentError."""
    given = np.array(rates, dtype=np.float64)
    if given.ndim and given.shape != (len(classes),):
        raise ArgumentError(argument, f"expected one number, or one for each of {list(classes)}, not {rates}")
    each = np.broadcast_to(given, len(classes)).copy()
    if not (np.isfinite(each) & (each >= 0)).all():
        raise ArgumentError(argument, f"expected finite rates from 0, not {rates}")
    return each
