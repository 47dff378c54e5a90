"""Parts that the charts share: axes, layers, menus and records."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from knee.stats.intervals import Interval
from knee.verdict.naming import LoadAxis

Spec = dict[str, Any]
Rows = list[dict[str, Any]]


_CURVE_STEPS = 60

_ABREAST_CHARACTERS = 40
"""Total length of level names below an axis; longer names are tilted, so that all fit."""


class Axis(LoadAxis):
    """The horizontal axis of a chart as Vega's channels."""

    @property
    def is_log(self) -> bool:
        """Whether the axis is logarithmic: the levels span a factor of eight or more."""
        low, high = min(self.levels), max(self.levels)
        return low > 0 and high / low >= 8 and not self.names

    @property
    def ordinal(self) -> Spec:
        """The channel of bars."""
        axis: Spec = {"labelAngle": 0, "labelOverlap": True} | self._named
        return {"field": self.field, "type": "ordinal", "title": self.title, "axis": axis}

    @property
    def _named(self) -> Spec:
        if not self.names:
            return {}
        named: Spec = {"labelExpr": f"{json.dumps(list(self.names))}[datum.value]", "labelLimit": 160}
        if sum(map(len, self.names)) > _ABREAST_CHARACTERS:
            named |= {"labelAngle": -40, "labelOverlap": False}
        return named

    @property
    def spec(self) -> Spec:
        """The channel."""
        if self.names:
            return self.ordinal
        levels = sorted(set(self.levels))
        log = {"type": "log", "base": 2, "nice": False, "padding": 12}
        return {
            "field": self.field,
            "type": "quantitative",
            "title": self.title,
            "scale": log if self.is_log else {"zero": False, "padding": 12},
            "axis": {
                "values": levels,
                "format": "d" if all(level == int(level) for level in levels) else "~r",
                "labelOverlap": "greedy",
                "labelSeparation": 2,
            },
        }

    @property
    def tips(self) -> Rows:
        """The level in a tooltip; empty for names, which the axis shows."""
        return [] if self.names else [{"field": self.field, "title": self.title}]

    @property
    def diagonal(self) -> Rows:
        """The line on which a value equals the load, as rows of this field and `value`."""
        low, high = min(self.levels), max(self.levels)
        shares = [step / _CURVE_STEPS for step in range(_CURVE_STEPS + 1)]
        at = [low * (high / low) ** share if self.is_log else low + (high - low) * share for share in shares]
        return [{self.field: value, "value": value} for value in at]


def clients_axis(clients: Sequence[int]) -> Spec:
    return Axis("clients", "Clients", clients).spec


def log_axis(low: float, high: float) -> Spec:
    """An axis with labels and lines at 1, 2 and 5 of every decade between two values. If these are too many, at 1 only;
    if too few, Vega places them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 3.5 else (1,)
    values = [value for decade in decades for step in steps if low <= (value := float(f"{step}e{decade}")) <= high]
    ticks = {"values": values} if len(values) > 1 else {"tickCount": 4}
    return {**ticks, "format": "~g", "labelOverlap": True}


def on_log(title: str, low: float, high: float) -> Spec:
    """The channel of a logarithmic axis between two values."""
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return {"type": "quantitative", "title": title, "scale": scale, "axis": log_axis(low, high)}


def highest(values: Rows) -> float:
    """The upper end of an axis. It cuts off very long error bars: with two repetitions, a bar may be ten times as long
    as the value."""
    estimates = max(row["value"] for row in values)
    longest = max(row["value"] if row["high"] is None else row["high"] for row in values)
    return float(min(longest, 2 * estimates)) or 1.0


def ends(interval: Interval) -> dict[str, float | None]:
    """An estimate and its interval as fields of a row."""
    return {"value": interval.estimate, "low": interval.low, "high": interval.high}


def nominal(field: str, title: str | None = None, **more: Any) -> Spec:
    """The channel of a colour or a shape for each name."""
    return {"field": field, "type": "nominal", "title": title, **more}


def tip(field: str, title: str | None = None, number: str = ",.4~r") -> Spec:
    """A number in a tooltip."""
    return {"field": field, **({"title": title} if title else {}), "format": number}


def point(size: object = 45, **mark: object) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": 1} | mark


def line(y: Spec, **mark: object) -> Spec:
    return {"mark": {"type": "line", "strokeWidth": 1.8} | mark, "encoding": {"y": y | {"field": "value"}}}


def bars(y: Spec, low: str = "low", high: str = "high", **mark: object) -> Spec:
    """Error bars, where they are known."""
    return {
        "transform": [{"filter": f"datum.{low} != null"}],
        "mark": {"type": "rule", "strokeWidth": 1.4, "clip": True} | mark,
        "encoding": {"y": y | {"field": low}, "y2": {"field": high}},
    }


def dots(y: Spec, keys: Rows, **mark: object) -> Spec:
    """Dots, with a tip of some key fields, `value`, `low` and `high`."""
    numbers = [tip("value", str(y["title"])), tip("low", "interval from"), tip("high", "to")]
    return {"mark": point(**mark), "encoding": {"y": y | {"field": "value"}, "tooltip": [*keys, *numbers]}}


def choose(chart: Spec, choices: Sequence[str], field: str = "series", label: str = "Configuration ") -> Spec:
    """The chart with a menu for the values of a field; with a single value, the chart is unchanged."""
    if len(choices) < 2:
        return chart
    param = {
        "name": f"chosen_{field}",
        "value": choices[0],
        "bind": {"input": "select", "options": list(choices), "name": label},
    }
    return _filtered(chart, param, field)


def choose_point(chart: Spec, points: Sequence[tuple[int, str]], chosen: int) -> Spec:
    """The chart with a menu for the points; `points` are numbers and names."""
    numbers, labels = [number for number, _ in points], [label for _, label in points]
    param = {
        "name": "chosen_point",
        "value": chosen,
        "bind": {"input": "select", "options": numbers, "labels": labels, "name": "Point "},
    }
    return _filtered(chart, param, "point")


def _filtered(chart: Spec, param: Spec, field: str) -> Spec:
    """The chart with a parameter that filters every data source with this field."""
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
    """A frame as records for Vega. Numbers have six significant digits, to keep the page small."""
    return [
        {
            name: float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in frame.iter_rows(named=True)
    ]
