"""Operational laws: do the numbers of a measurement hold together?

The laws hold whatever the distributions are (Denning & Buzen 1978), so a violation accuses the measurement,
never the system. Symbols: N clients, X throughput, R response time, Z think time, Q mean queue length,
W waiting time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl
from scipy import stats

from knee.intervals import LEVEL, Interval, mean_interval, number

TOLERANCE = 0.02
"""Largest relative residual at which a law counts as held."""

CONSERVATION_TOLERANCE = 0.005
"""Largest relative difference between what clients and middlewares counted over the whole run."""

QUEUE_RESOLUTION = 0.05
"""Requests. Below it a queue's relative residual is all rounding, so the absolute one is judged instead."""

_CLOCKS = "the middleware's response time exceeds the client's: clocks that disagree"

Verdict = Literal["holds", "violated", "cannot tell", "does not apply"]


@dataclass(frozen=True)
class Comparison:
    """A measured quantity against what a law predicts from the others, over a point's repetitions.

    `residual` is predicted / measured − 1, computed in each repetition (so that errors common to both
    sides cancel), then averaged.
    """

    measured: Interval
    predicted: Interval
    residual: Interval


@dataclass(frozen=True)
class InteractiveCheck:
    """X = N / (R + Z) and R = N / X − Z at one point, from one view.

    From the middleware's view the client's think time is Z plus the round trip that the middleware does not see,
    client response − middleware response. `think_ms` is the think time of the view.
    """

    point: int
    clients: int
    view: Literal["client", "middleware"]
    think_ms: Interval
    throughput: Comparison
    response_ms: Comparison
    verdict: Verdict
    causes: tuple[str, ...]

    @property
    def residual(self) -> float:
        """The worse of both directions' mean residuals, in absolute terms."""
        return max(abs(self.throughput.residual.estimate), abs(self.response_ms.residual.estimate))


@dataclass(frozen=True)
class LittleCheck:
    """Q = X · W at one part of the middlewares: the queue, or the worker slots (where Q is the busy ones)."""

    point: int
    clients: int
    station: Literal["queue", "workers"]
    length: Comparison
    verdict: Verdict


@dataclass(frozen=True)
class ConservationCheck:
    """Requests counted by the middlewares against those counted by the clients, nothing trimmed.

    `apart` is the largest relative difference in any repetition: means would let opposite errors cancel.
    """

    point: int
    clients: int
    ratio: Interval
    apart: float
    verdict: Verdict


@dataclass(frozen=True)
class LawReport:
    """All checks of a dataset, one entry per point (and view or station)."""

    interactive: tuple[InteractiveCheck, ...]
    little: tuple[LittleCheck, ...]
    conservation: tuple[ConservationCheck, ...]
    tolerance: float
    sentences: tuple[str, ...]
    """The findings in words, the interactive law first."""

    @property
    def worst(self) -> InteractiveCheck | None:
        """The point and view with the largest interactive residual; None where the law never applied."""
        judged = [check for check in self.interactive if check.verdict != "does not apply"]
        return max(judged, key=lambda check: check.residual, default=None)


def check_laws(observations: pl.DataFrame, *, tolerance: float = TOLERANCE, level: float = LEVEL) -> LawReport:
    """Apply every law that the columns of `observations` (:mod:`knee.observations`) allow."""
    interactive: list[InteractiveCheck] = []
    little: list[LittleCheck] = []
    conservation: list[ConservationCheck] = []
    for _, rows in observations.sort("point", "repetition").group_by("point", maintain_order=True):
        interactive.extend(interactive_law(rows, tolerance=tolerance, level=level))
        little.extend(littles_law(rows, tolerance=tolerance, level=level))
        balance = conserved(rows, level=level)
        if balance is not None:
            conservation.append(balance)
    sentences = (
        *_interactive_sentences(interactive, tolerance, bool(little)),
        *_little_sentences(little, tolerance),
        *_conservation_sentences(conservation),
    )
    return LawReport(tuple(interactive), tuple(little), tuple(conservation), tolerance, sentences)


