"""The bottleneck from a layered model: the resource whose enlargement raises the throughput most.

A full resource limits nothing if it only waits for another one. The model's elasticities tell the two apart, and
show how much more of a resource raises the throughput. `knee predict` uses the same model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knee.data import Dataset
from knee.data.utilization import OUTSIDERS_DECISIVE, SATURATED
from knee.errors import FitError
from knee.fit.layered import CONNECTIONS, CORES, LIMITS, SLOTS, THREADS, LayeredForecast, LayeredSystem, Limit, setup_of
from knee.fit.links import RECEIVING, SENDING
from knee.fit.setups import layered_systems
from knee.verdict.bottleneck import Bottleneck
from knee.verdict.candidates import SOFT, Candidate
from knee.verdict.knee import Doubt, Knee, confidence_of

_RESOURCES = {
    SLOTS: ("middleware", "worker slots"),
    CONNECTIONS: ("middleware", "connections"),
    CORES: ("host", "host CPU"),
    **{name: (tier, "thread") for tier, name in THREADS.items()},
    **{name: (tier, "sending link") for tier, name in SENDING.items()},
    **{name: (tier, "receiving link") for tier, name in RECEIVING.items()},
}
"""The candidate of the bottleneck that a resource of the model is: its role and resource."""

MODELS_MAX = 8
"""Largest number of configurations with a model: each fit takes a second or two."""

_APART = 0.25
"""Largest difference between the utilisations of slots, connections or cores in the measurement and in the model."""


@dataclass(frozen=True, eq=False)
class Limits:
    """What limits the throughput at the largest number of clients, by the layered model.

    limits   elasticities, the largest first
    at_knee  the first resource at the knee; empty if the knee is unknown, or no resource limits throughput there
    busy     share of time in which each resource is busy
    twice    the prediction with twice as much of the first resource
    """

    limits: tuple[Limit, ...]
    at_knee: str
    busy: Mapping[str, float]
    twice: LayeredForecast

    @property
    def first(self) -> tuple[Limit, ...]:
        """The limits that may be the largest: all above LIMITS whose interval reaches the largest elasticity."""
        top = self.limits[0].elasticity
        return tuple(
            limit
            for limit in self.limits
            if limit.elasticity.estimate >= LIMITS
            and (limit is self.limits[0] or (limit.elasticity.high or 0.0) >= (top.low or 0.0))
        )

    @property
    def also(self) -> tuple[Limit, ...]:
        """The further limits above LIMITS."""
        return tuple(limit for limit in self.limits[1:] if limit.elasticity.estimate >= LIMITS)

    def of(self, candidate: Candidate) -> Limit | None:
        """The gain of a candidate; None if the model does not have the resource."""
        pair = candidate.role, candidate.resource
        return next((limit for limit in self.limits if _RESOURCES[limit.resource] == pair), None)

    def has(self, candidate: Candidate) -> bool:
        """Whether a candidate is one of the limits."""
        limits = (*self.first, *self.also)
        return (candidate.role, candidate.resource) in [_RESOURCES[limit.resource] for limit in limits]


def explaining(dataset: Dataset, others: Sequence[str], level: float, seed: int) -> list[LayeredSystem]:
    """The layered models of a run folder; none where they do not explain the measurements. `others` are the factors
    besides the clients."""
    try:
        found = layered_systems(dataset, others, level=level, seed=seed, systems_max=MODELS_MAX)
    except FitError:
        return []
    return [system for _, system in found]


def limits_of(systems: Sequence[LayeredSystem], points: Sequence[int], knee: Knee) -> Limits | None:
    """What limits the throughput at the largest number of clients of some points, and at the knee of their
    configuration."""
    for system in systems:
        rows = np.flatnonzero(np.isin(system.data.point, points))
        if rows.size:
            clients = system.data.customers[rows] / system.data.pipeline[rows]
            setup = setup_of(system.data, rows[clients == clients.max()])
            found = system.limits(setup)
            at_knee = rows[clients == (knee.level.clients if knee.level else 0)]
            name, gain = system.forecast(setup_of(system.data, at_knee)).limits[0] if at_knee.size else ("", 0.0)
            twice = system.forecast(system.twice(setup, found[0].resource))
            return Limits(found, name if gain >= LIMITS else "", system.forecast(setup).busy, twice)
    return None


def by_limits(found: Bottleneck, limits: Limits | None) -> tuple[Bottleneck, Limits | None]:
    """The verdict by the model, with its limits. If the model has no say, the verdict by utilisation, without limits:
    throughput still rises, other programs or the load generator spoil the run, or the model contradicts a utilisation,
    or names slots that requests hold far longer beyond the knee.
    """
    undecided = ("nothing measured", "no utilisation", "still rising", "other programs", "emulated links")
    if limits is None or found.cause in undecided or found.status == "load generator" or not _agrees(found, limits):
        return found, None
    named = [_RESOURCES[limit.resource] for limit in limits.first]
    chosen = tuple(c for pair in named for c in found.candidates if (c.role, c.resource) == pair)
    host = next((c for c in chosen if c.resource == "host CPU"), None)
    crowded = (
        host is not None
        and max(found.cpu_shares.get(owner, 0.0) for owner in ("others", "links")) >= OUTSIDERS_DECISIVE
    )
    if not chosen or len(chosen) < len(named) or crowded or any(c in chosen for c in found.held):
        return found, None
    # Where no chosen one is full, a full one that the model also has among the limits shares the blame.
    if all(c.at_most.estimate < SATURATED for c in chosen):
        chosen = (*(c for c in found.chosen if limits.has(c) and c not in chosen), *chosen)
    full = (*found.chosen, *found.waiting, *found.held)
    waiting = tuple(c for c in full if c not in chosen and c.resource in SOFT and not limits.has(c))
    if set(chosen) == set(found.chosen):
        return replace(found, waiting=waiting), limits
    doubts = found.doubts
    if found.chosen and not any(map(limits.has, found.chosen)):
        doubts = (*doubts, Doubt("other utilisation"))
    generators = tuple(c for c in chosen if c.role == "load")
    decided = replace(
        found,
        status="load generator" if generators else "found",
        cause="",
        chosen=generators or chosen,
        waiting=waiting,
        full_host=host,
        unexplained=None,
        held=(),
        later=None if found.later in chosen else found.later,
        confidence=confidence_of(doubts),
        doubts=doubts,
    )
    return decided, None if generators else limits


def _agrees(found: Bottleneck, limits: Limits) -> bool:
    """Whether the model explains the utilisation: it names every saturated thread, processor and disk, and its slots
    and cores are as busy as measured.
    """
    named = {_RESOURCES[limit.resource] for limit in limits.first}
    if (found.chosen and not named) or any(
        c.resource not in SOFT and (c.role, c.resource) not in named for c in found.chosen
    ):
        return False
    measured = {(c.role, c.resource): c.at_most.estimate for c in found.candidates}
    busy = {_RESOURCES[name]: limits.busy[name] for name in (SLOTS, CONNECTIONS, CORES) if name in limits.busy}
    return all(abs(share - measured[pair]) <= _APART for pair, share in busy.items() if pair in measured)
