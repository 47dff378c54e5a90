"""The headline: throughput and response time against clients, with the knee between its asymptotes."""

from __future__ import annotations

import math
from typing import Any

from knee.report.charts.vega import Rows, Spec, bars, clients_axis, dots, ends, highest, line
from knee.stats.intervals import client_count
from knee.verdict.knee import Knee

_CURVE_POINTS = 60


def knee_throughput(knee: Knee) -> Spec:
    """The headline: throughput against clients, with both asymptotes and the band in which they meet."""
    counts = [level.clients for level in knee.levels]
    curve = []
    for i in range(_CURVE_POINTS + 1):
        clients = counts[0] * math.pow(counts[-1] / counts[0], i / _CURVE_POINTS)
        if bounds := knee.bounds(clients):
            curve.append({"clients": clients, "light": bounds[0], "plateau": bounds[1]})
    values = [{"clients": level.clients, **ends(level.throughput)} for level in knee.levels]
    top = 1.15 * max(highest(values), curve[0]["plateau"] if curve else 0)
    y = {"type": "quantitative", "title": "Throughput (requests/s)", "scale": {"domain": [0, top]}}
    layers = [*_knee_marks(knee)]
    if curve:
        layers += [
            *_light([point for point in curve if point["light"] <= top], y),
            _asymptote(curve, "plateau", curve[0] | {"name": "X max"}, {"align": "left"}, y),
        ]
    layers += _measured(values, y)
    return {"height": 260, "encoding": {"x": clients_axis(counts)}, "layer": layers}


def knee_response(knee: Knee) -> Spec:
    """Response time against clients, below the headline and on the same horizontal axis."""
    counts = [level.clients for level in knee.levels]
    values = [{"clients": level.clients, **ends(level.response_ms)} for level in knee.levels]
    y = {"type": "quantitative", "title": "Response time (ms)", "scale": {"domain": [0, 1.05 * highest(values)]}}
    layers = [*_knee_marks(knee, named=False), *_measured(values, y)]
    return {"height": 150, "encoding": {"x": clients_axis(counts)}, "layer": layers}


def has_knee(knee: Knee) -> bool:
    """Whether the chart shows a knee: the knee was found within the measured client counts."""
    if knee.clients is None or knee.status != "found":
        return False
    return knee.levels[0].clients <= knee.clients.estimate <= knee.levels[-1].clients


def band(knee: Knee) -> tuple[float, float] | None:
    """The part of the knee's interval in the chart; None without one."""
    if not has_knee(knee) or knee.clients is None or knee.clients.low is None or knee.clients.high is None:
        return None
    return max(knee.levels[0].clients, knee.clients.low), min(knee.levels[-1].clients, knee.clients.high)


def _knee_marks(knee: Knee, *, named: bool = True) -> list[Spec]:
    inside = {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}}
    marks: list[Spec] = []
    if (width := band(knee)) is not None:
        marks.append(
            {
                "data": {"values": [{"from": width[0], "to": width[1]}]},
                "mark": {"type": "rect", "color": "@accent", "opacity": 0.22, "clip": True},
                "encoding": inside,
            }
        )
    if has_knee(knee) and knee.clients is not None:
        marks.append(
            {
                "data": {
                    "values": [{"from": knee.clients.estimate, "name": f"knee {client_count(knee.clients.estimate)}"}]
                },
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
    """The name of the light-load asymptote, right of its end, if there is room."""
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
    ink = {"color": "@series"}
    keys = [{"field": "clients", "title": "clients"}]
    return [
        {
            "data": {"values": values},
            "encoding": {"x": {"field": "clients", "type": "quantitative"}},
            "layer": [line(y, **ink), bars(y, **ink), dots(y, keys, **ink)],
        }
    ]
