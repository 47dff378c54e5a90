"""Routes: the steps of a customer's round through the stations. Only the simulator needs them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from knee.queueing.errors import ArgumentError
from knee.queueing.network import Floats, Network, PerClass
from knee.queueing.routing import visits_from_routing

PASSES_MAX = 100_000
#: Largest relative difference between the visits of a matrix and those of the network.
VISITS_TOLERANCE = 1e-6

Value = TypeVar("Value")


@dataclass(frozen=True)
class Route:
    """A Markov chain of positions; position 0 is the outside.

    steps   the step of every position
    ways    from every position, the probabilities to go to others
    """

    steps: list[int]
    ways: list[list[tuple[float, int]]]


@dataclass(frozen=True)
class Rounds:
    """The routes of all classes.

    steps   of every step, the indices of the stations that a customer visits at the same time; the first step has none
    routes  of every class
    """

    steps: list[list[int]]
    routes: list[Route]


#: Groups of stations, by name, that are visited at the same time.
Forks = Sequence[Sequence[str]]

# The step without stations.
_NOWHERE = 0


def plan_rounds(
    network: Network, forks: Forks | Mapping[str, Forks], routing: ArrayLike | Mapping[str, ArrayLike] | None
) -> Rounds:
    """The rounds that `simulate` describes. Raises ArgumentError."""
    steps: list[list[int]] = [[]]
    routes = []
    visits = per_class(network, [station.visits for station in network.stations])
    forks_of_each, routing_of_each = _by_class("forks", forks, network), _by_class("routing", routing, network)
    for index, name in enumerate(network.classes):
        groups = _groups(network, forks_of_each[name] or (), visits[:, index])
        steps += [group for group in groups if group not in steps]
        numbers = [steps.index(group) for group in groups]
        counts = visits[[group[0] for group in groups], index]
        matrix = routing_of_each[name]
        if matrix is None:
            routes.append(_in_order(name, numbers, counts))
        else:
            labels = [" + ".join(network.names[station] for station in group) for group in groups]
            routes.append(_routed(labels, np.array(matrix, dtype=np.float64), numbers, counts))
    return Rounds(steps, routes)


def _by_class(argument: str, given: Value | Mapping[str, Value], network: Network) -> dict[str, Value | None]:
    """A value for each class, from one for all or a mapping by name; None for classes without one."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(network.classes, given)
    unknown = [name for name in given if name not in network.classes]
    if unknown:
        raise ArgumentError(argument, f"no class {unknown[0]!r}: expected one of {list(network.classes)}")
    return {name: given.get(name) for name in network.classes}


def per_class(network: Network, values: Sequence[PerClass]) -> Floats:
    """A row for each value and a column for each class; the network has checked the lengths."""
    return np.array([np.broadcast_to(np.asarray(value, np.float64), len(network.classes)) for value in values])


def _groups(network: Network, forks: Forks, visits: Floats) -> list[list[int]]:
    """The stations of every step, in the network's order. A fork has the place of its first station."""
    names = list(network.names)
    forked: dict[int, list[int]] = {}
    for fork in forks:
        if len(fork) < 2:
            raise ArgumentError("forks", f"expected two or more stations to fork to, not {fork!r}")
        for name in fork:
            if name not in names:
                raise ArgumentError("forks", f"no station {name!r}: expected one of {names}")
            if names.index(name) in forked or list(fork).count(name) > 1:
                raise ArgumentError("forks", f"{name!r} occurs more than once")
        group = [names.index(name) for name in fork]
        if not (visits[group] == visits[group[0]]).all():
            raise ArgumentError("forks", f"{list(fork)} are visited at the same time, so expected equal visits to them")
        forked |= dict.fromkeys(group, group)
    groups = [forked.get(station, [station]) for station in range(len(names))]
    return [group for station, group in enumerate(groups) if station == min(group)]


def _in_order(name: str, numbers: Sequence[int], visits: Floats) -> Route:
    """The steps in order: each ⌊V⌋ times, and once more with probability V − ⌊V⌋."""
    passes: list[tuple[int, float]] = []
    for number, count in zip(numbers, visits.tolist(), strict=True):
        whole = math.floor(count)
        if len(passes) + whole > PASSES_MAX:
            raise ArgumentError("visits", f"a round of {name!r} takes more than {PASSES_MAX:,} steps")
        passes += [(number, 1.0)] * whole
        if count > whole:
            passes.append((number, count - whole))
    steps, ways = [_NOWHERE], [[(1.0, 1)]]
    for number, probability in passes or [(_NOWHERE, 1.0)]:
        if probability < 1:
            ways.append([(probability, len(steps) + 1), (1 - probability, len(steps) + 2)])
            steps.append(_NOWHERE)
        ways.append([(1.0, len(steps) + 1)])
        steps.append(number)
    # After the last one comes the outside.
    return Route(steps, [[(share, to % len(steps)) for share, to in row] for row in ways])


def _routed(names: Sequence[str], matrix: Floats, numbers: Sequence[int], visits: Floats) -> Route:
    """The chain of a routing matrix. Its visits must equal those of the network."""
    if matrix.shape != (len(names) + 1, len(names) + 1):
        raise ArgumentError("routing", f"expected a row and a column for the outside and {names}, not {matrix.shape}")
    visited = [place for place, count in enumerate(visits.tolist()) if count > 0]
    places = [0, *(place + 1 for place in visited)]
    among = matrix[np.ix_(places, places)]
    given = visits_from_routing([names[place] for place in visited], among)
    for place in visited:
        name, count = names[place], visits[place]
        if not math.isclose(given[name], count, rel_tol=VISITS_TOLERANCE):
            raise ArgumentError("routing", f"leads to {given[name]:.6g} visits to {name!r}; the network has {count:g}")
    if among[0, 0] > 0:
        raise ArgumentError("routing", "expected every round to begin at a station, not to stay outside")
    ways = [[(float(p), to) for to, p in enumerate(row) if p > 0] for row in among]
    return Route([_NOWHERE, *(numbers[place] for place in visited)], ways)
