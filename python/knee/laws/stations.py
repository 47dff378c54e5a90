"""The laws of a single station: Little's law, the utilisation law, and the forced flow law between it and the system.

A table of stations has one row per run and station:

    point, repetition, station
    software     whether it is no physical resource: its service time contains waiting for those beneath it
    servers      m, how many customers it serves at a time
    throughput   X_k, requests per second that it completed
    visits       V_k, how often a request comes to it, as declared
    service_ms   S_k, mean time that a server is busy with a visit
    response_ms  W_k, mean time of a visit, waiting included
    queue_length Q_k, mean number of customers there
    utilization  U_k, mean share of busy servers

Everything but the keys may be null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from knee.intervals import LEVEL, Floats
from knee.laws.residual import TOLERANCE, Comparison, Law, Verdict, compare, judge, measured
from knee.measurements import ROUNDING
from knee.trim import RUN

STATIONS = pl.Schema(
    {
        "point": pl.Int64(),
        "repetition": pl.Int64(),
        "station": pl.String(),
        "software": pl.Boolean(),
        "servers": pl.Float64(),
        "throughput": pl.Float64(),
        "visits": pl.Float64(),
        "service_ms": pl.Float64(),
        "response_ms": pl.Float64(),
        "queue_length": pl.Float64(),
        "utilization": pl.Float64(),
    }
)

QUEUE_RESOLUTION = 0.05
"""Customers. Below it a queue's relative residual is all rounding, so the absolute one is judged instead."""

UTILIZATION_RESOLUTION = 0.005
"""The same for utilisations."""


@dataclass(frozen=True)
class StationCheck:
    """One law at one station and point. `clients` is None where nobody said how many there were."""

    point: int
    clients: int | None
    station: str
    law: str
    comparison: Comparison
    verdict: Verdict


def _littles(of: Mapping[str, Floats]) -> Floats:
    return of["flow"] * of["response_ms"] / 1000


def _utilization(of: Mapping[str, Floats]) -> Floats:
    return of["flow"] * of["service_ms"] / 1000 / of["servers"]


def _forced_flow(of: Mapping[str, Floats]) -> Floats:
    return of["visits"] * of["system_throughput"]


_LAWS: tuple[tuple[str, str, tuple[str, ...], Law, float], ...] = (
    ("Little's law", "queue_length", ("flow", "response_ms"), _littles, QUEUE_RESOLUTION),
    (
        "the utilisation law",
        "utilization",
        ("flow", "service_ms", "servers"),
        _utilization,
        UTILIZATION_RESOLUTION,
    ),
    ("the forced flow law", "throughput", ("visits", "system_throughput"), _forced_flow, 0.0),
)
"""Name, what is measured, from what it is predicted, how, and the absolute difference that is taken for rounding.

Q_k = X_k W_k (Little 1961), U_k = X_k S_k / m_k, X_k = V_k X (Denning & Buzen 1978; Jain 1991, §33.1–33.3).
"""


def station_laws(
    rows: pl.DataFrame, stations: pl.DataFrame, *, tolerance: float = TOLERANCE, level: float = LEVEL
) -> list[StationCheck]:
    """Every law that the columns allow at the stations of one point.

    `rows` are the point's repetitions, `stations` a table as above; other points in it are left out, and of each law
    the repetitions that lack one of its quantities.
    """
    system = [pl.col("throughput").alias("system_throughput")] if "throughput" in rows.columns else []
    shared = rows.select(*RUN, *system)
    if "throughput" + ROUNDING in rows.columns:
        shared = shared.with_columns(rows["throughput" + ROUNDING].alias("system_throughput" + ROUNDING))
    checks = []
    flows = _with_flow(stations.with_columns(pl.col("servers").fill_null(1.0)).join(shared, on=RUN, how="inner"))
    for (station,), own in flows.group_by("station", maintain_order=True):
        for law, quantity, inputs, predict, resolution in _LAWS:
            names = (quantity, *inputs)
            if not set(names) <= set(own.columns) or (known := own.drop_nulls(names)).is_empty():
                continue
            rounded = [name + ROUNDING for name in names if measured(known, name + ROUNDING)]
            comparison = compare(known.select(*names, *rounded), quantity, predict, level)
            checks.append(
                StationCheck(
                    point=int(rows["point"][0]),
                    clients=int(rows["clients"][0]) if "clients" in rows.columns else None,
                    station=str(station),
                    law=law,
                    comparison=comparison,
                    verdict=_verdict(comparison, known, quantity, resolution, tolerance),
                )
            )
    return checks


def _verdict(
    comparison: Comparison, known: pl.DataFrame, quantity: str, resolution: float, tolerance: float
) -> Verdict:
    apart = abs(comparison.predicted.estimate - comparison.measured.estimate)
    if apart <= resolution:
        return "holds"
    if known[quantity].max() == 0:
        # Nothing is a share of zero, but what was measured as zero may have been rounded to it.
        rounded = float(known[quantity + ROUNDING].max()) if measured(known, quantity + ROUNDING) else 0.0  # type: ignore[arg-type]
        return "violated" if apart > resolution + rounded else "cannot tell"
    return judge(comparison.residual, tolerance, comparison.rounding)


def _with_flow(stations: pl.DataFrame) -> pl.DataFrame:
    """Add `flow`: the station's throughput, or where nobody measured it that of the system times the visits."""
    if "system_throughput" not in stations.columns:
        return stations.with_columns(pl.col("throughput").alias("flow"))
    columns = [pl.coalesce("throughput", pl.col("visits") * pl.col("system_throughput")).alias("flow")]
    if {"throughput" + ROUNDING, "system_throughput" + ROUNDING} <= set(stations.columns):
        forced = pl.col("visits") * pl.col("system_throughput" + ROUNDING)
        columns.append(pl.coalesce("throughput" + ROUNDING, forced).alias("flow" + ROUNDING))
    return stations.with_columns(columns)
