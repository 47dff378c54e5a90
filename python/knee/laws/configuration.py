"""The runs and stations of one configuration, as columns of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from knee.data.trim import RUN
from knee.stats.intervals import Floats

Level = int | float | str | bool
"""A factor's level."""

_Key = TypeVar("_Key")

Run = tuple[float, float]
"""Point and repetition."""

ROWS = (*RUN, "clients", "pipeline", "throughput", "response_ms", "think_ms")
OWN = (*RUN, "clients", "x", "servers", "visits", "service_ms", "demand_ms", "utilization", "capacity")


@dataclass(frozen=True, eq=False)
class Part:
    """The data of one configuration, or of its stations at one client count; NaN if unknown.

    rows  the columns ROWS of the observations that exist
    own   the columns OWN of the stations with a demand; `stations` and `software` are their names and kinds
    """

    rows: Mapping[str, Floats]
    own: Mapping[str, Floats]
    stations: Sequence[str]
    software: Sequence[bool]

    def at(self, clients: float) -> Part:
        """A copy with only the stations at this client count."""
        chosen = np.flatnonzero(self.own["clients"] == clients).tolist()
        return replace(
            self,
            own={name: values[chosen] for name, values in self.own.items()},
            stations=[self.stations[number] for number in chosen],
            software=[self.software[number] for number in chosen],
        )

    def of(self, station: str, column: str) -> dict[Run, float]:
        """The values of a station's column, by run."""
        there = np.array([name == station for name in self.stations])
        return dict(zip(runs_of(self.own, there), self.own[column][there].tolist(), strict=True))


def with_demands(stations: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
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
                pl.col("visits") * pl.col("service_ms"), 1000 * pl.col("utilization") * pl.col("servers") / pl.col("x")
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


def configurations(observations: pl.DataFrame, by: Sequence[str]) -> Iterable[tuple[tuple[Level, ...], list[int]]]:
    """The combinations of levels of `by`, each with its row numbers, in order of first occurrence."""
    if not by:
        return [((), list(range(observations.height)))]
    return row_numbers(observations.select(by).iter_rows()).items()


def without_demand(stations: pl.DataFrame) -> dict[int, list[tuple[str, str]]]:
    """By point, the stations whose demand is unknown in some run, with the reason."""
    found: dict[int, list[tuple[str, str]]] = {}
    for point, station, why in stations.drop_nulls("untold").select("point", "station", "untold").iter_rows():
        found.setdefault(point, []).append((station, why))
    return found


def floats(table: pl.DataFrame, name: str) -> Floats:
    """A column as an array; NaN for null."""
    return table[name].cast(pl.Float64).to_numpy()


def row_numbers(keys: Iterable[_Key]) -> dict[_Key, list[int]]:
    """The row numbers of every key, in order of first occurrence."""
    found: dict[_Key, list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault(key, []).append(number)
    return found


def given_rows(rows: dict[str, Floats]) -> dict[str, Floats]:
    """The configuration without clients if a row has none, as in an open loop."""
    return {name: values for name, values in rows.items() if name != "clients" or not np.isnan(values).any()}


def runs_of(table: Mapping[str, Floats], chosen: npt.NDArray[np.bool_] | slice) -> Iterable[Run]:
    """Point and repetition of the chosen rows."""
    return zip(*(table[key][chosen].tolist() for key in RUN), strict=True)


def think_ms_of(rows: Mapping[str, Floats]) -> float | None:
    """Mean of Z, ms; None in an open loop."""
    if "think_ms" not in rows:
        return 0.0
    known = rows["think_ms"][~np.isnan(rows["think_ms"])]
    return float(known.mean()) if known.size else None


def pipeline_of(rows: Mapping[str, Floats]) -> float:
    """Requests that a client of this configuration keeps in flight, on average over its runs."""
    return float(np.where(np.isnan(given := rows["pipeline"]), 1.0, given).mean()) if "pipeline" in rows else 1.0
