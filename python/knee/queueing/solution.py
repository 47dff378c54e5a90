"""What every solution has: its network, one population by the names of stations and classes, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from knee.queueing.errors import ArgumentError
from knee.queueing.network import Floats, LoadDependent, Network, Queue


@dataclass(frozen=True)
class StationPoint:
    """A station at one population.

    residence_time  V_k W_k, the time of a round there. With several classes, the mean over all rounds; NaN without
                    customers
    queue_length    Q_k, the mean number of customers there, waiting or served
    utilisation     as in the solution. Of one class among several: X_c D_kc / m_k at a queue, NaN elsewhere
    """

    name: str
    residence_time: float
    queue_length: float
    utilisation: float


AnyStation = TypeVar("AnyStation", bound=StationPoint, covariant=True)


@dataclass(frozen=True)
class NetworkPoint(Generic[AnyStation]):
    """A network at one population: `point["disk"]` is a station, `point.by_class["get"]` the same for one class.

    throughput     X, of all classes
    response_time  R, the mean over all rounds; NaN for several classes without customers
    stations       in the network's order
    by_class       a point for each class; empty in the point of a class, and for `solve_closed`
    """

    throughput: float
    response_time: float
    stations: tuple[AnyStation, ...]
    by_class: Mapping[str, NetworkPoint[AnyStation]]

    def __getitem__(self, station: str) -> AnyStation:
        """Raises ArgumentError for an unknown station."""
        return self.stations[index_of(station, [one.name for one in self.stations])]


def index_of(station: str, names: Sequence[str]) -> int:
    """Raises ArgumentError."""
    if station not in names:
        raise ArgumentError("station", f"no station {station!r}: expected one of {list(names)}")
    return list(names).index(station)


@dataclass(frozen=True)
class Solution:
    """A solved network."""

    network: Network

    @property
    def stations(self) -> tuple[str, ...]:
        """The stations' names, (K)."""
        return self.network.names

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names, (C)."""
        return tuple(self.network.classes)


@dataclass(frozen=True)
class ClassSolution(Solution):
    """A network at one population or arrival rate of each class.

    throughput      X_c, (C)
    residence_time  V_kc W_kc, the time of a customer at each station over all visits, (K, C)
    utilisation     for a queue the mean share of busy servers, for a load-dependent station the share of time with any
                    customer, for a delay NaN, (K)
    """

    throughput: Floats
    residence_time: Floats
    utilisation: Floats

    @property
    def queue_length(self) -> Floats:
        """Q_kc, the mean number of each class at each station, (K, C) (Little 1961)."""
        return self.residence_time * self.throughput

    @property
    def response_time(self) -> Floats:
        """R_c, (C)."""
        return np.asarray(self.residence_time.sum(axis=0))

    @property
    def by_class(self) -> Mapping[str, NetworkPoint[StationPoint]]:
        """The solution of each class, by name."""
        return self._point().by_class

    def __getitem__(self, station: str) -> StationPoint:
        """A station by name, for all classes together. Raises ArgumentError for an unknown one."""
        return self._point()[station]

    def table(self) -> pl.DataFrame:
        """A row for each station and class: `station`, `class`, `throughput` X_c, `response_time` R_c,
        `residence_time`, `queue_length` and `utilisation`, as in `by_class`; undefined values are null."""
        return class_table({}, self.network, self.throughput, self.residence_time, self.utilisation)

    def _point(self) -> NetworkPoint[StationPoint]:
        return class_point(self.network, self.throughput, self.residence_time, self.utilisation)


def class_point(
    network: Network, throughput: Floats, residence_time: Floats, utilisation: Floats
) -> NetworkPoint[StationPoint]:
    """The point of throughputs (C), residence times (K, C) and utilisations (K)."""
    busy = utilisation_by_class(network, throughput, utilisation)
    each = {
        name: _point_of(network.names, x, times, times * x, shares)
        for name, x, times, shares in zip(network.classes, throughput, residence_time.T, busy.T, strict=True)
    }
    with np.errstate(invalid="ignore"):
        # With one class, its residence time is defined without customers, too.
        weights = throughput / throughput.sum() if len(throughput) > 1 else np.ones(1)
    queue_length = residence_time @ throughput
    return _point_of(network.names, float(throughput.sum()), residence_time @ weights, queue_length, utilisation, each)


def _point_of(
    names: Sequence[str],
    throughput: float,
    residence_time: Floats,
    queue_length: Floats,
    utilisation: Floats,
    by_class: Mapping[str, NetworkPoint[StationPoint]] | None = None,
) -> NetworkPoint[StationPoint]:
    columns = residence_time.tolist(), queue_length.tolist(), utilisation.tolist()
    stations = tuple(StationPoint(name, *row) for name, *row in zip(names, *columns, strict=True))
    return NetworkPoint(float(throughput), float(residence_time.sum()), stations, by_class or {})


def utilisation_by_class(network: Network, throughput: Floats, utilisation: Floats) -> Floats:
    """U_kc = X_c D_kc / m_k at queues (Lazowska et al. 1984, ch. 7), (…, K, C), from X_c, (…, C), and U_k, (…, K)."""
    if len(network.classes) == 1:
        return utilisation[..., np.newaxis]
    return throughput[..., np.newaxis, :] * network.demands / servers(network)[:, np.newaxis]


def servers(network: Network) -> Floats:
    """m_k of queues, (K); NaN for other stations."""
    return np.array([station.servers if isinstance(station, Queue) else np.nan for station in network.stations])


def shares(network: Network, throughput: Floats, busy: Floats) -> Floats:
    """The utilisation of every station, from throughputs by class and the shares of time with any customer, (…, K)."""
    dependent = [isinstance(station, LoadDependent) for station in network.stations]
    return np.where(dependent, busy, throughput @ network.demands.T / servers(network))


def class_table(
    keys: Mapping[str, ArrayLike], network: Network, throughput: Floats, residence_time: Floats, utilisation: Floats
) -> pl.DataFrame:
    """Rows for every state, station and class, from arrays (…, C), (…, K, C) and (…, K). The keys are (…)."""
    shape = residence_time.shape

    def spread(values: ArrayLike, axes: tuple[int, ...]) -> pl.Series:
        """A column, from an array without these of the last axes."""
        return pl.Series(np.broadcast_to(np.expand_dims(np.asarray(values), axes), shape).ravel())

    columns = {
        **{name: spread(values, (-2, -1)) for name, values in keys.items()},
        "station": spread(np.array(network.names, dtype=np.str_), (-1,)),
        "class": spread(np.array(tuple(network.classes), dtype=np.str_), ()),
        "throughput": spread(throughput, (-2,)),
        "response_time": spread(residence_time.sum(axis=-2), (-2,)),
        "residence_time": spread(residence_time, ()),
        "queue_length": spread(residence_time * throughput[..., np.newaxis, :], ()),
        "utilisation": spread(utilisation_by_class(network, throughput, utilisation), ()),
    }
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))
