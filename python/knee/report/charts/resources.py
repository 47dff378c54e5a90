"""Utilisation of resources, and CPU time by owner."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, choose


def utilization_lines(values: Rows, axis: Axis, saturated: float, choices: Sequence[str]) -> Spec:
    """Utilisation of every resource against the load; the rule marks saturation.

    `values`: the axis' field, `value, resource, series`.
    """
    y = {"type": "quantitative", "title": "Utilisation", "axis": {"format": "%"}, "scale": {"domainMin": 0}}
    chart: Spec = {
        "height": 230,
        "data": {"values": values},
        "layer": [
            {
                "data": {"values": [{"at": saturated}]},
                "mark": {"type": "rule", "color": "@muted", "strokeDash": [5, 4]},
                "encoding": {"y": y | {"field": "at"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1}
                if axis.names
                else {"type": "line", "strokeWidth": 1.8, "point": {"size": 40}},
                "encoding": {
                    "x": axis.spec,
                    "y": y | {"field": "value"},
                    "color": {
                        "field": "resource",
                        "type": "nominal",
                        "title": None,
                        "legend": {"columns": 2, "labelLimit": 260},
                    },
                    "tooltip": [
                        {"field": "resource"},
                        *([] if axis.names else [{"field": axis.field, "title": axis.title}]),
                        {"field": "value", "title": "utilisation", "format": ".1%"},
                    ],
                },
            },
        ],
    }
    return choose(chart, "series", "Configuration ", choices)


def cpu_bars(values: Rows, axis: Axis, choices: Sequence[str]) -> Spec:
    """CPU time by owner, stacked, against the load. `values`: the axis' field, `owner, share, series`."""
    chart: Spec = {
        "height": 230,
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": axis.ordinal,
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
                "scale": {"domain": ["load", "middleware", "store", "links", "knee", "others"]},
            },
            "tooltip": [
                {"field": "owner"},
                *([] if axis.names else [{"field": axis.field, "title": axis.title}]),
                {"field": "share", "format": ".1%"},
            ],
        },
    }
    return choose(chart, "series", "Configuration ", choices)
