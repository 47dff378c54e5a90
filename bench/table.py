"""A comparison: its rows, the columns that show them, and whether its aim was reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypeVar

from bench.cells import Cell
from bench.programs import BenchError
from bench.samples import Ratio, Sample
from knee.stats.tables import columns

WARM_UP_S = 0.3

StoreKind = Literal["memcached", "knee-kv"]
Contestant = TypeVar("Contestant")
Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Plan:
    """How much is measured, and where progress goes."""

    rounds: int
    seconds: float
    cells: Sequence[Cell]
    progress: Callable[[str], None]

    def in_turns(
        self, contestants: dict[str, Contestant], measure: Callable[[Contestant], Measured]
    ) -> dict[str, list[Measured]]:
        """All contestants in each round; each round begins with another contestant."""
        names = list(contestants)
        samples: dict[str, list[Measured]] = {name: [] for name in names}
        for number in range(self.rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(measure(contestants[name]))
        return samples


@dataclass(frozen=True)
class Row:
    """Every contestant's samples, one a round, and other facts. A contestant that cannot do the row is absent."""

    name: str
    samples: dict[str, list[Any]]
    facts: dict[str, Any] = field(default_factory=dict)

    def median(self, name: str, attribute: str) -> float:
        """The median of a contestant's samples."""
        return float(median(getattr(sample, attribute) for sample in self.samples[name]))

    def ratio(self, ours: str, peer: str, attribute: str) -> Ratio:
        """Ours over a peer's, round by round."""
        return Ratio.of(*([getattr(sample, attribute) for sample in self.samples[name]] for name in (ours, peer)))


Column = tuple[str, Callable[[Row], str]]
"""A header, and what a row shows below it."""


def median_of(header: str, name: str, attribute: str, form: str = ",.0f", unit: str = "") -> Column:
    """The median of a contestant's samples; a dash if it cannot do the row."""
    return header, lambda row: f"{row.median(name, attribute):{form}}{unit}" if name in row.samples else "-"


def ratio_of(header: str, ours: str, peer: str, attribute: str) -> Column:
    """The median of the ratios, ours over a peer's."""
    return header, lambda row: f"{row.ratio(ours, peer, attribute).median:.2f}" if peer in row.samples else "-"


def range_of(header: str, ours: str, peer: str, attribute: str) -> Column:
    """The smallest and the largest of the ratios."""

    def shown(row: Row) -> str:
        if peer not in row.samples:
            return "-"
        ratio = row.ratio(ours, peer, attribute)
        return f"{ratio.low:.2f} to {ratio.high:.2f}"

    return header, shown


@dataclass
class Table:
    """One comparison.

    key      what tells rows apart: the rows' name in the JSON and, unless `header` is another, in the text
    notes    lines below the title
    verdict  whether the aim was reached, from the rows
    facts    what all rows share, for the JSON
    below    lines after a row
    warnings what limits the table's meaning
    """

    title: str
    key: str
    notes: list[str]
    columns: list[Column]
    verdict: Callable[[list[Row]], str]
    header: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    below: Callable[[Row], list[list[str]]] = lambda _: []
    warnings: Callable[[list[Row]], list[str]] = lambda _: []
    rows: list[Row] = field(default_factory=list)
    #: Failed measurements, with their reasons.
    failures: list[str] = field(default_factory=list)

    def add(self, plan: Plan, name: str, measure: Callable[[], dict[str, list[Any]] | Row]) -> None:
        """Measures a row, or its samples. A contestant's failure in one row does not concern other rows."""
        plan.progress(f"{self.title}: {name}")
        try:
            found = measure()
            self.rows.append(found if isinstance(found, Row) else Row(name, found))
        except (BenchError, OSError) as error:
            self.failures.append(f"{self.title}: {name}: {error}")

    @property
    def text(self) -> str:
        """The table with its circumstances above it and its warnings below."""
        lines = [[self.header or self.key, *(header for header, _ in self.columns)]]
        for row in self.rows:
            lines.append([row.name, *(shown(row) for _, shown in self.columns)])
            lines += self.below(row)
        return "\n".join([self.title, *self.notes, "", *columns(lines, {0}), *self.warnings(self.rows), ""])

    @property
    def result(self) -> str:
        """Title and verdict in one line."""
        return f"{self.title}: {self.verdict(self.rows)}"

    @property
    def content(self) -> dict[str, Any]:
        """Every sample, for other programs."""
        return {
            "title": self.title,
            **self.facts,
            "rows": [
                {
                    self.key: row.name,
                    **row.facts,
                    "samples": {name: [_json(sample) for sample in several] for name, several in row.samples.items()},
                }
                for row in self.rows
            ],
            "warnings": self.warnings(self.rows),
        }


def _json(sample: Any) -> dict[str, Any]:
    if not isinstance(sample, Sample):
        return dict(vars(sample))
    return {
        "requests": sample.requests,
        "seconds": sample.seconds,
        "cpu_us_per_request": sample.cpu_us,
        "user_share": sample.cpu.user_share,
        "busy": sample.busy,
        "waited": sample.waited,
        "other_busy": sample.other_busy,
    }
