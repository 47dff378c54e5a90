"""A simulation of layered networks, for the quantiles of response times. See docs/methods/layered.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee import _kernels
from knee.queueing.arguments import checked_whole
from knee.queueing.closed import POPULATION_MAX
from knee.queueing.errors import QueueingError
from knee.queueing.layered import Floats, Layered, Stage
from knee.queueing.shapes import Exponential, Shape
from knee.queueing.simulate import REPLICATIONS_MAX
from knee.queueing.simulation import Estimates, quantile_of
from knee.stats.intervals import LEVEL, Interval

ROUNDS = 50_000
"""Default number of requests of a replication; with more customers than a fifth of it, five of each customer."""

REPLICATIONS = 10

_WARMUP, _WARMUP_EACH = 0.2, 4
"""Requests before the observation: a share of the observed ones, and at least four of each customer."""

_OBSERVED_MAX = 10**12


@dataclass(frozen=True, eq=False)
class LayeredSimulation:
    """The results of a simulation, without warm-up; times in the network's unit.

    throughput     completed requests per unit of time
    response_time  without thinking
    waiting        for a slot
    inside         time with a slot
    busy           share of time in which a thread is active or waits for a core, (tiers)
    host_busy      of each host's cores, (hosts)
    """

    throughput: Estimates
    response_time: Estimates
    waiting: Estimates
    inside: Estimates
    busy: Estimates
    host_busy: Estimates
    histograms: Sequence[Floats]

    def response_quantile(self, probability: float) -> Interval:
        """The response time that a share `probability` of the requests does not exceed."""
        each = np.array([quantile_of(one, probability) for one in self.histograms])
        together = np.array(quantile_of(np.concatenate(self.histograms), probability))
        return Estimates.of(each, self.throughput.level, together).interval()


def simulate_layered(
    network: Layered,
    customers: int,
    *,
    work: Shape = Exponential(),  # noqa: B008 - it is frozen
    thinking: Shape = Exponential(),  # noqa: B008 - it is frozen
    rounds: int | None = None,
    replications: int = REPLICATIONS,
    seed: int = 0,
    level: float = LEVEL,
) -> LayeredSimulation:
    """Simulates a layered network in independent replications, on all processors.

    A thread serves its requests first come, first served. The active threads of a host share its cores equally. Threads
    are active independently of each other, as in :func:`solve_layered` with TOGETHER = 0. A stage's work is one visit
    to a thread of each tier, one after the other. Its delay follows, and `stretch` − 1 times the residence at the
    threads, but no time below 0. Tiers of the outside stage serve a customer with always the same thread, other tiers
    with any.

    Parameters
    ----------
    customers
        A whole number from 1.
    work, thinking
        The shapes of all processor times and of think times.
    rounds
        Requests that each replication observes, after a fifth of them, and at least four of each customer, as warm-up.

    Raises
    ------
    ArgumentError
        For an invalid number of customers, rounds or replications.
    QueueingError
        For any other invalid argument.
    """
    count = checked_whole("customers", customers, 1, POPULATION_MAX)
    rounds = max(ROUNDS, 5 * count) if rounds is None else checked_whole("rounds", rounds, 1, _OBSERVED_MAX)
    replications = checked_whole("replications", replications, 1, REPLICATIONS_MAX)
    hosts = list(network.cores)

    def stage(of: Stage) -> tuple[float, float, list[float]]:
        return of.delay, of.stretch, network.shares(of).tolist()

    try:
        found = _kernels.simulate_layered(
            list(network.cores.values()),
            [(hosts.index(t.host), t.threads, t.work, t.wakeup, t.by_slot) for t in network.tiers],
            stage(network.outside),
            stage(network.inside),
            think=(network.think_time, thinking.for_kernel()),
            work=work.for_kernel(),
            customers=count,
            pools=network.pools,
            slots=network.slots or 0,
            seed=seed,
            replications=replications,
            warmup=max(round(_WARMUP * rounds), _WARMUP_EACH * count),
            rounds=rounds,
        )
    except ValueError as error:
        raise QueueingError(str(error)) from None
    sums, active, cores = (np.array([np.frombuffer(one[i]) for one in found]) for i in range(3))
    duration, completed = sums[:, :1], sums[:, 1]
    return LayeredSimulation(
        Estimates.of(completed / sums[:, 0], level),
        Estimates.of(sums[:, 2] / completed, level),
        Estimates.of(sums[:, 3] / completed, level),
        Estimates.of(sums[:, 4] / completed, level),
        Estimates.of(active / duration / network.threads, level),
        Estimates.of(cores / duration / np.array(list(network.cores.values())), level),
        [np.frombuffer(one[3]).reshape(-1, 3) for one in found],
    )
