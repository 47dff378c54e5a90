"""The sheet that every section writes on: what to call configurations and points, and the charts drawn so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from typing import TypeGuard

from knee.data.csv import label_of
from knee.report.charts.vega import Axis, Spec
from knee.report.tables import Cell, table
from knee.stats.intervals import counted
from knee.verdict.arrivals import Arrivals, rate_in_words
from knee.verdict.diagnose import Diagnosis, Verdict
from knee.verdict.levels import Level

CONFIGURATIONS_MAX = 12
"""Configurations beside each other on an axis: of more nobody reads the names."""

_LEVELS_MIN = 3
"""Fewer levels of a factor make no curve."""


class Sheet:
    """One report's diagnosis, and its charts by name, to which the sections add as they are written."""

    def __init__(
        self,
        diagnosis: Diagnosis,
        verdicts: Sequence[Verdict] | None = None,
        charts: dict[str, Spec] | None = None,
    ) -> None:
        self.diagnosis = diagnosis
        self.verdicts = diagnosis.verdicts if verdicts is None else verdicts
        self.charts: dict[str, Spec] = {} if charts is None else charts

    @cached_property
    def parts(self) -> tuple[Sheet, ...]:
        """What can be drawn over one axis: the whole sheet, or of a table of both a closed loop's rows and an open
        loop's, in this order."""
        closed, opened = ([one for one in self.verdicts if one.open_loop == is_open] for is_open in (False, True))
        if not closed or not opened:
            return (self,)
        return Sheet(self.diagnosis, closed, self.charts), Sheet(self.diagnosis, opened, self.charts)

    @cached_property
    def open_loop(self) -> bool:
        """Whether no client waits for its answer, at any point."""
        return bool(self.verdicts) and all(verdict.open_loop for verdict in self.verdicts)

    @cached_property
    def _arrivals(self) -> tuple[Arrivals, ...]:
        """What came of arrival rates, where several were asked for; nothing otherwise."""
        found = self.diagnosis.arrivals if self.open_loop else ()
        return found if any(one.varied for one in found) else ()

    @cached_property
    def series(self) -> dict[int, str]:
        """What to call the line that a point belongs to: the combination of all factors but the load."""
        return {point: label_of(factors) for point, factors in self._factors.items()}

    @cached_property
    def labels(self) -> list[str]:
        """The lines' names, each once."""
        return list(dict.fromkeys(self.series.values()))

    @cached_property
    def series_title(self) -> str:
        """Over a legend: the other factors, so that its entries are their levels, which a narrow page has room for."""
        return _title(next(iter(self._factors.values())))

    @cached_property
    def factor(self) -> str | None:
        """The factor that everything is drawn against where nobody varied the load: of those whose levels are numbers
        the one with the most; None where the load was varied, or none has levels enough."""
        if self._arrivals or len(self.counts) > 1:
            return None
        levels: dict[str, set[Level]] = {}
        for verdict in self.verdicts:
            for name, level in verdict.factors.items():
                levels.setdefault(name, set()).add(level)
        numeric = [name for name, found in levels.items() if len(found) >= _LEVELS_MIN and all(map(_is_number, found))]
        return max(numeric, key=lambda name: len(levels[name]), default=None)

    @cached_property
    def configurations(self) -> tuple[str, ...]:
        """What stands beside each other where there is nothing to draw anything against; empty where there is, or where
        it is too much."""
        names = tuple(verdict.label for verdict in self.verdicts)
        varied = self._arrivals or len(self.counts) > 1 or self.factor is not None
        return () if varied or not 2 <= len(set(names)) == len(names) <= CONFIGURATIONS_MAX else names

    @cached_property
    def configurations_title(self) -> str:
        """Over verdicts' configurations, where these are named by their levels."""
        return _title(self.verdicts[0].factors)

    @cached_property
    def _factors(self) -> dict[int, dict[str, Level]]:
        """The other factors' levels at every point that a verdict covers. A verdict is about one arrival rate or one
        level of the factor, and a line about all of them."""
        if self._arrivals:
            return {point: found.factors for found in self._arrivals for point in found.rates}
        if self.configurations:
            return {point: {} for verdict in self.verdicts for point in verdict.points}
        load = {self.factor}
        if len(self.counts) > 1:
            load |= {name for verdict in self.verdicts for name in verdict.factors} - {*self.diagnosis.others}
        return {
            point: {name: level for name, level in verdict.factors.items() if name not in load}
            for verdict in self.verdicts
            for point in verdict.points
        }

    @cached_property
    def _levels(self) -> dict[str, str]:
        combinations = [*self._factors.values(), *(verdict.factors for verdict in self.verdicts)]
        return {label_of(factors): ", ".join(map(str, factors.values())) for factors in combinations}

    def short(self, label: str) -> str:
        """A combination's name below the legend's title: its levels alone."""
        return self._levels.get(label, label)

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
        covered = {point for verdict in self.verdicts for point in verdict.points}
        return {point: clients for point, clients in pairs if point in covered and clients is not None}

    @cached_property
    def counts(self) -> list[int]:
        """The client counts, ascending."""
        return sorted(set(self.clients.values()))

    @cached_property
    def load(self) -> Mapping[int, int | float]:
        """How much load there was at every point that a verdict covers: the arrival rate where that was varied, the
        level of the factor where there is one instead, the number of the configuration where these stand beside each
        other, else the clients; empty where nobody gave them."""
        if self.configurations:
            return {point: place for place, verdict in enumerate(self.verdicts) for point in verdict.points}
        if self.factor is not None:
            return {
                point: level
                for verdict in self.verdicts
                for point in verdict.points
                if _is_number(level := verdict.factors[self.factor])
            }
        return {point: rate for found in self._arrivals for point, rate in found.rates.items()} or self.clients

    @cached_property
    def axis(self) -> Axis:
        """What everything is drawn against."""
        levels = sorted(set(self.load.values()))
        if self._arrivals:
            return Axis("rate", "Arrival rate (requests/s)", levels)
        if self.factor is not None:
            return Axis("level", self.factor, levels)
        if self.configurations:
            names = [self.short(name) for name in self.configurations]
            return Axis("configuration", self.configurations_title, levels, names)
        return Axis("clients", "Clients", levels)

    def in_words(self, load: float) -> str:
        """“40 clients”, “1,500 requests/s”, “workers = 8”."""
        if self.factor is not None:
            return f"{self.factor} = {load}"
        if self.configurations:
            return self.configurations[int(load)]
        return rate_in_words(load) if self._arrivals else counted(int(load), "client")

    @cached_property
    def points(self) -> list[tuple[int, str]]:
        """Point numbers and what to call them, for the charts in which the reader chooses one."""
        named = [
            (point, self.in_words(load) + (f", {self.series[point]}" if self.series[point] else ""))
            for point, load in self.load.items()
        ]
        order = {label: number for number, label in enumerate(self.labels)}
        return sorted(named, key=lambda pair: (order[self.series[pair[0]]], self.load[pair[0]]))

    @cached_property
    def chosen(self) -> int:
        """The point shown first: that of the first knee."""
        for verdict in self.verdicts:
            for point in verdict.points:
                if verdict.knee.level and self.clients.get(point) == verdict.knee.level.clients:
                    return point
        return self.points[0][0] if self.points else 0

    def of_configurations(self, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        """A table, of which the first column names verdicts' configurations: by their levels, and not where there is
        one only."""
        if len({tuple(one.factors) for one in self.verdicts}) > 1:
            return table(("configuration", *header[1:]), rows)
        names = len({one.label for one in self.verdicts})
        return self._of(names, self.configurations_title, header[1:], rows)

    def of_lines(self, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        """A table, of which the first column names the lines that points belong to, as in `of_configurations`, and the
        second one has the load. `header` is that of the other columns."""
        if self.configurations:
            named = [(self.axis.names[int(str(row[1]))], *row[2:]) for row in rows]
            return table((self.axis.title, *header), named)
        load = self.axis.title if self.factor else self.axis.title[:1].lower() + self.axis.title[1:]
        return self._of(len(self.labels), self.series_title, (load, *header), rows)

    def _of(self, names: int, title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
        if names > 1:
            return table((title, *header), [(self.short(str(row[0])), *row[1:]) for row in rows])
        return table(header, [row[1:] for row in rows])

    def figure(self, name: str, spec: Spec, caption: str, *, wide: bool = False) -> str:
        """A place for a chart, with its caption below; the script draws it by its name."""
        self.charts[name] = spec
        text = escape(caption)
        return (
            f'<figure class="{"wide" if wide else ""}"><div class="chart" data-chart="{name}" role="img" '
            f'aria-label="{text}"></div><figcaption>{text}</figcaption></figure>'
        )


def _is_number(level: Level) -> TypeGuard[int | float]:
    return isinstance(level, int | float) and not isinstance(level, bool)


def _title(factors: Mapping[str, Level]) -> str:
    return ", ".join(factors) or "Configuration"
