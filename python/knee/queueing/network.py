"""The description of a queueing network: its stations, and how often customers visit them.

Stations have names. In a round, a customer of class c visits station k V_ck times, for S_ck each time, so its demand
there is D_ck = V_ck S_ck. Times are in any unit, if the caller uses it
throughout; rates are per that unit.

Every solver of this package but the simulator assumes a product-form network (Baskett, Chandy, Muntz & Palacios 1975):
at queues with first come, first served ("fcfs"), service is exponential with the same mean for every class. With
processor sharing ("ps"), and at delays, only the mean matters, and it may differ between classes. The solvers refuse a
"fcfs" queue whose mean differs. The simulator serves every queue as declared.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from knee.queueing.arguments import checked_whole
from knee.queueing.errors import ArgumentError

Floats = NDArray[np.float64]

#: One number for every class, or one for each.
PerClass = float | Sequence[float]

#: First come, first served; processor sharing.
Discipline = Literal["fcfs", "ps"]

SERVERS_MAX = 1_000_000


@dataclass(frozen=True)
class Station(ABC):
    """A place that customers visit V = `visits` times. A customer that is alone there is served for S =
    `service_time`."""

    name: str
    service_time: PerClass
    visits: PerClass = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        for values in ("service_time", "visits"):
            given = np.array(getattr(self, values), dtype=np.float64)
            kept = float(given) if given.ndim == 0 else tuple(given.tolist())
            _refuse_times(f"{self.name}.{values}", given)
            object.__setattr__(self, values, kept)

    @abstractmethod
    def speeds(self, population: int) -> list[float] | None:
        """Service rates with 1, 2, … customers, relative to the rate with one; the last one holds for more customers.
        None if no customer waits at this population.
        """


@dataclass(frozen=True)
class Queue(Station):
    """One queue for one or more equal servers; S is the service time of one server.

    discipline  "fcfs": first come, first served. "ps": processor sharing; each of n customers is served at the speed
                min(n, servers) / n
    """

    servers: int = field(default=1, kw_only=True)
    discipline: Discipline = field(default="fcfs", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "servers", checked_whole(f"{self.name}.servers", self.servers, 1, SERVERS_MAX))
        if self.discipline not in get_args(Discipline):
            raise ArgumentError(f"{self.name}.discipline", f"expected 'fcfs' or 'ps', not {self.discipline!r}")

    def speeds(self, population: int) -> list[float] | None:
        if self.servers > 1 and population <= self.servers:
            return None
        return [float(busy) for busy in range(1, self.servers + 1)]


@dataclass(frozen=True)
class Delay(Station):
    """A place without a queue."""

    def speeds(self, population: int) -> None:
        return None


@dataclass(frozen=True)
class LoadDependent(Station):
    """A queue with the service rate `rates[j - 1]` per unit of time if j customers are there, and the last rate for
    more."""

    service_time: PerClass = field(init=False)
    rates: Sequence[float]

    def __post_init__(self) -> None:
        given = np.array(self.rates, dtype=np.float64)
        rates = tuple(np.ravel(given).tolist())
        if given.ndim > 1 or not rates or not all(rate > 0 and math.isfinite(rate) for rate in rates):
            raise ArgumentError(f"{self.name}.rates", f"expected one or more finite rates above 0, not {self.rates!r}")
        object.__setattr__(self, "rates", rates)
        if not math.isfinite(1 / rates[0]):
            raise ArgumentError(f"{self.name}.rates", f"expected a first rate with a finite inverse, not {rates[0]}")
        object.__setattr__(self, "service_time", 1 / rates[0])
        super().__post_init__()

    def speeds(self, population: int) -> list[float] | None:
        return [rate / self.rates[0] for rate in self.rates[:population]]


def _refuse_times(argument: str, times: Floats) -> None:
    if not ((times >= 0) & np.isfinite(times)).all():
        raise ArgumentError(argument, f"expected finite numbers from 0, not {times}")


@dataclass(frozen=True)
class Network:
    """Stations, and the think time of customers between two rounds.

    Parameters
    ----------
    stations
        One or more, with different names.
    think_time
        Z, the mean time that a customer of a closed class spends outside all stations: for all classes, or for each.
    classes
        Names of the classes; by default there is one class.

    Raises
    ------
    ArgumentError
        For a network without stations, duplicate names, a wrong number of per-class values, and times that are
        negative, not finite, or overflow when multiplied by the visits.
    """

    stations: Sequence[Station]
    think_time: PerClass = 0.0
    classes: Sequence[str] = ("customers",)

    def __post_init__(self) -> None:
        for argument in ("stations", "classes"):
            object.__setattr__(self, argument, tuple(getattr(self, argument)))
        if not self.stations:
            raise ArgumentError("stations", "the network is empty; give it one station or more")
        refuse_twice("stations", self.names)
        refuse_twice("classes", tuple(self.classes))
        if not self.classes:
            raise ArgumentError("classes", "expected one or more")
        _refuse_times("think_time", np.array(self.think_time, dtype=np.float64))
        # The properties check the number of values.
        _ = self.think_times
        for station, row in zip(self.stations, self.demands, strict=True):
            visits = self._each(f"{station.name}.visits", station.visits)
            time = self._each(f"{station.name}.service_time", station.service_time)
            if not np.isfinite(row).all() or ((row == 0) & (visits > 0) & (time > 0)).any():
                raise ArgumentError(
                    f"{station.name}.visits",
                    f"expected visits times service time within the range of numbers, not {station.visits} times "
                    f"{station.service_time}",
                )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(station.name for station in self.stations)

    @property
    def demands(self) -> Floats:
        """D_kc = V_kc S_kc, (stations, classes)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.array(
                [
                    self._each(f"{station.name}.visits", station.visits)
                    * self._each(f"{station.name}.service_time", station.service_time)
                    for station in self.stations
                ]
            )

    @property
    def think_times(self) -> Floats:
        """Z_c, (classes)."""
        return self._each("think_time", self.think_time)

    def _each(self, argument: str, values: PerClass) -> Floats:
        """A value for each class."""
        if np.ndim(values) and np.shape(values) != (len(self.classes),):
            raise ArgumentError(argument, f"expected one number, or one for each of {list(self.classes)}, not {values}")
        return np.broadcast_to(np.asarray(values, dtype=np.float64), len(self.classes)).copy()


