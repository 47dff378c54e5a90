"""A run second by second."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Rows, Spec, choose_point, nominal

_ELAPSED: Spec = {"field": "middle_s", "type": "quantitative", "title": "Elapsed time (s)", "axis": {"tickMinStep": 1}}

_DOTTED = {"type": "line", "strokeWidth": 1.6, "point": {"size": 18}}


def timeline(
    values: Rows,
    shades: Rows,
    field: str,
    title: str,
    points: Sequence[tuple[int, str]],
    chosen: int,
    lines: tuple[str, str | None] = ("repetition", "Repetition"),
) -> Spec:
    """A point's runs second by second, with shaded trimmed parts. `lines`: field and title of their colour."""
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
                "mark": _DOTTED,
                "encoding": {"x": _ELAPSED, "y": _from_zero(field, title), "color": nominal(*lines)},
            },
        ],
    }
    return choose_point(chart, points, chosen)


def store_timeline(values: Rows, title: str, points: Sequence[tuple[int, str]], chosen: int) -> Spec:
    """Values that stores report at a point. `values`: `point, middle_s, what, value`."""
    encoding = {"x": _ELAPSED, "y": _from_zero("value", title)}
    if len({row["what"] for row in values}) > 1:
        encoding["color"] = nominal("what")
    chart: Spec = {"height": 190, "data": {"values": values}, "mark": _DOTTED, "encoding": encoding}
    return choose_point(chart, points, chosen)


def resource_timeline(values: Rows, points: Sequence[tuple[int, str]], chosen: int) -> Spec:
    """CPU use of the host and of every process in the first repetition. `values`: `point, middle_s, target, cores`."""
    chart: Spec = {
        "height": 210,
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {
            "x": _ELAPSED,
            "y": {"field": "cores", "type": "quantitative", "title": "CPU (cores in use)"},
            "color": nominal("target", legend={"columns": 4}),
        },
    }
    return choose_point(chart, points, chosen)


def _from_zero(field: str, title: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": True}}
