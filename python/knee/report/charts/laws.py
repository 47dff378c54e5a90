"""Measurements against the operational laws."""

from __future__ import annotations

from knee.report.charts.vega import Rows, Spec, bars, choose, clients_axis, highest, line, log_axis, nominal, point, tip


def law_scatter(values: Rows, unit: str) -> Spec:
    """Measured values against predictions of the interactive law; a point on the diagonal obeys the law.

    `values`: `measured, predicted, view, clients`.
    """
    numbers = [row[name] for row in values for name in ("measured", "predicted") if row[name] > 0]
    low, high = min(numbers, default=1) / 1.3, max(numbers, default=2) * 1.3
    scale = {"type": "log", "domain": [low, high], "nice": False}
    axis = log_axis(low, high) | {"format": "~g" if unit == "ms" else "~s"}
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
                    "color": nominal("view", "View"),
                    "shape": nominal("view", "View"),
                    "tooltip": [{"field": "clients"}, {"field": "view"}, tip("measured"), tip("predicted")],
                },
            },
        ],
    }


def law_residuals(values: Rows, across: str, tolerance: float) -> Spec:
    """Plots the law's residuals over the band of its tolerance, for both directions and both views.

    `across` names the horizontal axis, such as the clients.

    `values`: `at, residual, low, high, check`.
    """
    y = {"type": "quantitative", "title": "Predicted / measured − 1", "axis": {"format": "+.1%"}}
    colour, offset = nominal("check", sort=None), {"field": "check", "type": "nominal", "sort": None}
    x: Spec = {"field": "at", "type": "ordinal", "title": across, "axis": {"labelAngle": 0, "labelOverlap": True}}
    if any(isinstance(row["at"], str) for row in values):
        x["sort"] = None
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
                "encoding": {"x": x, "color": colour, "xOffset": offset},
                "layer": [bars(y), {"mark": point(35), "encoding": {"y": y | {"field": "residual"}}}],
            },
        ],
    }


def throughput_between_bounds(values: Rows) -> Spec:
    """Throughput against clients between its bounds, for one configuration of the reader's choice.

    `values`: `clients, series, value, low, high, at_least, at_most, asymptote`.
    """
    top = 1.05 * max(highest(values), *(row["asymptote"] for row in values))
    y = {"type": "quantitative", "title": "Throughput (requests/s)", "scale": {"domain": [0, top]}}
    tips = [tip("value", "measured"), tip("at_least", "balanced, at least"), tip("at_most", "balanced, at most")]
    chart: Spec = {
        "height": 240,
        "data": {"values": values},
        "encoding": {"x": clients_axis([row["clients"] for row in values])},
        "layer": [
            {
                "mark": {"type": "area", "color": "@muted", "opacity": 0.2},
                "encoding": {"y": y | {"field": "at_least"}, "y2": {"field": "at_most"}},
            },
            {
                "mark": {"type": "line", "color": "@muted", "strokeDash": [5, 4], "strokeWidth": 1.2},
                "encoding": {"y": y | {"field": "asymptote"}},
            },
            line(y, color="@series"),
            bars(y, color="@series"),
            {
                "mark": point(color="@series"),
                "encoding": {
                    "y": y | {"field": "value"},
                    "tooltip": [{"field": "clients"}, *tips, tip("asymptote", "at most")],
                },
            },
        ],
    }
    return choose(chart, list(dict.fromkeys(row["series"] for row in values)))
