"""Factorial analysis: effects, explained variation, means of levels and interactions, residuals.

In the multiplicative model, effects are those of the logarithm, and their axes show ratios. Means have a logarithmic
axis, on which lines without interaction are parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from knee.report.charts.vega import Rows, Spec, bars, dots, line, nominal, on_log, point, tip

_BAR = 22
"""Height of a term's row, in pixels."""

_HUES = 10
"""Colours of the palette; more levels are shades of one."""

CERTAINTIES = {True: "stands out", False: "may be noise", None: "cannot tell"}
"""Names of a term's significance in a legend."""

_INK = dict(zip(CERTAINTIES.values(), ("@series", "@muted", "@unsure"), strict=True))

_GRID = {"grid": True, "labelFlush": True}

_KINDS = {"factor": "@series", "interaction": "@accent", "error": "@muted"}


def effects(values: Rows, title: str, margins: Sequence[tuple[str, float]], *, ratios: bool) -> Spec:
    """Effects of two-level factors with their intervals, in the order given; dashed rules at Lenth's margins.

    `values`: `term, q, low, high, certainty`; `margins`: the text of a margin, and its distance from zero.
    """
    axis: Spec = {"labelExpr": "'× ' + format(exp(datum.value), '.3~r')"} if ratios else {"format": ",~r"}
    x = {"type": "quantitative", "title": title, "scale": {"padding": 10}, "axis": axis | _GRID | {"tickCount": 6}}
    layers: list[Spec] = [
        {
            "data": {"values": [{"at": 0}]},
            "mark": {"type": "rule", "color": "@muted"},
            "encoding": {"x": x | {"field": "at"}},
        },
        *(
            {
                "data": {"values": [{"at": at, "margin": name} for at in (-margin, margin)]},
                "mark": {"type": "rule", "color": "@accent", "strokeDash": dash, "strokeWidth": 1.3},
                "encoding": {"x": x | {"field": "at"}, "tooltip": [{"field": "margin"}]},
            }
            for (name, margin), dash in zip(margins, ([6, 3], [2, 3]), strict=False)
        ),
    ]
    by_term = {"y": _terms(values), "color": _inked("certainty", values, _INK)}
    return {
        "height": {"step": _BAR},
        "layer": [
            *layers,
            {
                "data": {"values": values},
                "transform": [{"filter": "datum.low != null"}],
                "mark": {"type": "rule", "strokeWidth": 1.8},
                "encoding": {**by_term, "x": x | {"field": "low"}, "x2": {"field": "high"}},
            },
            {
                "data": {"values": values},
                "mark": point(55),
                "encoding": {
                    **by_term,
                    "x": x | {"field": "q"},
                    "tooltip": [
                        {"field": "term"},
                        *(tip("q", "effect q"), tip("low", "interval from"), tip("high", "to")),
                        {"field": "certainty", "title": "significance"},
                    ],
                },
            },
        ],
    }


def variation(values: Rows) -> Spec:
    """The share of the variation that each term explains, in the order given. `values`: `term, share, said, kind`."""
    most = max(row["share"] for row in values)
    x = {
        "field": "share",
        "type": "quantitative",
        "title": "Share of the variation",
        "scale": {"domain": [0, 1.3 * most]},
        "axis": {"labelExpr": "datum.value > 1 ? '' : format(datum.value, '~%')", **_GRID, "tickCount": 5},
    }
    return {
        "height": {"step": _BAR},
        "data": {"values": values},
        "encoding": {"x": x, "y": _terms(values)},
        "layer": [
            {"mark": {"type": "bar"}, "encoding": {"color": _inked("kind", values, _KINDS)}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": "@ink"},
                "encoding": {"text": {"field": "said"}},
            },
        ],
    }


def _inked(field: str, values: Rows, inks: Mapping[str, str]) -> Spec:
    """The colours of the names that occur."""
    seen = [name for name in inks if any(row[field] == name for row in values)]
    return nominal(field, scale={"domain": seen, "range": [inks[name] for name in seen]})


