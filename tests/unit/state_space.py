"""Closed product-form networks solved in fractions, by looking at every state (Baskett et al. 1975)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from knee.queueing import Delay, LoadDependent, Network, Queue, Station


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def rate(station: Station, customers: int) -> Fraction:
    """How many times as fast as alone it works with so many."""
    match station:
        case Queue():
            return Fraction(min(customers, station.servers))
        case LoadDependent():
            rates = [Fraction(value) for value in station.rates]
            return rates[min(customers, len(rates)) - 1] / rates[0]
        case _:
            return Fraction(customers)


class StateSpace:
    """Exact throughputs (by class) and queue lengths (by station, then class) of a small network."""

    def __init__(self, network: Network, populations: Sequence[int]) -> None:
        self.stations = [*network.stations, Delay("thinking", network.think_time)]
        self.demands = [
            [Fraction(value) for value in row] for row in [*network.demands.tolist(), network.think_times.tolist()]
        ]
        self.populations = tuple(populations)
        total, self.queue_length = self._sums(self.populations)
        self.throughput = [
            self._sums(tuple(n - (other == index) for other, n in enumerate(populations)))[0] / total
            if population
            else 0
            for index, population in enumerate(populations)
        ]
        self.busy = self._busy(total)

    def _weight(self, index: int, customers: tuple[int, ...]) -> Fraction:
        weight = Fraction(math.factorial(sum(customers)))
        for demand, n in zip(self.demands[index], customers, strict=True):
            weight *= demand**n / math.factorial(n)
        for there in range(1, sum(customers) + 1):
            weight /= rate(self.stations[index], there)
        return weight

    def _states(self, populations: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
        spread = [list(compositions(n, len(self.stations))) for n in populations]
        for choice in itertools.product(*spread):
            yield list(zip(*choice, strict=True))

    def _sums(self, populations: tuple[int, ...]) -> tuple[Fraction, list[list[Fraction]]]:
        total = Fraction(0)
        lengths = [[Fraction(0)] * len(populations) for _ in self.stations]
        for state in self._states(populations):
            weight = math.prod((self._weight(index, there) for index, there in enumerate(state)), start=Fraction(1))
            total += weight
            for index, there in enumerate(state):
                for number, n in enumerate(there):
                    lengths[index][number] += weight * n
        return total, [[length / total for length in row] for row in lengths]

    def _busy(self, total: Fraction) -> list[Fraction]:
        """The probability that a customer is at a station."""
        busy = [Fraction(0)] * len(self.stations)
        for state in self._states(self.populations):
            weight = math.prod((self._weight(index, there) for index, there in enumerate(state)), start=Fraction(1))
            for index, there in enumerate(state):
                busy[index] += weight * (sum(there) > 0)
        return [share / total for share in busy]
