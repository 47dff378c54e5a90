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
from knee.laws.causes import CLOCKS, likely_causes
from knee.laws.residual import TOLERANCE, Comparison, Verdict, compare, judge, measured, worst
from knee.measurements import ROUNDING
from knee.trim import RUN

View = Literal["client", "middleware"]

_COLUMNS: Mapping[View, tuple[str, str]] = {
    "client": ("throughput", "response_ms"),
    "middleware": ("middleware_throughput", "middleware_response_ms"),
}

_OF_ALL_TYPES = ("clients", "pipeline", "think_ms", "errors", "reconnects", "clients_connected", "unsteady")
"""What a run's request types share: the clients, and traces of what may have gone wrong."""


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
        """The worse of both directions' mean residuals, in absolute terms."""
        return max(abs(self.throughput.residual.estimate), abs(self.response_ms.residual.estimate))


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
    known = rows.filter(
        pl.col("throughput").is_finite() & (pl.col("throughput") > 0) & pl.col("response_ms").is_finite()
    )
    if known.is_empty():
        return []
    closed = known.filter(pl.col("think_ms").is_not_null())
    if closed.is_empty():
        return [_open_loop(known, level)]
    checks = _views(closed.with_columns(pl.col("think_ms").alias("rest_ms")), None, tolerance, level)
    if types is not None and types["request_type"].n_unique() > 1:
        shared = closed.select(*RUN, *(name for name in _OF_ALL_TYPES if name in closed.columns))
        of_types = _with_rest(types.join(shared, on=RUN, how="inner"))
        for _, own in of_types.group_by("request_type", maintain_order=True):
            checks += _views(own, str(own["request_type"][0]), tolerance, level)
    return checks


def _with_rest(types: pl.DataFrame) -> pl.DataFrame:
    """Add `rest_ms`, what a client does between two requests of a type, per request of it, and its rounding.

    In a cycle a client makes V_d requests of type d and thinks after each: the rest is
    (Z Σ V_d + Σ_{d ≠ c} V_d R_d) / V_c.
    """
    visits = pl.col("throughput")
    if measured(types, "visits"):
        visits = pl.col("visits")

    def rest(response: pl.Expr, think: pl.Expr) -> pl.Expr:
        whole = (visits * response).sum().over(RUN) - visits * response
        return (think * visits.sum().over(RUN) + whole) / visits

    columns = [rest(pl.col("response_ms"), pl.col("think_ms")).alias("rest_ms")]
    if "response_ms" + ROUNDING in types.columns:
        columns.append(rest(pl.col("response_ms" + ROUNDING), pl.lit(0.0)).alias("rest_ms" + ROUNDING))
    return types.with_columns(columns)


def _views(rows: pl.DataFrame, request_type: str | None, tolerance: float, level: float) -> list[InteractiveCheck]:
    checks = [_check(rows, "client", request_type, pl.col("rest_ms"), tolerance, level)]
    if measured(rows, *_COLUMNS["middleware"]):
        beyond = pl.col("rest_ms") + pl.col("response_ms") - pl.col("middleware_response_ms")
        seen = _check(rows, "middleware", request_type, beyond, tolerance, level)
        if (rows["middleware_response_ms"] > (1 + tolerance) * rows["response_ms"]).any():
            # The law cannot show this, since the round trip is taken from the same difference.
            seen = replace(seen, verdict="violated", causes=(CLOCKS,))
        checks.append(seen)
    return checks


def _check(
    rows: pl.DataFrame, view: View, request_type: str | None, rest_ms: pl.Expr, tolerance: float, level: float
) -> InteractiveCheck:
    throughput, response_ms = _COLUMNS[view]
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    names = {"z": "rest_ms", "x": throughput, "r": response_ms}
    table = rows.select(
        (pl.col("clients") * pipeline).alias("n"),
        rest_ms.alias("z"),
        pl.col(throughput).alias("x"),
        pl.col(response_ms).alias("r"),
        *(
            pl.col(column + ROUNDING).alias(n + ROUNDING)
            for n, column in names.items()
            if column + ROUNDING in rows.columns
        ),
    )
    of_throughput = compare(table, "x", _throughput, level)
    of_response = compare(table, "r", _response_ms, level)
    verdict = worst(
        judge(of_throughput.residual, tolerance, of_throughput.rounding),
        judge(of_response.residual, tolerance, of_response.rounding),
    )
    return InteractiveCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        view=view,
        request_type=request_type,
        visits_declared=measured(rows, "visits"),
        think_ms=mean_interval(table["z"].to_numpy(), level),
        throughput=of_throughput,
        response_ms=of_response,
        verdict=verdict,
        causes=likely_causes(rows, of_throughput.residual.estimate) if verdict == "violated" else (),
    )


def _throughput(of: Mapping[str, Floats]) -> Floats:
    return 1000 * of["n"] / (of["r"] + of["z"])


def _response_ms(of: Mapping[str, Floats]) -> Floats:
    return 1000 * of["n"] / of["x"] - of["z"]


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