def level_means(values: Rows, factor: str, title: str, ends: tuple[float, float], *, log: bool) -> Spec:
    """The response at every level of a factor. `values`: `level, value, low, high`; `ends` are those of the axis."""
    return {
        "height": 200,
        "data": {"values": values},
        "encoding": {"x": _levels(factor, [row["level"] for row in values])},
        "layer": _line_with_intervals(_response(title, ends, log=log), color="@series"),
    }


def interaction(values: Rows, factors: tuple[str, str], title: str, ends: tuple[float, float], *, log: bool) -> Spec:
    """The response against one factor, a line per level of the other. `values`: `level, line, value, low, high`."""
    first, second = factors
    lines = list(dict.fromkeys(row["line"] for row in values))
    colour = nominal("line", second, scale={"domain": lines})
    if len(lines) > _HUES:
        colour["type"] = "ordinal"
    return {
        "height": 230,
        "data": {"values": values},
        "encoding": {
            "x": _levels(first, list(dict.fromkeys(row["level"] for row in values))),
            "color": colour,
            "xOffset": {"field": "line", "type": "nominal", "sort": lines, "scale": {"range": [-4, 4]}},
        },
        "layer": _line_with_intervals(_response(title, ends, log=log)),
    }


def residuals(values: Rows, against: str, title: str) -> Spec:
    """Residuals against a quantity that may explain them, with a line at zero. `values`: `at, residual`."""
    y = {"type": "quantitative", "title": title, "axis": {"format": ",~r"}}
    return {
        "height": 200,
        "layer": [
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "color": "@muted"},
                "encoding": {"y": y | {"field": "zero"}},
            },
            _residual_points(values, against, y),
        ],
    }


def quantiles(values: Rows, title: str) -> Spec:
    """Residuals against normal quantiles, with the line that fits them best. `values`: `at, residual`."""
    y = {"type": "quantitative", "title": title, "axis": {"format": ",~r"}}
    against = "Normal quantile (standard deviations)"
    return {
        "height": 200,
        "layer": [
            {
                "data": {"values": values},
                "transform": [{"regression": "residual", "on": "at"}],
                "mark": {"type": "line", "color": "@muted", "strokeDash": [5, 4], "strokeWidth": 1.2},
                "encoding": {"x": {"field": "at", "type": "quantitative"}, "y": y | {"field": "residual"}},
            },
            _residual_points(values, against, y),
        ],
    }


def _residual_points(values: Rows, against: str, y: Spec) -> Spec:
    return {
        "data": {"values": values},
        "mark": {"type": "point", "color": "@series", "size": 34, "strokeWidth": 1.4},
        "encoding": {
            "x": {
                "field": "at",
                "type": "quantitative",
                "title": against,
                "scale": {"zero": False, "padding": 8},
                "axis": {"format": ",~r", "tickCount": 6},
            },
            "y": y | {"field": "residual"},
            "tooltip": [tip("at", against), tip("residual")],
        },
    }


def _terms(values: Rows) -> Spec:
    return nominal("term", sort=[row["term"] for row in values], axis={"grid": False})


def _levels(factor: str, levels: Sequence[str]) -> Spec:
    return {
        "field": "level",
        "type": "ordinal",
        "title": factor,
        "sort": list(levels),
        "axis": {"labelAngle": 0, "labelOverlap": True},
        "scale": {"type": "point", "padding": 0.5},
    }


def _response(title: str, ends: tuple[float, float], *, log: bool) -> Spec:
    if not log:
        return {"type": "quantitative", "title": title, "scale": {"domain": list(ends), "zero": False}}
    y = on_log(title, *ends)
    return y | {"axis": y["axis"] | {"format": ",~r"}}


def _line_with_intervals(y: Spec, **ink: str) -> list[Spec]:
    return [line(y, **ink), bars(y, **ink), dots(y, [{"field": "level"}], **ink)]
