"""The laws' findings, and their numbers in plain-text tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from knee.laws.demands import DemandReport
from knee.laws.findings import LawReport
from knee.laws.text import bottleneck_sentence, sentences
from knee.stats.intervals import counted, number, quantity
from knee.stats.tables import columns

_ROWS_MAX = 100
"""Largest number of rows without `--details`, for checks of the interactive law and for configurations."""


def render_text(report: LawReport, *, details: bool = False) -> str:
    """The findings, followed by their numbers as plain-text tables. Without `details`, the tables cover the interactive
    law, and the demands of a single configuration or one line for each of several. With `details`, they also cover the
    stations' laws, all demands, and the bounds.
    """
    parts = ["\n".join(sentences(report))]
    if report.interactive:
        parts.append(_interactive_table(report, None if details else _ROWS_MAX))
    if details and report.stations:
        parts.append(_station_table(report))
    if details or len(report.demands) == 1:
        parts += [_demand_table(demands) for demands in report.demands]
    elif report.demands:
        lines = [f"{demands.label}: {bottleneck_sentence(demands)}" for demands in report.demands[:_ROWS_MAX]]
        parts.append("\n".join([*lines, *_more(len(report.demands) - len(lines), "configuration")]))
    if details:
        parts += [_bound_table(demands) for demands in report.demands if demands.bounds]
    return "\n\n".join(parts)


def _more(count: int, noun: str) -> list[str]:
    return [f"… and {counted(count, f'more {noun}')}: --details shows them all"] if count > 0 else []


def _interactive_table(report: LawReport, rows_max: int | None) -> str:
    checks = report.interactive
    if rows_max is not None and len(checks) > rows_max:
        # The rows with the largest residuals, in the order of the points.
        doubtful = sorted(checks, key=lambda check: (check.verdict == "holds", -check.residual))[:rows_max]
        chosen = {id(check) for check in doubtful}
        checks = tuple(check for check in checks if id(check) in chosen)
    header = (
        *("point", "clients", "view", "type", "Z ms", "X /s", "by law", "apart", "R ms", "by law", "apart"),
        "verdict",
    )
    rows = [
        (
            str(check.point),
            "–" if check.clients is None else str(check.clients),
            check.view,
            check.request_type or "all",
            number(check.think_ms.estimate),
            number(check.throughput.measured.estimate),
            number(check.throughput.predicted.estimate),
            check.throughput.apart,
            number(check.response_ms.measured.estimate),
            *(
                (number(check.response_ms.predicted.estimate), check.response_ms.apart)
                if check.judges_response
                else ("–", "–")
            ),
            check.verdict,
        )
        for check in checks
    ]
    text = "\n".join([_table(header, rows), *_more(len(report.interactive) - len(checks), "check")])
    if any(report.labels.values()):
        points = dict.fromkeys(check.point for check in checks)
        text += "\n" + "\n".join(f"point {point}: {report.labels[point]}" for point in points)
    return text


def _station_table(report: LawReport) -> str:
    header = ("point", "station", "law", "measured", "by law", "apart", "verdict")
    rows = [
        (
            str(check.point),
            check.station,
            check.law.removeprefix("the "),
            number(check.comparison.measured.estimate),
            number(check.comparison.predicted.estimate),
            check.comparison.apart,
            check.verdict,
        )
        for check in report.stations
    ]
    return _table(header, rows)


def _demand_table(report: DemandReport) -> str:
    header = ("station", "visits", "service ms", "demand ms", "servers", "utilisation", "capacity /s")
    rows = [
        (
            demand.station,
            "–" if demand.visits is None else number(demand.visits.estimate),
            "–" if demand.service_ms is None else number(demand.service_ms.estimate),
            quantity(demand.demand_ms),
            number(demand.servers),
            "–" if demand.utilization is None else f"{demand.utilization.estimate:.1%}",
            quantity(demand.shown_capacity),
        )
        for demand in report.demands
    ]
    at = [] if report.clients is None else [f"at {report.clients} clients"]
    title = ", ".join(["Demands", *([report.label] if report.label else []), *at])
    return f"{title}\n{_table(header, rows, left={0})}"


def _bound_table(report: DemandReport) -> str:
    header = ("clients", "at least", "balanced", "X /s", "balanced", "at most", "verdict")
    rows = [
        (
            "–" if check.clients is None else str(check.clients),
            number(check.bounds.asymptotic[0]),
            number(check.bounds.balanced[0]),
            quantity(check.throughput),
            number(check.bounds.balanced[1]),
            number(check.bounds.asymptotic[1]),
            check.verdict,
        )
        for check in report.bounds
    ]
    label = f"{report.label}: throughput" if report.label else "Throughput"
    return f"{label} between its bounds. They take R without waiting from {report.light_source}\n{_table(header, rows)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> str:
    return "\n".join(columns([header, *rows], left))
