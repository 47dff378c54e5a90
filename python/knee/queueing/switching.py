"""Customers that change their class: classes that reach each other are one chain, which solvers take as a class.

Bruell, Balbo & Afshari (1984), Performance Evaluation 4(4); Bolch, Greiner, de Meer & Trivedi (2006), ch. 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knee.queueing.errors import ArgumentError
from knee.queueing.network import LoadDependent, Network, PerClass, Station, refuse_unequal_service
from knee.queueing.routing import visits_from_routing
from knee.queueing.solution import NetworkPoint, StationPoint, servers

#: A class, and a station or None for the outside, where customers think.
Place = tuple[str, str | None]


@dataclass(frozen=True)
class Chains:
    """A network whose customers change their class, as a network of chains.

    network  its classes are the chains, named by their classes: "get + set". For any solver
    classes  the network of the classes. Its visits are for one round of their chain, from thinking to thinking
    chain    the name of each class's chain
    """

    network: Network
    classes: Network
    chain: Mapping[str, str]

    @classmethod
    def of(
        cls,
        stations: Sequence[Station],
        classes: Sequence[str],
        routing: Mapping[Place, Mapping[Place, float]],
        *,
        think_time: PerClass = 0.0,
    ) -> Chains:
        """Chains from the probabilities to go from place to place.

        Parameters
        ----------
        stations
            With the service times of every class. Their visits are not used.
        routing
            From every place that customers reach, the probabilities of the next places: `("get", "disk")` is a visit of
            class get to the disk, `("get", None)` is outside, where a customer of that class thinks.
        think_time
            Z_c: for all classes, or for each.

        Raises
        ------
        ArgumentError
            For unknown names, probabilities that do not sum to 1, a chain that never is outside, and if a queue serves
            first come, first served with another service time for each class.
        """
        given = Network(stations, think_time, classes)
        _refuse_places(given, routing)
        visits, outside = np.zeros((len(stations), len(classes))), np.zeros(len(classes))
        chain: dict[str, str] = {}
        for group in _groups(given, routing):
            places = [place for place in routing if place[0] in group]
            visited = _visits(places, routing)
            for (name, station), count in visited.items():
                column = list(classes).index(name)
                if station is None:
                    outside[column] = count
                else:
                    visits[given.names.index(station), column] = count
            chain |= dict.fromkeys(group, " + ".join(group))
        by_class = Network(
            [replace(one, visits=tuple(row)) for one, row in zip(given.stations, visits, strict=True)],
            think_time,
            classes,
        )
        refuse_unequal_service(by_class)
        names = list(dict.fromkeys(chain.values()))
        members = np.array([[chain[name] == one for one in names] for name in classes], dtype=float)
        merged = visits @ members
        demands = by_class.demands @ members
        together: list[Station] = []
        for one, row, counts, work in zip(by_class.stations, visits, merged, demands, strict=True):
            if isinstance(one, LoadDependent):
                together.append(replace(one, visits=tuple(counts)))
                continue
            own = np.broadcast_to(one.service_time, len(classes))[:, np.newaxis]
            visited = (row[:, np.newaxis] * members) > 0
            least, greatest = np.where(visited, own, np.inf).min(axis=0), np.where(visited, own, 0).max(axis=0)
            # A mean of equal times is equal to them, whatever its rounding.
            times = np.clip(np.divide(work, counts, out=np.zeros_like(work), where=counts > 0), least, greatest)
            together.append(replace(one, service_time=tuple(np.where(counts > 0, times, 0.0)), visits=tuple(counts)))
        thinking = (outside * by_class.think_times) @ members
        return cls(Network(together, tuple(thinking), names), by_class, chain)

    def by_class(self, point: NetworkPoint[StationPoint]) -> Mapping[str, NetworkPoint[StationPoint]]:
        """A point of `network` for each class: throughput is that of its chain, in rounds; times are those of a round
        that it spends in this class; utilisations are X D_kc / m_k at queues, NaN elsewhere."""
        found, number = {}, servers(self.classes)
        for index, name in enumerate(self.classes.classes):
            one = point.by_class.get(self.chain[name], point)
            own = self.classes.demands[:, index]
            chain = self.network.demands[:, list(self.network.classes).index(self.chain[name])]
            share = np.divide(own, chain, out=np.zeros_like(own), where=chain > 0)
            stations = tuple(
                StationPoint(
                    station.name,
                    float(part * station.residence_time),
                    float(part * station.queue_length),
                    float(one.throughput * demand / count),
                )
                for station, part, demand, count in zip(one.stations, share, own, number, strict=True)
            )
            response_time = sum(station.residence_time for station in stations)
            found[name] = NetworkPoint(one.throughput, response_time, stations, {})
        return found


def _visits(places: Sequence[Place], routing: Mapping[Place, Mapping[Place, float]]) -> dict[Place, float]:
    """Visits to each place of a chain, for one visit to the outside in any class."""
    outside = [place for place in places if place[1] is None]
    if not outside:
        raise ArgumentError("routing", f"{_words(places[0])}: its chain never is outside; name a place (class, None)")
    matrix = [[routing[place].get(to, 0.0) for to in places] for place in places]
    names = [_words(place) for place in places]
    visits = visits_from_routing(names, matrix, _words(outside[0]))
    total = sum(visits[_words(place)] for place in outside)
    return {place: visits[name] / total for place, name in zip(places, names, strict=True)}


def _groups(network: Network, routing: Mapping[Place, Mapping[Place, float]]) -> list[list[str]]:
    """The classes of each chain, in the network's order."""
    names = list(network.classes)
    reach = np.eye(len(names))
    for (name, _), ways in routing.items():
        for to, _ in ways:
            reach[names.index(name), names.index(to)] = reach[names.index(to), names.index(name)] = 1
    reached = np.linalg.matrix_power(reach, len(names)) > 0
    return [list(group) for group in dict.fromkeys(tuple(np.array(names)[row].tolist()) for row in reached)]


def _refuse_places(network: Network, routing: Mapping[Place, Mapping[Place, float]]) -> None:
    known = [(name, station) for name in network.classes for station in (None, *network.names)]
    for place in [*routing, *(to for ways in routing.values() for to in ways)]:
        if place not in known:
            raise ArgumentError(
                "routing", f"no place {place!r}: expected a class, and a station or None, as {known[0]}"
            )
        if place not in routing:
            raise ArgumentError("routing", f"{_words(place)}: customers come there, but have no way on")
    for name in network.classes:
        if not any(place[0] == name for place in routing):
            raise ArgumentError("routing", f"no customer is ever of the class {name!r}")


def _words(place: Place) -> str:
    return f"{place[0]} {'outside' if place[1] is None else f'at {place[1]}'}"
