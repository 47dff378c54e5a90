"""Results of a comparison of two systems, A and B, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from knee.compare.ratios import Ratio
from knee.stats.intervals import Interval

Point = tuple[tuple[str, object], ...]
"""The settings of a point, by name."""

Obstacle = Literal[
    "",
    "no answer",
    "no point in common",
    "one repetition",
    "equal measurements",
    "equal repetitions",
    "incomplete repetitions",
]


@dataclass(frozen=True)
class Difference:
    """A setting, a version or a property of the machine that differs."""

    name: str
    a: object
    b: object


@dataclass(frozen=True)
class Compared:
    """One quantity of one operation at a point of both. `a` and `b` are means over the repetitions. `differs` holds for
    all points and operations of the quantity together.
    """

    point: Point
    operation: str
    quantity: str
    a: float
    b: float
    ratio: Ratio
    differs: bool


@dataclass(frozen=True)
class GateResult:
    """Whether the data show that a condition holds. `ratio` is the interval that decides, and `reason` what else."""

    condition: str
    state: Literal["fails", "passes", "cannot tell"]
    ratio: Interval
    reason: str = ""


@dataclass(frozen=True)
class Pair:
    """The comparison of B with A.

    names         of A and B
    obstacle      why there is no interval; empty if there is one
    headline      the quantity that the verdict is about
    at_knee       whether `overall` covers the points on both plateaus only, not all points in common
    kneeless      configurations without a common plateau: `overall` covers all their common points; empty if no
                  configuration has a plateau
    points        the number of points that the headline's overall ratio covers
    overall       the ratio over these points, by quantity
    differs       whether the headline differs over these points
    compared      an entry per point, operation and quantity
    knees         by configuration, the clients at the knee of A and of B, for configurations with both
    settings, origin
                  settings, and versions and machines, that differ; `origin` is None if one is unknown, as of a table
    only          points that A, or B, alone has
    silent        common points and operations at which A, or B, answered nothing in a repetition
    unit          what counts as an observation of the noise
    paired        whether observations of A and B alternate, and are compared pair by pair
    ordered       whether it is known that systems of one source were measured in turn; True for separate sources
    apart         assumed difference between runs (:data:`knee.compare.ratios.RUNS_APART`); 0 if nothing is assumed
    failed        failed share of the requests of A and of B
    level         confidence level of the verdict
    """

    names: tuple[str, str]
    obstacle: Obstacle
    headline: str
    at_knee: bool
    kneeless: tuple[Point, ...]
    points: int
    overall: Mapping[str, Ratio]
    differs: bool
    compared: tuple[Compared, ...]
    knees: tuple[tuple[Point, Interval, Interval], ...]
    settings: tuple[Difference, ...]
    origin: tuple[Difference, ...] | None
    only: tuple[tuple[Point, ...], tuple[Point, ...]]
    silent: tuple[tuple[tuple[Point, str], ...], tuple[tuple[Point, str], ...]]
    unit: Literal["repetition", "run"]
    paired: bool
    ordered: bool
    apart: float
    failed: tuple[float, float]
    gates: tuple[GateResult, ...]
    level: float

    @property
    def different(self) -> tuple[Compared, ...]:
        """Where the headline differs by itself."""
        return tuple(one for one in self.compared if one.differs and one.quantity == self.headline)