def refuse_load_dependent(network: Network, problem: str) -> None:
    """Raises ArgumentError that names the load-dependent stations and the problem with them."""
    dependent = [station.name for station in network.stations if isinstance(station, LoadDependent)]
    if dependent:
        raise ArgumentError("network", f"{', '.join(map(repr, dependent))}: {problem}")


def refuse_unequal_service(network: Network) -> None:
    """Raises ArgumentError for a queue with first come, first served whose mean service time differs between the
    classes that visit it: the network has no product form (Baskett, Chandy, Muntz & Palacios 1975)."""
    classes = len(network.classes)
    for station in network.stations:
        if isinstance(station, Queue) and station.discipline == "fcfs":
            times = np.broadcast_to(station.service_time, classes)[np.broadcast_to(station.visits, classes) > 0]
            if len(times) and (times != times[0]).any():
                raise ArgumentError(
                    "network",
                    f"{station.name!r} serves first come, first served, and its service time differs between classes, "
                    "so there is no product form: give it discipline='ps' if classes share its servers, or simulate "
                    "the network",
                )


def refuse_timeless(classes: Sequence[str], times: Floats) -> None:
    """Raises ArgumentError for classes whose rounds take no time: their throughput is unlimited."""
    idle = [name for name, time in zip(classes, times, strict=True) if time == 0]
    if idle:
        raise ArgumentError("network", f"all demands and the think time are zero for {', '.join(map(repr, idle))}")


def refuse_twice(argument: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError(argument, f"{', '.join(map(repr, twice))} occurs more than once")
