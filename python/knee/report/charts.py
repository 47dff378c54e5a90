"""Vega-Lite specifications of the report's charts.

Colours that differ between light and dark are written as "@name" and filled in by page.js; the series' palette is
Okabe & Ito's (2008), which colour-blind readers can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from knee.asymptotes import Knee

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

_CURVE_POINTS = 60
_LEGEND_CHARACTERS = 60


def clients_axis(clients: Sequence[int]) -> Spec:
    """The horizontal axis of every chart over clients: logarithmic where the counts span a factor of eight."""
    counts = sorted(set(clients))
    wide = len(counts) > 1 and counts[0] > 0 and counts[-1] / counts[0] >= 8
    return {
        "field": "clients",
        "type": "quantitative",
        "title": "Clients",
        "scale": {"type": "log", "base": 2, "nice": False, "padding": 12} if wide else {"zero": False, "padding": 12},
        "axis": {"values": counts, "format": "d", "labelOverlap": True},
    }


def knee_throughput(knee: Knee) -> Spec:
    """The headline: throughput against clients, with both asymptotes and the band in which they meet."""
    counts = [level.clients for level in knee.levels]
    curve = []
    for i in range(_CURVE_POINTS + 1):
        clients = counts[0] * math.pow(counts[-1] / counts[0], i / _CURVE_POINTS)
        if bounds := knee.bounds(clients):
            curve.append({"clients": clients, "light": bounds[0], "plateau": bounds[1]})
    values = [_level(level.clients, level.throughput) for level in knee.levels]
    top = 1.15 * max(_highest(values), curve[0]["plateau"] if curve else 0)
    y = {"type": "quantitative", "title": "Throughput (requests/s)", "scale": {"domain": [0, top]}}
    layers = [*_knee_marks(knee)]
    if curve:
        layers += [
            *_light([point for point in curve if point["light"] <= top], y),
            _asymptote(curve, "plateau", curve[0] | {"name": "X max"}, {"align": "left"}, y),
        ]
    layers += _measured(values, y)
    return _chart(layers, clients_axis(counts), height=260)


def knee_response(knee: Knee) -> Spec:
    """Response time against clients, below the headline and on the same horizontal axis."""
    counts = [level.clients for level in knee.levels]
    values = [_level(level.clients, level.response_ms) for level in knee.levels]
    y = {"type": "quantitative", "title": "Response time (ms)", "scale": {"domain": [0, 1.05 * _highest(values)]}}
    return _chart([*_knee_marks(knee, named=False), *_measured(values, y)], clients_axis(counts), height=150)


def _highest(values: Rows) -> float:
    """Where an axis ends: an error bar of two repetitions may be ten times as long as what it belongs to."""
    estimates = max(row["value"] for row in values)
    bars = max(row["value"] if row["high"] is None else row["high"] for row in values)
    return float(min(bars, 2 * estimates)) or 1.0


def _level(clients: int, interval: Any) -> dict[str, Any]:
    return {"clients": clients, "value": interval.estimate, "low": interval.low, "high": interval.high}


def _log_axis(low: float, high: float) -> Spec:
    """Labels and lines at 1, 2 and 5 of every decade between two values, at 1 only where that would be too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 3.5 else (1,)
    values = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return {"values": [value for value in values if low <= value <= high], "format": "~g", "labelOverlap": True}


def _knee_marks(knee: Knee, *, named: bool = True) -> list[Spec]:
    if knee.clients is None or not math.isfinite(knee.clients.estimate) or knee.status == "cannot tell":
        return []
    first, last = knee.levels[0].clients, knee.levels[-1].clients
    inside = {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}}
    marks: list[Spec] = []
    if knee.status == "found" and knee.clients.low is not None and knee.clients.high is not None:
        band = {"from": max(first, knee.clients.low), "to": min(last, knee.clients.high)}
        marks.append(
            {
                "data": {"values": [band]},
                "mark": {"type": "rect", "color": "@accent", "opacity": 0.22, "clip": True},
                "encoding": inside,
            }
        )
        marks.append(
            {
                "data": {"values": [{"from": knee.clients.estimate, "name": f"knee {knee.clients.estimate:.0f}"}]},
                "encoding": {"x": inside["x"]},
                "layer": [
                    {"mark": {"type": "rule", "color": "@accent", "strokeWidth": 1.5, "clip": True}},
                    {
                        "mark": {
                            "type": "text",
                            "align": "left",
                            "baseline": "bottom",
                            "dx": 5,
                            "dy": -5,
                            "color": "@accent",
                            "fontWeight": 600,
                        },
                        "encoding": {"text": {"field": "name"}, "y": {"value": {"expr": "height"}}},
                    },
                ][: 2 if named else 1],
            }
        )
    return marks