def interactive_law(
    rows: pl.DataFrame, *, tolerance: float = TOLERANCE, level: float = LEVEL
) -> list[InteractiveCheck]:
    """The interactive response time law at one point (Jain 1991, §33.4), from the client's and the middleware's view.

    `rows` are the point's repetitions. With pipelining each request in flight is a customer of its own: N is
    clients · pipeline. In an open loop the law has no N and does not apply.
    """
    known = rows.filter(pl.col("throughput").is_finite() & pl.col("response_ms").is_finite())
    if known.is_empty():
        return []
    if known["think_ms"].null_count() == known.height:
        return [_open_loop(known, level)]
    views: list[InteractiveCheck] = [
        _interactive(known, "client", "throughput", "response_ms", pl.col("think_ms"), tolerance, level)
    ]
    if _measured(known, "middleware_throughput", "middleware_response_ms"):
        beyond = pl.col("think_ms") + pl.col("response_ms") - pl.col("middleware_response_ms")
        seen = _interactive(
            known, "middleware", "middleware_throughput", "middleware_response_ms", beyond, tolerance, level
        )
        if (known["middleware_response_ms"] > (1 + tolerance) * known["response_ms"]).any():
            # The law cannot show this, since the round trip is taken from the same difference.
            seen = replace(seen, verdict="violated", causes=(_CLOCKS,))
        views.append(seen)
    return views


def _interactive(
    rows: pl.DataFrame,
    view: Literal["client", "middleware"],
    throughput: str,
    response_ms: str,
    think_ms: pl.Expr,
    tolerance: float,
    level: float,
) -> InteractiveCheck:
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    table = rows.select(
        (pl.col("clients") * pipeline).alias("n"),
        think_ms.alias("z"),
        pl.col(throughput).alias("x"),
        pl.col(response_ms).alias("r"),
    ).with_columns(
        (1000 * pl.col("n") / (pl.col("r") + pl.col("z"))).alias("x_law"),
        (1000 * pl.col("n") / pl.col("x") - pl.col("z")).alias("r_law"),
    )
    of_throughput = _compare(table, "x", "x_law", level)
    of_response = _compare(table, "r", "r_law", level)
    verdict = _both(judge(of_throughput.residual, tolerance), judge(of_response.residual, tolerance))
    return InteractiveCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        view=view,
        think_ms=mean_interval(table["z"].to_numpy(), level),
        throughput=of_throughput,
        response_ms=of_response,
        verdict=verdict,
        causes=likely_causes(rows, of_throughput.residual.estimate) if verdict == "violated" else (),
    )


def _open_loop(rows: pl.DataFrame, level: float) -> InteractiveCheck:
    nothing = Interval(math.nan, None, None, level, rows.height)

    def alone(column: str) -> Comparison:
        return Comparison(mean_interval(rows[column].to_numpy(), level), nothing, nothing)

    return InteractiveCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        view="client",
        think_ms=nothing,
        throughput=alone("throughput"),
        response_ms=alone("response_ms"),
        verdict="does not apply",
        causes=("open loop: clients do not wait for answers, so N does not limit X",),
    )


def judge(residual: Interval, tolerance: float) -> Verdict:
    """Violated when the whole interval lies outside ± tolerance; held when it was shown to lie within.

    To show it at a level of 1 − α takes the interval of 1 − 2α within the tolerance: two one-sided tests
    (Schuirmann 1987).

    A single repetition has no interval and is judged by its value alone: the law is an identity, so one run shows
    a violation as well as three do.
    """
    if not math.isfinite(residual.estimate):
        return "cannot tell"
    low = residual.estimate if residual.low is None else residual.low
    high = residual.estimate if residual.high is None else residual.high
    within = 1.0
    if residual.repetitions > 1:
        student = stats.t(residual.repetitions - 1)
        within = float(student.ppf(residual.level) / student.ppf((1 + residual.level) / 2))
    if abs(residual.estimate) + within * (high - low) / 2 <= tolerance:
        return "holds"
    if low > tolerance or high < -tolerance:
        return "violated"
    return "cannot tell"


