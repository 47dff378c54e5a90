"""Reads by outcome: a chart of the clusters, and the numbers of each outcome."""

from __future__ import annotations

from collections.abc import Mapping

from knee.report.charts.outcomes import clusters_of_outcomes, outcomes_against_load
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import columns, folded, grid, heading, paragraphs
from knee.stats.intervals import between, number
from knee.verdict import words
from knee.verdict.outcomes import OUTCOMES, Outcome


def section(sheet: Sheet) -> str:
    """Empty if the clients do not report outcomes."""
    details = sheet.findings.details
    if details is None or not details.outcomes:
        return ""
    of_points, clusters_of_points = details.outcomes, details.clusters
    chosen = words.shown_first(details, sheet.naming)
    text = heading(sheet.naming.series[chosen]) + paragraphs(words.reads(details, sheet.naming))
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
    others = paragraphs(
        (sheet.naming.series[point] + ": " if sheet.naming.series[point] else "") + sentence
        for point, each in clusters_of_points.items()
        if point != chosen
        for sentence in words.clusters(each, sheet.naming.in_words(sheet.naming.load[point]))[:1]
    )
    more = folded("Clusters at the other points", others) if others else ""
    table = _table(sheet, of_points)
    if "?</td>" in table:
        table += paragraphs(["With a question mark: the reads may take equally long."], "doubt")
    return text + more + grid(figures) + table


def _means(sheet: Sheet, of_points: Mapping[int, tuple[Outcome, ...]]) -> list[dict[str, object]]:
    return [
        {sheet.axis.field: sheet.naming.load[point], "series": sheet.naming.series[point], "outcome": one.name}
        | {"mean_ms": one.mean_ms.estimate, "low": one.mean_ms.low, "high": one.mean_ms.high}
        for point, _ in sheet.naming.points
        for one in of_points.get(point, ())
    ]


def _table(sheet: Sheet, of_points: Mapping[int, tuple[Outcome, ...]]) -> str:
    header, rows = columns(
        [
            {
                "line": sheet.naming.series[point],
                "load": sheet.naming.load[point],
                "outcome": one.name,
                "reads": one.count,
                "of all reads": f"{one.share:.1%}",
                "of waiting for reads": f"{one.time_share:.1%}",
                "mean ms": one.mean_ms,
                "× ordinary": _times(one),
                "p50 ms": one.p50_ms,
                "p99 ms": one.p99_ms,
                "max ms": one.max_ms,
            }
            for point, _ in sheet.naming.points
            for one in of_points.get(point, ())
        ]
    )
    return sheet.of_lines(header[2:], rows)


def _times(one: Outcome) -> str:
    """The ratio to an ordinary read's response time; with a question mark if it may be 1."""
    times = one.times
    text = number(times.estimate, 2)
    if times.low is None or times.high is None or times.low == times.high:
        return text
    return f"{text}?" if times.low <= 1 <= times.high else f"{text} ({between(times)})"
