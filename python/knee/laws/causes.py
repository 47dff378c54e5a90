"""Why a law may be violated: the law is an identity, so the measurement is wrong. Causes with evidence in the
measurement come first, with that evidence. Then follow causes that the sign of the residual suggests and the
measurement does not exclude.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from knee.laws.residual import TOLERANCE
from knee.stats.intervals import counted

MIX = "the types do not occur as often as the visits declare"
SUM = "the types do not add up to the rows for all requests: a type is missing, or the rows count it differently"


LONGER = {
    "response_ms": "the middlewares' mean response time is {:.1%} above the clients': their clocks differ, or they "
    "counted different requests",
    "middleware_response_ms": "the middlewares' queueing and service times are {:.1%} above their response times, "
    "which contain both: the stages counted different requests",
}
"""Why the parts of a response time may exceed it by a share."""

UNITS = (1e3, 1e6, 1e-3, 1e-6)
"""Factors between seconds, milliseconds, microseconds and nanoseconds."""
UNIT_APART = 0.25
"""A factor is a unit's if it is at most this share away: no other cause comes as close to 1000."""


@dataclass(frozen=True)
class Traces:
    """Evidence in a point's repetitions on the cause of a violation. A value is None if a repetition lacks it.

    runs          number of repetitions
    lost          lost connections over all repetitions in the measured seconds. If repetitions report only reopened
                  connections, the number of these; if they report only totals, the totals of the whole run
    losses_told   whether all repetitions report lost connections, or both reopened and missing ones
    missing       the largest number of connections missing at once
    outages       number of repetitions with missing connections
    outage_s      seconds with missing connections, over all repetitions
    unserved      mean share by which missing connections lower the throughput; in each repetition at most its residual
    unexplained   number of repetitions whose residual is more than twice their unserved share
    connected     the smallest number of clients that started
    declared      number of clients in the experiment file
    drifted       number of repetitions that the test found unsteady
    steadiness    whether all repetitions were tested for a steady state
    observed_s    mean length of the observation
    response_s    mean response time
    missing_ms    mean of N / X − R − Z: time of a request's cycle that is in neither R nor Z
    pipelined     whether the number of requests in flight per client is known
    """

    runs: int
    lost: int
    losses_told: bool
    missing: int
    outages: int
    outage_s: float
    unserved: float
    unexplained: int
    connected: int | None
    declared: int
    drifted: int
    steadiness: bool
    observed_s: float | None
    response_s: float
    missing_ms: float
    pipelined: bool


def traces(runs: pl.DataFrame) -> dict[int, Traces]:
    """The evidence at every point. The runs have a column `rest_ms`, the time of a client between two requests."""

    def column(name: str) -> pl.Expr:
        return pl.col(name) if name in runs.columns else pl.lit(None)

    def known(name: str) -> pl.Expr:
        return pl.col(name).is_not_null().all() if name in runs.columns else pl.lit(value=False)

    asked_ms = pl.col("response_ms") + pl.col("rest_ms")
    cycle_ms = 1000 * pl.col("clients") * column("pipeline").fill_null(1) / pl.col("throughput")
    residual = cycle_ms / asked_ms - 1
    # 1 / 0 if no client had a connection: the share is then 1.
    unserved = pl.min_horizontal(1 / (1 - column("outage_share").fill_null(0)) - 1, residual)
    is_unexplained = (residual > TOLERANCE) & (unserved < residual / 2)
    found = runs.group_by("point").agg(
        pl.len().alias("runs"),
        pl.coalesce(column("connections_lost"), column("reconnects")).sum().fill_null(0).cast(pl.Int64).alias("lost"),
        (known("connections_lost") | (known("reconnects") & known("connections_missing"))).alias("losses_told"),
        column("connections_missing").max().fill_null(0).cast(pl.Int64).alias("missing"),
        (column("connections_missing").fill_null(0) > 0).sum().cast(pl.Int64).alias("outages"),
        column("outage_s").sum().fill_null(0).cast(pl.Float64).alias("outage_s"),
        unserved.mean().alias("unserved"),
        is_unexplained.sum().cast(pl.Int64).alias("unexplained"),
        pl.when(known("clients_connected")).then(column("clients_connected").min()).alias("connected"),
        pl.col("clients").max().alias("declared"),
        column("unsteady").sum().fill_null(0).cast(pl.Int64).alias("drifted"),
        known("unsteady").alias("steadiness"),
        pl.when(known("observed_s")).then(column("observed_s").mean()).alias("observed_s"),
        (pl.col("response_ms").mean() / 1000).alias("response_s"),
        (cycle_ms - asked_ms).mean().alias("missing_ms"),
    )
    pipelined = "pipeline" in runs.columns
    return {row.pop("point"): Traces(**row, pipelined=pipelined) for row in found.iter_rows(named=True)}


