"""Approximate mean value analysis for networks with too many states for the exact solution: Bard–Schweitzer and
Linearizer. Both estimate the queues at a customer's arrival from those at the full population, without solutions for
smaller ones. Their errors against exact solutions are in docs/methods/approximate-mva.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.queueing.closed import checked_populations
from knee.queueing.errors import ArgumentError, ConvergenceError
from knee.queueing.network import Floats, Network, Queue, refuse_load_dependent, refuse_timeless, refuse_unequal_service
from knee.queueing.solution import ClassSolution, servers

TOLERANCE = 1e-10
TOLERANCE_MAX = 1e-3
"""With a larger tolerance, the iteration may stop at its start."""
ITERATIONS_MAX = 100_000


@dataclass(frozen=True)
class ApproximateSolution(ClassSolution):
    """A closed network at one population of each class. A class without customers has the residence times of a customer
    that comes in addition.

    iterations  number of iterations over all queue lengths
    """

    iterations: int


def bard_schweitzer(
    network: Network, populations: Sequence[int], *, tolerance: float = TOLERANCE, iterations_max: int = ITERATIONS_MAX
) -> ApproximateSolution:
    """Solves a closed network approximately: with one customer less, all queues shrink in proportion.

    A queue with m servers counts as one server of demand D/m behind a delay of D (m − 1)/m (Seidmann, Schweitzer &
    Shalev-Oren 1987).

    Raises
    ------
    ArgumentError
        If a class lacks a population of 0 or more, a station is load-dependent, a queue serves first come, first
        served with another service time for each class, or the tolerance is not above 0 and at most 0.001.
    ConvergenceError
        If queue lengths still change by more than `tolerance` of the population after `iterations_max` iterations.

    References
    ----------
    Bard (1979), Performance of Computer Systems; Schweitzer (1979), Stochastic Control and Optimization;
    Lazowska et al. (1984), ch. 6; Bolch, Greiner, de Meer & Trivedi (2006), ch. 9.
    """
    model = _Model.of(network, populations)
    iteration = _Iteration("Bard–Schweitzer", tolerance, iterations_max)
    return model.solution(model.populations[np.newaxis], iteration)


def linearizer(
    network: Network, populations: Sequence[int], *, tolerance: float = TOLERANCE, iterations_max: int = ITERATIONS_MAX
) -> ApproximateSolution:
    """Solves a closed network approximately: also estimates how the queues' shares change with one customer less.

    The changes are differences between the solutions for N and N − 1_c. Each step improves all of these once, until
    they converge (the original solves them in turn, and stops after three steps). Queues with several servers are
    treated as in `bard_schweitzer`.

    Raises
    ------
    ArgumentError, ConvergenceError
        As `bard_schweitzer`.

    References
    ----------
    Chandy & Neuse (1982), Communications of the ACM 25(2); Bolch, Greiner, de Meer & Trivedi (2006), ch. 9.
    """
    model = _Model.of(network, populations)
    iteration = _Iteration("Linearizer", tolerance, iterations_max)
    fewer = np.maximum(model.populations - np.eye(len(model.populations)), 0)
    return model.solution(np.vstack((model.populations, fewer)), iteration)


class _Iteration:
    """Counts the iterations of an approximation. Raises ArgumentError."""

    def __init__(self, method: str, tolerance: float, most: int) -> None:
        if not 0 < tolerance <= TOLERANCE_MAX:
            raise ArgumentError("tolerance", f"expected above 0 and at most {TOLERANCE_MAX}, not {tolerance}")
        if not most >= 1:
            raise ArgumentError("iterations_max", f"expected 1 or more, not {most}")
        self.method, self.tolerance, self.most = method, tolerance, most
        self.done = 0

    def count(self, change: float) -> None:
        """Raises ConvergenceError."""
        self.done += 1
        if self.done >= self.most:
            raise ConvergenceError(self.method, self.done, change)


@dataclass(frozen=True)
class _Model:
    """The network in the form that both methods use."""

    network: Network
    #: (C).
    populations: Floats
    #: Demands for which customers wait for each other, (K, C).
    queued: Floats
    #: Demands without waiting, (K, C).
    delayed: Floats

    @classmethod
    def of(cls, network: Network, populations: Sequence[int]) -> _Model:
        customers = np.array(checked_populations(network, populations), dtype=float)
        refuse_load_dependent(network, "take solve_closed or solve_classes")
        refuse_unequal_service(network)
        demands = network.demands
        refuse_timeless(network.classes, demands.sum(axis=0) + network.think_times)
        queued = np.array(
            [
                demand / station.servers if isinstance(station, Queue) else 0 * demand
                for station, demand in zip(network.stations, demands, strict=True)
            ]
        )
        return cls(network, customers, queued, demands - queued)

    def solution(self, populations: Floats, iteration: _Iteration) -> ApproximateSolution:
        """The fixed point at the first of the populations, (S, C). The others have one customer of each class less.

        Raises ConvergenceError.
        """
        shares = np.repeat(self.even()[np.newaxis], len(populations), axis=0)
        while True:
            residence_time = self.residence_time(shares, populations)
            cycle_time = self.network.think_times + self.delayed.sum(axis=0) + residence_time.sum(axis=1)
            settled = residence_time / cycle_time[:, np.newaxis]
            change = float(np.abs(settled - shares).max())
            shares = settled
            if change <= iteration.tolerance:
                break
            iteration.count(change)
        throughput = self.populations / cycle_time[0]
        return ApproximateSolution(
            self.network,
            throughput,
            residence_time[0] + self.delayed,
            self.network.demands @ throughput / servers(self.network),
            iteration.done,
        )

    def even(self) -> Floats:
        """Customers spread evenly over the queues that they visit, as shares of their class, (K, C)."""
        visited = (self.queued > 0).astype(float)
        return np.asarray(visited / np.maximum(visited.sum(axis=0), 1))

    def residence_time(self, shares: Floats, populations: Floats) -> Floats:
        """Residence time of each class in the queues, (S, K, C), with these shares of each class in each queue, (S, K,
        C). An arrival finds one customer of its class less, and shares that change as from the first population to
        the others.
        """
        changes = np.moveaxis(shares[1:] - shares[0], 0, -1) if len(shares) > 1 else 0.0
        fewer = np.maximum(populations[..., np.newaxis] - np.eye(len(self.populations)), 0)
        found = np.einsum("skca,sca->ska", np.maximum(shares[..., np.newaxis] + changes, 0), fewer)
        return np.asarray(self.queued * (1 + found))
