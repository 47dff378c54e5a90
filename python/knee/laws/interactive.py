"""The interactive response time law, X = N / (R + Z) and R = N / X − Z (Denning & Buzen 1978; Jain 1991, §33.4).

The law applies to all requests, and to each request type. For one type, the time that clients spend with other types
counts as think time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from knee.data.measurements import ROUNDING
from knee.data.trim import RUN
from knee.laws.causes import LONGER, MIX, SUM, likely_causes, traces
from knee.laws.residual import (
    Comparison,
    Law,
    Rule,
    Starts,
    Verdict,
    compare,
    grouped,
    judge,
    measured_throughout,
    tolerated,
    worst,
)
from knee.stats.intervals import Floats, Interval, mean_interval, mean_intervals

View = Literal["client", "middleware"]

_COLUMNS: Mapping[View, tuple[str, str]] = {
    "client": ("throughput", "response_ms"),
    "middleware": ("middleware_throughput", "middleware_response_ms"),
}

_OF_CYCLE_MIN = 0.1
"""A middleware's response time is judged only if it is at least this share of its clients' cycle."""

_OF_ALL_TYPES = ("clients", "pipeline", "think_ms", "observed_s")
"""Columns that are equal for all request types of a run."""


@dataclass(frozen=True)
class InteractiveCheck:
    """The law in both directions at one point, for one view and one request type (None: all requests together).

    A single type's response time is not judged. The law predicts it as the cycle time minus the rest of the cycle. The
    cycle may be a hundred times as long, so the cycle's small errors dominate. For the same reason, a middleware's
    response time below a tenth of its clients' cycle is not judged.

    In the middleware's view, the client's think time is Z plus the round trip between client and middleware. The round
    trip is the client's response time minus the middleware's. `think_ms` is the think time of the view and the type.
    `visits_declared`: the experiment declares the visits of each type, so a type's law adds a test to the law for all
    requests. `clients` may be None in an open loop.

    `hidden`: errors that the check would not notice, as shares. The first bounds how much too long the middlewares'
    response times may be: the clients' response times limit them. The second, if the stages are known, bounds how much
    too short they may be: the sum of the stages limits them.
    """

    point: int
    clients: int | None
    view: View
    request_type: str | None
    visits_declared: bool
    think_ms: Interval
    throughput: Comparison
    response_ms: Comparison
    verdict: Verdict
    causes: tuple[str, ...]
    hidden: tuple[float, ...] = ()

    @property
    def law(self) -> str:
        """The law's name in a sentence."""
        return "the interactive law" + (" of single request types" if self.request_type else "")

    @property
    def judges_response(self) -> bool:
        """Whether the verdict also covers the response time. It is the cycle time minus the rest of the cycle, so it
        has the error of the whole cycle."""
        if self.request_type is not None:
            return False
        response_ms = self.response_ms.measured.estimate
        return self.view == "client" or not response_ms < _OF_CYCLE_MIN * (response_ms + self.think_ms.estimate)

    @property
    def judged(self) -> tuple[Comparison, ...]:
        """The directions that the verdict covers."""
        return (self.throughput, self.response_ms) if self.judges_response else (self.throughput,)

    @property
    def residual(self) -> float:
        """The largest absolute mean residual of the judged directions; NaN without one."""
        known = (abs(comparison.residual.estimate) for comparison in self.judged)
        return max(filter(math.isfinite, known), default=math.nan)


