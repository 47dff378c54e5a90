"""The sheet that every section writes on: what to call configurations and points, and the charts drawn so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape

from knee.diagnose import Diagnosis
from knee.intervals import counted
from knee.report.charts.vega import Spec
from knee.report.tables import Cell, table


class Sheet:
    """One report's diagnosis, and its charts by name, to which the sections add as they are written."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis
        self.charts: dict[str, Spec] = {}

    @cached_property
    def series(self) -> dict[int, str]:
        """What to call the combination of factors that a point belongs to."""
        return {point: verdict.label for verdict in self.diagnosis.verdicts for point in verdict.points}

    @cached_property
    def labels(self) -> list[str]:
        """The combinations' names, each once."""
        return list(dict.fromkeys(verdict.label for verdict in self.diagnosis.verdicts))

    @cached_property
    def series_title(self) -> str:
        """Over a legend: the other factors, so that its entries are their levels, which a narrow page has room for."""
        return ", ".join(self.diagnosis.verdicts[0].factors) or "Configuration"

    @cached_property
    def _levels(self) -> dict[str, str]:
        return {one.label: ", ".join(map(str, one.factors.values())) for one in self.diagnosis.verdicts}

    def short(self, label: str) -> str:
        """A combination's name below the legend's title: its levels alone."""
        return self._levels[label]

    @cached_property
    def short_labels(self) -> list[str]:
        """As `labels`, below the legend's title."""
        return [self.short(label) for label in self.labels]

    @cached_property
    def clients(self) -> dict[int, int]:
        """The clients of every point that a verdict covers; empty where nobody gave them."""
        table = self.diagnosis.observations
        if "clients" not in table.columns:
            return {}
        pairs = zip(table["point"].to_list(), table["clients"].to_list(), strict=True)
        return {point: clients for point, clients in pairs if point in self.series}

    @cached_property
    def counts(self) -> list[int]:
        """The client counts, ascending."""
        return sorted(set(self.clients.values()))

    @cached_property
    def points(self) -> list[tuple[int, str]]:
        """Point numbers and what to call them, for the charts in which the reader chooses one."""
        named = [
            (point, counted(clients, "client") + (f", {self.series[point]}" if self.series[point] else ""))
            for point, clients in self.clients.items()
        ]
        order = {label: number for number, label in enumerate(self.labels)}
        return sorted(named, key=lambda pair: (order[self.series[pair[0]]], self.clients[pair[0]]))

    @cached_property
    def chosen(self) -> int:
        """The point shown first: that of the first knee."""
        for verdict in self.diagnosis.verdicts:
            for point in verdict.points:
                if verdict.knee.level and self.clients.get(point) == verdict.knee.level.clients:
                    return point
        return self.points[0][0] if self.points else 0

    def of_configurations(self, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        """A table, of which the first column names configurations: by their levels, and not where there is one only."""
        if len(self.labels) > 1:
            return table((self.series_title, *header[1:]), [(self.short(str(row[0])), *row[1:]) for row in rows])
        return table(header[1:], [row[1:] for row in rows])

    def figure(self, name: str, spec: Spec, caption: str, *, wide: bool = False) -> str:
        """A place for a chart, with its caption below; the script draws it by its name."""
        self.charts[name] = spec
        text = escape(caption)
        return (
            f'<figure class="{"wide" if wide else ""}"><div class="chart" data-chart="{name}" role="img" '
            f'aria-label="{text}"></div><figcaption>{text}</figcaption></figure>'
        )