def _both(first: Verdict, second: Verdict) -> Verdict:
    for verdict in ("violated", "cannot tell"):
        if verdict in (first, second):
            return verdict
    return "holds"


def likely_causes(rows: pl.DataFrame, throughput_residual: float) -> tuple[str, ...]:
    """What may break the interactive law at a point, the causes with evidence first.

    `throughput_residual` is N / (R + Z) / X − 1: above zero, fewer requests were made than N clients that wait
    R and think Z would have made.
    """
    causes: list[str] = []

    def total(column: str) -> float:
        return float(rows[column].sum() or 0) if column in rows.columns else 0.0

    if (errors := total("errors")) > 0:
        causes.append(f"{errors:.0f} requests were answered with an error")
    if (reconnects := total("reconnects")) > 0:
        causes.append(f"{reconnects:.0f} reconnects: requests were lost, their time was not counted")
    if _measured(rows, "clients_connected"):
        connected = float(rows["clients_connected"].min())  # type: ignore[arg-type]
        declared = float(rows["clients"].max())  # type: ignore[arg-type]
        if connected < declared:
            causes.append(f"only {connected:.0f} of {declared:.0f} clients started")
    if causes:
        return tuple(causes)
    if throughput_residual > 0:
        return (
            "not all clients were running all the time",
            "clients think longer than declared: the load generator itself is busy",
            "the run is not steady: warm-up was not cut off",
        )
    return (
        "more requests in flight than declared (pipelining, or an open loop)",
        "response times count time in which the client was not waiting",
        "the run is not steady: warm-up was not cut off",
    )


def littles_law(rows: pl.DataFrame, *, tolerance: float = TOLERANCE, level: float = LEVEL) -> list[LittleCheck]:
    """Little's law Q = X · W at the middlewares' queue, and at their worker slots (there it is the utilisation law)."""
    checks: list[LittleCheck] = []
    stations: tuple[tuple[Literal["queue", "workers"], str, str], ...] = (
        ("queue", "queue_length", "queueing_ms"),
        ("workers", "busy_workers", "service_ms"),
    )
    for station, length, time_ms in stations:
        if not _measured(rows, length, time_ms, "middleware_throughput"):
            continue
        table = rows.select(
            pl.col(length).alias("q"),
            (pl.col("middleware_throughput") * pl.col(time_ms) / 1000).alias("q_law"),
        )
        comparison = _compare(table, "q", "q_law", level)
        apart = abs(comparison.predicted.estimate - comparison.measured.estimate)
        checks.append(
            LittleCheck(
                point=int(rows["point"][0]),
                clients=int(rows["clients"][0]),
                station=station,
                length=comparison,
                verdict="holds" if apart <= QUEUE_RESOLUTION else judge(comparison.residual, tolerance),
            )
        )
    return checks


def conserved(rows: pl.DataFrame, *, level: float = LEVEL) -> ConservationCheck | None:
    """Flow balance: over a whole run, middlewares answer what clients asked. None without middlewares."""
    if not _measured(rows, "middleware_total", "load_total"):
        return None
    ratios = rows["middleware_total"] / rows["load_total"]
    apart = float((ratios - 1).abs().max())  # type: ignore[arg-type]
    return ConservationCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        ratio=mean_interval(ratios.to_numpy(), level),
        apart=apart,
        verdict="holds" if apart <= CONSERVATION_TOLERANCE else "violated",
    )


def _compare(table: pl.DataFrame, measured: str, predicted: str, level: float) -> Comparison:
    residual = (table[predicted] / table[measured] - 1).to_numpy()
    return Comparison(
        mean_interval(table[measured].to_numpy(), level),
        mean_interval(table[predicted].to_numpy(), level),
        mean_interval(residual, level),
    )


def _measured(rows: pl.DataFrame, *columns: str) -> bool:
    return all(name in rows.columns and rows[name].null_count() == 0 for name in columns)


