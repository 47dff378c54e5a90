"""Changes that make published effects follow from responses: of a row, of the convention, or of a few rows together.

One wrong response y_i + δ changes every effect by ± δ/2^k, with the signs of its row of the sign table. So a single
misprint leaves a pattern in the differences between published and computed effects that no other row leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from knee.factorial.transform import Floats, sign_table, term_name, term_of

_ROWS_SHARE_MAX = 0.25
"""Largest share of misprinted rows: with more, the effects belong to other responses."""


@dataclass(frozen=True)
class EffectDifference:
    """A published effect against the effect computed from the responses.

    tolerance  largest difference from rounding of this effect and of the responses
    """

    term: str
    published: Decimal
    computed: float
    tolerance: float

    @property
    def apart(self) -> float:
        return float(self.published) - self.computed

    @property
    def beyond(self) -> bool:
        """Whether the difference exceeds rounding."""
        return abs(self.apart) > self.tolerance


@dataclass(frozen=True)
class RowExplanation:
    """A row that explains the published effects if its response is replaced; in `Audit.together`, only with the others.

    row       from 0, in the order of the responses
    name      name of the row in the text
    levels    −1 or +1 for every factor in this row
    printed   the response as published
    implied   the response that agrees best with all effects, by least squares
    low, high each effect agrees within its tolerance for every value between these
    """

    row: int
    name: str
    levels: tuple[int, ...]
    printed: float
    implied: float
    low: float
    high: float


@dataclass(frozen=True)
class Convention:
    """A convention for signs and effects under which the published effects follow.

    reversed  factors whose first level the author took for +1, by their letters
    doubled   whether effects are changes from low to high, 2q, as in the books on experimental design
    """

    reversed: tuple[str, ...]
    doubled: bool


class Search:
    """Searches for changes that make published effects follow from responses."""

    def __init__(self, values: Floats, differences: tuple[EffectDifference, ...], names: Sequence[str]) -> None:
        self._values = values
        self._names = names
        self._factors = values.size.bit_length() - 1
        self._terms = [term_of(one.term) for one in differences]
        self._published = np.array([float(one.published) for one in differences])
        self._computed = np.array([one.computed for one in differences])
        self._tolerance = np.array([one.tolerance for one in differences])
        # Every row's signs of the published effects, shape (rows, effects).
        self._signs = sign_table(self._factors)[:, self._terms]

    def single_rows(self) -> tuple[RowExplanation, ...]:
        """The rows that explain the differences, each by itself."""
        # δ from each single effect.
        by_effect = self._signs * (self._published - self._computed) * self._values.size
        margin = self._tolerance * self._values.size
        low, high = (by_effect - margin).max(axis=1), (by_effect + margin).min(axis=1)
        return tuple(
            self._explanation(int(row), float(by_effect[row].mean()), float(low[row]), float(high[row]))
            for row in np.flatnonzero(low <= high)
        )

    def convention(self, response_unit: float) -> Convention | None:
        """The convention with the fewest changes under which all published effects follow."""
        # A reversed factor multiplies each term that contains it by −1. So reversed factors give a term its sign in the
        # row in which exactly these factors are low.
        scale = np.where(np.array(self._terms) == 0, 1, 2)
        margins = (self._tolerance, self._tolerance + (scale - 1) * response_unit / 2)
        for doubled, margin in zip((False, True), margins, strict=True):
            computed = self._signs[::-1] * self._computed * (scale if doubled else 1)
            agree = np.flatnonzero((np.abs(self._published - computed) <= margin).all(axis=1))
            if agree.size:
                flipped = min((int(one) for one in agree), key=int.bit_count)
                return Convention(tuple(term_name(flipped)) if flipped else (), doubled)
        return None

    def rows_together(self) -> tuple[RowExplanation, ...]:
        """A few rows that explain the differences together; empty unless all effects were published, which then imply
        every response."""
        if len(self._terms) < self._values.size:
            return ()
        apart = self._published - self._computed
        changes = self._signs @ apart
        margin = float(self._tolerance.sum())
        wrong = np.flatnonzero(np.abs(changes) > margin)
        if wrong.size > self._values.size * _ROWS_SHARE_MAX:
            return ()
        left = apart - changes[wrong] @ self._signs[wrong] / self._values.size
        if (np.abs(left) > self._tolerance).any():
            return ()
        return tuple(
            self._explanation(int(row), float(changes[row]), float(changes[row]) - margin, float(changes[row]) + margin)
            for row in wrong
        )

    def _explanation(self, row: int, change: float, low: float, high: float) -> RowExplanation:
        printed = float(self._values[row])
        return RowExplanation(
            row=row,
            name=self._names[row],
            levels=levels_of(row, self._factors),
            printed=printed,
            implied=printed + change,
            low=printed + low,
            high=printed + high,
        )


def levels_of(row: int, factors: int) -> tuple[int, ...]:
    """−1 or +1 of every factor in a row in standard order."""
    return tuple(1 if row >> bit & 1 else -1 for bit in range(factors))
