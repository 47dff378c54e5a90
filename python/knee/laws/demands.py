"""Service demands, the bottleneck that they name, and how many clients it takes to reach it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from knee.bottleneck import SATURATED
from knee.intervals import LEVEL, Interval, counted, mean_interval, product_interval
from knee.laws.bounds import Bounds, throughput_bounds
from knee.laws.residual import TOLERANCE, Verdict, one_sided_half_width
from knee.trim import RUN

Level = int | float | str | bool


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

    @property
    def label(self) -> str:
        """The configuration in words; empty where nothing varied but the clients."""
        return ", ".join(f"{name} = {level}" for name, level in self.factors.items())


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
        :mod:`knee.observations`, as far as it is there.
    stations
        :mod:`knee.laws.stations`.
    by
        Columns of `observations` that tell configurations apart.
    """
    at = {int(own["point"][0]): own for own in _with_demands(stations, observations).partition_by("point")}
    reports = []
    groups = observations.group_by(list(by), maintain_order=True) if by else [((), observations)]
    for levels, rows in groups:
        own = [at[point] for point in rows["point"].unique(maintain_order=True) if point in at]
        if own:
            reports.append(_report(dict(zip(by, levels, strict=True)), rows, pl.concat(own), tolerance, level))
    return reports


def _with_demands(stations: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The stations of these runs that have a demand, with `visits`, `demand_ms` and `utilization` completed."""
    system = [
        name if name in rows.columns else pl.lit(None, pl.Float64).alias(name) for name in ("throughput", "clients")
    ]
    shared = rows.select(*RUN, *system).rename({"throughput": "x"})
    visits = pl.coalesce("visits", pl.col("throughput") / pl.col("x"))
    return (
        stations.with_columns(pl.col("servers").fill_null(1.0))
        .join(shared, on=RUN, how="inner")
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


def _report(
    factors: dict[str, Level], rows: pl.DataFrame, own: pl.DataFrame, tolerance: float, level: float
) -> DemandReport:
    has_clients = "clients" in rows.columns
    clients = None
    if has_clients:
        clients = int(own.group_by("clients").agg(pl.col("x").mean()).sort("x", "clients")["clients"][-1])
    at = own.filter(pl.col("clients") == clients) if has_clients else own
    demands = _ranked(at, level)
    bottleneck, doubt = _bottleneck(at, demands, level)
    light = _light(rows, at, level)
    think_ms = _think_ms(rows)
    busiest = bottleneck or (demands[0] if demands else None)
    saturation, checks = None, []
    if light is not None and busiest is not None and think_ms is not None:
        most = at.filter(pl.col("station") == busiest.station).select(*RUN, "capacity")
        saturation = _saturation(light, busiest, most, think_ms, _pipeline(rows), level)
        if has_clients and "throughput" in rows.columns:
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
    )


def _ranked(at: pl.DataFrame, level: float) -> tuple[Demand, ...]:
    demands = []
    for (station,), own in at.group_by("station", maintain_order=True):

        def mean(column: str, own: pl.DataFrame = own) -> Interval | None:
            values = own[column].drop_nulls().to_numpy()
            return mean_interval(values, level) if values.size else None

        visits = mean("visits")
        demand_ms, capacity = mean("demand_ms"), mean("capacity")
        assert demand_ms is not None and capacity is not None
        each = own.with_columns(each=pl.col("demand_ms") / pl.col("visits"))
        demands.append(
            Demand(
                station=str(station),
                software=bool(own["software"][0]),
                servers=float(own["servers"].mean()),  # type: ignore[arg-type]
                visits=visits,
                service_ms=None if visits is None else mean_interval(each["each"].to_numpy(), level),
                demand_ms=demand_ms,
                utilization=mean("utilization"),
                capacity=capacity,
            )
        )
    return tuple(sorted(demands, key=lambda demand: demand.capacity.estimate))


def _bottleneck(at: pl.DataFrame, demands: Sequence[Demand], level: float) -> tuple[Demand | None, str]:
    """The station with the largest D_k / m_k, if the repetitions tell it from the next one of another kind.

    In one run D_k / m_k = U_k / X at every station, so their ratio is that of the utilisations, and X cancels.
    """
    if not demands:
        return None, "no station's demand was measured"
    physical = [demand for demand in demands if not demand.software]
    saturated = [one for one in physical if one.utilization and one.utilization.estimate >= SATURATED]
    # Software servers that are full because of what lies beneath them bind nothing themselves.
    ranked = physical if saturated else demands
    first = ranked[0]
    second = next((one for one in ranked if _kind(one.station) != _kind(first.station)), None)
    if second is None:
        return first, "no other kind of station was measured"
    each = at.select(*RUN, "station", (pl.col("demand_ms") / pl.col("servers")).log().alias("log"))
    pairs = each.filter(pl.col("station") == first.station).join(
        each.filter(pl.col("station") == second.station), on=RUN, how="inner", suffix="_second"
    )
    if pairs.is_empty():
        return None, f"no run has both {first.station} and {second.station}"
    ratio = mean_interval((pairs["log"] - pairs["log_second"]).to_numpy(), level)
    if ratio.low is not None and ratio.low <= 0:
        return None, f"the repetitions do not tell {first.station} from {second.station}"
    if ratio.low is None and ratio.estimate <= 0:
        return None, f"{first.station} and {second.station} need the same"
    return first, "one repetition shows it" if ratio.low is None else ""


def _kind(station: str) -> str:
    """What a station is, whichever process it belongs to."""
    return re.sub(r"-\d+", "", station)


@dataclass(frozen=True, eq=False)
class _Light:
    """R without waiting, of the runs that show it (`point, repetition, light_ms`) and on average."""

    runs: pl.DataFrame
    mean: Interval
    source: str
    waits: bool


def _light(rows: pl.DataFrame, at: pl.DataFrame, level: float) -> _Light | None:
    """The response time at the lightest load, or else the sum of the demands, where they are all of R."""
    if "response_ms" in rows.columns and "clients" in rows.columns:
        least = int(rows["clients"].min())  # type: ignore[arg-type]
        runs = rows.filter(pl.col("clients") == least).select(*RUN, pl.col("response_ms").alias("light_ms"))
        waits = least * _pipeline(rows) > 1
        runs = runs.filter((pl.col("light_ms") > 0).fill_null(value=False))
        if not runs.is_empty() and (not waits or rows["clients"].n_unique() > 1):
            source = f"the response time at {counted(least, 'client')}" + " (which may contain waiting)" * waits
            return _Light(runs, mean_interval(runs["light_ms"].to_numpy(), level), source, waits)
    if at["service_ms"].null_count() == 0 and not at["software"].any():
        runs = at.group_by(RUN).agg(pl.col("demand_ms").sum().alias("light_ms"))
        return _Light(runs, mean_interval(runs["light_ms"].to_numpy(), level), "the sum of all demands", waits=False)
    return None


def _pipeline(rows: pl.DataFrame) -> float:
    """Requests that a client of this configuration keeps in flight, on average over its runs."""
    return float(rows["pipeline"].fill_null(1).mean()) if "pipeline" in rows.columns else 1.0  # type: ignore[arg-type]


def _saturation(
    light: _Light, busiest: Demand, most: pl.DataFrame, think_ms: float, pipeline: float, level: float
) -> Interval:
    """N*; errors of R and of the capacity are independent unless both were measured in the same runs."""
    same = light.runs.join(most, on=RUN, how="inner")
    if not same.is_empty():
        each = (same["light_ms"] + think_ms) * same["capacity"] / 1000 / pipeline
        return mean_interval(each.to_numpy(), level)
    return product_interval(light.mean, _scaled(busiest.capacity, 1 / 1000 / pipeline), offset=think_ms)


def _scaled(interval: Interval, factor: float) -> Interval:
    low, high = (None if end is None else end * factor for end in (interval.low, interval.high))
    return replace(interval, estimate=interval.estimate * factor, low=low, high=high)


def _think_ms(rows: pl.DataFrame) -> float | None:
    """Z on average; None in an open loop."""
    if "think_ms" not in rows.columns:
        return 0.0
    known = rows["think_ms"].drop_nulls()
    return None if known.is_empty() else float(known.mean())  # type: ignore[arg-type]


def _bound_checks(
    rows: pl.DataFrame,
    busiest: Demand,
    most: pl.DataFrame,
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
    for (clients,), at in rows.sort("clients").group_by("clients", maintain_order=True):
        customers = int(clients) * pipeline
        own = at.select(*RUN, "throughput").join(most, on=RUN, how="left").join(light.runs, on=RUN, how="left")
        limits = [
            bounds(customers, capacity or means["capacity"], light_ms or means["light_ms"]).balanced[1]
            for capacity, light_ms in own.select("capacity", "light_ms").iter_rows()
        ]
        on_average = bounds(customers, **means)
        errors = [
            max(
                abs(bounds(customers, **{**means, name: end}).balanced[1] / on_average.balanced[1] - 1)
                for end in (interval.low, interval.high)
                if end is not None and end > 0
            )
            for name, interval in given.items()
            if own[name].null_count() and interval.high is not None
        ]
        excess = _widened(mean_interval(own["throughput"].to_numpy() / np.array(limits) - 1, level), errors)
        verdict = _within(excess, tolerance)
        checks.append(
            BoundCheck(
                clients=int(clients),
                bounds=on_average,
                throughput=mean_interval(at["throughput"].to_numpy(), level),
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
