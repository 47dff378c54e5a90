"""What is measured, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from bench.cells import Cell
from bench.samples import Sample

WARM_UP_S = 0.3
# Starting a load process, connecting, and ending it.
OVERHEAD_S = 0.15

StoreKind = Literal["memcached", "knee-kv"]
Contestant = TypeVar("Contestant")
Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Plan:
    """How much is measured, and whom to tell about it."""

    rounds: int
    seconds: float
    cells: Sequence[Cell]
    progress: Callable[[str], None]

    def estimate_s(self, cells: int, contestants: int) -> float:
        """How long so many cells take of a table of so many contestants."""
        per_contestant = WARM_UP_S + OVERHEAD_S + self.rounds * (self.seconds + OVERHEAD_S)
        return cells * contestants * per_contestant

    def in_turns(
        self, contestants: dict[str, Contestant], measure: Callable[[Contestant], Measured]
    ) -> dict[str, list[Measured]]:
        """Every contestant once a round; who begins changes from round to round."""
        names = list(contestants)
        samples: dict[str, list[Measured]] = {name: [] for name in names}
        for number in range(self.rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(measure(contestants[name]))
        return samples


@dataclass(frozen=True)
class Row:
    """One cell: every contestant's samples, one a round. A contestant that cannot do the cell is absent."""

    cell: Cell
    samples: dict[str, list[Sample]]


@dataclass
class Table:
    """One comparison: `ours` with `peer` and, where there is one, with `floor`."""

    title: str
    ours: str
    peer: str
    floor: str | None
    store: str
    driver: str
    notes: list[str]
    #: What a set becomes: requests to stores for each request of a client, by contestant.
    set_fan_out: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    #: Cells in which a contestant failed, with what it did.
    failures: list[str] = field(default_factory=list)
