"""Approximate mean value analysis for networks with too many states for the exact solution: Bard–Schweitzer and
Linearizer. Both estimate the queues at a customer's arrival from those at the full population, without solutions for
smaller ones. Their errors against exact solutions are in docs/methods/approximate-mva.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.queueing.arguments import checked_number
from knee.queueing.closed import checked_populations, servers
from knee.queueing.errors import ArgumentError, ConvergenceError
from knee.queueing.network import Floats, LoadDependent, Network, Queue

TOLERANCE = 1e-10
TOLERANCE_MAX = 1e-3
"""With a larger tolerance, the iteration may stop at its start."""
ITERATIONS_MAX = 100_000


@dataclass(frozen=True)
class ApproximateSolution:
    """A closed network at one population of each class.

    Attributes
    ----------
    stations, classes
        Names of the axes, (K) and (C).
    throughput
        X_c, (C).
    residence_time
        V_kc W_kc, (K, C).
    utilisation
        Mean share of busy servers, NaN at delays, (K).
    iterations
        Number of iterations over all queue lengths.
    """

    stations: tuple[str, ...]
    classes: tuple[str, ...]
    throughput: Floats
    residence_time: Floats
    utilisation: Floats
    iterations: int

    @property
    def queue_length(self) -> Floats:
        """Q_kc, (K, C)."""
        return self.residence_time * self.throughput

    @property
    def response_time(self) -> Floats:
        """R_c, (C)."""
        return np.asarray(self.residence_time.sum(axis=0))


def bard_schweitzer(
    network: Network,
    populations: Sequence[int],
    *,
    tolerance: float = TOLERANCE,
    iterations_max: int = ITERATIONS_MAX,
) -> ApproximateSolution:
    """Solves a closed network approximately: with one customer less, all queues shrink in proportion.

    A queue with m servers counts as one server of demand D/m behind a delay of D (m − 1)/m (Seidmann, Schweitzer &
    Shalev-Oren 1987).

    Raises
    ------
    ArgumentError
        If a class lacks a population of at least 1, a station is load-dependent, or the tolerance is not above 0 and at
        most 0.001.
    ConvergenceError
        If queue lengths still change by more than `tolerance` of the population after `iterations_max` iterations.

    References
    ----------
    Bard (1979), Performance of Computer Systems; Schweitzer (1979), Stochastic Control and Optimization;
    Lazowska et al. (1984), ch. 6; Bolch, Greiner, de Meer & Trivedi (2006), ch. 9.
    """
    model = _Model.of(network, populations)
    iteration = _Iteration("Bard–Schweitzer", tolerance, iterations_max)
    unchanged = np.zeros((*model.queued.shape, 1))
    shares = model.settle(model.even(), model.populations, unchanged, iteration)
    return model.solution(shares, unchanged, iteration)


def linearizer(
    network: Network,
    populations: Sequence[int],
    *,
    tolerance: float = TOLERANCE,
    iterations_max: int = ITERATIONS_MAX,
) -> ApproximateSolution:
    """Solves a closed network approximately: also estimates how the queues' shares change with one customer less.

    The changes are differences between the solutions for N and N − 1_c. Each step solves both with the changes of the
    previous step, until they converge (the original stops after three steps). Queues with several servers are treated
    as in `bard_schweitzer`.

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
    classes = len(model.populations)
    fewer = [model.populations - np.eye(classes)[index] for index in range(classes)]
    changes = np.zeros((*model.queued.shape, classes))
    shares = model.even()
    shares_fewer = [model.even() for _ in fewer]
    while True:
        shares = model.settle(shares, model.populations, changes, iteration)
        shares_fewer = [
            model.settle(before, customers, changes, iteration)
            for before, customers in zip(shares_fewer, fewer, strict=True)
        ]
        latest = np.stack([one - shares for one in shares_fewer], axis=-1)
        change = float(np.abs(latest - changes).max())
        changes = latest
        if change <= tolerance:
            return model.solution(shares, changes, iteration)
        iteration.count(change)


class _Iteration:
    """Counts the iterations of an approximation. Raises ArgumentError."""

    def __init__(self, method: str, tolerance: float, most: int) -> None:
        if not 0 < checked_number("tolerance", tolerance) <= TOLERANCE_MAX:
            raise ArgumentError("tolerance", f"expected above 0 and at most {TOLERANCE_MAX}, not {tolerance}")
        if not checked_number("iterations_max", most) >= 1:
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
        dependent = [station.name for station in network.stations if isinstance(station, LoadDependent)]
        if dependent:
            raise ArgumentError("network", f"{', '.join(map(repr, dependent))}: take solve_closed or solve_classes")
        demands = network.demands
        for name, time in zip(network.classes, demands.sum(axis=0) + network.think_times, strict=True):
            if time == 0:
                raise ArgumentError("network", f"all demands and the think time are zero for {name!r}")
        queued = np.array(
            [
                demand / station.servers if isinstance(station, Queue) else 0 * demand
                for station, demand in zip(network.stations, demands, strict=True)
            ]
        )
        return cls(network, customers, queued, demands - queued)

    def even(self) -> Floats:
        """Customers spread evenly over the queues that they visit, as shares of their class, (K, C)."""
        visited = (self.queued > 0).astype(float)
        return np.asarray(visited / np.maximum(visited.sum(axis=0), 1))

    def settle(self, shares: Floats, populations: Floats, changes: Floats, iteration: _Iteration) -> Floats:
        """The fixed point: shares of each class in each queue, (K, C). Raises ConvergenceError."""
        while True:
            residence_time = self.residence_time(shares, populations, changes)
            settled = residence_time / self.cycle_time(residence_time)
            change = float(np.abs(settled - shares).max())
            shares = settled
            if change <= iteration.tolerance:
                return shares
            iteration.count(change)

    def residence_time(self, shares: Floats, populations: Floats, changes: Floats) -> Floats:
        """Residence time of each class in the queues, if an arrival finds the queues with one customer of its class
        less, (K, C).

        `changes` are the changes of the shares with one customer less, (K, C, arriving class).
        """
        fewer = np.maximum(populations[:, np.newaxis] - np.eye(len(populations)), 0)
        found = np.einsum("kca,ca->ka", np.maximum(shares[..., np.newaxis] + changes, 0), fewer)
        return np.asarray(self.queued * (1 + found))

    def cycle_time(self, residence_time: Floats) -> Floats:
        """From one round to the next, (C)."""
        return np.asarray(self.network.think_times + self.delayed.sum(axis=0) + residence_time.sum(axis=0))

    def solution(self, shares: Floats, changes: Floats, iteration: _Iteration) -> ApproximateSolution:
        residence_time = self.residence_time(shares, self.populations, changes)
        throughput = self.populations / self.cycle_time(residence_time)
        return ApproximateSolution(
            self.network.names,
            tuple(self.network.classes),
            throughput,
            residence_time + self.delayed,
            self.network.demands @ throughput / servers(self.network),
            iteration.done,
        )
