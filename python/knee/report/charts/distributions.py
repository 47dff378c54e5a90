"""Percentiles and histograms of response times."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, bars, choose, choose_point, log_axis, nominal, on_log, point


def percentile_lines(values: Rows, axis: Axis, choices: Sequence[str]) -> Spec:
    """Percentiles against the load on a logarithmic axis; the bars span the repetitions.

    `values`: the axis' field, `percentile, value_ms, low_ms, high_ms, series`.
    """
    low = min((row["low_ms"] for row in values), default=1) / 1.2
    high = max((row["high_ms"] for row in values), default=10) * 1.2
    y = on_log("Response time (ms)", low, high)
    colour = nominal("percentile", "Percentile", sort=None, legend={"symbolType": "circle"})
    at = {"encoding": {"y": y | {"field": "value_ms"}}}
    lines = [{"mark": {"type": "line", "strokeWidth": 1.8}} | at]
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "encoding": {"x": axis.spec, "color": colour},
        "layer": [*([] if axis.names else lines), bars(y, "low_ms", "high_ms"), {"mark": point(35)} | at],
    }
    return choose(chart, choices)


def histogram(values: Rows, points: Sequence[tuple[int, str]], chosen: int, ops: Sequence[str]) -> Spec:
    """Response-time histograms of a point, client against middleware.

    `values`: `point, role, op, low_ms, high_ms, share`.
    """
    roles = {row["role"] for row in values}
    domain = [role for role in ("client", "middleware") if role in roles]
    encoding = bins(values, "Share of requests") | {"color": nominal("role", "Measured at", scale={"domain": domain})}
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "mark": {"type": "rect", "opacity": 0.55},
        "encoding": encoding,
    }
    return choose_point(choose(chart, ops, "op", "Operation "), points, chosen)


def bins(values: Rows, title: str) -> Spec:
    """The channels of the rectangles of a histogram on a logarithmic axis. `values`: `low_ms, high_ms, share`."""
    low = min((row["low_ms"] for row in values), default=1)
    high = max((row["high_ms"] for row in values), default=10)
    x = {"type": "quantitative", "title": "Response time (ms)", "scale": {"type": "log", "nice": False}}
    return {
        "x": x | {"field": "low_ms", "axis": log_axis(low, high)},
        "x2": {"field": "high_ms"},
        "y": {"field": "share", "type": "quantitative", "title": title, "axis": {"format": "%"}},
        "y2": {"datum": 0},
    }
