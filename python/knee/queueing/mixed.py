"""Exact solution of mixed networks: some classes closed, some open.

Customers of open classes take a part of every station. The rest is a load-dependent station for the closed classes
(Bolch, Greiner, de Meer & Trivedi 2006, ch. 8; Lazowska et al. 1984, ch. 7). Let f(x) = Σ_j x^j / Π μ(i) be
the station's series, and let a be the load that open classes offer. Then n closed customers have the weight

    E_n = Σ_l (n + l choose l) a^l / Π_{i≤n+l} μ(i) = f⁽ⁿ⁾(a) / n!

Closed customers therefore see the rates E_{n−1}/E_n. The E_n are the coefficients of f about a instead of 0; computing
them only adds positive numbers. For a single server, the rate 1 − ρ remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from knee.queueing.closed import LatticeSolution, checked_population, residence_times, solve_states
from knee.queueing.errors import ArgumentError
from knee.queueing.network import Floats, Network, refuse_unequal_service
from knee.queueing.open import UNBOUNDED, alone, checked_rates, refuse_ambiguous, refuse_unstable
from knee.queueing.solution import shares

# With more rates the coefficients would overflow.
RATES_MAX = 400
LEAST = 1e-280


def solve_mixed(
    network: Network, populations: Sequence[int | None], arrival_rates: Sequence[float | None]
) -> LatticeSolution:
    """Solves a network whose classes are closed, with a population, or open, with an arrival rate.

    Parameters
    ----------
    populations
        N_c of each closed class, None for an open one.
    arrival_rates
        λ_c of each open class, None for a closed one.

    Returns
    -------
    LatticeSolution
        Its first axes are the populations of the closed classes, in their order; its last axis holds all classes.

    Raises
    ------
    ArgumentError
        If a class has both or neither of population and rate, or an invalid one. If a station that open classes visit
        has more than 400 servers or rates. If a queue serves first come, first served with another service time for
        each class.
    SizeError
        For more states than are solved exactly.
    UnstableError
        For the first station whose load from open classes alone exceeds its capacity.
    """
    classes = len(network.classes)
    if len(populations) != classes or len(arrival_rates) != classes:
        raise ArgumentError("populations, arrival_rates", f"expected one for each of {list(network.classes)}")
    refuse_ambiguous(network.classes, populations, arrival_rates)
    closed = [index for index, population in enumerate(populations) if population is not None]
    open_ = [index for index, rate in enumerate(arrival_rates) if rate is not None]
    if not closed or not open_:
        raise ArgumentError(
            "populations, arrival_rates", "expected closed and open classes; see solve_classes, solve_open"
        )
    customers = [checked_population("populations", n) for n in populations if n is not None]
    rates = checked_rates(
        "arrival_rates", [rate for rate in arrival_rates if rate is not None], [network.classes[c] for c in open_]
    )

    refuse_unequal_service(network)
    demands = network.demands
    offered = demands[:, open_] @ rates
    throughput, arrival, busy = solve_states(
        customers,
        network.think_times[closed],
        demands[:, closed],
        [_left(network, index, load) for index, load in enumerate(offered)],
        [network.classes[c] for c in closed],
    )

    everything = np.empty((*throughput.shape[:-1], classes))
    everything[..., closed], everything[..., open_] = throughput, rates
    residence_time = np.empty((*arrival.shape, classes))
    residence_time[..., closed] = residence_times(arrival, demands[:, closed])
    residence_time[..., open_] = arrival[..., np.newaxis] * demands[:, open_]
    return LatticeSolution(
        network,
        tuple(network.classes[index] for index in closed),
        everything,
        residence_time,
        shares(network, everything, busy + (1 - busy) * _busy_alone(network, offered)),
    )


def _busy_alone(network: Network, offered: Floats) -> Floats:
    """For each of K stations, the probability that an open customer is there if no closed one is: 1 − 1/E_0."""
    speeds = [station.speeds(UNBOUNDED) for station in network.stations]
    return np.array(
        [0.0 if speed is None else alone(load, np.array(speed))[1] for speed, load in zip(speeds, offered, strict=True)]
    )


def _left(network: Network, index: int, load: float) -> list[float] | None:
    """The speeds of a station that are left to closed customers. Raises UnstableError, ArgumentError."""
    station = network.stations[index]
    speeds = station.speeds(UNBOUNDED)
    if speeds is None or load == 0:
        return speeds
    refuse_unstable(station.name, load, speeds[-1])
    if len(speeds) > RATES_MAX:
        raise ArgumentError(
            station.name,
            f"expected at most {RATES_MAX} servers or rates at stations that open classes visit, not {len(speeds)}",
        )
    left = left_speeds(np.array(speeds), load)
    if left is None:
        raise ArgumentError(f"{station.name}.rates", "expected rates that differ by fewer orders of magnitude")
    return left


def left_speeds(speeds: Floats, load: float) -> list[float] | None:
    """E_{n−1}/E_n for n = 1, 2, …; the last value holds for all larger n. `load` must be below the last speed.

    None if an E_n overflows or underflows.
    """
    last = float(speeds[-1])
    share, spare = load / last, (last - load) / last
    with np.errstate(over="ignore"):
        coefficients = np.concatenate(([1.0], np.cumprod(last / speeds)))
    # About ρ, the series of 1/(1 − x) has powers of 1/(1 − ρ) as coefficients, which would overflow. So E_n (1 − ρ)^n
    # is computed in place of E_n.
    shrunk = spare ** np.arange(len(speeds) + (speeds > last).any())
    if (speeds <= last).all():
        # f = P/(1 − x/μ(L)), and P has no negative coefficient.
        polynomial = coefficients[:-1] * np.concatenate(([1.0], 1 - speeds[:-1] / last))
        weights = np.cumsum(_about(polynomial, share) * shrunk)
    else:
        # f = Σ_{j<L} f_j x^j + f_L x^L/(1 − x/μ(L)).
        tail = np.zeros(len(coefficients))
        tail[-1] = coefficients[-1] / spare
        head = np.append(_about(coefficients[:-1], share), 0.0)
        weights = head * shrunk + np.cumsum(_about(tail, share) * shrunk)
    if not (weights > LEAST).all() or not np.isfinite(weights).all():
        return None
    # If no speed exceeds the last, the weights never fall. Then no rate exceeds the last one.
    return [(last - load) * (fewer / weight) for fewer, weight in pairwise(weights.tolist())] + [last - load]


def _about(coefficients: Floats, point: float) -> Floats:
    """The polynomial's coefficients about another point, by repeated synthetic division."""
    shifted = [float(coefficient) for coefficient in coefficients]
    for first in range(len(shifted) - 1):
        for index in range(len(shifted) - 2, first - 1, -1):
            shifted[index] += point * shifted[index + 1]
    return np.array(shifted)
