"""The interactive response time law, X = N / (R + Z) and R = N / X − Z (Denning & Buzen 1978; Jain 1991, §33.4).

For all requests, and for each request type alone: to a type, the time that its clients spend with the other types is
think time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from knee.intervals import LEVEL, Floats, Interval, mean_interval
from knee.laws.causes import MIX, SUM, likely_causes, slower_middleware
from knee.laws.residual import TOLERANCE, Comparison, Verdict, compare, judge, measured, worst
from knee.measurements import ROUNDING
from knee.trim import RUN

View = Literal["client", "middleware"]

_COLUMNS: Mapping[View, tuple[str, str]] = {
    "client": ("throughput", "response_ms"),
    "middleware": ("middleware_throughput", "middleware_response_ms"),
}

_OF_ALL_TYPES = ("clients", "pipeline", "think_ms", "observed_s")
"""What a run's request types share."""


@dataclass(frozen=True)
class InteractiveCheck:
    """The law in both directions at one point, for one view and one request type (None: all requests together).

    From the middleware's view the client's think time is Z plus the round trip that the middleware does not see,
    client response − middleware response. `think_ms` is the think time of the view and the type. `visits_declared`:
    how often each type occurs was declared, so that a type's law tests more than that of all requests.
    """

    point: int
    clients: int
    view: View
    request_type: str | None
    visits_declared: bool
    think_ms: Interval
    throughput: Comparison
    response_ms: Comparison
    verdict: Verdict
    causes: tuple[str, ...]

    @property
    def residual(self) -> float:
        """The worse of both directions' mean residuals, in absolute terms; NaN where neither has one."""
        both = (abs(comparison.residual.estimate) for comparison in (self.throughput, self.response_ms))
        return max(filter(math.isfinite, both), default=math.nan)


def interactive_law(
    rows: pl.DataFrame, types: pl.DataFrame | None = None, *, tolerance: float = TOLERANCE, level: float = LEVEL
) -> list[InteractiveCheck]:
    """The law at one point, for all requests and, where there are two types or more, for each.

    With pipelining each request in flight is a customer of its own: N is clients · pipeline. In an open loop the law
    has no N and does not apply.

    Parameters
    ----------
    rows
        The point's repetitions: `point, repetition, clients, think_ms, throughput, response_ms`, and where known
        `pipeline` and the middlewares' columns (:mod:`knee.observations`).
    types
        Their request types, a row each: `point, repetition, request_type, throughput, response_ms` and where known
        `visits` per cycle of a client and the middlewares' columns. Without `visits` the throughputs take their
        place, and every type's law is then the law of all requests in other words.
    """
    if not {"clients", "throughput", "response_ms"} <= set(rows.columns):
        return []
    known = usable(rows)
    if known.is_empty():
        return []
    closed = known.filter(pl.col("think_ms").is_not_null()).with_columns(pl.col("think_ms").alias("rest_ms"))
    if closed.is_empty():
        return [_open_loop(known, level)]
    together = [
        replace(check, causes=check.causes or likely_causes(closed, check.throughput.residual.estimate))
        if check.verdict == "violated"
        else check
        for check in _views(closed, None, tolerance, level)
    ]
    if types is None:
        return together
    of_types = _whole(types.join(closed.select(*RUN, *_shared(closed)), on=RUN, how="inner"))
    if of_types["request_type"].n_unique() < 2:
        return together
    broken = [check for check in together if check.verdict == "violated"]
    declared = measured(of_types, "visits")
    # Where all requests together obey the law, only how they are shared out among the types is left to be wrong.
    causes = broken[0].causes if broken else (MIX if declared else SUM,)
    single = [
        check
        for _, own in _with_rest(of_types, declared=declared).group_by("request_type", maintain_order=True)
        for check in _views(own, str(own["request_type"][0]), tolerance, level, declared=declared)
    ]
    return together + [
        replace(check, causes=check.causes or causes) if check.verdict == "violated" else check for check in single
    ]


_USABLE = (pl.col("throughput").is_finite() & (pl.col("throughput") > 0) & pl.col("response_ms").is_finite()).fill_null(
    value=False
)


