"""The answer of `knee compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from knee.compare import Pair, text
from knee.compare.findings import Difference, GateResult, Obstacle
from knee.compare.findings import Point as Settings
from knee.compare.ratios import Ratio
from knee.stats.intervals import Interval

Point = Mapping[str, Any]
"""The settings of a point, by name."""


@dataclass(frozen=True)
class Compared:
    """One quantity of one operation at a point of both. `a` and `b` are means over the repetitions. `differs` holds for
    all points and operations of the quantity together."""

    point: Point
    operation: str
    quantity: str
    a: float
    b: float
    ratio: Ratio
    differs: bool


@dataclass(frozen=True)
class Silent:
    """A common point and operation without an answer."""

    point: Point
    operation: str


@dataclass(frozen=True)
class Knees:
    """The clients at the knee of A and of B, in one configuration."""

    point: Point
    a: Interval
    b: Interval


@dataclass(frozen=True)
class Comparison:
    """The comparison of B with A; `names` are theirs. `obstacle` is why there is no ratio, or empty. `overall` has the
    ratio of each quantity over `points` points. `only` and `silent` have an entry for A and one for B."""

    verdict: str
    power: str
    notes: tuple[str, ...]
    names: tuple[str, str]
    obstacle: Obstacle
    headline: str
    at_knee: bool
    kneeless: tuple[Point, ...]
    points: int
    overall: Mapping[str, Ratio]
    differs: bool
    compared: tuple[Compared, ...]
    knees: tuple[Knees, ...]
    settings: tuple[Difference, ...]
    origin: tuple[Difference, ...] | None
    only: tuple[tuple[Point, ...], tuple[Point, ...]]
    silent: tuple[tuple[Silent, ...], tuple[Silent, ...]]
    unit: str
    paired: bool
    ordered: bool
    apart: float
    failed: tuple[float, float]
    gates: tuple[GateResult, ...]
    level: float


def of(pair: Pair) -> Comparison:
    """The answer of this pair."""
    only_a, only_b = (tuple(map(_point, points)) for points in pair.only)
    silent_a, silent_b = (tuple(Silent(_point(at), operation) for at, operation in each) for each in pair.silent)
    return Comparison(
        **{
            **vars(pair),
            "verdict": text.verdict(pair),
            "power": text.power(pair),
            "notes": tuple(text.notes(pair)),
            "kneeless": tuple(map(_point, pair.kneeless)),
            "compared": tuple(Compared(**{**vars(one), "point": _point(one.point)}) for one in pair.compared),
            "knees": tuple(Knees(_point(at), a, b) for at, a, b in pair.knees),
            "only": (only_a, only_b),
            "silent": (silent_a, silent_b),
        }
    )


def _point(settings: Settings) -> Point:
    return dict(settings)
