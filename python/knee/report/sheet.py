"""The state of a page that all sections share: the findings, the names of points, and the charts so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any, Literal

from knee.report.charts.clients import against_load
from knee.report.charts.vega import Axis, Rows, Spec
from knee.report.tables import Cell, table
from knee.verdict.findings import Findings
from knee.verdict.naming import Naming

Place = Literal["open", "folded", "more"]
"""Where a figure stands: in its section, in a part of it that is closed, or below "More figures"."""

OPEN_MAX = 8
"""Largest number of figures that stand open; further ones join "More figures"."""


class Sheet:
    """One page's findings, the names of the points that are drawn, and the charts that the sections add."""

    def __init__(self, findings: Findings, naming: Naming | None = None, whole: Sheet | None = None) -> None:
        self.findings = findings
        self.naming = findings.naming if naming is None else naming
        self.charts: dict[str, Spec] = {} if whole is None else whole.charts
        self.open: list[str] = [] if whole is None else whole.open
        self.more: list[str] = [] if whole is None else whole.more

    @cached_property
    def parts(self) -> tuple[Sheet, ...]:
        """A sheet for each axis: this one, or one of the closed loop and one of the open loop."""
        parts = self.naming.parts
        return (self,) if len(parts) == 1 else tuple(Sheet(self.findings, part, self) for part in parts)

    @property
    def is_single(self) -> bool:
        """Whether there is one configuration; of several, fewer figures of the first one stand open."""
        return len(self.findings.verdicts) == 1

    @cached_property
    def axis(self) -> Axis:
        axis = self.naming.axis
        return Axis(axis.field, axis.title, axis.levels, axis.names)

    def place(self, point: int) -> dict[str, Any]:
        """The fields of a point in a chart against the load: its load, and its line."""
        return {self.axis.field: self.naming.load[point], "series": self.naming.short(self.naming.series[point])}

    def against_load(self, values: Rows, title: str, *, diagonal: bool = False, bounds: Rows | None = None) -> Spec:
        """One quantity against the load, with a line for each combination of the other factors."""
        series = self.naming.series_title if len(self.naming.labels) > 1 else None
        choices = self.naming.short_labels
        return against_load(
            values, title, series=series, choices=choices, axis=self.axis, diagonal=diagonal, bounds=bounds
        )

    def of_configurations(self, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        """A table whose first column names configurations by their levels. With a single one, this column is
        missing."""
        if len({tuple(one.factors) for one in self.naming.verdicts}) > 1:
            return table(("configuration", *header[1:]), rows)
        names = len({one.label for one in self.naming.verdicts})
        return self._of(names, self.naming.configurations_title, header[1:], rows)

    def of_lines(self, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        """A table whose first column names the points' lines, as in `of_configurations`, and whose second is the load.

        `header` names the other columns.
        """
        if self.naming.configurations:
            named = [(self.axis.names[int(str(row[1]))], *row[2:]) for row in rows]
            return table((self.axis.title, *header), named)
        load = self.axis.title if self.naming.factor else self.axis.title[:1].lower() + self.axis.title[1:]
        return self._of(len(self.naming.labels), self.naming.series_title, (load, *header), rows)

    def _of(self, names: int, title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        if names > 1:
            return table((title, *header), [(self.naming.short(str(row[0])), *row[1:]) for row in rows])
        return table(header, [row[1:] for row in rows])

    def figure(self, name: str, spec: Spec, caption: str, *, wide: bool = False, place: Place = "more") -> str:
        """The place of a chart, with its caption below. The page's script draws the chart of this name. Empty for a
        figure that stands below "More figures"."""
        self.charts[name] = spec
        text = escape(caption)
        html = (
            f'<figure class="{"wide" if wide else ""}"><div class="chart" data-chart="{escape(name)}" role="img" '
            f'aria-label="{text}"></div><figcaption>{text}</figcaption></figure>'
        )
        if place == "folded":
            return html
        if place == "more" or len(self.open) == OPEN_MAX:
            self.more.append(html)
            return ""
        self.open.append(name)
        return html