def usable(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows whose throughput and response time are there, and the throughput not zero."""
    return rows.filter(_USABLE)


def _shared(rows: pl.DataFrame) -> list[str]:
    return [name for name in _OF_ALL_TYPES if name in rows.columns]


def _whole(types: pl.DataFrame) -> pl.DataFrame:
    """The runs of which every type is known: else a part of the cycle is missing, and passes for no time at all."""
    there = pl.col("request_type").n_unique().over(RUN) == pl.col("request_type").n_unique()
    return types.filter(_USABLE.all().over(RUN) & there)


def _with_rest(types: pl.DataFrame, *, declared: bool) -> pl.DataFrame:
    """Add `rest_ms`, what a client does between two requests of a type, per request of it, and its rounding.

    In a cycle a client makes V_d requests of type d and thinks after each: the rest is
    (Z Σ V_d + Σ_{d ≠ c} V_d R_d) / V_c.
    """
    visits = pl.col("visits" if declared else "throughput")

    def rest(response: pl.Expr, think: pl.Expr) -> pl.Expr:
        whole = (visits * response).sum().over(RUN) - visits * response
        return (think * visits.sum().over(RUN) + whole) / visits

    columns = [rest(pl.col("response_ms"), pl.col("think_ms")).alias("rest_ms")]
    if "response_ms" + ROUNDING in types.columns:
        columns.append(rest(pl.col("response_ms" + ROUNDING), pl.lit(0.0)).alias("rest_ms" + ROUNDING))
    return types.with_columns(columns)


def _views(
    rows: pl.DataFrame, request_type: str | None, tolerance: float, level: float, *, declared: bool = False
) -> list[InteractiveCheck]:
    checks = [_check(rows, "client", request_type, tolerance, level, declared=declared)]
    if measured(rows, *_COLUMNS["middleware"]):
        seen = _check(rows, "middleware", request_type, tolerance, level, declared=declared)
        if (excess := _excess(rows, tolerance, level)) is not None:
            # The law cannot show this, since the round trip is taken from the same difference.
            seen = replace(seen, verdict="violated", causes=(slower_middleware(excess),))
        checks.append(seen)
    return checks


def _excess(rows: pl.DataFrame, tolerance: float, level: float) -> float | None:
    """By which share the middlewares' response time surely exceeds the clients', None where it does not."""
    names = ("response_ms", "middleware_response_ms")
    rounded = [name + ROUNDING for name in names if name + ROUNDING in rows.columns]
    seen = compare(rows.select(*names, *rounded), "response_ms", lambda of: of["middleware_response_ms"], level)
    above = seen.residual.estimate > 0 and judge(seen.residual, tolerance, seen.rounding) == "violated"
    return seen.residual.estimate if above else None


def _check(
    rows: pl.DataFrame, view: View, request_type: str | None, tolerance: float, level: float, *, declared: bool
) -> InteractiveCheck:
    throughput, response_ms = _COLUMNS[view]
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    names = {"rest": "rest_ms", "x": throughput, "r": response_ms}
    if view == "middleware":
        names["client_r"] = "response_ms"
    table = rows.select(
        (pl.col("clients") * pipeline).alias("n"),
        *(pl.col(column).alias(name) for name, column in names.items()),
        *(
            pl.col(column + ROUNDING).alias(name + ROUNDING)
            for name, column in names.items()
            if column + ROUNDING in rows.columns
        ),
    )
    if rows.height == 1 and measured(rows, "observed_s"):
        # How far requests across the two ends of the observation move its count, at random: a repetition would show it.
        table = table.with_columns((pl.col("n").sqrt() / rows["observed_s"]).alias("x" + ROUNDING))
    of_throughput = compare(table, "x", _throughput, level)
    of_response = compare(table, "r", _response_ms, level)
    return InteractiveCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        view=view,
        request_type=request_type,
        visits_declared=declared,
        think_ms=mean_interval(_think_ms({name: table[name].to_numpy() for name in names}), level),
        throughput=of_throughput,
        response_ms=of_response,
        verdict=worst(
            judge(of_throughput.residual, tolerance, of_throughput.rounding),
            judge(of_response.residual, tolerance, of_response.rounding),
        ),
        causes=(),
    )


def _think_ms(of: Mapping[str, Floats]) -> Floats:
    """Z of the view: to the middleware also the round trip that it does not see."""
    return of["rest"] + of["client_r"] - of["r"] if "client_r" in of else of["rest"]


def _throughput(of: Mapping[str, Floats]) -> Floats:
    return 1000 * of["n"] / (of["r"] + _think_ms(of))


def _response_ms(of: Mapping[str, Floats]) -> Floats:
    return 1000 * of["n"] / of["x"] - _think_ms(of)


def _open_loop(rows: pl.DataFrame, level: float) -> InteractiveCheck:
    nothing = Interval(math.nan, None, None, level, rows.height)

    def alone(column: str) -> Comparison:
        return Comparison(mean_interval(rows[column].to_numpy(), level), nothing, nothing)

    return InteractiveCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        view="client",
        request_type=None,
        visits_declared=False,
        think_ms=nothing,
        throughput=alone("throughput"),
        response_ms=alone("response_ms"),
        verdict="does not apply",
        causes=("open loop: clients do not wait for answers, so N does not limit X",),
    )
