"""Reads by outcome: a chart of the clusters, and the numbers of each outcome."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from knee.report.charts.outcomes import clusters_of_outcomes, outcomes_against_load
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import Cell, folded
from knee.stats.intervals import between, number
from knee.verdict import words
from knee.verdict.outcomes import OUTCOMES, Outcome

_HEADER = (
    "outcome",
    "reads",
    "of all reads",
    "of waiting for reads",
    "mean ms",
    "× ordinary",
    "p50 ms",
    "p99 ms",
    "max ms",
)


def section(sheet: Sheet) -> str:
    """Empty if the clients do not report outcomes."""
    details = sheet.findings.details
    if details is None or not details.outcomes:
        return ""
    of_points, clusters_of_points = details.outcomes, details.clusters
    chosen = words.shown_first(details, sheet.naming)
    sentences = words.reads(details, sheet.naming)
    heading = f"<h3>{escape(sheet.naming.series[chosen])}</h3>" if sheet.naming.series[chosen] else ""
    text = heading + "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    names = [name for name in OUTCOMES.values() if any(one.name == name for each in of_points.values() for one in each)]
    ends = [
        {"point": point, "end_ms": one.high_ms}
        for point, each in clusters_of_points.items()
        if each.agree
        for one in each.together[:-1]
    ]
    figures = sheet.figure(
        "outcome-clusters",
        clusters_of_outcomes(records(details.outcome_shares), ends, sheet.naming.points, chosen, names),
        "Response times of each outcome's reads, as shares of that outcome's reads. Dashed lines separate the clusters "
        "that all reads together form in every repetition. The axis is logarithmic.",
    )
    if len(sheet.axis.levels) > 1:
        figures += sheet.figure(
            "outcome-means",
            outcomes_against_load(_means(sheet, of_points), sheet.axis, sheet.naming.labels),
            "Mean response time of each outcome. If the means lie far apart, hardly any read takes as long as the "
            "overall mean.",
        )
    others = "".join(
        f"<p>{escape(sheet.naming.series[point] + ': ' if sheet.naming.series[point] else '')}{escape(sentence)}</p>"
        for point, each in clusters_of_points.items()
        if point != chosen
        for sentence in words.clusters(each, sheet.naming.in_words(sheet.naming.load[point]))[:1]
    )
    more = folded("Clusters at the other points", others) if others else ""
    table = sheet.of_lines(_HEADER, [row for point, _ in sheet.naming.points for row in _rows(sheet, point, of_points)])
    if "?</td>" in table:
        table += '<p class="doubt">With a question mark: the reads may take equally long.</p>'
    return f'{text}{more}<div class="grid">{figures}</div>{table}'


def _means(sheet: Sheet, of_points: Mapping[int, tuple[Outcome, ...]]) -> list[dict[str, object]]:
    return [
        {sheet.axis.field: sheet.naming.load[point], "series": sheet.naming.series[point], "outcome": one.name}
        | {"mean_ms": one.mean_ms.estimate, "low": one.mean_ms.low, "high": one.mean_ms.high}
        for point, _ in sheet.naming.points
        for one in of_points.get(point, ())
    ]


def _rows(sheet: Sheet, point: int, of_points: Mapping[int, tuple[Outcome, ...]]) -> list[tuple[Cell, ...]]:
    return [
        (
            sheet.naming.series[point],
            sheet.naming.load[point],
            one.name,
            one.count,
            f"{one.share:.1%}",
            f"{one.time_share:.1%}",
            one.mean_ms,
            _times(one),
            one.p50_ms,
            one.p99_ms,
            one.max_ms,
        )
        for one in of_points.get(point, ())
    ]


def _times(one: Outcome) -> str:
    """The ratio to an ordinary read's response time; with a question mark if it may be 1."""
    times = one.times
    text = number(times.estimate, 2)
    if times.low is None or times.high is None or times.low == times.high:
        return text
    return f"{text}?" if times.low <= 1 <= times.high else f"{text} ({between(times)})"
