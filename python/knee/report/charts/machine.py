"""What a machine's memory can do, by the size of the working set."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, bars, dots, line, log_axis, nominal

_PALETTE = ["#0072b2", "#d55e00", "#009e73"]


def against_working_set(latencies: Rows, bandwidths: Rows, axis: Axis, caches: Sequence[tuple[str, float]]) -> Spec:
    """Latency above bandwidth, on logarithmic axes; dashed lines stand at the caches' sizes.

    `latencies`, `bandwidths`: the axis' field, `value, low, high`, and of bandwidths `access`. `caches`: name and size.
    """
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": "white",
        "config": {"range": {"category": _PALETTE}, "view": {"stroke": None}},
        "vconcat": [
            _panel(latencies, "Latency of a dependent read (ns)", axis, caches, {}),
            _panel(bandwidths, "Bandwidth of one thread (GB/s)", axis, caches, {"color": nominal("access")}),
        ],
    }


def _panel(values: Rows, title: str, axis: Axis, caches: Sequence[tuple[str, float]], colour: Spec) -> Spec:
    low, high = min(row["low"] for row in values), max(row["high"] for row in values)
    scale = {"type": "log", "domain": [low, high]}
    y = {"type": "quantitative", "title": title, "scale": scale, "axis": log_axis(low, high)}
    marks: Spec = {
        "data": {"values": [{axis.field: size, "name": name} for name, size in caches]},
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [5, 4], "color": "#5a656e"}},
            {"mark": {"type": "text", "y": -6, "color": "#5a656e"}, "encoding": {"text": {"field": "name"}}},
        ],
    }
    return {
        "width": 620,
        "height": 230,
        "data": {"values": values},
        "encoding": {"x": axis.spec},
        "layer": [marks, {"encoding": colour, "layer": [line(y), bars(y), dots(y, [])]}],
    }
