"""Applies all laws to all points of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from knee.data.measurements import is_open_loop, label_of
from knee.data.trim import RUN
from knee.laws.demands import DemandReport, service_demands
from knee.laws.flow import ConservationCheck, conserved
from knee.laws.interactive import USABLE, InteractiveCheck, interactive_law
from knee.laws.pooled import FAMILIES, PooledCheck, pooled_checks
from knee.laws.residual import TOLERANCE, Rule
from knee.laws.stations import StationCheck, station_laws
from knee.stats.intervals import LEVEL


@dataclass(frozen=True)
class LawReport:
    """All checks, one entry per point and view, station or configuration.

    absent     by point, the declared request types that never occurred
    unusable   by point, the number of runs that the interactive law excludes
    clients    client count by point, if known
    labels     name by point: the levels of its factors other than the clients; empty if only the clients varied
    open_loop  whether no point has a think time, so that the interactive law does not apply
    derived    whether the response times were computed by the interactive law, which they so cannot violate
    notes      sentences on assumptions
    pooled     each law over all points together
    """

    interactive: tuple[InteractiveCheck, ...]
    stations: tuple[StationCheck, ...]
    conservation: tuple[ConservationCheck, ...]
    demands: tuple[DemandReport, ...]
    absent: Mapping[int, tuple[str, ...]]
    unusable: Mapping[int, int]
    clients: Mapping[int, int | None]
    labels: Mapping[int, str]
    tolerance: float
    open_loop: bool
    derived: bool = False
    notes: tuple[str, ...] = ()
    pooled: tuple[PooledCheck, ...] = ()

    @property
    def outliers(self) -> dict[tuple[int, int], tuple[str, float]]:
        """By point and repetition, the law whose residual departs most from the point's other repetitions, and by how
        much."""
        found: dict[tuple[int, int], tuple[str, float]] = {}
        compared = [(check.point, check.law, check.comparison) for check in self.stations]
        for check in self.interactive:
            compared += [(check.point, check.law, one) for one in check.judged]
        for point, law, one in compared:
            if (run := one.outlier) and abs(run.apart) > abs(found.get((point, run.repetition), ("", 0.0))[1]):
                found[point, run.repetition] = law, run.apart
        return found


def check_laws(
    observations: pl.DataFrame,
    *,
    types: pl.DataFrame | None = None,
    stations: pl.DataFrame | None = None,
    steadiness: pl.DataFrame | None = None,
    by: Sequence[str] = (),
    derived: bool = False,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
) -> LawReport:
    """Apply every law that the columns allow.

    Parameters
    ----------
    observations
        A row per point and repetition: the columns of :mod:`knee.data.observations` that exist.
    types, stations
        The same runs by request type (:func:`knee.laws.interactive.interactive_law`) and by station
        (:mod:`knee.laws.stations`).
    steadiness
        Result of :func:`knee.data.trim.steady_state`, as evidence on violations.
    by
        Factors other than the clients: columns of `observations` that distinguish configurations.
    derived
        Whether the response times were computed by the interactive law, which is then not checked.
    """
    runs = observations
    if steadiness is not None:
        drifting = steadiness.group_by(RUN).agg(
            # Unknown if no process recorded enough seconds for the test.
            pl.when((pl.col("verdict") != "cannot tell").any())
            .then(pl.col("verdict").is_in(["longer warm-up", "no steady state"]).any())
            .alias("unsteady")
        )
        runs = runs.join(drifting, on=RUN, how="left", maintain_order="left")
    runs = runs.sort(RUN)
    firsts = runs.unique("point", keep="first", maintain_order=True).select("point", *by)
    labels = {point: label_of(dict(zip(by, levels, strict=True))) for point, *levels in firsts.iter_rows()}
    rule = Rule(tolerance, level, _tests(runs, types, stations))
    interactive = [] if derived else interactive_law(runs, types, rule)
    of_stations = [] if stations is None else station_laws(runs, stations, rule)
    return LawReport(
        interactive=tuple(interactive),
        stations=tuple(of_stations),
        conservation=tuple(conserved(runs, level=level)),
        demands=()
        if stations is None
        else tuple(service_demands(runs, stations, by, tolerance=tolerance, level=level)),
        absent={} if types is None else _absent(types),
        unusable=_unusable(runs),
        clients=dict(runs.select("point", "clients").iter_rows()) if "clients" in runs.columns else {},
        labels=labels,
        tolerance=tolerance,
        open_loop="think_ms" in runs.columns and is_open_loop(runs),
        derived=derived,
        pooled=tuple(pooled_checks(interactive, of_stations, rule)),
    )


def _tests(runs: pl.DataFrame, types: pl.DataFrame | None, stations: pl.DataFrame | None) -> int:
    """Number of comparisons of all laws: of each view and request type, and of each law of a station."""
    views = 2 if "middleware_throughput" in runs.columns else 1
    count = views * runs["point"].n_unique()
    if types is not None:
        count += views * types.select("point", "request_type").n_unique()
    if stations is not None:
        laws = [pl.col(name).is_not_null().any() for name in ("queue_length", "utilization", "visits")]
        count += int(stations.group_by("point", "station").agg(pl.sum_horizontal(laws).alias("laws"))["laws"].sum())
    return FAMILIES * max(count, 1)


def _absent(types: pl.DataFrame) -> dict[int, tuple[str, ...]]:
    """By point, the request types with declared visits and a throughput of zero in some run."""
    if not {"visits", "throughput"} <= set(types.columns):
        return {}
    never = types.filter((pl.col("visits") > 0) & (pl.col("throughput") == 0)).sort("point")
    found = never.group_by("point", maintain_order=True).agg(pl.col("request_type").unique(maintain_order=True))
    return {point: tuple(names) for point, names in found.iter_rows()}


def _unusable(runs: pl.DataFrame) -> dict[int, int]:
    """By point, the number of runs that the interactive law excludes."""
    if not {"clients", "throughput", "response_ms"} <= set(runs.columns):
        return {}
    missing = runs.filter(~USABLE).group_by("point", maintain_order=True).agg(pl.len())
    return dict(missing.iter_rows())
