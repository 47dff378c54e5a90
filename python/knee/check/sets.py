"""The law over all results of a tool: repetitions show how far chance moves X · R from N."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import polars as pl

from knee.check.rules import MILD, TOLERANCE, Finding, State, ends, in_flight
from knee.data.foreign import Result
from knee.data.measurements import ROUNDING
from knee.laws import TOLERANCE as TOLERANCE_OF_SET
from knee.laws import LawReport, check_laws
from knee.stats.intervals import counted


def law_of_set(results: Sequence[Result]) -> tuple[list[Finding], list[float | None]]:
    """The finding over the results of one tool and operation, and the tolerance of each result by itself.

    With repetitions, the tests of :mod:`knee.laws` decide: they accuse at most 5 % of right sets. A result that they
    accuse has their smaller tolerance; the others are not judged by themselves (None).
    """
    measured = [each for each in results if not (each.is_open or each.computed)]
    judged = [each for each in measured if each.clients and each.throughput and each.response_ms]
    counts = [each.clients or 0 for each in judged]
    runs = [(count, counts[:at].count(count) + 1) for at, count in enumerate(counts)]
    report = check_laws(pl.DataFrame([_row(*of) for of in zip(judged, runs, strict=True)])) if judged else None
    if report is None or not report.pooled or report.pooled[0].residual.half_width is None:
        return [], [TOLERANCE] * len(results)
    of_all = any(check.verdict == "violated" for check in report.pooled)
    wrong = {check.point for check in report.interactive if of_all or check.verdict == "violated"}
    accused = {id(each) for each, run in zip(judged, runs, strict=True) if run[0] in wrong or run in report.outliers}
    return [_finding(report, judged, wrong)], [TOLERANCE_OF_SET if id(each) in accused else None for each in results]


def _row(result: Result, run: tuple[int, int]) -> dict[str, float]:
    """A row for :func:`check_laws`. The points are numbered by their clients."""
    response_ms = result.response_ms or 0.0
    return {
        "point": run[0],
        "repetition": run[1],
        "clients": run[0],
        "think_ms": result.rest_ms or 0.0,
        "throughput": float(result.throughput),
        "response_ms": float(response_ms),
        "response_ms" + ROUNDING: response_ms * (result.rounding + ends(result)),
    }


def _finding(report: LawReport, judged: Sequence[Result], wrong: set[int]) -> Finding:
    """The finding over the results that are `wrong`, by their clients, or over all."""
    test = report.pooled[0]
    some = [each for each in judged if each.clients in wrong] or judged
    ratio = fmean((in_flight(each) or 0.0) / (each.clients or 1) for each in some)
    chance = f" ± {test.residual.half_width or 0.0:.1%}" if len(some) == len(judged) else ""
    over = f"N over {counted(len(some), 'result')} ({ratio - 1:+.1%}{chance})"
    seen = f"the smallest violation that all {len(judged)} can show is {test.visible:.1%}"
    source = " ".join(filter(None, (some[0].tool, some[0].operation)))
    if wrong:
        state: State = "doubt" if some[0].corrected and 1 < ratio < MILD else "wrong"
        return Finding("set", state, abs(ratio - 1), f"X · R is not {over}", seen, source=source)
    if test.verdict == "holds":
        return Finding("set", "holds", abs(ratio - 1), f"X · R is {over}", seen, source=source)
    remedy = "measure longer, or repeat more often"
    return Finding("set", "unknown", test.visible, f"X · R may not be {over}", seen, remedy, source)
