"""The measurements of one system: from run folders of equal settings, from a table, or from one level of a factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from knee.compare.findings import Point
from knee.data.hdr import Histogram
from knee.data.measurements import CLIENTS, Measurements, of_run
from knee.data.reading import machines
from knee.data.trim import RUN
from knee.errors import MeasurementsError
from knee.laws.foreign import ALL as ALL_TYPES
from knee.verdict.distributions import ALL, Merged, merged
from knee.verdict.failures import requests
from knee.verdict.levels import has_errors
from knee.verdict.outcomes import OUTCOMES

if TYPE_CHECKING:
    from knee.data import Dataset

QUANTITIES = ("throughput", "response_ms", "p50_ms", "p99_ms", "queueing_ms", "service_ms")
"""What is compared, if it was measured; the last two are stages of the middleware."""

LOADS = ("clients", "rate", "pipeline", "think_ms")
"""Known columns of a table that describe the load."""

_DEFAULTS = {"pipeline": 1}
_ORIGIN = ("knee", "git", "python", "host", "programs", "links_emulated")
_KEY = ["run", *RUN]
_RENAMED = {CLIENTS: "clients"}
"""Settings of run folders that tables have under another name."""


@dataclass(frozen=True, eq=False)
class Side:
    """The measurements of one system.

    name      for messages
    table     the observations, with the number of their `run`, from 0
    values    `run, point, repetition, operation, quantity, value`; only a throughput may be 0 or less
    factors   columns that distinguish points
    constant  settings that are equal at all points
    origin    versions and machine, by dotted name
    shared    whether the run has another system as well: they differ by the level of a factor
    timed     whether `run_order` is the time of each start, as in run folders, so that it compares with other runs
    """

    name: str
    table: pl.DataFrame
    values: pl.DataFrame
    factors: tuple[str, ...]
    constant: Mapping[str, object]
    origin: Mapping[str, object]
    shared: bool = False
    timed: bool = False

    @property
    def runs(self) -> int:
        """The number of run folders or tables."""
        return self.table["run"].n_unique()

    @property
    def failed(self) -> float:
        """Failed share of the requests; 0 if unknown."""
        if not has_errors(self.table):
            return 0.0
        asked = float((self.table["throughput"] * self.table["observed_s"]).sum())
        return float(self.table["errors"].sum()) / asked if asked else 0.0

    @property
    def quantities(self) -> set[str]:
        """The quantities that were measured."""
        return {*self.values["quantity"]}

    def keyed(self, keys: Sequence[str]) -> pl.DataFrame:
        """The observations, with a column for each key: a factor, or a constant setting."""
        constant = [
            pl.lit(self.constant.get(name, _DEFAULTS.get(name))).alias(name)
            for name in keys
            if name not in self.table.columns
        ]
        return self.table.with_columns(constant)

    def points(self, keys: Sequence[str]) -> dict[tuple[int, int, int], Point]:
        """The settings by run, point and repetition."""
        rows = self.keyed(keys).select(*_KEY, *keys).iter_rows()
        return {row[:3]: tuple(zip(keys, row[3:], strict=True)) for row in rows}


def side_of(name: str, sources: Sequence[Dataset | Measurements]) -> Side:
    """The system of these runs. Raises MeasurementsError if their settings differ."""
    sides = [_side(name, source, run) for run, source in enumerate(sources)]
    first = sides[0]
    for other in sides[1:]:
        if other.factors != first.factors or other.constant != first.constant:
            raise MeasurementsError(
                f"{name}: its runs have different settings, so they are not of one system: pass them one by one"
            )
    return replace(
        first,
        origin=_common([side.origin for side in sides]),
        table=pl.concat([side.table for side in sides], how="diagonal_relaxed"),
        values=pl.concat([side.values for side in sides]),
    )


def _common(origins: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The origin of several runs: where these differ, all values as text."""
    found: dict[str, object] = {}
    for name in dict.fromkeys(name for origin in origins for name in origin):
        values = [origin.get(name) for origin in origins]
        same = all(value == values[0] for value in values)
        found[name] = values[0] if same else " and ".join(dict.fromkeys(map(str, values)))
    return found


