"""Measurements: a table of observations with its factors and responses, from a CSV or a run folder."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import polars as pl

from knee.data.observations import observations
from knee.data.trim import RUN
from knee.errors import MeasurementsError

if TYPE_CHECKING:
    from knee.data import Dataset

KNOWN: Mapping[str, str] = {
    "repetition": "number of the repetition, from 1",
    "run_order": "place of the observation in the order of the runs",
    "clients": "N, virtual clients over all load hosts",
    "pipeline": "requests that each client keeps in flight; 1 by default",
    "rate": "λ, arrival rate of an open loop, requests per second",
    "throughput": "X, requests per second",
    "response_ms": "R, mean response time",
    "max_ms": "longest response time",
    "think_ms": "Z, mean think time",
    "queueing_ms": "mean waiting time",
    "service_ms": "mean service time",
    "queue_length": "mean number of waiting requests",
    "middleware_throughput": "X in the middlewares' view",
    "middleware_response_ms": "R in the middlewares' view",
    "request_type": "request type that the row covers",
    "visits": "requests of that type in a round of a client",
    "duration_s": "length of the measurement",
    "requests": "number of requests in it",
    "errors": "number of failed requests in it",
}
"""Columns that are not factors, in addition to those of stations and percentiles."""

PERCENTILE = re.compile(r"p(\d\d?)(\d*)_ms")
"""Percentiles of the response time, such as `p50_ms` and `p999_ms`."""

STATION_QUANTITIES: Mapping[str, str] = {
    "utilization": "U, mean share of the station's servers that are busy, 0 to 1",
    "servers": "m, customers that the station serves at a time; 1 by default",
    "visits": "V, visits of a request to the station; 1 by default",
    "throughput": "completed visits per second",
    "service_ms": "S, mean service time of a visit",
    "response_ms": "W, mean time of a visit, including waiting",
    "queue_length": "Q, mean number of customers there",
}
"""Columns `QUANTITY_STATION`: measurements of one station, such as `utilization_database`."""

ROUNDING = " rounding"
"""Suffix of the column with the largest rounding error of a measured column, in the same unit."""

RESPONSES = ("throughput", "response_ms", "queueing_ms", "service_ms", "queue_length")
"""The columns that a factorial analysis can explain."""

CLIENTS = "load.clients"
"""The load factor of a knee analysis; every combination of the other factors is a configuration."""

StationKind = Literal["station", "generator", "software"]
"""A physical resource, the load generator's own resource, or software that is also busy while it waits for another
station, such as a pool."""

_GENERATOR = re.compile(
    r"(load|loads|client|clients|generators?|load_?gen|load_generators?|load_clients?)"
    r"(_?(cpus?|cores?|threads?|hosts?|machines?|network|net|nic|link))*_?\d*"
)
"""Stations that are the load generator's by their name, in lower case with underscores."""

_SOFTWARE = re.compile(r"(.*_)?(slots?|pools?|workers?|connections?)(_?\d+)?")
"""Stations that are software by the last word of their name."""

_STATION = re.compile(rf"({'|'.join(STATION_QUANTITIES)})_(.+)")


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements, checked.

    table      `point` and `repetition`, and every column of the file under its known name; `think_ms` is always
               there. A file adds `line`, the first line of each row, and a ROUNDING column for each known number. A run
               folder adds the columns of :mod:`observations`, and `run_order`
    factors    columns with two levels or more: unknown ones, and `rate`, `clients`, `pipeline` and `request_type` if
               other factors do not determine these; in the file's order
    responses  which of RESPONSES were measured
    declared   kinds of stations that a flag declares; the others have a kind by their name
    constant   settings that are equal in every row, with their values: constant columns, and settings of an experiment
               file
    notes      sentences on assumptions and omissions
    """

    source: str
    table: pl.DataFrame
    factors: tuple[str, ...]
    responses: tuple[str, ...]
    notes: tuple[str, ...]
    constant: Mapping[str, object]
    declared: Mapping[str, StationKind] = field(default_factory=dict)

    @property
    def stations(self) -> tuple[str, ...]:
        """The stations of a file, in the order of its columns."""
        found = (station_column(name) for name in self.table.columns)
        return tuple(dict.fromkeys(each[1] for each in found if each is not None))

    def kind_of(self, station: str) -> StationKind:
        """The kind of a station: as declared, or by its name."""
        return self.declared.get(station) or kind_by_name(station)

    def with_kinds(self, declared: Mapping[str, StationKind]) -> Measurements:
        """The measurements with declared kinds of stations. Raises MeasurementsError for an unknown station."""
        for station, kind in declared.items():
            if station not in self.stations:
                raise MeasurementsError(
                    f"--{kind}: {self.source} has no columns of a station {station}: expected "
                    f"{' or '.join(self.stations) or 'a table with columns such as utilization_disk'}"
                )
        return replace(self, declared={**self.declared, **declared})


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
    """The factors that distinguish configurations: all but the request type and the factors that determine the clients.
    Such factors stay if rows with equal clients differ in them, such as 2 hosts of 4 clients and 4 hosts of 2. In a
    run folder the factor that sets the clients is known, so all others stay.
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
    """Whether every row is of an open loop; False without rows."""
    return bool(table.height and table["think_ms"].is_null().all())


def label_of(factors: Mapping[str, int | float | str | bool | None]) -> str:
    """A combination of levels as text; empty without factors. Some levels may be missing in an open or a closed
    loop."""
    return ", ".join(f"{name} = {'none' if level is None else level}" for name, level in factors.items())


def station_column(name: str) -> tuple[str, str] | None:
    """The quantity and the station of a column of a station; None for every other column."""
    found = None if name in KNOWN or name.endswith(ROUNDING) else _STATION.fullmatch(name)
    return (found[1], found[2]) if found else None


def kind_by_name(station: str) -> StationKind:
    """The kind of a station by its name: `client_cpu` is the load generator's, and `db_pool` is software."""
    plain = re.sub(r"\W+", "_", station.lower())
    if _GENERATOR.fullmatch(plain):
        return "generator"
    return "software" if _SOFTWARE.fullmatch(plain) else "station"


def is_known(name: str) -> bool:
    """Whether a column has a fixed meaning and so is not a factor."""
    return name in KNOWN or station_column(name) is not None or PERCENTILE.fullmatch(name) is not None


def left_out(constant: Mapping[str, object]) -> str:
    """The note on constant columns, which are not factors."""
    return f"Equal in every row, so not a factor: {', '.join(f'{name} = {level}' for name, level in constant.items())}."


def constant_in_words(name: str, level: object) -> str:
    """A clause with the value of a constant setting."""
    return f"{name} was not set" if level is None else f"{name} was {level} throughout"


def nearest_in_words(name: str, columns: Sequence[str]) -> str:
    """A clause that names the column that an unknown name may mean, or all columns."""
    near = difflib.get_close_matches(name, columns, 1)
    return f"did you mean {near[0]}?" if near else columns_in_words(columns)


def columns_in_words(names: Sequence[str]) -> str:
    """A clause with the names of the columns."""
    return f"the columns are {', '.join(names)}" if len(names) > 1 else f"the only column is {names[0]}"
