"""Converts a foreign CSV to the input of the laws: its rows, by request type and by station."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from knee.data.measurements import ROUNDING, STATION_QUANTITIES, Measurements, configuration, station_column
from knee.data.trim import RUN
from knee.errors import MeasurementsError
from knee.laws.findings import LawReport, check_laws
from knee.laws.interactive import USABLE
from knee.laws.residual import TOLERANCE
from knee.laws.stations import STATIONS
from knee.stats.intervals import LEVEL

ALL = frozenset({"all", "total"})
"""Request types that mean all requests together, in lower case."""

_QUEUE = "the queue"
_FLOWS = ("throughput", "middleware_throughput")
_EXACT = 1e-9
"""Largest relative difference between equal numbers of a file."""

_SHORT_DIGITS = 6
"""Of numbers with so few digits, N, X and R may agree exactly by chance."""

_TIMES = (("throughput", "response_ms"), ("middleware_throughput", "middleware_response_ms"))


def laws_of_measurements(found: Measurements, *, tolerance: float = TOLERANCE, level: float = LEVEL) -> LawReport:
    """Every law that the columns allow.

    Rows of several request types together describe the system. If each type has its own think time, that think time is
    already the rest of the cycle. Each row is then a system of its own.
    """
    by = configuration(found)
    if "rate" in found.factors and "rate" not in by and found.table["rate"].null_count():
        by.append("rate")
    table, types = found.table, None
    if "request_type" in found.factors:
        if _own_think_times(table, by):
            by.append("request_type")
        else:
            table, types = _split(found, by)
    table, points = _with_points(table, by)
    if types is not None:
        keys = [name for name in points.columns if name != "point"]
        types = types.join(points, on=keys, how="left", nulls_equal=True) if keys else types.join(points, how="cross")
        types = types.drop("clients", "think_ms", strict=False)
    stations, notes = _stations(found, table)
    notes = [*_single_type(found), *notes]
    derived = types is None and _derived(table)
    report = check_laws(table, types=types, stations=stations, by=by, derived=derived, tolerance=tolerance, level=level)
    return replace(report, notes=tuple(notes))


def _derived(table: pl.DataFrame) -> bool:
    """Whether every response time of the clients is N / X − Z to the last digit, in a closed loop."""
    if not {"clients", "throughput", "response_ms"} <= set(table.columns) or "middleware_throughput" in table.columns:
        return False
    if "rate" in table.columns and table["rate"].count():
        return False
    rows = table.filter(USABLE & pl.col("clients").is_not_null())
    think_ms = rows["think_ms"].fill_null(0.0).to_numpy() if "think_ms" in rows.columns else 0.0
    response_ms = rows["response_ms"].to_numpy()
    cycle_ms = 1000 * rows["clients"].to_numpy() / rows["throughput"].to_numpy()
    long = [float(f"{each:.{_SHORT_DIGITS - 1}e}") != each for each in response_ms.tolist()]
    return any(long) and bool((abs(cycle_ms - think_ms - response_ms) <= _EXACT * cycle_ms).all())


def _single_type(found: Measurements) -> list[str]:
    """A note on the assumption that the laws make about a file with a single request type."""
    if "request_type" in found.factors or "request_type" not in found.table.columns or "clients" not in found.table:
        return []
    only = str(found.table["request_type"][0])
    if only.lower() in ALL:
        return []
    return [
        f"Every row is about {only}: Knee assumes that clients send no other requests. If they do, give rows for the "
        "other types, or their time as think_ms."
    ]


def _clients(table: pl.DataFrame) -> list[str]:
    return ["clients"] if "clients" in table.columns else []


def _own_think_times(table: pl.DataFrame, by: list[str]) -> bool:
    keys = [*by, *_clients(table), "repetition"]
    return bool((table.group_by(keys).agg(pl.col("think_ms").n_unique())["think_ms"] > 1).any())


def _split(found: Measurements, by: list[str]) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The rows for all requests, one per run, and the rows of single types; None if there is only one type.

    Raises MeasurementsError for a run with two rows for all requests.
    """
    table = found.table
    keys = [*by, *_clients(table), "repetition"]
    is_all = pl.col("request_type").str.to_lowercase().is_in(sorted(ALL))
    types = table.filter(~is_all).drop("point")
    given = table.filter(is_all)
    if not (again := given.filter(~pl.struct(keys).is_first_distinct())).is_empty():
        raise MeasurementsError(
            f"{found.source}:{again['line'][0]}: a second row for all requests of the same run: request_type "
            f"{again['request_type'][0]} after another of {', '.join(sorted(ALL))}"
        )
    summed = types.group_by(keys, maintain_order=True).agg(
        *(_sum(name) for flow in _FLOWS for name in (flow, flow + ROUNDING) if name in types.columns),
        *(
            _mean(name, flow)
            for flow, time in _TIMES
            for name in (time, time + ROUNDING)
            if {name, flow} <= set(types.columns)
        ),
        *(
            # Columns that do not depend on the type are equal in all rows of a run.
            pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name)
            for name in types.columns
            if name.removesuffix(ROUNDING) == "think_ms" or station_column(name.removesuffix(ROUNDING))
        ),
    )
    system = summed
    if not given.is_empty():
        missing = summed.join(given, on=keys, how="anti", nulls_equal=True)
        system = pl.concat([given, missing], how="diagonal")
    return system, types if types["request_type"].n_unique() > 1 else None


