"""Names of configurations and points, and the load on the horizontal axis of charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import polars as pl

from knee.data.measurements import label_of
from knee.stats.intervals import counted
from knee.verdict.arrivals import Arrivals
from knee.verdict.configuration import Verdict
from knee.verdict.levels import Level

CONFIGURATIONS_MAX = 12
"""Largest number of configurations on an axis: more names are unreadable."""

_LEVELS_MIN = 3
"""Fewer levels of a factor make no curve."""


@dataclass(frozen=True)
class LoadAxis:
    """The horizontal axis of a chart: the field of the chart's rows, and its levels. With `names`, levels are
    categories, so no line may connect them.
    """

    field: str
    title: str
    levels: Sequence[float]
    names: Sequence[str] = ()


class Naming:
    """Names of the points that some verdicts cover.

    verdicts      the verdicts
    all_arrivals  arrival analyses of the whole measurement
    others        factors that distinguish configurations, see :func:`knee.data.measurements.configuration`
    observations  one row per point and repetition
    """

    def __init__(
        self,
        verdicts: Sequence[Verdict],
        all_arrivals: tuple[Arrivals, ...],
        others: Sequence[str],
        observations: pl.DataFrame,
    ) -> None:
        self.verdicts = tuple(verdicts)
        self.all_arrivals = all_arrivals
        self.others = others
        self.observations = observations

    @cached_property
    def parts(self) -> tuple[Naming, ...]:
        """Namings with a single axis: this naming, or two for a table with both a closed and an open loop."""
        closed, opened = ([one for one in self.verdicts if one.open_loop == is_open] for is_open in (False, True))
        if not closed or not opened:
            return (self,)
        return tuple(
            Naming(verdicts, self.all_arrivals, self.others, self.observations) for verdicts in (closed, opened)
        )

    @cached_property
    def open_loop(self) -> bool:
        """Whether every point is of an open loop."""
        return bool(self.verdicts) and all(verdict.open_loop for verdict in self.verdicts)

    @cached_property
    def _arrivals(self) -> tuple[Arrivals, ...]:
        """The arrival analyses if the rate varied; otherwise empty."""
        found = self.all_arrivals if self.open_loop else ()
        return found if any(one.varied for one in found) else ()

    @cached_property
    def series(self) -> dict[int, str]:
        """By point, the name of its line: the combination of all factors other than the load."""
        return {point: label_of(factors) for point, factors in self._factors.items()}

    @cached_property
    def labels(self) -> list[str]:
        """The lines' names, each once."""
        return list(dict.fromkeys(self.series.values()))

    @cached_property
    def series_title(self) -> str:
        """Title of the legend: the other factors. The entries are then only their levels, which are short."""
        return _title(next(iter(self._factors.values())))

    @cached_property
    def factor(self) -> str | None:
        """The factor on the horizontal axis if the load did not vary: the numeric factor with the most levels. None if
        the load varied, or no factor has enough levels."""
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
        """The configurations on the horizontal axis; empty if the load or a factor is on it, or if there are more than
        CONFIGURATIONS_MAX."""
        names = tuple(verdict.label for verdict in self.verdicts)
        varied = self._arrivals or len(self.counts) > 1 or self.factor is not None
        return () if varied or not 2 <= len(set(names)) == len(names) <= CONFIGURATIONS_MAX else names

    @cached_property
    def configurations_title(self) -> str:
        """Title above configurations that are named by their levels."""
        return _title(self.verdicts[0].factors)

    @cached_property
    def _factors(self) -> dict[int, dict[str, Level]]:
        """By point of the verdicts, the levels of the factors that distinguish lines. A line covers all levels of the
        arrival rate and of `factor`, so both are left out."""
        if self._arrivals:
            return {point: found.factors for found in self._arrivals for point in found.rates}
        if self.configurations:
            return {point: {} for verdict in self.verdicts for point in verdict.points}
        load = {self.factor}
        if len(self.counts) > 1:
            load |= {name for verdict in self.verdicts for name in verdict.factors} - {*self.others}
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
        """The labels in short form, for use below the legend's title."""
        return [self.short(label) for label in self.labels]

    @cached_property
    def clients(self) -> dict[int, int]:
        """The client count of every point that a verdict covers; empty if unknown."""
        table = self.observations
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
        """By point of the verdicts, the value on the horizontal axis: the arrival rate if it varied, or else the level
        of `factor`, or else the number of the configuration, or else the clients. Empty if unknown."""
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
    def axis(self) -> LoadAxis:
        levels = sorted(set(self.load.values()))
        if self._arrivals:
            return LoadAxis("rate", "Arrival rate (requests/s)", levels)
        if self.factor is not None:
            return LoadAxis("level", self.factor, levels)
        if self.configurations:
            names = [self.short(name) for name in self.configurations]
            return LoadAxis("configuration", self.configurations_title, levels, names)
        return LoadAxis("clients", "Clients", levels)

    def in_words(self, load: float) -> str:
        """“40 clients”, “1,500 requests/s”, “workers = 8”."""
        if self.factor is not None:
            return f"{self.factor} = {load}"
        if self.configurations:
            return self.configurations[int(load)]
        return rate_in_words(load) if self._arrivals else counted(int(load), "client")

    @cached_property
    def points(self) -> list[tuple[int, str]]:
        """Numbers and names of the points, for charts in which the reader selects a point."""
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


def rate_in_words(rate: float) -> str:
    """“1,500 requests/s”."""
    return f"{rate:,} requests/s"


def _is_number(level: Level) -> TypeGuard[int | float]:
    return isinstance(level, int | float) and not isinstance(level, bool)


def _title(factors: Mapping[str, Level]) -> str:
    return ", ".join(factors) or "Configuration"