def _light(curve: Rows, y: Spec) -> list[Spec]:
    """The light-load asymptote, named right of its end, where neither knee nor curve is, if there is room."""
    if not curve:
        return []
    room = len(curve) < 0.75 * _CURVE_POINTS
    place = {"align": "left", "dx": 6} if room else {"align": "right", "dx": -6}
    return [_asymptote(curve, "light", curve[-1] | {"name": "N / (R₀ + Z)"}, place, y)]


def _asymptote(curve: Rows, field: str, label: dict[str, Any], place: Spec, y: Spec) -> Spec:
    text = {"type": "text", "baseline": "bottom", "dy": -4, "color": "@muted"}
    return {
        "encoding": {"x": {"field": "clients", "type": "quantitative"}, "y": y | {"field": field}},
        "layer": [
            {
                "data": {"values": curve},
                "mark": {"type": "line", "strokeDash": [5, 4], "color": "@muted", "strokeWidth": 1.2, "clip": True},
            },
            {"data": {"values": [label]}, "mark": text | place, "encoding": {"text": {"field": "name"}}},
        ],
    }


def _measured(values: Rows, y: Spec) -> list[Spec]:
    x = {"field": "clients", "type": "quantitative"}
    return [
        {
            "data": {"values": values},
            "encoding": {"x": x, "y": y | {"field": "value"}},
            "layer": [
                {"mark": {"type": "line", "color": "@series", "strokeWidth": 2}},
                {
                    "transform": [{"filter": "datum.low != null"}],
                    "mark": {"type": "rule", "color": "@series", "strokeWidth": 1.5, "clip": True},
                    "encoding": {"y": y | {"field": "low"}, "y2": {"field": "high"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "color": "@series", "size": 45, "opacity": 1},
                    "encoding": {
                        "tooltip": [
                            {"field": "clients", "title": "clients"},
                            {"field": "value", "title": str(y["title"]), "format": ",.4~r"},
                            {"field": "low", "title": "interval from", "format": ",.4~r"},
                            {"field": "high", "title": "to", "format": ",.4~r"},
                        ]
                    },
                },
            ],
        }
    ]


def against_clients(
    values: Rows, title: str, *, series: str | None, choices: Sequence[str], counts: Sequence[int]
) -> Spec:
    """One measured quantity against clients with error bars, one line per combination of the other factors.

    `values`: `clients, value, low, high` and, where there are several lines, `series`, one of `choices`.
    """
    x = clients_axis(counts)
    colour: Spec = {}
    if series:
        columns = max(1, _LEGEND_CHARACTERS // (4 + max(map(len, choices))))
        colour["color"] = {
            "field": "series",
            "type": "nominal",
            "title": series,
            "scale": {"domain": list(choices)},
            "legend": {"columns": columns, "labelLimit": 400, "titleOrient": "top"},
        }
    y = {"type": "quantitative", "title": title, "scale": {"domain": [0, 1.05 * _highest(values)]}}
    return _chart(
        [
            {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {"y": y | {"field": "value"}}},
            {
                "transform": [{"filter": "datum.low != null"}],
                "mark": {"type": "rule", "strokeWidth": 1.3, "clip": True},
                "encoding": {"y": y | {"field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
                "encoding": {
                    "y": y | {"field": "value"},
                    "tooltip": [
                        {"field": "clients"},
                        *([{"field": "series", "title": series}] if series else []),
                        {"field": "value", "title": title, "format": ",.4~r"},
                        {"field": "low", "title": "interval from", "format": ",.4~r"},
                        {"field": "high", "title": "to", "format": ",.4~r"},
                    ],
                },
            },
        ],
        x,
        height=210,
        data=values,
        encoding=colour,
    )


def law_scatter(values: Rows, unit: str) -> Spec:
    """Measured against predicted by the interactive law; a point on the diagonal obeys it.

    `values`: `measured, predicted, view, clients`.
    """
    numbers = [row[name] for row in values for name in ("measured", "predicted") if row[name] > 0]
    low, high = min(numbers, default=1) / 1.3, max(numbers, default=2) * 1.3
    scale = {"type": "log", "domain": [low, high], "nice": False}
    axis = _log_axis(low, high) | {"format": "~g" if unit == "ms" else "~s"}
    x = {"field": "predicted", "type": "quantitative", "scale": scale, "axis": axis, "title": f"By law ({unit})"}
    y = {"field": "measured", "type": "quantitative", "scale": scale, "axis": axis, "title": f"Measured ({unit})"}
    diagonal = [{"predicted": at, "measured": at} for at in (low, high)]
    return {
        "height": 230,
        "layer": [
            {
                "data": {"values": diagonal},
                "mark": {"type": "line", "color": "@muted", "strokeDash": [5, 4], "strokeWidth": 1.2},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": values},
                "mark": {"type": "point", "size": 55, "strokeWidth": 1.8},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {"field": "view", "type": "nominal", "title": "View"},
                    "shape": {"field": "view", "type": "nominal", "title": "View"},
                    "tooltip": [
                        {"field": "clients"},
                        {"field": "view"},
                        {"field": "measured", "format": ",.4~r"},
                        {"field": "predicted", "format": ",.4~r"},
                    ],
                },
            },
        ],
    }


def law_residuals(values: Rows, tolerance: float, counts: Sequence[int]) -> Spec:
    """Residuals of both directions and views against clients, within the band of the tolerance.

    `values`: `clients, residual, low, high, check`.
    """
    y = {"type": "quantitative", "title": "Predicted / measured − 1", "axis": {"format": "+.1%"}}
    colour = {"color": {"field": "check", "type": "nominal", "title": None, "sort": None}}
    offset = {"xOffset": {"field": "check", "type": "nominal", "sort": None}}
    x = {"field": "clients", "type": "ordinal", "title": "Clients", "axis": {"labelAngle": 0, "labelOverlap": True}}
    return {
        "height": 230,
        "layer": [
            {
                "data": {"values": [{"from": -tolerance, "to": tolerance}]},
                "mark": {"type": "rect", "color": "@muted", "opacity": 0.13},
                "encoding": {"y": y | {"field": "from"}, "y2": {"field": "to"}},
            },
            {
                "data": {"values": values},
                "transform": [{"filter": "datum.low != null"}],
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}} | colour | offset,
            },
            {
                "data": {"values": values},
                "mark": {"type": "point", "filled": True, "size": 35, "opacity": 1},
                "encoding": {"x": x, "y": y | {"field": "residual"}} | colour | offset,
            },
        ],
    }


def percentile_lines(values: Rows, counts: Sequence[int], choices: Sequence[str]) -> Spec:
    """Percentiles against clients on a logarithmic axis; the bars span the repetitions.

    `values`: `clients, percentile, value_ms, low_ms, high_ms, series`.
    """
    low = min((row["low_ms"] for row in values), default=1) / 1.2
    high = max((row["high_ms"] for row in values), default=10) * 1.2
    y = {
        "type": "quantitative",
        "title": "Response time (ms)",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": _log_axis(low, high),
    }
    chart = _chart(
        [
            {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {"y": y | {"field": "value_ms"}}},
            {
                "mark": {"type": "rule", "strokeWidth": 1.3, "clip": True},
                "encoding": {"y": y | {"field": "low_ms"}, "y2": {"field": "high_ms"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 35, "opacity": 1},
                "encoding": {"y": y | {"field": "value_ms"}},
            },
        ],
        clients_axis(counts),
        height=240,
        data=values,
        encoding={
            "color": {
                "field": "percentile",
                "type": "nominal",
                "title": "Percentile",
                "sort": None,
                "legend": {"symbolType": "circle"},
            }
        },
    )
    return _choose(chart, "series", "Configuration ", choices)


def histogram(values: Rows, points: Sequence[tuple[int, str]], chosen: int, ops: Sequence[str]) -> Spec:
    """Response-time histograms of a point, client against middleware.

    `values`: `point, role, op, low_ms, high_ms, share`.
    """
    x = {
        "field": "low_ms",
        "type": "quantitative",
        "title": "Response time (ms)",
        "scale": {"type": "log", "nice": False},
        "axis": _log_axis(
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
                "scale": {"domain": ["client", "middleware"]},
            },
        },
    }
    return _choose_point(_choose(chart, "op", "Operation ", ops), points, chosen)


def utilization_lines(values: Rows, counts: Sequence[int], saturated: float, choices: Sequence[str]) -> Spec:
    """Utilisation of every resource against clients; the rule marks saturation.

    `values`: `clients, value, resource, series`.
    """
    y = {"type": "quantitative", "title": "Utilisation", "axis": {"format": "%"}, "scale": {"domainMin": 0}}
    chart = _chart(
        [
            {
                "data": {"values": [{"at": saturated}]},
                "mark": {"type": "rule", "color": "@muted", "strokeDash": [5, 4]},
                "encoding": {"y": y | {"field": "at"}},
            },
            {
                "mark": {"type": "line", "strokeWidth": 1.8, "point": {"size": 40}},
                "encoding": {
                    "x": clients_axis(counts),
                    "y": y | {"field": "value"},
                    "color": {
                        "field": "resource",
                        "type": "nominal",
                        "title": None,
                        "legend": {"columns": 2, "labelLimit": 260},
                    },
                    "tooltip": [
                        {"field": "resource"},
                        {"field": "clients"},
                        {"field": "value", "title": "utilisation", "format": ".1%"},
                    ],
                },
            },
        ],
        None,
        height=230,
        data=values,
    )
    return _choose(chart, "series", "Configuration ", choices)


def cpu_bars(values: Rows, choices: Sequence[str]) -> Spec:
    """Whose CPU time it was, stacked, against clients. `values`: `clients, owner, share, series`."""
    chart: Spec = {
        "height": 230,
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "clients",
                "type": "ordinal",
                "title": "Clients",
                "axis": {"labelAngle": 0, "labelOverlap": True},
            },
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "Share of all cores",
                "axis": {"format": "%"},
                "stack": "zero",
            },
            "color": {
                "field": "owner",
                "type": "nominal",
                "title": "CPU time of",
                "scale": {"domain": ["load", "middleware", "store", "knee", "others"]},
            },
            "tooltip": [{"field": "owner"}, {"field": "clients"}, {"field": "share", "format": ".1%"}],
        },
    }
    return _choose(chart, "series", "Configuration ", choices)