def _sum(flow: str) -> pl.Expr:
    return pl.when(pl.col(flow).is_not_null().all()).then(pl.col(flow).sum()).alias(flow)


def _mean(time: str, flow: str) -> pl.Expr:
    """The mean over all requests, weighted by the types' throughputs; null if a type has no value."""
    complete = pl.col(time).is_not_null().all() & pl.col(flow).is_not_null().all()
    return pl.when(complete).then((pl.col(time) * pl.col(flow)).sum() / pl.col(flow).sum()).alias(time)


def _with_points(table: pl.DataFrame, by: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    keys = [*by, *_clients(table)]
    if not keys:
        alone = table.drop("point", strict=False).with_columns(pl.lit(0, pl.Int64).alias("point"))
        return alone, alone.select("point").head(1)
    points = table.select(keys).unique(maintain_order=True).with_row_index("point").cast({"point": pl.Int64})
    unnumbered = table.drop("point", strict=False)
    return unnumbered.join(points, on=keys, how="left", maintain_order="left", nulls_equal=True), points


def _stations(found: Measurements, table: pl.DataFrame) -> tuple[pl.DataFrame | None, list[str]]:
    """The columns of stations as rows, and notes on assumptions."""
    columns: dict[str, dict[str, str]] = {}
    for name in table.columns:
        if (column := station_column(name)) is not None:
            columns.setdefault(column[1], {})[column[0]] = name
    notes: list[str] = []
    frames = []
    if {"queue_length", "queueing_ms"} <= set(table.columns):
        columns[_QUEUE] = {"queue_length": "queue_length", "response_ms": "queueing_ms"}
    for station, quantities in columns.items():
        if not quantities.keys() - {"throughput", "response_ms"}:
            names = ", ".join(quantities.values())
            notes.append(f"{names}: left out, because no law applies without other columns of {station}.")
            continue
        own = [
            pl.col(column + end).alias(quantity + end)
            for quantity, column in quantities.items()
            for end in ("", ROUNDING)
            if column + end in table.columns
        ]
        software = pl.lit(found.kind_of(station) == "software").alias("software")
        frame = table.select(*RUN, pl.lit(station).alias("station"), software, *own)
        per_visit = {"service_ms", "response_ms"} & quantities.keys()
        if per_visit and not {"visits", "throughput"} & quantities.keys():
            frame = frame.with_columns(pl.lit(1.0).alias("visits"))
            if station != _QUEUE:
                notes.append(f"No column visits_{station}: Knee assumes one visit per request.")
        if "utilization" in quantities and "servers" not in quantities:
            notes.append(f"No column servers_{station}: Knee assumes one server.")
        frames.append(frame)
    if not frames:
        return None, notes
    rounded = {quantity + ROUNDING: pl.Float64() for quantity in STATION_QUANTITIES}
    schema = pl.Schema({**STATIONS, **rounded})
    return pl.concat([schema.to_frame(), *frames], how="diagonal_relaxed").select(list(schema)).cast(schema), notes
