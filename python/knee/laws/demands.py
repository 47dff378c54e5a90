"""Service demands, the bottleneck that they name, and how many clients it takes to reach it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from knee.data.csv import label_of
from knee.data.trim import RUN
from knee.data.utilization import SATURATED
from knee.laws.residual import TOLERANCE, Verdict, one_sided_half_width
from knee.laws.stations import CONNECTIONS, WORKER_SLOTS
from knee.queueing import Bounds, throughput_bounds
from knee.stats.intervals import LEVEL, Floats, Interval, above_zero, counted, mean_interval, product_interval

Level = int | float | str | bool

_Key = TypeVar("_Key")
_Run = tuple[float, float]

_ROWS = (*RUN, "clients", "pipeline", "throughput", "response_ms", "think_ms")
_OWN = (*RUN, "clients", "x", "servers", "visits", "service_ms", "demand_ms", "utilization", "capacity")


@dataclass(frozen=True)
class Demand:
    """What a request needs of a station in all its visits, D_k = V_k S_k (Jain 1991, §33.3).

    service_ms   S_k = D_k / V_k; None where the visits are not known
    visits       V_k, as declared or else X_k / X
    utilization  of the station's servers, measured or else X D_k / m_k; None without a throughput
    capacity     m_k / D_k, requests/s: no throughput can be larger while the demand stays
    """

    station: str
    software: bool
    servers: float
    visits: Interval | None
    service_ms: Interval | None
    demand_ms: Interval
    utilization: Interval | None
    capacity: Interval


@dataclass(frozen=True)
class BoundCheck:
    """Measured throughput against the balanced-job bounds at one client count.

    excess  measured / upper bound − 1, with the uncertainty of both: a bound holds as long as that is not above zero
    """

    clients: int
    bounds: Bounds
    throughput: Interval
    excess: Interval
    verdict: Verdict


@dataclass(frozen=True)
class DemandReport:
    """The demands of one configuration: at the client count with the largest throughput, busiest station first.

    factors       the configuration: levels of the factors other than the clients
    clients       that count; None where nobody said
    bottleneck    the station with the largest D_k / m_k, a software one only while no physical one is saturated; None
                  where the repetitions do not tell it from the next
    doubt         why it is None, or what speaks against it
    light_ms      R without waiting: the response time at the lightest load, or the sum of all demands
    light_source  which of the two, in words
    light_waits   whether requests may have waited for each other there, so that N* is at most `saturation`, and
                  throughput above a bound contradicts nothing
    saturation    N* = (R + Z) / max(D_k / m_k), with R without waiting (Jain 1991, §34.4), in clients; None without
                  that R
    bounds        one per client count
    untold        stations without a demand of which it is known why, and the reason
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
        """The configuration in words; empty where nothing varied but the clients."""
        return label_of(self.factors)


def service_demands(
    observations: pl.DataFrame,
    stations: pl.DataFrame,
    by: Sequence[str] = (),
    *,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
) -> list[DemandReport]:
    """Demands, bottleneck and bounds of every configuration.

    D_k = V_k S_k where both are measured, and else U_k m_k / X, the service demand law.

    Parameters
    ----------
    observations
        :mod:`knee.data.observations`, as far as it is there.
    stations
        :mod:`knee.laws.stations`.
    by
        Columns of `observations` that tell configurations apart.
    """
    with_demands = _with_demands(stations, observations)
    rows = {name: _floats(observations, name) for name in _ROWS if name in observations.columns}
    own = {name: _floats(with_demands, name) for name in _OWN}
    at = _row_numbers(with_demands["point"].to_list())
    labels = with_demands.select("station", "software")
    untold = _untold(stations)
    points = observations["point"].to_list()
    reports = []
    for levels, numbers in _configurations(observations, by):
        here = dict.fromkeys(points[number] for number in numbers)
        chosen = [number for point in here for number in at.get(point, ())]
        if chosen:
            part = _Part(
                _given({name: values[numbers] for name, values in rows.items()}),
                {name: values[chosen] for name, values in own.items()},
                labels["station"].gather(chosen).to_list(),
                labels["software"].gather(chosen).to_list(),
            )
            why = {station: why for point in here for station, why in untold.get(point, ())}
            reports.append(_report(dict(zip(by, levels, strict=True)), part, why, tolerance, level))
    return reports