def timeline(
    values: Rows, shades: Rows, field: str, title: str, points: Sequence[tuple[int, str]], chosen: int
) -> Spec:
    """A point's run second by second, one line per repetition; what is trimmed lies in the shade."""
    y = {"field": field, "type": "quantitative", "title": title, "scale": {"zero": True}}
    chart: Spec = {
        "height": 190,
        "layer": [
            {
                "data": {"values": shades},
                "mark": {"type": "rect", "color": "@muted", "opacity": 0.16},
                "encoding": {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}},
            },
            {
                "data": {"values": values},
                "mark": {"type": "line", "strokeWidth": 1.6, "point": {"size": 18}},
                "encoding": {
                    "x": {
                        "field": "middle_s",
                        "type": "quantitative",
                        "title": "Elapsed time (s)",
                        "axis": {"tickMinStep": 1},
                    },
                    "y": y,
                    "color": {"field": "repetition", "type": "nominal", "title": "Repetition"},
                },
            },
        ],
    }
    return _choose_point(chart, points, chosen)


def resource_timeline(values: Rows, points: Sequence[tuple[int, str]], chosen: int) -> Spec:
    """CPU use of the host and of every process in the first repetition. `values`: `point, middle_s, target, cores`."""
    chart: Spec = {
        "height": 210,
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {
            "x": {
                "field": "middle_s",
                "type": "quantitative",
                "title": "Elapsed time (s)",
                "axis": {"tickMinStep": 1},
            },
            "y": {"field": "cores", "type": "quantitative", "title": "CPU (cores in use)"},
            "color": {"field": "target", "type": "nominal", "title": None, "legend": {"columns": 4}},
        },
    }
    return _choose_point(chart, points, chosen)


