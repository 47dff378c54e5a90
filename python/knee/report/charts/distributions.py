"""Percentiles and histograms of response times."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, bars, choose, choose_point, log_axis


def percentile_lines(values: Rows, axis: Axis, choices: Sequence[str]) -> Spec:
    """Percentiles against the load on a logarithmic axis; the bars span the repetitions.

    `values`: the axis' field, `percentile, value_ms, low_ms, high_ms, series`.
    """
    low = min((row["low_ms"] for row in values), default=1) / 1.2
    high = max((row["high_ms"] for row in values), default=10) * 1.2
    y = {
        "type": "quantitative",
        "title": "Response time (ms)",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": log_axis(low, high),
    }
    legend = {"symbolType": "circle"}
    colour = {"field": "percentile", "type": "nominal", "title": "Percentile", "sort": None, "legend": legend}
    lines = [{"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {"y": y | {"field": "value_ms"}}}]
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "encoding": {"x": axis.spec, "color": colour},
        "layer": [
            *([] if axis.names else lines),
            bars(y, "low_ms", "high_ms"),
            {
                "mark": {"type": "point", "filled": True, "size": 35, "opacity": 1},
                "encoding": {"y": y | {"field": "value_ms"}},
            },
        ],
    }
    return choose(chart, "series", "Configuration ", choices)


def histogram(values: Rows, points: Sequence[tuple[int, str]], chosen: int, ops: Sequence[str]) -> Spec:
    """Response-time histograms of a point, client against middleware.

    `values`: `point, role, op, low_ms, high_ms, share`.
    """
    roles = {row["role"] for row in values}
    x = {
        "field": "low_ms",
        "type": "quantitative",
        "title": "Response time (ms)",
        "scale": {"type": "log", "nice": False},
        "axis": log_axis(
            min((row["low_ms"] for row in values), default=1), max((row["high_ms"] for row in values), default=10)
        ),
    }
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "mark": {"type": "rect", "opacity": 0.55},
        "encoding": {
            "x": x,
            "x2": {"field": "high_ms"},
            "y": {"field": "share", "type": "quantitative", "title": "Share of requests", "axis": {"format": "%"}},
            "y2": {"datum": 0},
            "color": {
                "field": "role",
                "type": "nominal",
                "title": "Measured at",
                "scale": {"domain": [role for role in ("client", "middleware") if role in roles]},
            },
        },
    }
    return choose_point(choose(chart, "op", "Operation ", ops), points, chosen)
