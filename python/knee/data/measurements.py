"""Measurements: a table of observations with its factors and responses, from a CSV or a run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.observations import observations
from knee.data.trim import RUN

if TYPE_CHECKING:
    from knee.data import Dataset

KNOWN: Mapping[str, str] = {
    "repetition": "number of the repetition, from 1",
    "run_order": "place of the observation in the order of the runs",
    "clients": "N, virtual clients over all load hosts",
    "pipeline": "requests that each client keeps in flight; 1 unless given",
    "rate": "λ, requests per second that an open loop asked for",
    "throughput": "X, requests per second",
    "response_ms": "R, mean response time",
    "think_ms": "Z, mean think time",
    "queueing_ms": "mean waiting time",
    "service_ms": "mean service time",
    "queue_length": "mean number of waiting requests",
    "middleware_throughput": "X as the middlewares counted it",
    "middleware_response_ms": "R as the middlewares saw it",
    "request_type": "which requests the row is about",
    "visits": "requests of that type in a round of a client",
}
"""Columns that are no factors, besides those of stations."""

STATION_QUANTITIES: Mapping[str, str] = {
    "utilization": "U, mean share of the station's servers that are busy, 0 to 1",
    "servers": "m, customers that it serves at a time; 1 unless given",
    "visits": "V, how often a request comes to it; 1 unless given",
    "throughput": "visits that it completed, per second",
    "service_ms": "S, mean time that a server is busy with a visit",
    "response_ms": "W, mean time of a visit, waiting included",
    "queue_length": "Q, mean number of customers there",
}
"""Columns `QUANTITY_STATION`: what a row says of a station, such as `utilization_database`."""

ROUNDING = " rounding"
"""Ends the name of a column that says how far the column of that name may have been rounded, in the same unit."""

RESPONSES = ("throughput", "response_ms", "queueing_ms", "service_ms", "queue_length")
"""What a factorial analysis can explain, as far as it was measured."""

CLIENTS = "load.clients"
"""The factor of a run over which a knee is sought; every combination of the others is a configuration."""

_STATION = re.compile(rf"({'|'.join(STATION_QUANTITIES)})_(.+)")


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements, checked.

    table      `point` and `repetition`, and every column of the file under its known name; `think_ms` is always
               there. From a file also `line`, where a row begins in it, and beside each known number how far it may
               have been rounded (ROUNDING); from a run folder also what :mod:`observations` has, and `run_order`
    factors    columns with two levels or more: unknown ones, and `rate`, `clients`, `pipeline` and `request_type` where
               they are not settled by the others; in the file's order
    responses  which of RESPONSES were measured
    constant   settings that were the same in every row, with what they were: columns that are no factors therefore, and
               everything that an experiment says
    notes      what was assumed or left out
    """

    source: str
    table: pl.DataFrame
    factors: tuple[str, ...]
    responses: tuple[str, ...]
    notes: tuple[str, ...]
    constant: Mapping[str, object]


def of_run(dataset: Dataset) -> Measurements:
    """The trimmed observations of a run folder, in the same form; runs are ordered by their start seconds."""
    starts = dataset.points.select(*RUN, pl.col("start_unix_s").cast(pl.Float64).alias("run_order"))
    table = observations(dataset).join(starts, on=RUN, how="left", maintain_order="left")
    factors = tuple(name for name in dataset.factors if table[name].n_unique() > 1)
    constant = {name: table[name][0] for name in dataset.factors if name not in factors and not table.is_empty()}
    responses = tuple(name for name in RESPONSES if table[name].is_not_null().any())
    notes = (left_out(constant),) if constant else ()
    return Measurements(str(dataset.path), table, factors, responses, notes, dataset.constant | constant)


def configuration(found: Measurements | Dataset) -> list[str]:
    """The factors that tell configurations apart: neither the request type, nor what the clients follow from.

    Unless the clients alone leave rows that only those tell apart: 2 hosts of 4 clients each, and 4 of 2. Of a run
    folder it is known which factor sets the clients: every other one.
    """
    if not isinstance(found, Measurements):
        return [name for name in found.factors if name != CLIENTS]
    others = [name for name in found.factors if name not in ("clients", "request_type")]
    if "clients" not in found.table.columns or "clients" in found.factors:
        return others

    def moves_clients(factor: str) -> bool:
        rest = [name for name in others if name != factor]
        counts = found.table.group_by(rest) if rest else found.table.group_by(pl.lit(0))
        return bool((counts.agg(pl.col("clients").n_unique())["clients"] > 1).any())

    apart = [name for name in others if not moves_clients(name)]
    keys = [*apart, "clients", "repetition", *(["request_type"] if "request_type" in found.table.columns else [])]
    return others if found.table.select(keys).is_duplicated().any() else apart


def is_open_loop(table: pl.DataFrame) -> bool:
    """Whether no row has clients that wait for an answer before the next request; False without rows."""
    return bool(table.height and table["think_ms"].is_null().all())


def label_of(factors: Mapping[str, int | float | str | bool | None]) -> str:
    """A combination of levels in words; empty without factors. An open or a closed loop may lack some levels."""
    return ", ".join(f"{name} = {'none' if level is None else level}" for name, level in factors.items())


def station_column(name: str) -> tuple[str, str] | None:
    """The quantity and the station of a column of a station; None for every other column."""
    found = None if name in KNOWN or name.endswith(ROUNDING) else _STATION.fullmatch(name)
    return (found[1], found[2]) if found else None


def is_known(name: str) -> bool:
    """Whether a column has a fixed meaning, so that it is no factor."""
    return name in KNOWN or station_column(name) is not None


def left_out(constant: Mapping[str, object]) -> str:
    """The note on columns that are no factors because they are constant."""
    return f"The same in every row, so no factor: {', '.join(f'{name} = {level}' for name, level in constant.items())}."


def constant_in_words(name: str, level: object) -> str:
    """What a setting was that did not vary."""
    return f"{name} was not set" if level is None else f"{name} was {level} throughout"


def columns_in_words(names: Sequence[str]) -> str:
    """What columns there are to choose from."""
    return f"the columns are {', '.join(names)}" if len(names) > 1 else f"the only column is {names[0]}"
