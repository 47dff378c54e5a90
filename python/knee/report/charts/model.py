"""A fitted model, its measurements and its extrapolation."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Rows, Spec, bars, choose, clients_axis, dots


def model_band(curve: Rows, measured: Rows, title: str, counts: Sequence[int]) -> tuple[Spec, bool]:
    """Measured points with their intervals, the model's curve and its prediction band, for one series at a time; and
    whether the axis cuts a band or a bar off. The axis ends above the values: a wide band would flatten them.

    `curve`: `clients, series, value, low, high, beyond`; the part beyond the measured counts is lighter and dashed.
    `measured`: `clients, series, value, low, high`, the last two null without repetitions.
    """
    everything = [*curve, *measured]
    widest = max(row["value"] if row["high"] is None else row["high"] for row in everything)
    top = min(widest, 1.25 * max(row["value"] for row in everything))
    y: Spec = {"type": "quantitative", "title": title, "scale": {"domain": [0, top]}}
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
    return choose(chart, list(dict.fromkeys(row["series"] for row in curve))), top < widest
