"""Measurements against what the operational laws say of them."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Rows, Spec, log_axis


def law_scatter(values: Rows, unit: str) -> Spec:
    """Measured against predicted by the interactive law; a point on the diagonal obeys it.

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
