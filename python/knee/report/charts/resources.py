"""Utilisation of resources, and CPU time by owner."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, choose, nominal, point, tip


def utilization_lines(values: Rows, axis: Axis, saturated: float, choices: Sequence[str]) -> Spec:
    """Utilisation of every resource against the load; the rule marks saturation.

    `values`: the axis' field, `value, resource, series`.
    """
    y = {"type": "quantitative", "title": "Utilisation", "axis": {"format": "%"}, "scale": {"domainMin": 0}}
    lines = {"type": "line", "strokeWidth": 1.8, "point": {"size": 40}}
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
                "mark": point() if axis.names else lines,
                "encoding": {
                    "x": axis.spec,
                    "y": y | {"field": "value"},
                    "color": nominal("resource", legend={"columns": 2, "labelLimit": 260}),
                    "tooltip": [{"field": "resource"}, *axis.tips, tip("value", "utilisation", ".1%")],
                },
            },
        ],
    }
    return choose(chart, choices)


def cpu_bars(values: Rows, axis: Axis, choices: Sequence[str]) -> Spec:
    """CPU time by owner, stacked, against the load. `values`: the axis' field, `owner, share, series`."""
    owners = ["load", "middleware", "store", "links", "knee", "others"]
    y = {"field": "share", "type": "quantitative", "title": "Share of all cores", "axis": {"format": "%"}}
    chart: Spec = {
        "height": 230,
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": axis.ordinal,
            "y": y | {"stack": "zero"},
            "color": nominal("owner", "CPU time of", scale={"domain": owners}),
            "tooltip": [{"field": "owner"}, *axis.tips, tip("share", number=".1%")],
        },
    }
    return choose(chart, choices)