def wrong_unit(times: float) -> str:
    """The cause of response times that are `times` too long, if that is a factor between two units; empty otherwise."""
    for factor in UNITS:
        if times > 0 and abs(times / factor - 1) < UNIT_APART:
            way = "long" if factor > 1 else "short"
            return f"the response times are about {max(factor, 1 / factor):,.0f} times too {way}: correct their unit"
    return ""


def likely_causes(left: Traces, throughput_residual: float) -> tuple[str, ...]:
    """Likely causes of a violation of the interactive law for all requests at a point.

    `throughput_residual` is N / (R + Z) / X − 1: above zero, N clients with cycle R + Z would have made more requests,
    so part of their time is in neither R nor Z. Below zero, more than N requests were in flight. Errors are not a
    cause: an error counts as an answer, with its response time.
    """
    few = throughput_residual > 0
    if unit := wrong_unit(1 / (1 + left.missing_ms / (1000 * left.response_s)) if left.response_s > 0 else 1.0):
        return (unit,)
    # If outages explain half of the residual, they also explain a drift.
    if few and left.unexplained == 0 and left.unserved >= throughput_residual / 2:
        return (_outage(left),)
    found = (*(_losses(left) if few else ()), *_drift(left), *_straddling(left, throughput_residual))
    suspects = (*(_too_few(left) if few else _too_many(left)),)
    untested = () if left.steadiness else ("the run is not steady: warm-up was not cut off",)
    return (*found, *suspects, *untested)


def _losses(left: Traces) -> Iterator[str]:
    """Evidence of clients that were idle for part of the run."""
    if left.outages > 0:
        yield _outage(left)
    elif left.lost > 0:
        yield f"{counted(left.lost, 'lost connection')}: clients sent no requests on them until they were open again"
    if left.connected is not None and left.connected < left.declared:
        yield f"only {left.connected} of {left.declared} clients started"


def _outage(left: Traces) -> str:
    return (
        f"connections were missing, at the worst {left.missing} of {left.declared}, for {left.outage_s:.3g} s in "
        f"{left.outages} of {counted(left.runs, 'run')}: the server was down, and its clients could send no "
        "requests"
    )


def _drift(left: Traces) -> Iterator[str]:
    if left.drifted > 0:
        yield f"{left.drifted} of {left.runs} runs drifted beyond the declared warm-up (MSER-5): raise it"


def _straddling(left: Traces, residual: float) -> Iterator[str]:
    """Requests across the ends of the observation, if they explain at least half of the residual."""
    if left.observed_s is not None and 2 * left.response_s / left.observed_s >= abs(residual) / 2:
        yield (
            f"the observed {left.observed_s:.3g} s are short compared with response times of {left.response_s:.2g} s: "
            "a request across an end counts on one side only"
        )


def _too_few(left: Traces) -> Iterator[str]:
    # Without a lost connection no request was lost: its client would still wait for the answer.
    lost = "" if left.losses_told else "requests that were lost; "
    yield (
        f"clients spent time ({left.missing_ms:.3g} ms a request) that is in neither response nor think time: "
        f"coordinated omission (the response time of a late request starts when it is sent, not when it is due); {lost}"
        "or a busy load generator"
    )
    yield "some clients did not run all the time"


def _too_many(left: Traces) -> Iterator[str]:
    how = "" if left.pipelined else ": an open loop, or pipelining"
    yield f"more requests in flight than declared{how}"
    yield "response times include time in which the client did not wait"
