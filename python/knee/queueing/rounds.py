"""The way of a round through the stations, step by step: what the simulator needs and product-form solvers do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from knee.queueing.errors import ArgumentError
from knee.queueing.network import Floats, Network, PerClass
from knee.queueing.routing import visits_from_routing

PASSES_MAX = 100_000
#: Visits that come from a matrix and those of the network may differ by this share.
VISITS_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Route:
    """A Markov chain of positions, of which 0 is the outside.

    steps   of every position, its step
    ways    from every position, the probabilities to go to others
    """

    steps: list[int]
    ways: list[list[tuple[float, int]]]


@dataclass(frozen=True)
class Rounds:
    """Every class's way.

    steps   the stations that are visited at the same time, by index; the last step has none
    routes  of every class
    """

    steps: list[list[int]]
    routes: list[Route]


def plan_rounds(network: Network, forks: Sequence[Sequence[str]], routing: ArrayLike | None) -> Rounds:
    """The rounds that `simulate` describes. Raises ArgumentError."""
    groups = _groups(network, forks)
    visits = _visits(network, groups)
    steps = [*groups, []]
    if routing is None:
        return Rounds(steps, [_in_order(network.classes[index], visits[:, index]) for index in range(visits.shape[1])])
    names = [" + ".join(network.names[station] for station in group) for group in groups]
    matrices = np.asarray(routing, dtype=np.float64)
    shape = (len(names) + 1, len(names) + 1)
    if matrices.shape not in (shape, (len(network.classes), *shape)):
        raise ArgumentError(
            "routing",
            f"expected rows and columns for the outside and {names}, for all classes or each, not {matrices.shape}",
        )
    each = np.broadcast_to(matrices, (len(network.classes), *shape))
    return Rounds(steps, [_routed(names, matrix, visits[:, index]) for index, matrix in enumerate(each)])


def per_class(network: Network, values: Sequence[PerClass]) -> Floats:
    """A row for each value and a column for each class; the network has checked the lengths."""
    return np.array([np.broadcast_to(np.asarray(value, np.float64), len(network.classes)) for value in values])


def _groups(network: Network, forks: Sequence[Sequence[str]]) -> list[list[int]]:
    """The stations of every step, in the network's order; a fork is where its first station is."""
    names = list(network.names)
    forked: dict[int, list[int]] = {}
    for fork in forks:
        if isinstance(fork, str) or len(fork) < 2:
            raise ArgumentError("forks", f"expected two or more stations to fork to, not {fork!r}")
        for name in fork:
            if name not in names:
                raise ArgumentError("forks", f"{name!r} is none of the stations {names}")
            if names.index(name) in forked or list(fork).count(name) > 1:
                raise ArgumentError("forks", f"{name!r} occurs more than once")
        group = [names.index(name) for name in fork]
        forked |= dict.fromkeys(group, group)
    groups = [forked.get(station, [station]) for station in range(len(names))]
    return [group for station, group in enumerate(groups) if station == min(group)]


def _visits(network: Network, groups: Sequence[Sequence[int]]) -> Floats:
    """How often a round of each class comes to each step, (steps, classes)."""
    each = per_class(network, [station.visits for station in network.stations])
    for group in groups:
        if not (each[group] == each[group[0]]).all():
            names = [network.names[station] for station in group]
            raise ArgumentError("forks", f"{names} are visited at the same time, so expected equal visits to them")
    return each[[group[0] for group in groups]]


def _in_order(name: str, visits: Floats) -> Route:
    """Every step as often as its visits say, one step after the other: ⌊V⌋ times, and once more with V − ⌊V⌋."""
    passes: list[tuple[int, float]] = []
    for step, count in enumerate(visits.tolist()):
        whole = math.floor(count)
        if len(passes) + whole > PASSES_MAX:
            raise ArgumentError("visits", f"a round of {name!r} takes more than {PASSES_MAX:,} steps")
        passes += [(step, 1.0)] * whole
        if count > whole:
            passes.append((step, count - whole))
    nowhere = len(visits)
    steps, ways = [nowhere], [[(1.0, 1)]]
    for step, probability in passes or [(nowhere, 1.0)]:
        if probability < 1:
            ways.append([(probability, len(steps) + 1), (1 - probability, len(steps) + 2)])
            steps.append(nowhere)
        ways.append([(1.0, len(steps) + 1)])
        steps.append(step)
    # After the last one comes the outside.
    return Route(steps, [[(share, to % len(steps)) for share, to in row] for row in ways])


def _routed(names: Sequence[str], matrix: Floats, visits: Floats) -> Route:
    """The chain of a routing matrix, whose visits must be the network's."""
    visited = [step for step, count in enumerate(visits.tolist()) if count > 0]
    places = [0, *(step + 1 for step in visited)]
    among = matrix[np.ix_(places, places)]
    given = visits_from_routing([names[step] for step in visited], among)
    for step in visited:
        if not math.isclose(given[names[step]], visits[step], rel_tol=VISITS_TOLERANCE):
            raise ArgumentError(
                "routing",
                f"leads to {given[names[step]]:.6g} visits to {names[step]!r}; the network has {visits[step]:g}",
            )
    if among[0, 0] > 0:
        raise ArgumentError("routing", "expected every round to begin at a station, not to stay outside")
    ways = [[(float(p), to) for to, p in enumerate(row) if p > 0] for row in among]
    return Route([len(names), *visited], ways)
