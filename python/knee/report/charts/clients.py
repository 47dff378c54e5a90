"""Measured quantities against the load."""

from __future__ import annotations

from collections.abc import Sequence

from knee.report.charts.vega import Axis, Rows, Spec, bars, dots, highest, line, nominal

_LEGEND_CHARACTERS = 44
"""Width of a legend's row on a narrow page, markers included."""


def against_load(
    values: Rows,
    title: str,
    *,
    series: str | None,
    choices: Sequence[str],
    axis: Axis,
    diagonal: bool = False,
    bounds: Rows | None = None,
) -> Spec:
    """One measured quantity against the load with error bars, one line per combination of the other factors.

    `values`: the axis' field, `value, low, high` and, for several lines, `series`, one of `choices`. `diagonal`: with a
    dotted line on which the quantity equals the load. `bounds`: rows like those of `values`, without intervals, whose
    values are bounds, as dashed lines.
    """
    colour: Spec = {}
    if series:
        columns = max(1, _LEGEND_CHARACTERS // (5 + max(map(len, choices))))
        legend = {"columns": columns, "labelLimit": 400, "titleLimit": 400, "titleOrient": "top"}
        colour["color"] = nominal("series", series, scale={"domain": list(choices)}, legend=legend)
    y = {"type": "quantitative", "title": title, "scale": {"domain": [0, 1.05 * _top(values, bounds)]}}
    as_large: Spec = {"data": {"values": axis.diagonal}} | line(y, strokeDash=[2, 4], strokeWidth=2, clip=True)
    as_large["encoding"]["color"] = {"value": "@ink"}
    bound: Spec = {"data": {"values": bounds}} | line(y, strokeDash=[5, 4], clip=True)
    keys = [*axis.tips, *([{"field": "series", "title": series}] if series else [])]
    return {
        "height": 210,
        "data": {"values": values},
        "encoding": {"x": axis.spec} | colour,
        "layer": [
            *([] if axis.names else [line(y)]),
            *([as_large] if diagonal else []),
            *([bound] if bounds else []),
            bars(y),
            dots(y, keys),
        ],
    }


def _top(values: Rows, bounds: Rows | None) -> float:
    """The upper end of the axis. It shows bounds up to twice the highest value."""
    top = highest(values)
    shown = [float(bound["value"]) for bound in bounds or () if bound["value"] <= 2 * top]
    return max([top, *shown])
