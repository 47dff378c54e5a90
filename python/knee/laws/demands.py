"""Service demands, the bottleneck that they name, and how many clients it takes to reach it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from knee.bottleneck import SATURATED
from knee.intervals import LEVEL, Interval, mean_interval, product_interval
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

    excess  measured / upper bound − 1, over the repetitions: a bound holds as long as that is not above zero
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
    saturation    N* = (R + Z) / max(D_k / m_k), with R without waiting (Jain 1991, §34.4); None without that
    bounds        one per client count
    """

    factors: Mapping[str, Level]
    clients: int | None
    demands: tuple[Demand, ...]
    bottleneck: Demand | None
    doubt: str
    light_ms: Interval | None
    light_source: str
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
    reports = []
    groups = observations.group_by(list(by), maintain_order=True) if by else [((), observations)]
    for levels, rows in groups:
        own = _with_demands(stations, rows)
        if own.is_empty():
            continue
        reports.append(_report(dict(zip(by, levels, strict=True)), rows, own, tolerance, level))
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
    light_ms, light_source = _light(rows, own, demands, level)
    think_ms = _think_ms(rows)
    saturation = None
    busiest = bottleneck or (demands[0] if demands else None)
    if light_ms is not None and busiest is not None and think_ms is not None:
        saturation = product_interval(light_ms, _per_ms(busiest.capacity), offset=think_ms)
    checks = []
    if (
        has_clients
        and think_ms is not None
        and light_ms is not None
        and busiest is not None
        and "throughput" in rows.columns
    ):
        checks = _bound_checks(rows, busiest, light_ms.estimate, think_ms, tolerance, level)
    return DemandReport(
        factors,
        clients,
        demands,
        bottleneck,
        doubt,
        light_ms,
        light_source,
        think_ms or 0.0,
        saturation,
        tuple(checks),
    )


def _per_ms(capacity: Interval) -> Interval:
    low, high = (None if end is None else end / 1000 for end in (capacity.low, capacity.high))
    return replace(capacity, estimate=capacity.estimate / 1000, low=low, high=high)


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
    ratio = mean_interval((pairs["log"] - pairs["log_second"]).to_numpy(), level)
    if ratio.low is not None and ratio.low <= 0:
        return None, f"the repetitions do not tell {first.station} from {second.station}"
    if ratio.low is None and ratio.estimate <= 0:
        return None, f"{first.station} and {second.station} need the same"
    return first, "one repetition shows it" if ratio.low is None else ""


def _kind(station: str) -> str:
    """What a station is, whichever process it belongs to."""
    return re.sub(r"-\d+", "", station)


def _light(
    rows: pl.DataFrame, own: pl.DataFrame, demands: Sequence[Demand], level: float
) -> tuple[Interval | None, str]:
    if "response_ms" in rows.columns and "clients" in rows.columns:
        least = int(rows["clients"].min())  # type: ignore[arg-type]
        values = rows.filter(pl.col("clients") == least)["response_ms"].drop_nulls().to_numpy()
        if values.size and (least == 1 or rows["clients"].n_unique() > 1):
            return mean_interval(values, level), f"the response time at {least} clients"
    if own["service_ms"].null_count() == 0 and not own["software"].any():
        sums = own.group_by(RUN).agg(pl.col("demand_ms").sum())["demand_ms"].to_numpy()
        return mean_interval(sums, level), "the sum of all demands"
    return None, "only one client count was measured, so nothing shows the response time without waiting"


def _think_ms(rows: pl.DataFrame) -> float | None:
    """Z on average; None in an open loop."""
    if "think_ms" not in rows.columns:
        return 0.0
    known = rows["think_ms"].drop_nulls()
    return None if known.is_empty() else float(known.mean())  # type: ignore[arg-type]


def _bound_checks(
    rows: pl.DataFrame, busiest: Demand, light_ms: float, think_ms: float, tolerance: float, level: float
) -> list[BoundCheck]:
    """Whether throughput stays within what the busiest station and the response time without waiting allow."""
    demand_ms = min(busiest.demand_ms.estimate, light_ms)
    checks = []
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    for (clients,), at in (
        rows.with_columns(n=pl.col("clients") * pipeline).sort("clients").group_by("clients", maintain_order=True)
    ):
        bounds = throughput_bounds(
            float(at["n"].mean()),  # type: ignore[arg-type]
            [(demand_ms, max(1.0, busiest.servers))],
            think_ms,
            elsewhere_ms=light_ms - demand_ms,
        )
        excess = mean_interval(at["throughput"].to_numpy() / bounds.balanced[1] - 1, level)
        checks.append(
            BoundCheck(
                clients=int(clients),
                bounds=bounds,
                throughput=mean_interval(at["throughput"].to_numpy(), level),
                excess=excess,
                verdict=_within(excess, tolerance),
            )
        )
    return checks


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
