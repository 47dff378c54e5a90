"""The findings of all results, with the knee and a prediction from their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from knee import fit, verdict
from knee.check.rules import Finding, findings_of
from knee.check.sets import law_of_set
from knee.check.stations import stations_of
from knee.data import csv
from knee.data.foreign import Result
from knee.data.measurements import configuration
from knee.errors import KneeError
from knee.fit.text import forecast_lines
from knee.stats.intervals import counted
from knee.verdict.knee import LEVELS_MIN

_REPETITIONS_MIN = 3
_FURTHER = 2
"""The prediction is for this many times the most measured clients."""


@dataclass(frozen=True)
class Findings:
    """The checks of all results; `verdict` is None if no result has clients or a rate."""

    results: tuple[Result, ...]
    checks: tuple[Finding, ...]
    verdict: verdict.Findings | None
    predictions: tuple[str, ...]


def check(results: Sequence[Result]) -> Findings:
    """Check every result, and analyse them together as a table."""
    checks = checks_of(results)
    closed = [result for result in results if result.clients is not None and not result.is_open]
    text = table(results)
    if not text:
        return Findings(tuple(results), tuple(checks), None, ())
    checks += _missing(closed)
    counts = {result.clients for result in closed}
    if len(counts) < LEVELS_MIN:
        return Findings(tuple(results), tuple(checks), None, ())
    measured = csv.parse(text, "the results of knee check")
    predictions: list[str] = []
    try:
        asked = {"clients": _FURTHER * max(count for count in counts if count is not None)}
        for system, forecast in fit.fit_systems(measured.table, configuration(measured), asked):
            if forecast is not None:
                predictions += forecast_lines(system, system.forecast(forecast))
    except KneeError as error:
        predictions = [f"cannot tell: {error}"]
    return Findings(tuple(results), tuple(checks), verdict.analyse(measured), tuple(predictions))


def alone(results: Sequence[Result]) -> Findings:
    """The checks without an analysis of the results together."""
    return Findings(tuple(results), tuple(checks_of(results)), None, ())


def checks_of(results: Sequence[Result]) -> list[Finding]:
    """The findings of every result, and of the law over the results of each tool and operation."""
    found: list[Finding] = []
    for group in _groups(results).values():
        of_all, tolerances = law_of_set(group)
        for result, tolerance in zip(group, tolerances, strict=True):
            found += findings_of(result, tolerance)
        found += of_all
    return found


def _groups(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results by tool and operation."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(" ".join(filter(None, (result.tool, result.operation))), []).append(result)
    return groups


def table(results: Sequence[Result]) -> str:
    """The results as a CSV for the other commands; empty if no result has clients or a rate.

    N / X replaces a mean that the tool computed or corrected: it is the mean of the requests that the tool sent. N / X
    without the think time also replaces a missing mean.
    Processor times become stations, see :func:`stations_of`.
    """
    rows = [row for result, own in zip(results, stations_of(results), strict=True) if (row := _row(result, own))]
    # The runs of an experiment have its factors.
    own = list(dict.fromkeys(name for result in results for name in result.row))
    columns = own or [name for name in ("tool", "operation") if len({row[name] for row in rows}) > 1]
    columns += [name for name in ("rate", "clients") if any(row[name] is not None for row in rows)]
    columns += ["think_ms"] * (bool(own) or any(row["think_ms"] for row in rows))
    columns += ["throughput", "response_ms"]
    columns += [name for name in ("requests", "errors") if own and any(row["requests"] is not None for row in rows)]
    columns += sorted({_percentile(share) for result in results for share in result.percentiles_ms if own} - {""})
    if not rows:
        return ""
    return pl.DataFrame(rows, infer_schema_length=None).select(*columns, "^(utilization|servers)_.*$").write_csv()


def _percentile(share: float) -> str:
    """The column of a percentile; empty for one without a column."""
    return f"p{share:g}_ms".replace(".", "") if 10 <= share < 100 else ""


def _row(result: Result, stations: Mapping[str, object]) -> dict[str, object] | None:
    if result.is_open:
        # Rates that a tool measured differ in their last digits between repetitions.
        rate = result.rate or result.sent_rate
        load = {"rate": None if rate is None else float(f"{rate:.3g}"), "clients": None, "think_ms": None}
    else:
        load = {"rate": None, "clients": result.clients, "think_ms": result.rest_ms or 0.0}
    if not (load["rate"] or load["clients"]) or not result.throughput:
        return None
    response_ms = result.response_ms
    if result.clients and (result.computed or result.corrected):
        response_ms = 1000 * result.clients / result.throughput
    elif result.clients and response_ms is None and not result.is_open:
        response_ms = max(0.0, 1000 * result.clients / result.throughput - (result.rest_ms or 0.0))
    named = {"tool": result.tool, "operation": result.operation or "all"}
    # Conversions of units leave digits that the tool did not print.
    times = {_percentile(share): float(f"{time_ms:.12g}") for share, time_ms in result.percentiles_ms.items()}
    counts = {"requests": result.requests, "errors": result.errors}
    measured = {"throughput": result.throughput, "response_ms": response_ms, **counts, **times}
    return {**named, **load, **measured, **stations, **result.row}


def _missing(closed: Sequence[Result]) -> list[Finding]:
    """What the set of results lacks for a knee with an interval."""
    found = []
    for name, group in _groups(closed).items():
        counts = Counter(result.clients or 0 for result in group)
        if len(counts) < LEVELS_MIN:
            levels = ", ".join(map(str, sorted(counts)))
            what, cause = f"the only numbers of clients are {levels}", "a knee needs a slope and a plateau"
            remedy = "measure 1, 2, 4, 8, … clients, until throughput stops growing"
            found.append(Finding("levels", "doubt", LEVELS_MIN - len(counts), what, cause, remedy, name))
        fewest = min(counts.values())
        if fewest < _REPETITIONS_MIN:
            what, cause = f"one level has only {counted(fewest, 'run')}", "chance may explain any difference"
            remedy = f"measure every level {_REPETITIONS_MIN} times or more"
            found.append(Finding("repetitions", "doubt", _REPETITIONS_MIN - fewest, what, cause, remedy, name))
    return found
