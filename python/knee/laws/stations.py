"""The laws of a single station: Little's law, the utilisation law, and the forced flow law between it and the system.

A table of stations has one row per run and station:

    point, repetition, station
    software     whether it is not a physical resource: its service time includes waiting for the resources behind it
    servers      m, customers that it serves at a time
    throughput   X_k, completed requests per second
    visits       V_k, declared visits of a request to the station
    service_ms   S_k, mean service time of a visit
    response_ms  W_k, mean time of a visit, including waiting
    queue_length Q_k, mean number of customers there
    utilization  U_k, mean share of busy servers
    untold       a phrase that says why the utilisation is unknown

All columns other than the keys may be null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.data.measurements import ROUNDING
from knee.data.trim import RUN
from knee.laws.residual import VISIBLE_MAX, Comparison, Law, Rule, Starts, Verdict, compare, grouped
from knee.stats.intervals import Floats

STATIONS = pl.Schema(
    {
        **dict.fromkeys(RUN, pl.Int64()),
        "station": pl.String(),
        "software": pl.Boolean(),
        **dict.fromkeys(("servers", "throughput", "visits", "service_ms", "response_ms"), pl.Float64()),
        **dict.fromkeys(("queue_length", "utilization"), pl.Float64()),
        "untold": pl.String(),
    }
)

WORKER_SLOTS, CONNECTIONS = "'s worker slots", "'s connections"
"""Suffixes of software stations with servers in a run folder; slots wait for connections."""

THREADS = "'s threads"
"""Suffix of stations that are the threads of a process."""

QUEUE_RESOLUTION = 0.05
"""In customers. Below this, rounding dominates a queue length's relative residual, so the absolute residual is
judged."""

UTILIZATION_RESOLUTION = 0.005
"""The corresponding limit for utilisations."""


@dataclass(frozen=True)
class StationCheck:
    """One law at one station and point, as a verdict on the `quantity`. `clients` is None if unknown.

    is_below_resolution  whether so little was there that counting could hide a violation of VISIBLE_MAX
    """

    point: int
    clients: int | None
    station: str
    law: str
    quantity: str
    comparison: Comparison
    verdict: Verdict
    is_below_resolution: bool


def _littles(of: Mapping[str, Floats]) -> Floats:
    return of["flow"] * of["response_ms"] / 1000


def _utilization(of: Mapping[str, Floats]) -> Floats:
    return of["flow"] * of["service_ms"] / 1000 / of["servers"]


def _forced_flow(of: Mapping[str, Floats]) -> Floats:
    return of["visits"] * of["system_throughput"]


_LAWS: tuple[tuple[str, str, tuple[str, ...], Law, float], ...] = (
    ("Little's law", "queue_length", ("flow", "response_ms"), _littles, QUEUE_RESOLUTION),
    ("the utilisation law", "utilization", ("flow", "service_ms", "servers"), _utilization, UTILIZATION_RESOLUTION),
    ("the forced flow law", "throughput", ("visits", "system_throughput"), _forced_flow, 0.0),
)
"""Each law: name, measured column, input columns, prediction, and the absolute difference that counts as rounding.

