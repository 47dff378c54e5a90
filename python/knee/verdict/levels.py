"""The effect of the only factor on throughput, or in an open loop on response time. Pure.

With several factors, a factorial analysis shows which one matters. With one factor, the question is which levels are
best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from knee.data.measurements import is_open_loop
from knee.stats.comparisons import scattered_mean, shares_apart
from knee.stats.intervals import LEVEL, Floats, Interval
from knee.verdict.knee import PLATEAU

_LOADS = ("clients", "rate")
"""Factors that describe the load; the knee and the arrivals analyse these."""

_KEYS = frozenset(f"{table}{name}" for table in ("", "workload.") for name in ("multiget", "bulk_keys", "scan_keys"))
"""Factors that set the number of keys in a request."""

Level = int | float | str | bool

Name = Level | None
"""The name of a level; None in a row without one."""


class Measured(NamedTuple):
    """The measurements at a level, over the repetitions."""

    level: Name
    found: Interval


REQUESTS, KEYS = "requests/s", "keys/s"


@dataclass(frozen=True)
class Levels:
    """The measurements at every level of a factor.

    response    "throughput" (more is better) or "response_ms" (less is better)
    unit        of throughput: keys/s if the number of keys in a request varies
    measured    measurements of every level, in order; without an interval if there is one repetition or no variance
    best        the comparable level with the best mean; None if the comparison needs more repetitions
    behind      relative deficit of the other comparable levels to the best, with an interval if the noise is known
    overloaded  levels at which throughput significantly falls behind the arrival rate: their queues grow, so their
                response times are not compared
    unsure      levels that may not follow the arrival rate: not compared either
    failing     by level, the failed share of the requests if it exceeds PLATEAU; throughput excludes failed requests,
                and response times are not compared
    """

    factor: str
    response: str
    measured: tuple[Measured, ...]
    best: Measured | None
    behind: tuple[Measured, ...]
    overloaded: tuple[Name, ...] = ()
    unsure: tuple[Name, ...] = ()
    failing: tuple[tuple[Name, float], ...] = ()
    unit: str = REQUESTS

    @property
    def of_throughput(self) -> bool:
        """Whether levels are compared by throughput."""
        return self.response == "throughput"

    @property
    def apart(self) -> frozenset[Name]:
        """Levels whose response times cannot be compared."""
        if self.of_throughput:
            return frozenset()
        return frozenset((*self.overloaded, *self.unsure, *(level for level, _ in self.failing)))

    @property
    def few(self) -> list[Measured]:
        """Levels that could be compared with more repetitions."""
        return [one for one in self.measured if one.level not in self.apart and one.found.repetitions < 2]


def levels(
    table: pl.DataFrame, factors: Sequence[str], keeps_up: Mapping[int, bool | None] | None = None, level: float = LEVEL
) -> Levels | None:
    """The levels of the only factor. None if several factors vary, none, or only the load; if there are fewer than two
    levels; or if some rows are of a closed and others of an open loop.

    Parameters
    ----------
    table
        Rows of :mod:`knee.data.observations`.
    keeps_up
        By point of an open loop with a measured throughput: whether it follows the arrival rate; None if unknown. If
        throughput follows at no level, levels are compared by throughput.
    """
    varies = any(name in table.columns and table[name].n_unique() > 1 for name in _LOADS)
    if len(factors) != 1 or varies or factors[0] in (*_LOADS, "request_type"):
        return None
    (factor,) = factors
    if table["think_ms"].null_count() not in (0, table.height):
        return None
    unit = unit_of(table, factors)
    table = in_unit(table, unit)
    rows: dict[Name, pl.DataFrame] = {
        at[factor][0]: at for _, at in table.sort(factor).group_by(factor, maintain_order=True)
    }
    failed = {at: share_failed(of) for at, of in rows.items()}
    failing = tuple((at, share) for at, share in failed.items() if share > PLATEAU)
    follow = {at: _follows(of, keeps_up or {}) for at, of in rows.items()} if is_open_loop(table) else {}
    overloaded = tuple(at for at, follows in follow.items() if follows is False)
    unsure = tuple(at for at, follows in follow.items() if follows is None)
    steady = [at for at in follow if at not in (*overloaded, *unsure, *dict(failing))]
    response = "response_ms" if steady else "throughput"
    if response not in table.columns or (unit is None and response == "throughput"):
        return None
    samples = {at: sample(of, response) for at, of in rows.items()}
    measured = tuple(Measured(at, scattered_mean(values, level)) for at, values in samples.items())
    if len(measured) < 2 or not any((values > 0).any() for values in samples.values()):
        return None
    compared = steady or list(rows)
    repeated = {at: samples[at] for at in compared if samples[at].size > 1}
    if not repeated or len(repeated) < min(2, len(compared)):
        return Levels(factor, response, measured, None, (), overloaded, unsure, failing, unit or REQUESTS)
    best = (max if response == "throughput" else min)(repeated, key=lambda at: float(repeated[at].mean()))
    if not repeated[best].mean() > 0:
        return None
    behind = tuple(Measured(at, share) for at, share in shares_apart(repeated, best, level).items())
    crowned = next(one for one in measured if one.level == best)
    return Levels(factor, response, measured, crowned, behind, overloaded, unsure, failing, unit or REQUESTS)


def unit_of(table: pl.DataFrame, factors: Sequence[str]) -> str | None:
    """The unit in which throughputs compare. Requests with more keys are fewer and larger, so if a factor sets the keys
    of a request, throughputs compare in keys/s; None if the table has no number of keys. A factor with other levels,
    such as whole and sharded, sets how a request is sent."""
    if not any(table[name].dtype.is_numeric() for name in _KEYS.intersection(factors)):
        return REQUESTS
    return KEYS if has_errors(table) and "items" in table.columns else None


def in_unit(rows: pl.DataFrame, unit: str | None) -> pl.DataFrame:
    """The rows with throughput in this unit."""
    if unit != KEYS:
        return rows
    each = (pl.col("items").fill_null(0) / (pl.col("throughput") * pl.col("observed_s"))).fill_nan(0.0)
    return rows.with_columns(pl.col("throughput") * each, (pl.col("errors") * each).alias("errors"))


def sample(of_level: pl.DataFrame, response: str) -> Floats:
    """The response in each repetition; throughput excludes failed requests. A throughput of 0 counts."""
    known = of_level.filter(pl.col(response).is_finite())
    if response == "throughput":
        failed = pl.col("errors") / pl.col("observed_s") if has_errors(known) else pl.lit(0.0)
        return known.select((pl.col(response) - failed.fill_null(0.0)).clip(lower_bound=0.0)).to_series().to_numpy()
    return known.filter(pl.col(response) > 0)[response].to_numpy()


def share_failed(of_level: pl.DataFrame) -> float:
    """The failed share of the answered requests at a level; 0 if unknown."""
    if not has_errors(of_level):
        return 0.0
    requests = of_level.select((pl.col("throughput") * pl.col("observed_s")).sum()).item()
    return float(of_level["errors"].sum()) / requests if requests else 0.0


def has_errors(rows: pl.DataFrame) -> bool:
    """Whether the rows are from a run folder; in a table, a column `errors` may have another meaning."""
    return {"throughput", "observed_s", "errors", "load_total"} <= set(rows.columns)


def _follows(of_level: pl.DataFrame, keeps_up: Mapping[int, bool | None]) -> bool | None:
    """Whether throughput follows the arrival rate at all points of a level, or was not measured there."""
    found = {keeps_up[point] for point in of_level["point"].unique() if point in keeps_up}
    return False if False in found else None if None in found else True