def _chart(
    layers: list[Spec],
    x: Spec | None,
    *,
    height: int,
    data: Rows | None = None,
    encoding: Spec | None = None,
) -> Spec:
    shared = dict(encoding or {})
    if x is not None:
        shared["x"] = x
    chart: Spec = {"height": height, "layer": layers}
    if shared:
        chart["encoding"] = shared
    if data is not None:
        chart["data"] = {"values": data}
    return chart


def _choose(chart: Spec, field: str, label: str, choices: Sequence[str]) -> Spec:
    """Let the reader choose one value of a field; without a choice to make, the chart stays as it is."""
    if len(choices) < 2:
        return chart
    param = {
        "name": f"chosen_{field}",
        "value": choices[0],
        "bind": {"input": "select", "options": list(choices), "name": label},
    }
    return _filtered(chart, param, field)


def _choose_point(chart: Spec, points: Sequence[tuple[int, str]], chosen: int) -> Spec:
    """Let the reader choose one of the points; `points` are numbers and what to call them."""
    numbers, labels = [number for number, _ in points], [label for _, label in points]
    param = {
        "name": "chosen_point",
        "value": chosen,
        "bind": {"input": "select", "options": numbers, "labels": labels, "name": "Point "},
    }
    return _filtered(chart, param, "point")


def _filtered(chart: Spec, param: Spec, field: str) -> Spec:
    """The chart with a parameter, and with every data source that has the field filtered by it."""
    keep = {"filter": f"datum.{field} === {param['name']}"}
    result = dict(chart)
    result["params"] = [*chart.get("params", []), param]
    if "layer" in chart:
        result["layer"] = [
            layer | {"transform": [keep, *layer.get("transform", [])]} if _has(layer, chart, field) else layer
            for layer in chart["layer"]
        ]
    else:
        result["transform"] = [keep, *chart.get("transform", [])]
    return result


def _has(layer: Spec, chart: Spec, field: str) -> bool:
    values = (layer.get("data") or chart.get("data") or {}).get("values", [])
    return bool(values) and field in values[0]


def rows(frame: pl.DataFrame) -> Rows:
    """A frame as the records that Vega reads; numbers keep six significant digits to keep the page small."""
    return [
        {
            name: float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in frame.iter_rows(named=True)
    ]
