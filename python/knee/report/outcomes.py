"""Reads by what came of them: clusters drawn, and the figures of each."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from knee.report.charts.outcomes import clusters_of_outcomes, outcomes_against_load
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import Cell, folded
from knee.stats.intervals import between, number
from knee.verdict.distributions import merged
from knee.verdict.outcomes import (
    OUTCOMES,
    Outcome,
    clusters,
    distribution,
    outcomes,
    reads,
    what_clusters_there_are,
    why_the_mean_misleads,
)

if TYPE_CHECKING:
    from knee.data import Dataset

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


def section(sheet: Sheet, dataset: Dataset) -> str:
    """Empty where the clients did not tell reads apart by what came back."""
    found = {key: one for key, one in reads(merged(dataset)).items() if key[0] in sheet.load}
    if not found:
        return ""
    of_points = outcomes(found, sheet.diagnosis.level)
    clusters_of_points = {point: clusters(found, point) for point, _ in sheet.points if point in of_points}
    chosen = sheet.chosen if sheet.chosen in of_points else next(iter(clusters_of_points))
    at = sheet.in_words(sheet.load[chosen])
    sentences = [
        why_the_mean_misleads(of_points[chosen], at),
        *what_clusters_there_are(clusters_of_points[chosen], at),
    ]
    heading = f"<h3>{escape(sheet.series[chosen])}</h3>" if sheet.series[chosen] else ""
    words = heading + "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    names = [name for name in OUTCOMES.values() if any(one.name == name for each in of_points.values() for one in each)]
    ends = [
        {"point": point, "end_ms": one.high_ms}
        for point, each in clusters_of_points.items()
        if each.agree
        for one in each.together[:-1]
    ]
    figures = sheet.figure(
        "outcome-clusters",
        clusters_of_outcomes(records(distribution(found)), ends, sheet.points, chosen, names),
        "How long reads of each outcome took, as shares of that outcome's own reads, so that few large ones show as "
        "well. Dashed lines part the clusters that all reads together make in every repetition. Mind the logarithmic "
        "axis.",
    )
    if len(sheet.axis.levels) > 1:
        figures += sheet.figure(
            "outcome-means",
            outcomes_against_load(_means(sheet, of_points), sheet.axis, sheet.labels),
            "Mean response time of each outcome. Where they lie far apart, the mean of all reads is that of no read "
            "at all.",
        )
    others = "".join(
        f"<p>{escape(sheet.series[point] + ': ' if sheet.series[point] else '')}{escape(sentence)}</p>"
        for point, each in clusters_of_points.items()
        if point != chosen
        for sentence in what_clusters_there_are(each, sheet.in_words(sheet.load[point]))[:1]
    )
    more = folded("Clusters at the other points", others) if others else ""
    table = sheet.of_lines(_HEADER, [row for point, _ in sheet.points for row in _rows(sheet, point, of_points)])
    if "?</td>" in table:
        table += '<p class="doubt">A question mark: whether it takes longer at all cannot be told.</p>'
    return f'{words}{more}<div class="grid">{figures}</div>{table}'


def _means(sheet: Sheet, of_points: dict[int, tuple[Outcome, ...]]) -> list[dict[str, object]]:
    return [
        {sheet.axis.field: sheet.load[point], "series": sheet.series[point], "outcome": one.name}
        | {"mean_ms": one.mean_ms.estimate, "low": one.mean_ms.low, "high": one.mean_ms.high}
        for point, _ in sheet.points
        for one in of_points.get(point, ())
    ]


def _rows(sheet: Sheet, point: int, of_points: dict[int, tuple[Outcome, ...]]) -> list[tuple[Cell, ...]]:
    return [
        (
            sheet.series[point],
            sheet.load[point],
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
    """A question mark where the repetitions cannot tell whether it is one."""
    times = one.times
    told = number(times.estimate, 2)
    if times.low is None or times.high is None or times.low == times.high:
        return told
    return f"{told}?" if times.low <= 1 <= times.high else f"{told} ({between(times)})"
