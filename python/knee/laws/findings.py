"""All laws on all points of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from knee.intervals import LEVEL
from knee.laws.demands import DemandReport, service_demands
from knee.laws.flow import ConservationCheck, conserved
from knee.laws.interactive import InteractiveCheck, interactive_law, usable
from knee.laws.residual import TOLERANCE
from knee.laws.stations import StationCheck, station_laws
from knee.laws.text import sentences
from knee.trim import RUN


@dataclass(frozen=True)
class LawReport:
    """All checks, one entry per point and view, station or configuration.

    labels     what to call a point: the levels of its factors other than the clients; empty where nothing else varied
    sentences  the findings in words, the interactive law first
    notes      what was assumed
    """

    interactive: tuple[InteractiveCheck, ...]
    stations: tuple[StationCheck, ...]
    conservation: tuple[ConservationCheck, ...]
    demands: tuple[DemandReport, ...]
    labels: Mapping[int, str]
    tolerance: float
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check_laws(
    observations: pl.DataFrame,
    *,
    types: pl.DataFrame | None = None,
    stations: pl.DataFrame | None = None,
    steadiness: pl.DataFrame | None = None,
    by: Sequence[str] = (),
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
) -> LawReport:
    """Apply every law that the columns allow.

    Parameters
    ----------
    observations
        A row per point and repetition (:mod:`knee.observations`, or as much of it as there is).
    types, stations
        The same runs by request type (:func:`knee.laws.interactive.interactive_law`) and by station
        (:mod:`knee.laws.stations`).
    steadiness
        What :func:`knee.trim.steady_state` found: evidence when a law is violated.
    by
        Factors other than the clients: columns of `observations` that tell configurations apart.
    """
    runs = observations
    if steadiness is not None:
        drifting = steadiness.group_by(RUN).agg(
            # Unknown where no run was long enough for the test.
            pl.when((pl.col("verdict") != "cannot tell").any())
            .then(pl.col("verdict").is_in(["longer warm-up", "no steady state"]).any())
            .alias("unsteady")
        )
        runs = runs.join(drifting, on=RUN, how="left", maintain_order="left")
    interactive: list[InteractiveCheck] = []
    of_stations: list[StationCheck] = []
    conservation: list[ConservationCheck] = []
    labels: dict[int, str] = {}
    unusable: list[tuple[int, int, int]] = []
    complete = {"clients", "throughput", "response_ms"} <= set(runs.columns)
    types_at, stations_at = _by_point(types), _by_point(stations)
    for (point,), rows in runs.sort("point", "repetition").group_by("point", maintain_order=True):
        labels[int(point)] = ", ".join(f"{name} = {rows[name][0]}" for name in by)
        interactive += interactive_law(
            rows,
            types_at.get(int(point)),
            tolerance=tolerance,
            level=level,
        )
        if complete and (missing := rows.height - usable(rows).height):
            unusable.append((int(point), int(rows["clients"][0]), missing))
        if int(point) in stations_at:
            of_stations += station_laws(rows, stations_at[int(point)], tolerance=tolerance, level=level)
        balance = conserved(rows, level=level)
        if balance is not None:
            conservation.append(balance)
    demands = [] if stations is None else service_demands(runs, stations, by, tolerance=tolerance, level=level)
    return LawReport(
        tuple(interactive),
        tuple(of_stations),
        tuple(conservation),
        tuple(demands),
        labels,
        tolerance,
        tuple(sentences(interactive, of_stations, conservation, demands, labels, unusable, tolerance)),
    )


def _by_point(table: pl.DataFrame | None) -> dict[int, pl.DataFrame]:
    return {} if table is None else {int(own["point"][0]): own for own in table.partition_by("point")}