def sides_between(name: str, source: Dataset | Measurements, factor: str) -> list[Side]:
    """A system for each level of a factor, in the order of the file. Raises MeasurementsError if it is no factor."""
    whole = _side(name, source, 0)
    factor = _RENAMED.get(factor, factor)
    if factor not in whole.factors:
        raise MeasurementsError(
            f"--between {factor}: is not a factor of {name}: expected {' or '.join(whole.factors) or 'a factor'}"
        )
    sides = []
    for level in whole.table.sort(RUN)[factor].unique(maintain_order=True).to_list():
        table = whole.table.filter(pl.col(factor).eq_missing(pl.lit(level)))
        sides.append(
            replace(
                whole,
                name=f"{factor} = {level}",
                table=table.drop(factor),
                values=whole.values.join(table.select(_KEY), on=_KEY, how="semi"),
                factors=tuple(each for each in whole.factors if each != factor),
                constant={**whole.constant, factor: level},
                shared=True,
            )
        )
    return sides


def _side(name: str, source: Dataset | Measurements, run: int) -> Side:
    found = source if isinstance(source, Measurements) else of_run(source)
    table = found.table
    operation = pl.lit(ALL)
    if "request_type" in table.columns:
        kind = pl.col("request_type")
        operation = pl.when(kind.str.to_lowercase().is_in(list(ALL_TYPES))).then(pl.lit(ALL)).otherwise(kind)
    good = pl.col("throughput")
    if has_errors(table):
        good -= pl.col("errors").fill_null(0) / pl.col("observed_s")
    values = [
        table.select(
            *RUN,
            operation.alias("operation"),
            pl.lit(quantity).alias("quantity"),
            (good if quantity == "throughput" else pl.col(quantity)).cast(pl.Float64).alias("value"),
        )
        for quantity in QUANTITIES
        if quantity in table.columns
    ]
    origin: dict[str, object] = {}
    if not isinstance(source, Measurements):
        values.append(_operations(source, table))
        cluster = machines(source.manifest.get("cluster", {})) or None
        origin = dict(_flat({**{name: source.manifest.get(name) for name in _ORIGIN}, "cluster": cluster}))
    known = pl.col("value").is_finite() & ((pl.col("value") > 0) | (pl.col("quantity") == "throughput"))
    return Side(
        name,
        table.with_columns(pl.lit(run).alias("run")),
        pl.concat(values).filter(known).select(pl.lit(run).alias("run"), pl.all()),
        tuple(_RENAMED.get(name, name) for name in found.factors if name != "request_type"),
        {_RENAMED.get(name, name): value for name, value in found.constant.items()},
        origin,
        timed=not isinstance(source, Measurements),
    )


def _operations(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """Percentiles of all requests; and throughput and response times of each operation, if there are several."""
    histograms = merged(dataset)
    seconds = {(point, repetition): s for point, repetition, s in table.select(*RUN, "observed_s").iter_rows()}
    rows: list[tuple[int, int, str, str, float]] = []
    names = set()
    for point, repetition, op, count, errors in requests(dataset).iter_rows():
        names.add(op)
        if count and (point, repetition) in seconds:
            rows.append((point, repetition, op, "throughput", (count - errors) / seconds[point, repetition]))
    for (point, repetition, op), one in _of_clients(histograms).items():
        times = {"p50_ms": one.percentile(50), "p99_ms": one.percentile(99)}
        times |= {} if op == ALL else {"response_ms": one.mean}
        rows += [(point, repetition, op, quantity, ns / 1e6) for quantity, ns in times.items()]
    schema = {**dict.fromkeys(RUN, pl.Int64()), **dict.fromkeys(("operation", "quantity"), pl.String())}
    frame = pl.DataFrame(rows, schema={**schema, "value": pl.Float64()}, orient="row")
    return frame if len(names) > 1 else frame.filter(pl.col("operation") == ALL)


def _of_clients(histograms: Merged) -> dict[tuple[int, int, str], Histogram]:
    parts: dict[tuple[int, int, str], list[Histogram]] = {}
    for (point, repetition, role, op), one in histograms.items():
        if role == "load":
            for name in ("read" if op in OUTCOMES else op, ALL):
                parts.setdefault((point, repetition, name), []).append(one)
    return {key: Histogram.merge(each) for key, each in parts.items()}


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in values.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found
