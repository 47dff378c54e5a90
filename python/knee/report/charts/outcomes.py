"""Reads by what came of them."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Rows, Spec, choose, choose_point, clients_axis, layered, log_axis


def clusters_of_outcomes(values: Rows, points: Sequence[tuple[int, str]], chosen: int, outcomes: Sequence[str]) -> Spec:
    """The distribution of each outcome of a point's reads, one colour each. `values`: `point, outcome, low_ms, high_ms,
    share`."""
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "mark": {"type": "rect", "opacity": 0.6},
        "encoding": {
            "x": {
                "field": "low_ms",
                "type": "quantitative",
                "title": "Response time (ms)",
                "scale": {"type": "log", "nice": False},
                "axis": log_axis(min(row["low_ms"] for row in values), max(row["high_ms"] for row in values)),
            },
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
    return choose_point(chart, points, chosen)


def outcomes_against_clients(values: Rows, counts: Sequence[int], choices: Sequence[str]) -> Spec:
    """Mean response time of each outcome against clients, on a logarithmic axis.

    `values`: `clients, series, outcome, mean_ms`.
    """
    low, high = min(row["mean_ms"] for row in values) / 1.3, max(row["mean_ms"] for row in values) * 1.3
    chart = layered(
        [{"mark": {"type": "line", "strokeWidth": 1.8, "point": {"size": 40}}}],
        clients_axis(counts),
        height=240,
        data=values,
        encoding={
            "y": {
                "field": "mean_ms",
                "type": "quantitative",
                "title": "Mean response time (ms)",
                "scale": {"type": "log", "domain": [low, high], "nice": False},
                "axis": log_axis(low, high),
            },
            "color": {"field": "outcome", "type": "nominal", "title": "Outcome", "sort": None},
        },
    )
    return choose(chart, "series", "Configuration ", choices)