def interactive_law(runs: pl.DataFrame, types: pl.DataFrame | None, rule: Rule) -> list[InteractiveCheck]:
    """The law at every point, for all requests and, with two or more types, for each type; ordered by point. With
    pipelining each request in flight counts as a customer: N is clients · pipeline. In an open loop the law has no N
    and does not apply.

    Parameters
    ----------
    runs
        A row per point and repetition: `point, repetition, clients, think_ms, throughput, response_ms`, and if known
        `pipeline` and the middlewares' columns (:mod:`knee.data.observations`).
    types
        A row per run and request type: `point, repetition, request_type, throughput, response_ms` and if known `visits`
        per cycle of a client and the middlewares' columns. Without `visits`, throughputs replace them; a type's law
        is then equivalent to the law for all requests.
    """
    if not {"clients", "throughput", "response_ms"} <= set(runs.columns):
        return []
    known = runs.filter(USABLE).sort(RUN)
    closed = known.filter(pl.col("think_ms").is_not_null()).with_columns(pl.col("think_ms").alias("rest_ms"))
    opened = known.join(closed, on="point", how="anti")
    together = _explained(_views(closed, rule), closed)
    of_types = [] if types is None else _of_types(types, closed, together, rule)
    return sorted([*together, *of_types, *_open_loops(opened, rule.level)], key=lambda check: check.point)


USABLE = (pl.col("throughput").is_finite() & (pl.col("throughput") > 0) & pl.col("response_ms").is_finite()).fill_null(
    value=False
)
"""Condition for usable rows: throughput and response time are known, and the throughput is not zero."""


def _explained(checks: list[InteractiveCheck], closed: pl.DataFrame) -> list[InteractiveCheck]:
    """The checks of all requests, each violation with its likely causes."""
    broken = {check.point for check in checks if check.verdict == "violated" and not check.causes}
    left = traces(closed.filter(pl.col("point").is_in(broken)))
    return [
        replace(check, causes=likely_causes(left[check.point], check.throughput.residual.estimate))
        if check.verdict == "violated" and not check.causes
        else check
        for check in checks
    ]


def _of_types(
    types: pl.DataFrame, closed: pl.DataFrame, together: list[InteractiveCheck], rule: Rule
) -> list[InteractiveCheck]:
    """The checks of single types, at points with two types or more; `together` are the checks of all requests."""
    shared = [name for name in _OF_ALL_TYPES if name in closed.columns]
    whole = _whole(types.join(closed.select(*RUN, *shared), on=RUN, how="inner", maintain_order="left"))
    whole = whole.filter(pl.col("request_type").n_unique().over("point") >= 2)
    declared = pl.col("visits").is_not_null().all().over("point") if "visits" in whole.columns else pl.lit(value=False)
    whole = _with_rest(whole.with_columns(declared.alias("declared")))
    checks = _views(whole, rule)
    roundings = {(check.point, check.view): check.throughput.rounding for check in together}
    broken: dict[int, tuple[str, ...]] = {}
    for check in together:
        if check.verdict == "violated":
            broken.setdefault(check.point, check.causes)
    apart = _apart_from_all(whole, closed, rule.level)

    def causes(check: InteractiveCheck) -> tuple[str, ...]:
        if found := check.causes or broken.get(check.point):
            return found
        # A wrong mix explains a type's residual only if this residual differs from that of all requests.
        rounding = check.throughput.rounding + roundings.get((check.point, check.view), 0.0)
        own = apart.get((check.point, check.view, check.request_type))
        if own is None or judge(own, rule.tolerance, rounding) != "violated":
            return ()
        return (MIX if check.visits_declared else SUM,)

    return [replace(check, causes=causes(check)) if check.verdict == "violated" else check for check in checks]


def _apart_from_all(
    types: pl.DataFrame, closed: pl.DataFrame, level: float
) -> dict[tuple[int, View, str | None], Interval]:
    """By point, view and type, the residual of the type's throughput less the residual of all requests. The difference
    is taken in each repetition, so common errors cancel."""
    found: dict[tuple[int, View, str | None], Interval] = {}
    # N / (R + rest) is equal in both views.
    predicted = 1000 * _customers(types) / (pl.col("response_ms") + pl.col("rest_ms"))
    for view, (throughput, _) in _COLUMNS.items():
        if throughput not in types.columns or throughput not in closed.columns:
            continue
        of_all = closed.select(*RUN, (predicted / pl.col(throughput)).alias("_of_all"))
        own = types.join(of_all, on=RUN).with_columns(
            (predicted / pl.col(throughput) - pl.col("_of_all")).alias("_own")
        )
        for (point, name), rows in own.group_by("point", "request_type"):
            found[point, view, name] = mean_interval(rows["_own"].to_numpy(), level)
    return found