Q_k = X_k W_k (Little 1961), U_k = X_k S_k / m_k, X_k = V_k X (Denning & Buzen 1978; Jain 1991, §33.1–33.3).
"""


def station_laws(runs: pl.DataFrame, stations: pl.DataFrame, rule: Rule) -> list[StationCheck]:
    """Every law that the columns allow at every station, ordered by point.

    `runs` has a row per point and repetition, and `stations` is a table as above. A law ignores runs that are not in
    `runs`, and repetitions without all its quantities.
    """
    system = [pl.col("throughput").alias("system_throughput")] if "throughput" in runs.columns else []
    if "throughput" + ROUNDING in runs.columns:
        system.append(pl.col("throughput" + ROUNDING).alias("system_throughput" + ROUNDING))
    clients = pl.col("clients") if "clients" in runs.columns else pl.lit(None, pl.Int64).alias("clients")
    shared = runs.select(*RUN, clients.first().over("point"), *system)
    flows = _with_flow(
        stations.with_columns(pl.col("servers").fill_null(1.0)).join(shared, on=RUN, how="inner", maintain_order="left")
    )
    flows, starts = grouped(flows, "station")
    ends = np.append(starts, flows.height)
    flows = flows.with_columns(pl.Series("group", np.repeat(np.arange(starts.size), np.diff(ends))))
    checks: list[tuple[int, StationCheck]] = []
    for law, quantity, inputs, predict, resolution in _LAWS:
        names = (quantity, *inputs)
        if not set(names) <= set(flows.columns):
            continue
        known = flows.drop_nulls(names)
        # The rounding of a quantity is known for all of a station's repetitions or for none.
        rounded = [name + ROUNDING for name in names if name + ROUNDING in flows.columns]
        known = known.with_columns(
            pl.when(pl.col(name).is_not_null().all().over("group")).then(name) for name in rounded
        )
        known, starts = grouped(known, "station")
        comparisons = compare(known.select("repetition", *names, *rounded), starts, quantity, predict, rule)
        verdicts = _verdicts(comparisons, known, starts, quantity, resolution, rule)
        checks += [
            (group, StationCheck(point, clients, station, law, quantity.replace("_", " "), comparison, verdict, below))
            for (group, point, clients, station), comparison, (verdict, below) in zip(
                known.select("group", "point", "clients", "station")[starts].iter_rows(),
                comparisons,
                verdicts,
                strict=True,
            )
        ]
    return [check for _, check in sorted(checks, key=lambda numbered: numbered[0])]


def _verdicts(
    comparisons: Sequence[Comparison], known: pl.DataFrame, starts: Starts, quantity: str, resolution: float, rule: Rule
) -> list[tuple[Verdict, bool]]:
    if not comparisons:
        return []
    most = np.fmax.reduceat(known[quantity].to_numpy(), starts)
    rounded = np.zeros(starts.size)
    if quantity + ROUNDING in known.columns:
        halves = known[quantity + ROUNDING].to_numpy()
        rounded = np.nan_to_num(np.fmax.reduceat(halves, starts))
    return [
        _verdict(comparison, largest, half, resolution, rule)
        for comparison, largest, half in zip(comparisons, most.tolist(), rounded.tolist(), strict=True)
    ]


def _verdict(
    comparison: Comparison, most: float, rounded: float, resolution: float, rule: Rule
) -> tuple[Verdict, bool]:
    """The verdict on a quantity, and whether it is below its resolution; `most` is its largest measurement, and
    `rounded` the rounding error of measurements."""
    apart = abs(comparison.predicted.estimate - comparison.measured.estimate)
    below = resolution > VISIBLE_MAX * comparison.measured.estimate
    if apart <= resolution:
        return ("cannot tell" if below and apart > 0 else "holds"), below
    if most == 0:
        # A relative residual to zero is undefined, but a measured zero may be a rounded value.
        return ("violated" if apart > resolution + rounded else "cannot tell"), below
    return comparison.verdict(rule), below


def _with_flow(stations: pl.DataFrame) -> pl.DataFrame:
    """Add `flow`: the station's throughput, or if unknown, the system's throughput times the visits."""
    if "system_throughput" not in stations.columns:
        return stations.with_columns(pl.col("throughput").alias("flow"))
    columns = [pl.coalesce("throughput", pl.col("visits") * pl.col("system_throughput")).alias("flow")]
    if {"throughput" + ROUNDING, "system_throughput" + ROUNDING} <= set(stations.columns):
        forced = pl.col("visits") * pl.col("system_throughput" + ROUNDING)
        columns.append(pl.coalesce("throughput" + ROUNDING, forced).alias("flow" + ROUNDING))
    return stations.with_columns(columns)
