"""Exact solution of open networks: with Poisson arrivals, each station behaves like an independent one (Jackson
1957)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.queueing.arguments import checked_numbers
from knee.queueing.errors import ArgumentError, UnstableError
from knee.queueing.network import Floats, LoadDependent, Network, PerClass, Queue

#: More customers than any station has servers or rates for.
UNBOUNDED = 2**63


@dataclass(frozen=True)
class OpenSolution:
    """The solution of an open network.

    Attributes
    ----------
    stations, classes
        Names of the axes, (K) and (C).
    throughput
        X_c = λ_c, the rate of arrivals and departures, (C).
    residence_time
        V_kc W_kc, time of a customer at each station over all visits, (K, C).
    queue_length
        Q_kc, the mean number of each class at each station, (K, C).
    utilisation
        For a queue ρ, the mean share of busy servers; for a load-dependent station the share of time with any customer;
        for a delay NaN, (K).
    """

    stations: tuple[str, ...]
    classes: tuple[str, ...]
    throughput: Floats
    residence_time: Floats
    utilisation: Floats

    @property
    def queue_length(self) -> Floats:
        """Q_kc = λ_c V_kc W_kc (Little 1961), (K, C)."""
        return self.residence_time * self.throughput

    @property
    def response_time(self) -> Floats:
        """R_c, from arrival to departure, (C)."""
        return np.asarray(self.residence_time.sum(axis=0))


def solve_open(network: Network, arrival_rates: PerClass) -> OpenSolution:
    """Solves an open network; think times are ignored.

    Parameters
    ----------
    arrival_rates
        λ_c above 0, for all classes or for each, per unit of time.

    Raises
    ------
    ArgumentError
        For rates that are not above 0 and finite.
    UnstableError
        For the first station whose arrivals exceed its capacity.

    References
    ----------
    Jackson (1957), Operations Research 5(4); Baskett, Chandy, Muntz & Palacios (1975), Journal of the ACM 22(2);
    Bolch, Greiner, de Meer & Trivedi (2006), ch. 7.
    """
    rates = checked_rates("arrival_rates", arrival_rates, network.classes)
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
    return OpenSolution(network.names, tuple(network.classes), rates, residence_time, utilisation)


def alone(offered: float, speeds: Floats) -> tuple[float, float]:
    """Time per unit of demand of an arriving customer, and the probability that it finds another customer.

    Σ_n (n + 1)/μ(n + 1) p(n) with p(n) ∝ Π_{i≤n} a/μ(i), a geometric series of ratio ρ = a/μ(L) from L − 1 on.
    """
    if offered == 0:
        return 1 / speeds[0], 0.0
    logarithms = np.concatenate(([0.0], np.cumsum(np.log(offered / speeds[:-1]))))
    weights = np.exp(logarithms - logarithms.max())
    # A difference of exact values: near saturation, 1 − ρ would lose digits.
    spare = (speeds[-1] - offered) / speeds[-1]
    last = len(speeds)
    total = weights[:-1].sum() + weights[-1] / spare
    taken = (weights[:-1] * np.arange(1, last) / speeds[:-1]).sum()
    taken += weights[-1] / speeds[-1] * (last + (1 - spare) / spare) / spare
    busy = weights[1:-1].sum() + weights[-1] / spare if last > 1 else offered / speeds[0] / spare
    return float(taken / total), float(busy / total)


def refuse_unstable(station: str, offered: float, speed: float) -> None:
    """Raises UnstableError if a station's arrivals exceed its capacity."""
    if not offered < speed:
        raise UnstableError(offered / speed, station)


def checked_rates(argument: str, rates: PerClass, classes: Sequence[str]) -> Floats:
    """Arrival rates, (C). Raises ArgumentError."""
    given = checked_numbers(argument, rates)
    if given.ndim and given.shape != (len(classes),):
        raise ArgumentError(argument, f"expected one number, or one for each of {list(classes)}, not {rates}")
    each = np.broadcast_to(given, len(classes)).copy()
    if not (np.isfinite(each) & (each > 0)).all():
        raise ArgumentError(argument, f"expected finite rates above 0, not {rates}")
    return each