def _customers(rows: pl.DataFrame) -> pl.Expr:
    """N = clients · pipeline: each customer thinks, or has one request in flight."""
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    return pl.col("clients") * pipeline


def _whole(types: pl.DataFrame) -> pl.DataFrame:
    """The runs in which every type is known. A missing type would shorten the cycle."""
    there = pl.col("request_type").n_unique().over(RUN) == pl.col("request_type").n_unique().over("point")
    return types.filter(USABLE.all().over(RUN) & there)


def _with_rest(types: pl.DataFrame) -> pl.DataFrame:
    """Add `rest_ms`, the time of a client between two requests of a type, and its rounding error.

    In a cycle a client makes V_d requests of type d and thinks after each: the rest is
    (Z Σ V_d + Σ_{d ≠ c} V_d R_d) / V_c. If the visits are not `declared`, throughputs replace them.
    """
    visits = pl.col("throughput")
    if "visits" in types.columns:
        visits = pl.when("declared").then(pl.col("visits").cast(pl.Float64)).otherwise(visits)

    def rest(response: pl.Expr, think: pl.Expr) -> pl.Expr:
        whole = (visits * response).sum().over(RUN) - visits * response
        return (think * visits.sum().over(RUN) + whole) / visits

    columns = [rest(pl.col("response_ms"), pl.col("think_ms")).alias("rest_ms")]
    if "response_ms" + ROUNDING in types.columns:
        columns.append(rest(pl.col("response_ms" + ROUNDING), pl.lit(0.0)).alias("rest_ms" + ROUNDING))
    return types.with_columns(columns)


def _views(rows: pl.DataFrame, rule: Rule) -> list[InteractiveCheck]:
    """The checks in both views for every point and request type, without causes."""
    keys = ["request_type"] if "request_type" in rows.columns and "declared" in rows.columns else []
    rows, starts = grouped(rows, *keys)
    checks = _checks(rows, starts, "client", keys, rule)
    seen, starts = grouped(measured_throughout(rows, *_COLUMNS["middleware"], by=["point", *keys]), *keys)
    for check, limits in zip(_checks(seen, starts, "middleware", keys, rule), _limits(seen, starts, rule), strict=True):
        # The interactive law cannot show these errors. The view's think time is the clients' think and response time
        # minus the middleware's response time, which cancels in R + Z.
        causes = tuple(
            LONGER[of].format(one.residual.estimate)
            for of, one in limits.items()
            if one.residual.estimate > 0 and one.verdict(rule) == "violated"
        )
        hidden = tuple(
            tolerated(one.residual, rule, one.freedom) + one.rounding - one.residual.estimate for one in limits.values()
        )
        check = replace(check, hidden=hidden)
        checks.append(replace(check, verdict="violated", causes=causes) if causes else check)
    if not keys:
        return checks
    order = {group: number for number, group in enumerate((check.point, check.request_type) for check in checks)}
    return sorted(checks, key=lambda check: order[check.point, check.request_type])


def _sum_of(parts: Sequence[str]) -> Law:
    return lambda of: np.sum([of[name] for name in parts], axis=0)


_LIMITS: Mapping[str, tuple[str, ...]] = {
    "response_ms": ("middleware_response_ms",),
    "middleware_response_ms": ("queueing_ms", "service_ms"),
}
"""Response times, each with its parts. The sum of the parts cannot be longer."""


def _limits(rows: pl.DataFrame, starts: Starts, rule: Rule) -> list[dict[str, Comparison]]:
    """By group: compares each response time in _LIMITS with the sum of its parts, if the table has these columns."""
    found: list[dict[str, Comparison]] = [{} for _ in starts]
    for whole, parts in _LIMITS.items():
        names = (whole, *parts)
        if set(names) <= set(rows.columns):
            rounded = [name + ROUNDING for name in names if name + ROUNDING in rows.columns]
            table = rows.select("repetition", *names, *rounded)
            for group, one in zip(found, compare(table, starts, whole, _sum_of(parts), rule), strict=True):
                group[whole] = one
    return found


