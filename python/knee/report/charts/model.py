"""A fitted model, its measurements and its extrapolation."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Rows, Spec, bars, choose, clients_axis, dots


def model_band(curve: Rows, measured: Rows, title: str, counts: Sequence[int]) -> Spec:
    """Measured points with their intervals, the model's curve and its prediction band, for one series at a time.

    `curve`: `clients, series, value, low, high, beyond`; the part beyond the measured counts is lighter and dashed.
    `measured`: `clients, series, value, low, high`, the last two null without repetitions.
    """
    # A very wide band would flatten the curve.
    top = min(max(row["high"] for row in curve), 2.5 * max(row["value"] for row in [*curve, *measured]))
    y: Spec = {"type": "quantitative", "title": title, "scale": {"domain": [0, top], "nice": True}}
    x = {"field": "clients", "type": "quantitative"}
    edge = [row for row in curve if not row["beyond"]]
    last = {row["series"]: row for row in edge}
    inside, outside = edge, [*last.values(), *(row for row in curve if row["beyond"])]
    layers: list[Spec] = []
    for values, opacity, dash in ((inside, 0.22, []), (outside, 0.1, [5, 4])):
        layers += [
            {
                "data": {"values": values},
                "mark": {"type": "area", "color": "@series", "opacity": opacity, "clip": True},
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
            },
            {
                "data": {"values": values},
                "mark": {"type": "line", "color": "@series", "strokeWidth": 2, "strokeDash": dash, "clip": True},
                "encoding": {"x": x, "y": y | {"field": "value"}},
            },
        ]
    seen = {"data": {"values": measured}}
    layers += [
        seen | bars(y, color="@accent"),
        seen | dots(y, [{"field": "clients", "title": "clients"}], color="@accent", clip=True),
    ]
    chart: Spec = {"height": 240, "encoding": {"x": clients_axis(counts)}, "layer": layers}
    return choose(chart, "series", "Configuration ", list(dict.fromkeys(row["series"] for row in curve)))
