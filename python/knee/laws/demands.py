"""Service demands, the bottleneck, and the number of clients that saturates it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from knee.data.measurements import label_of
from knee.data.utilization import SATURATED
from knee.laws.bounds import BoundCheck, bound_checks, light_of, saturation_of
from knee.laws.configuration import (
    OWN,
    ROWS,
    Level,
    Part,
    configurations,
    floats,
    given_rows,
    pipeline_of,
    row_numbers,
    think_ms_of,
    with_demands,
    without_demand,
)
from knee.laws.residual import TOLERANCE
from knee.laws.stations import CONNECTIONS, WORKER_SLOTS
from knee.stats.intervals import LEVEL, Floats, Interval, mean_interval


@dataclass(frozen=True)
class Demand:
    """The service demand of a request at a station over all visits, D_k = V_k S_k (Jain 1991, §33.3).

    service_ms   S_k = D_k / V_k; None if the visits are unknown
    visits       V_k, as declared, or by default X_k / X
    utilization  utilisation of the station's servers, as measured, or by default X D_k / m_k; None without a throughput
    capacity     m_k / D_k, requests/s: the upper bound on throughput at this demand
    """

    station: str
    software: bool
    servers: float
    visits: Interval | None
    service_ms: Interval | None
    demand_ms: Interval
    utilization: Interval | None
    capacity: Interval

    @property
    def shown_capacity(self) -> Interval:
        """`capacity`, without an interval that reaches zero: it shows nothing."""
        low = self.capacity.low
        return replace(self.capacity, low=None, high=None) if low is not None and low <= 0 else self.capacity


@dataclass(frozen=True)
class DemandReport:
    """The demands of one configuration: at the client count with the largest throughput, busiest station first.

    factors       the configuration: levels of the factors other than the clients
    clients       this client count; None if unknown
    bottleneck    the station with the largest D_k / m_k; a software station only if no physical one is saturated; None
                  if the next station's demand is not significantly smaller
    doubt         why `bottleneck` is None, or a reason to doubt it
    light_ms      R without waiting: the response time at the lightest load, or the sum of all demands
    light_source  a phrase that names the source of `light_ms`
    light_waits   whether `light_ms` may include waiting; if so, N* is at most `saturation`, and a throughput above a
                  bound is no contradiction
    saturation    N* = (R + Z) / max(D_k / m_k), with R without waiting (Jain 1991, §34.4), in clients; None without
                  that R
    bounds        one per client count
    untold        stations whose demand is unknown, with the reason
    """

    factors: Mapping[str, Level]
    clients: int | None
    demands: tuple[Demand, ...]
    bottleneck: Demand | None
    doubt: str
    light_ms: Interval | None
    light_source: str
    light_waits: bool
    think_ms: float
    saturation: Interval | None
    bounds: tuple[BoundCheck, ...]
    untold: Mapping[str, str]

    @property
    def label(self) -> str:
        """The levels of the configuration; empty if only the clients varied."""
        return label_of(self.factors)

    @property
    def skips_software(self) -> bool:
        """Whether a software station has less capacity than `bottleneck`."""
        first = self.bottleneck
        return first is not None and not first.software and first != self.demands[0]


def service_demands(
    observations: pl.DataFrame,
    stations: pl.DataFrame,
    by: Sequence[str] = (),
    *,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
) -> list[DemandReport]:
    """Demands, bottleneck and bounds of every configuration.

    D_k = V_k S_k if both are measured; otherwise U_k m_k / X (service demand law).

    Parameters
    ----------
    observations
        The columns of :mod:`knee.data.observations` that exist.
    stations
        :mod:`knee.laws.stations`.
    by
        Columns of `observations` that distinguish configurations.
    """
    demanded = with_demands(stations, observations)
    rows = {name: floats(observations, name) for name in ROWS if name in observations.columns}
    own = {name: floats(demanded, name) for name in OWN}
    at = row_numbers(demanded["point"].to_list())
    labels = demanded.select("station", "software")
    untold = without_demand(stations)
    points = observations["point"].to_list()
    reports = []
    for levels, numbers in configurations(observations, by):
        here = dict.fromkeys(points[number] for number in numbers)
        chosen = [number for point in here for number in at.get(point, ())]
        if chosen:
            part = Part(
                given_rows({name: values[numbers] for name, values in rows.items()}),
                {name: values[chosen] for name, values in own.items()},
                labels["station"].gather(chosen).to_list(),
                labels["software"].gather(chosen).to_list(),
            )
            why = {station: why for point in here for station, why in untold.get(point, ())}
            reports.append(_report(dict(zip(by, levels, strict=True)), part, why, tolerance, level))
    return reports


def _report(
    factors: dict[str, Level], part: Part, why: Mapping[str, str], tolerance: float, level: float
) -> DemandReport:
    rows = part.rows
    clients = _busiest_count(part) if "clients" in rows else None
    at = part if clients is None else part.at(clients)
    demands = _ranked(at, level)
    bottleneck, doubt = _bottleneck(at, demands, level)
    light = light_of(at, level)
    think_ms = think_ms_of(rows)
    busiest = bottleneck or (demands[0] if demands else None)
    saturation, checks = None, []
    if light is not None and busiest is not None and think_ms is not None:
        most = at.of(busiest.station, "capacity")
        saturation = saturation_of(light, busiest.capacity, most, think_ms, pipeline_of(rows), level)
        if clients is not None and "throughput" in rows:
            checks = bound_checks(rows, busiest.capacity, busiest.servers, most, light, think_ms, tolerance, level)
    return DemandReport(
        factors,
        clients,
        demands,
        bottleneck,
        doubt,
        None if light is None else light.mean,
        "" if light is None else light.source,
        light is not None and light.waits,
        think_ms or 0.0,
        saturation,
        tuple(checks),
        {station: reason for station, reason in why.items() if station not in {one.station for one in demands}},
    )


def _busiest_count(part: Part) -> int:
    """The client count with the largest mean throughput; on a tie, the largest count."""
    counts, x = part.own["clients"], part.own["x"]
    means = [
        (float(np.mean(known)) if (known := x[(counts == n) & ~np.isnan(x)]).size else -math.inf, n)
        for n in np.unique(counts)
    ]
    return int(max(means)[1])


def _ranked(at: Part, level: float) -> tuple[Demand, ...]:
    demands = []
    for station, numbers in row_numbers(at.stations).items():
        own = {name: values[numbers] for name, values in at.own.items()}

        def mean(values: Floats) -> Interval | None:
            return None if np.isnan(values).all() else mean_interval(values, level)

        visits = mean(own["visits"])
        # A station with a demand has visits, so zero visits are rounded or wrong and give no service time.
        is_visited = visits is not None and bool(np.all(own["visits"] != 0))
        demand_ms, capacity = mean(own["demand_ms"]), mean(own["capacity"])
        assert demand_ms is not None and capacity is not None
        demands.append(
            Demand(
                station=station,
                software=at.software[numbers[0]],
                servers=float(own["servers"].mean()),
                visits=visits,
                service_ms=mean_interval(own["demand_ms"] / own["visits"], level) if is_visited else None,
                demand_ms=demand_ms,
                utilization=mean(own["utilization"]),
                capacity=capacity,
            )
        )
    return tuple(sorted(demands, key=lambda demand: demand.capacity.estimate))


def _bottleneck(at: Part, demands: Sequence[Demand], level: float) -> tuple[Demand | None, str]:
    """The station with the largest D_k / m_k, if it is significantly larger than that of the next station of another
    kind. In each run D_k / m_k = U_k / X, so the ratio of two stations is the ratio of their utilisations.
    """
    if not demands:
        return None, "no station's demand was measured"
    physical = [demand for demand in demands if not demand.software]
    saturated = [one for one in physical if one.utilization and one.utilization.estimate >= SATURATED]
    # Software servers that are full because of a resource behind them are not the bottleneck.
    ranked = physical if saturated else _without_slots_that_wait(demands)
    first = ranked[0]
    second = next((one for one in ranked if _kind(one.station) != _kind(first.station)), None)
    if second is None:
        return first, "no other kind of station was measured"
    # m_k / D_k is the capacity: the station with the larger capacity is less loaded.
    of_first, of_second = (at.of(one.station, "capacity") for one in (first, second))
    pairs = [(of_first[run], of_second[run]) for run in of_first if run in of_second]
    if not pairs:
        return None, f"no run has both {first.station} and {second.station}"
    ratio = mean_interval([math.log(more / less) for less, more in pairs], level)
    if ratio.low is not None and ratio.low <= 0:
        return None, f"the repetitions scatter too much to distinguish {first.station} from {second.station}"
    if ratio.low is None and ratio.estimate <= 0:
        return None, f"{first.station} and {second.station} have the same demand"
    return first, "from one repetition" if ratio.low is None else ""


def _without_slots_that_wait(demands: Sequence[Demand]) -> Sequence[Demand]:
    """The stations without worker slots if full connections explain why the slots are full."""
    full = any(
        one.station.endswith(CONNECTIONS) and one.utilization and one.utilization.estimate >= SATURATED
        for one in demands
    )
    return [one for one in demands if not (full and one.station.endswith(WORKER_SLOTS))]


def _kind(station: str) -> str:
    """The kind of a station, without its process."""
    return re.sub(r"-\d+", "", station)
