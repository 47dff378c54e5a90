"""Reads by outcome."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, bars, choose, choose_point, log_axis


def clusters_of_outcomes(
    values: Rows, ends: Rows, points: Sequence[tuple[int, str]], chosen: int, outcomes: Sequence[str]
) -> Spec:
    """The distribution of each outcome of a point's reads, one colour each, and the ends of all clusters.

    `values`: `point, outcome, low_ms, high_ms, share`; `ends`: `point, end_ms`.
    """
    axis = log_axis(min(row["low_ms"] for row in values), max(row["high_ms"] for row in values))
    x = {"type": "quantitative", "title": "Response time (ms)", "scale": {"type": "log", "nice": False}, "axis": axis}
    shares: Spec = {
        "mark": {"type": "rect", "opacity": 0.6},
        "encoding": {
            "x": x | {"field": "low_ms"},
            "x2": {"field": "high_ms"},
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "Share of the outcome's reads",
                "axis": {"format": "%"},
            },
            "y2": {"datum": 0},
            "color": {"field": "outcome", "type": "nominal", "title": "Outcome", "scale": {"domain": list(outcomes)}},
            "tooltip": [
                {"field": "outcome"},
                {"field": "low_ms", "title": "from ms", "format": ",.3~r"},
                {"field": "high_ms", "title": "to ms", "format": ",.3~r"},
                {"field": "share", "format": ".1%"},
            ],
        },
    }
    parting: Spec = {
        "data": {"values": ends},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": "@muted"},
        "encoding": {"x": x | {"field": "end_ms"}},
    }
    chart: Spec = {"height": 240, "data": {"values": values}, "layer": [shares, parting] if ends else [shares]}
    return choose_point(chart, points, chosen)


def outcomes_against_load(values: Rows, axis: Axis, choices: Sequence[str]) -> Spec:
    """Mean response time of each outcome against the load, with error bars, on a logarithmic axis.

    `values`: the axis' field, `series, outcome, mean_ms, low, high`. The line of all reads together is dashed,
    because it is not an outcome.
    """
    low, high = min(row["mean_ms"] for row in values) / 1.5, max(row["mean_ms"] for row in values) * 1.5
    y = {
        "type": "quantitative",
        "title": "Mean response time (ms)",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": log_axis(low, high),
    }
    # A logarithmic axis has no place for zero or less.
    known = [row | {"low": max(row["low"], low)} for row in values if row["low"] is not None]
    dashed = {"condition": {"test": "datum.outcome === 'all reads'", "value": [4, 3]}, "value": [1, 0]}
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "encoding": {
            "x": axis.spec,
            "color": {"field": "outcome", "type": "nominal", "title": "Outcome", "sort": None},
        },
        "layer": [
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"y": y | {"field": "mean_ms"}},
            }
            if axis.names
            else {
                "mark": {"type": "line", "strokeWidth": 1.8, "point": {"size": 40}},
                "encoding": {"y": y | {"field": "mean_ms"}, "strokeDash": dashed},
            },
            {"data": {"values": known}} | bars(y),
        ],
    }
    return choose(chart, "series", "Configuration ", choices)