def _checks(rows: pl.DataFrame, starts: Starts, view: View, keys: Sequence[str], rule: Rule) -> list[InteractiveCheck]:
    if not starts.size:
        return []
    throughput, response_ms = _COLUMNS[view]
    customers = _customers(rows)
    names = {"rest": "rest_ms", "x": throughput, "r": response_ms}
    if view == "middleware":
        names["client_r"] = "response_ms"
    table = rows.select(
        customers.alias("n"),
        "repetition",
        *(pl.col(column).alias(name) for name, column in names.items()),
        *(
            pl.col(column + ROUNDING).alias(name + ROUNDING)
            for name, column in names.items()
            if column + ROUNDING in rows.columns
        ),
    )
    if "observed_s" in rows.columns:
        # Requests that cross the start or the end of the observation give the count a random error. A single run
        # cannot show this error, so it is estimated here.
        alone = (pl.len().over("point", *keys) == 1) & pl.col("observed_s").is_not_null()
        ends = customers.sqrt() / pl.col("observed_s")
        digits = pl.col(throughput + ROUNDING) if throughput + ROUNDING in rows.columns else pl.lit(0.0)
        table = table.with_columns(
            rows.select(pl.when(alone).then(ends).otherwise(digits).alias("x" + ROUNDING)).to_series()
        )
    think_ms = _think_ms({name: table[name].cast(pl.Float64).to_numpy() for name in names})
    first = rows.select(
        "point",
        "clients",
        *(("request_type", "declared") if keys else (pl.lit(None).alias("type"), pl.lit(value=False).alias("known"))),
    )[starts]
    checks = [
        InteractiveCheck(point, clients, view, request_type, declared, interval, of_x, of_r, "cannot tell", causes=())
        for (point, clients, request_type, declared), interval, of_x, of_r in zip(
            first.iter_rows(),
            mean_intervals(think_ms, starts, rule.level),
            compare(table, starts, "x", _throughput, rule),
            # The residual of R is that of X times (R + Z) / R.
            compare(
                table,
                starts,
                "r",
                lambda of: 1000 * of["n"] / of["x"] - _think_ms(of),
                rule,
                lambda of: (of["r"] + _think_ms(of)) / of["r"],
            ),
            strict=True,
        )
    ]
    return [replace(check, verdict=worst(*(one.verdict(rule) for one in check.judged))) for check in checks]


def _think_ms(of: Mapping[str, Floats]) -> Floats:
    """Z of the view; for the middleware it includes the round trip to the client."""
    return of["rest"] + of["client_r"] - of["r"] if "client_r" in of else of["rest"]


def _throughput(of: Mapping[str, Floats]) -> Floats:
    return 1000 * of["n"] / (of["r"] + _think_ms(of))


def _open_loops(rows: pl.DataFrame, level: float) -> list[InteractiveCheck]:
    rows, starts = grouped(rows)
    if not starts.size:
        return []
    means = [mean_intervals(rows[name].to_numpy(), starts, level) for name in ("throughput", "response_ms")]

    def alone(measured: Interval, runs: int) -> Comparison:
        nothing = Interval(math.nan, None, None, level, runs)
        return Comparison(measured, nothing, nothing)

    return [
        InteractiveCheck(
            point=point,
            clients=clients,
            view="client",
            request_type=None,
            visits_declared=False,
            think_ms=Interval(math.nan, None, None, level, runs),
            throughput=alone(throughput, runs),
            response_ms=alone(response_ms, runs),
            verdict="does not apply",
            causes=("open loop: clients do not wait for answers, so N does not limit X",),
        )
        for (point, clients), runs, throughput, response_ms in zip(
            rows.select("point", "clients")[starts].iter_rows(),
            np.diff(starts, append=rows.height).tolist(),
            *means,
            strict=True,
        )
    ]