def _interactive_sentences(checks: Sequence[InteractiveCheck], tolerance: float, has_little: bool) -> list[str]:
    if not checks:
        return ["The interactive law was not checked: no response times were measured."]
    closed = [check for check in checks if check.verdict != "does not apply"]
    if not closed:
        instead = " Little's law at the middleware takes its place." if has_little else ""
        return [f"The interactive law does not apply: the load is an open loop.{instead}"]
    worst = max(closed, key=lambda check: check.residual)
    where = f"worst {worst.residual:.2%}, at {worst.clients} clients in the {worst.view}'s view"
    points = len({check.point for check in closed})
    broken = [check for check in closed if check.verdict == "violated"]
    unsure = [check for check in closed if check.verdict == "cannot tell"]
    if broken:
        named = ", ".join(str(clients) for clients in sorted({check.clients for check in broken}))
        causes = "; ".join(dict.fromkeys(cause for check in broken for cause in check.causes))
        return [
            f"The interactive law is violated at {named} clients ({where}; allowed {tolerance:.0%}). Likely: {causes}."
        ]
    if unsure:
        named = ", ".join(str(clients) for clients in sorted({check.clients for check in unsure}))
        return [
            f"Cannot tell whether the interactive law holds within {tolerance:.0%} at {named} clients: "
            f"the repetitions scatter too far ({where}). Measure longer, on a quieter machine."
        ]
    views = "from the clients' and the middlewares' view" if len({c.view for c in closed}) > 1 else "as clients saw it"
    at = f"all {points} points" if points > 1 else "the one point"
    return [f"The interactive law holds within {tolerance:.0%} at {at}, both ways and {views} ({where})."]


def _little_sentences(checks: Sequence[LittleCheck], tolerance: float) -> list[str]:
    sentences: list[str] = []
    for station, name in (("queue", "the middleware's queue"), ("workers", "the worker slots")):
        chosen = [check for check in checks if check.station == station]
        if not chosen:
            continue
        broken = [check for check in chosen if check.verdict == "violated"]
        doubtful = broken or [check for check in chosen if check.verdict == "cannot tell"]
        if doubtful:
            named = ", ".join(str(clients) for clients in sorted({c.clients for c in doubtful}))
            worst = max(abs(check.length.residual.estimate) for check in doubtful)
            sentences.append(
                f"Little's law is violated at {name} at {named} clients (by {worst:.1%}; allowed {tolerance:.0%})."
                if broken
                else f"Cannot tell whether Little's law holds within {tolerance:.0%} at {name} at {named} clients: the "
                f"repetitions scatter too far (on average {worst:.1%} apart)."
            )
        else:
            at = f"all {len(chosen)} points" if len(chosen) > 1 else "the one point"
            sentences.append(f"Little's law holds at {name} at {at}.")
    return sentences


def _conservation_sentences(checks: Sequence[ConservationCheck]) -> list[str]:
    if not checks:
        return []
    worst = max(checks, key=lambda check: check.apart)
    apart = worst.apart
    if any(check.verdict == "violated" for check in checks):
        return [
            f"Clients and middlewares disagree on how many requests there were, by {apart:.2%} at {worst.clients} "
            f"clients (allowed {CONSERVATION_TOLERANCE:.1%}): requests bypassed the middleware, were lost, "
            "or windows are missing."
        ]
    return [f"Clients and middlewares counted the same requests, within {max(apart, 5e-5):.2%}."]


def render_text(report: LawReport) -> str:
    """The findings, and below them the interactive law at every point as a plain-text table."""
    header = ("point", "clients", "view", "Z ms", "X /s", "by law", "apart", "R ms", "by law", "apart", "verdict")
    rows = [
        (
            str(check.point),
            str(check.clients),
            check.view,
            number(check.think_ms.estimate),
            number(check.throughput.measured.estimate),
            number(check.throughput.predicted.estimate),
            _percent(check.throughput.residual),
            number(check.response_ms.measured.estimate),
            number(check.response_ms.predicted.estimate),
            _percent(check.response_ms.residual),
            check.verdict,
        )
        for check in report.interactive
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    return "\n".join([*report.sentences, "", *table])


def _percent(residual: Interval) -> str:
    if not math.isfinite(residual.estimate):
        return "–"
    half_width = residual.half_width
    return f"{residual.estimate:+.2%}" + ("" if half_width is None else f" ± {half_width:.2%}")