def _untold(stations: pl.DataFrame) -> dict[int, list[tuple[str, str]]]:
    """By point, the stations of which it is known in some run why they tell nothing, and the reason."""
    found: dict[int, list[tuple[str, str]]] = {}
    for point, station, why in stations.drop_nulls("untold").select("point", "station", "untold").iter_rows():
        found.setdefault(point, []).append((station, why))
    return found


def _floats(table: pl.DataFrame, name: str) -> Floats:
    return table[name].cast(pl.Float64).to_numpy()


def _row_numbers(keys: Iterable[_Key]) -> dict[_Key, list[int]]:
    """The rows of every key, in the order of their first ones."""
    found: dict[_Key, list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault(key, []).append(number)
    return found


def _configurations(observations: pl.DataFrame, by: Sequence[str]) -> Iterable[tuple[tuple[Level, ...], list[int]]]:
    if not by:
        return [((), list(range(observations.height)))]
    return _row_numbers(observations.select(by).iter_rows()).items()


def _with_demands(stations: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The stations of these runs that have a demand, with `visits`, `demand_ms` and `utilization` completed."""
    system = [
        name if name in rows.columns else pl.lit(None, pl.Float64).alias(name) for name in ("throughput", "clients")
    ]
    shared = rows.select(*RUN, *system).rename({"throughput": "x"})
    visits = pl.coalesce("visits", pl.col("throughput") / pl.col("x"))
    return (
        stations.with_columns(pl.col("servers").fill_null(1.0))
        .join(shared, on=RUN, how="inner", maintain_order="left")
        .with_columns(visits.alias("visits"))
        .with_columns(
            pl.coalesce(
                pl.col("visits") * pl.col("service_ms"),
                1000 * pl.col("utilization") * pl.col("servers") / pl.col("x"),
            ).alias("demand_ms")
        )
        .filter(pl.col("demand_ms").is_finite() & (pl.col("demand_ms") > 0))
        .with_columns(
            pl.coalesce("utilization", pl.col("x") * pl.col("demand_ms") / 1000 / pl.col("servers")).alias(
                "utilization"
            ),
            (1000 * pl.col("servers") / pl.col("demand_ms")).alias("capacity"),
        )
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """What is known of one configuration, or of its stations at one client count; NaN where it is not.

    rows  of the observations, as far as they have _ROWS
    own   of the stations with a demand, _OWN; `stations` and `software` say which they are
    """

    rows: Mapping[str, Floats]
    own: Mapping[str, Floats]
    stations: Sequence[str]
    software: Sequence[bool]

    def at(self, clients: float) -> _Part:
        """With the stations at that many clients only."""
        chosen = np.flatnonzero(self.own["clients"] == clients).tolist()
        return replace(
            self,
            own={name: values[chosen] for name, values in self.own.items()},
            stations=[self.stations[number] for number in chosen],
            software=[self.software[number] for number in chosen],
        )

    def of(self, station: str, column: str) -> dict[_Run, float]:
        """A column of a station's, by runs."""
        there = np.array([name == station for name in self.stations])
        return dict(zip(_runs(self.own, there), self.own[column][there].tolist(), strict=True))


def _given(rows: dict[str, Floats]) -> dict[str, Floats]:
    """Without clients where there are none, as in an open loop."""
    return {name: values for name, values in rows.items() if name != "clients" or not np.isnan(values).all()}


def _runs(table: Mapping[str, Floats], chosen: npt.NDArray[np.bool_] | slice) -> Iterable[_Run]:
    return zip(*(table[key][chosen].tolist() for key in RUN), strict=True)


def _report(
    factors: dict[str, Level], part: _Part, why: Mapping[str, str], tolerance: float, level: float
) -> DemandReport:
    rows = part.rows
    clients = _busiest_count(part) if "clients" in rows else None
    at = part if clients is None else part.at(clients)
    demands = _ranked(at, level)
    bottleneck, doubt = _bottleneck(at, demands, level)
    light = _light(at, level)
    think_ms = _think_ms(rows)
    busiest = bottleneck or (demands[0] if demands else None)
    saturation, checks = None, []
    if light is not None and busiest is not None and think_ms is not None:
        most = at.of(busiest.station, "capacity")
        saturation = _saturation(light, busiest, most, think_ms, _pipeline(rows), level)
        if clients is not None and "throughput" in rows:
            checks = _bound_checks(rows, busiest, most, light, think_ms, tolerance, level)
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


def _busiest_count(part: _Part) -> int:
    """The client count with the largest mean throughput, and of several the largest."""
    counts, x = part.own["clients"], part.own["x"]
    means = [
        (float(np.mean(known)) if (known := x[(counts == n) & ~np.isnan(x)]).size else -math.inf, n)
        for n in np.unique(counts)
    ]
    return int(max(means)[1])


def _ranked(at: _Part, level: float) -> tuple[Demand, ...]:
    demands = []
    for station, numbers in _row_numbers(at.stations).items():
        own = {name: values[numbers] for name, values in at.own.items()}

        def mean(values: Floats) -> Interval | None:
            return None if np.isnan(values).all() else mean_interval(values, level)

        visits = mean(own["visits"])
        demand_ms, capacity = mean(own["demand_ms"]), mean(own["capacity"])
        assert demand_ms is not None and capacity is not None
        demands.append(
            Demand(
                station=station,
                software=at.software[numbers[0]],
                servers=float(own["servers"].mean()),
                visits=visits,
                service_ms=None if visits is None else mean_interval(own["demand_ms"] / own["visits"], level),
                demand_ms=demand_ms,
                utilization=mean(own["utilization"]),
                capacity=capacity,
            )
        )
    return tuple(sorted(demands, key=lambda demand: demand.capacity.estimate))


def _bottleneck(at: _Part, demands: Sequence[Demand], level: float) -> tuple[Demand | None, str]:
    """The station with the largest D_k / m_k, if the repetitions tell it from the next one of another kind.

    In one run D_k / m_k = U_k / X at every station, so their ratio is that of the utilisations, and X cancels.
    """
    if not demands:
        return None, "no station's demand was measured"
    physical = [demand for demand in demands if not demand.software]
    saturated = [one for one in physical if one.utilization and one.utilization.estimate >= SATURATED]
    # Software servers that are full because of what lies beneath them bind nothing themselves.
    ranked = physical if saturated else _without_slots_that_wait(demands)
    first = ranked[0]
    second = next((one for one in ranked if _kind(one.station) != _kind(first.station)), None)
    if second is None:
        return first, "no other kind of station was measured"
    # m_k / D_k is the capacity: of two of them, the larger one's station is the less loaded.
    of_first, of_second = (at.of(one.station, "capacity") for one in (first, second))
    pairs = [(of_first[run], of_second[run]) for run in of_first if run in of_second]
    if not pairs:
        return None, f"no run has both {first.station} and {second.station}"
    ratio = mean_interval([math.log(more / less) for less, more in pairs], level)
    if ratio.low is not None and ratio.low <= 0:
        return None, f"the repetitions do not tell {first.station} from {second.station}"
    if ratio.low is None and ratio.estimate <= 0:
        return None, f"{first.station} and {second.station} need the same"
    return first, "one repetition shows it" if ratio.low is None else ""


def _without_slots_that_wait(demands: Sequence[Demand]) -> Sequence[Demand]:
    """Worker slots are full because of connections that are."""
    full = any(
        one.station.endswith(CONNECTIONS) and one.utilization and one.utilization.estimate >= SATURATED
        for one in demands
    )
    return [one for one in demands if not (full and one.station.endswith(WORKER_SLOTS))]


def _kind(station: str) -> str:
    """What a station is, whichever process it belongs to."""
    return re.sub(r"-\d+", "", station)


@dataclass(frozen=True, eq=False)
class _Light:
    """R without waiting, of the runs that show it and on average."""

    runs: Mapping[_Run, float]
    mean: Interval
    source: str
    waits: bool


def _light(at: _Part, level: float) -> _Light | None:
    """The response time at the lightest load, or else the sum of the demands, where they are all of R."""
    rows = at.rows
    if "response_ms" in rows and "clients" in rows:
        least = int(rows["clients"].min())
        waits = least * _pipeline(rows) > 1
        lightest = (rows["clients"] == least) & (rows["response_ms"] > 0)
        runs = dict(zip(_runs(rows, lightest), rows["response_ms"][lightest].tolist(), strict=True))
        if runs and (not waits or np.unique(rows["clients"]).size > 1):
            source = f"the response time at {counted(least, 'client')}" + " (which may contain waiting)" * waits
            return _Light(runs, mean_interval(list(runs.values()), level), source, waits)
    if not np.isnan(at.own["service_ms"]).any() and not any(at.software):
        runs = {}
        for run, demand_ms in zip(_runs(at.own, slice(None)), at.own["demand_ms"].tolist(), strict=True):
            runs[run] = runs.get(run, 0.0) + demand_ms
        return _Light(runs, mean_interval(list(runs.values()), level), "the sum of all demands", waits=False)
    return None


def _pipeline(rows: Mapping[str, Floats]) -> float:
    """Requests that a client of this configuration keeps in flight, on average over its runs."""
    return float(np.where(np.isnan(given := rows["pipeline"]), 1.0, given).mean()) if "pipeline" in rows else 1.0


def _saturation(
    light: _Light, busiest: Demand, most: Mapping[_Run, float], think_ms: float, pipeline: float, level: float
) -> Interval:
    """N*, above zero; errors of R and of the capacity are independent unless both were measured in the same runs."""
    same = [run for run in light.runs if run in most]
    if same:
        found = mean_interval([(light.runs[run] + think_ms) * most[run] / 1000 / pipeline for run in same], level)
    else:
        found = product_interval(light.mean, _scaled(busiest.capacity, 1 / 1000 / pipeline), offset=think_ms)
    return above_zero(found)


def _scaled(interval: Interval, factor: float) -> Interval:
    low, high = (None if end is None else end * factor for end in (interval.low, interval.high))
    return replace(interval, estimate=interval.estimate * factor, low=low, high=high)


def _think_ms(rows: Mapping[str, Floats]) -> float | None:
    """Z on average; None in an open loop."""
    if "think_ms" not in rows:
        return 0.0
    known = rows["think_ms"][~np.isnan(rows["think_ms"])]
    return float(known.mean()) if known.size else None


def _bound_checks(
    rows: Mapping[str, Floats],
    busiest: Demand,
    most: Mapping[_Run, float],
    light: _Light,
    think_ms: float,
    tolerance: float,
    level: float,
) -> list[BoundCheck]:
    """Whether throughput stays within what the busiest station and the response time without waiting allow.

    A bound is estimated, too. In the runs that it was estimated from each run is compared with its own; in the others
    the uncertainties of capacity and light response time add to the throughput's, in squares.
    """
    servers = max(1.0, busiest.servers)

    def bounds(clients: float, capacity: float, light_ms: float) -> Bounds:
        demand_ms = min(1000 * servers / capacity, light_ms)
        return throughput_bounds(clients, [(demand_ms, servers)], think_ms, elsewhere_ms=light_ms - demand_ms)

    checks = []
    pipeline = _pipeline(rows)
    given = {"capacity": busiest.capacity, "light_ms": light.mean}
    means = {name: interval.estimate for name, interval in given.items()}
    for clients in np.unique(rows["clients"]).tolist():
        customers = int(clients) * pipeline
        at = rows["clients"] == clients
        throughput = rows["throughput"][at]
        own = [(most.get(run), light.runs.get(run)) for run in _runs(rows, at)]
        limits = [
            bounds(customers, capacity or means["capacity"], light_ms or means["light_ms"]).balanced[1]
            for capacity, light_ms in own
        ]
        on_average = bounds(customers, **means)
        errors = [
            max(
                abs(bounds(customers, **{**means, name: end}).balanced[1] / on_average.balanced[1] - 1)
                for end in (interval.low, interval.high)
                if end is not None and end > 0
            )
            for (name, interval), measured in zip(given.items(), zip(*own, strict=True), strict=True)
            if None in measured and interval.high is not None
        ]
        excess = _widened(mean_interval(throughput / np.array(limits) - 1, level), errors)
        verdict = _within(excess, tolerance)
        checks.append(
            BoundCheck(
                clients=int(clients),
                bounds=on_average,
                throughput=mean_interval(throughput, level),
                excess=excess,
                # R was longer than without waiting, and the bound is lower than it ought to be.
                verdict="cannot tell" if verdict == "violated" and light.waits else verdict,
            )
        )
    return checks


def _widened(interval: Interval, errors: Sequence[float]) -> Interval:
    """An interval with further, independent half widths; unchanged where it has none itself."""
    if interval.half_width is None:
        return interval
    half_width = math.hypot(interval.half_width, *errors)
    return replace(interval, low=interval.estimate - half_width, high=interval.estimate + half_width)


def _within(excess: Interval, tolerance: float) -> Verdict:
    """One-sided: only too much throughput contradicts an upper bound."""
    if not math.isfinite(excess.estimate):
        return "cannot tell"
    if excess.half_width is None:
        return "holds" if excess.estimate <= tolerance else "violated"
    one_sided = one_sided_half_width(excess) or 0.0
    if excess.estimate + one_sided <= tolerance:
        return "holds"
    return "violated" if excess.estimate - one_sided > tolerance else "cannot tell"
