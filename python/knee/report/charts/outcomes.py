"""Reads by outcome."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.distributions import bins
from knee.report.charts.vega import Axis, Rows, Spec, bars, choose, choose_point, nominal, on_log, point, tip


def clusters_of_outcomes(
    values: Rows, ends: Rows, points: Sequence[tuple[int, str]], chosen: int, outcomes: Sequence[str]
) -> Spec:
    """The distribution of each outcome of a point's reads, one colour each, and the ends of all clusters.

    `values`: `point, outcome, low_ms, high_ms, share`; `ends`: `point, end_ms`.
    """
    encoding = bins(values, "Share of the outcome's reads")
    colour = nominal("outcome", "Outcome", scale={"domain": list(outcomes)})
    tips = [{"field": "outcome"}, tip("low_ms", "from ms", ",.3~r"), tip("high_ms", "to ms", ",.3~r")]
    shares: Spec = {
        "mark": {"type": "rect", "opacity": 0.6},
        "encoding": encoding | {"color": colour, "tooltip": [*tips, tip("share", number=".1%")]},
    }
    parting: Spec = {
        "data": {"values": ends},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": "@muted"},
        "encoding": {"x": encoding["x"] | {"field": "end_ms"}},
    }
    chart: Spec = {"height": 240, "data": {"values": values}, "layer": [shares, parting] if ends else [shares]}
    return choose_point(chart, points, chosen)


def outcomes_against_load(values: Rows, axis: Axis, choices: Sequence[str]) -> Spec:
    """Mean response time of each outcome against the load, with error bars, on a logarithmic axis.

    `values`: the axis' field, `series, outcome, mean_ms, low, high`. The line of all reads together is dashed,
    because it is not an outcome.
    """
    low, high = min(row["mean_ms"] for row in values) / 1.5, max(row["mean_ms"] for row in values) * 1.5
    y = on_log("Mean response time (ms)", low, high)
    # A logarithmic axis has no place for zero or less.
    known = [row | {"low": max(row["low"], low)} for row in values if row["low"] is not None]
    dashed = {"condition": {"test": "datum.outcome === 'all reads'", "value": [4, 3]}, "value": [1, 0]}
    means: Spec = {"mark": point(), "encoding": {"y": y | {"field": "mean_ms"}}}
    if not axis.names:
        means["mark"] = {"type": "line", "strokeWidth": 1.8, "point": {"size": 40}}
        means["encoding"]["strokeDash"] = dashed
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "encoding": {"x": axis.spec, "color": nominal("outcome", "Outcome", sort=None)},
        "layer": [means, {"data": {"values": known}} | bars(y)],
    }
    return choose(chart, choices)
