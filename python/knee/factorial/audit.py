"""Do published effects follow from the published responses, and if not, which row is to blame?

One wrong response y_i + δ changes every effect by ± δ/2^k, with the signs of its row of the sign table. So a single
misprint leaves a pattern in the differences between published and computed effects that no other row leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt

from knee.errors import DesignError
from knee.factorial.design import Design
from knee.factorial.transform import LETTERS, Floats, effects, sign_table, term_name, term_of

Verdict = Literal[
    "consistent",
    "one row explains it",
    "one effect explains it",
    "one of several explains it",
    "cannot be explained by one row",
]

ROUNDING_UNITS = 1.0
"""Of an effect's last digit: authors round to the nearest, truncate or round up, sometimes within one table."""

FACTORS_MAX = 12
"""The search compares every row with every effect."""


@dataclass(frozen=True)
class EffectDifference:
    """A published effect against the one that the responses have."""

    term: str
    published: Decimal
    computed: float

    @property
    def apart(self) -> float:
        """Published − computed."""
        return float(self.published) - self.computed


@dataclass(frozen=True)
class RowExplanation:
    """A row whose response, replaced, makes all published effects follow.

    row       from 0, in the order of the responses
    levels    −1 or +1 of every factor there
    printed   the response as published
    implied   the response that agrees best with all effects, by least squares
    low, high every value in between lets each effect agree within the tolerance
    """

    row: int
    levels: tuple[int, ...]
    printed: float
    implied: float
    low: float
    high: float


@dataclass(frozen=True)
class Audit:
    """The verdict, and its evidence.

    tolerance    how far apart rounding of effects and responses can put them
    units        last digits of the responses and of the effects
    differences  of all published effects, in the order given
    beyond       the terms that are further apart
    rows         the rows that explain it, each by itself
    """

    verdict: Verdict
    tolerance: float
    units: tuple[float, float]
    differences: tuple[EffectDifference, ...]
    beyond: tuple[str, ...]
    rows: tuple[RowExplanation, ...]
    sentence: str

    @property
    def worst(self) -> EffectDifference:
        """The effect that is furthest apart."""
        return max(self.differences, key=lambda one: abs(one.apart))


def audit_effects(
    responses: npt.ArrayLike, published: Mapping[str, Decimal], *, response_unit: float | None = None
) -> Audit:
    """Compare published effects with those of a full 2^k design's published responses.

    Effects are decimals because their digits say how far they were rounded: to the finest unit among them.

    Parameters
    ----------
    responses
        In standard order, the first factor varying fastest; with repetitions, the cells' means.
    published
        Effects by their letters, I for the mean; some or all of them.
    response_unit
        What the observations were rounded to; by default the last digit that any of `responses` shows.

    Raises
    ------
    DesignError
        For a number of responses that is no power of two, unknown terms, or what is no finite number.
    """
    values = np.asarray(responses, dtype=np.float64)
    _check(values, published)
    q = effects(values)
    terms = [term_of(name) for name in published]
    differences = tuple(
        EffectDifference(term_name(term), value, float(q[term]))
        for term, value in zip(terms, published.values(), strict=True)
    )
    if response_unit is None:
        response_unit = last_digit(_shortest(value) for value in values.tolist())
    units = response_unit, last_digit(published.values())
    # Each response is off by half a unit at most, and so is any mean of them with signs. Binary fractions would
    # miss a difference of exactly the sum.
    tolerance = (units[0] / 2 + ROUNDING_UNITS * units[1]) * (1 + 1e-9)
    apart = np.array([one.apart for one in differences])
    beyond = tuple(one.term for one in differences if abs(one.apart) > tolerance)
    rows = _explaining_rows(values, terms, apart, tolerance) if beyond else ()
    verdict = _verdict(beyond, rows)
    sentence = _sentence(verdict, differences, beyond, rows, tolerance, units)
    return Audit(verdict, tolerance, units, differences, beyond, rows, sentence)


def audit_design(design: Design, published: Mapping[str, Decimal], *, response_unit: float | None = None) -> Audit:
    """:func:`audit_effects` of measurements; by default they were rounded to the last digit that any of them shows.

    Raises DesignError unless they are a full design with two levels per factor.
    """
    if design.fraction is None or design.fraction.removed:
        raise DesignError("published effects can be checked for full designs with two levels per factor")
    if response_unit is None:
        response_unit = last_digit(_shortest(value) for value in design.values.tolist())
    return audit_effects(design.means(), published, response_unit=response_unit)


def _check(values: Floats, published: Mapping[str, Decimal]) -> None:
    if values.ndim != 1 or values.size < 2 or values.size & (values.size - 1):
        raise DesignError(f"{values.size} responses: a full design with two levels per factor has 2, 4, 8, …")
    factors = values.size.bit_length() - 1
    if factors > FACTORS_MAX:
        raise DesignError(f"{factors} factors: the audit takes {FACTORS_MAX} at most")
    if not published:
        raise DesignError("no published effects to compare with")
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        raise DesignError(f"response in row {bad[0] + 1}: {values[bad[0]]} is no finite number")
    seen: set[int] = set()
    for name, value in published.items():
        try:
            term = term_of(name)
        except ValueError as error:
            raise DesignError(f"published effect {error}") from error
        if term >> factors:
            raise DesignError(f"published effect {name}: the design's factors are A to {LETTERS[factors - 1]}")
        if term in seen:
            raise DesignError(f"published effect {name}: stands there twice")
        if not value.is_finite():
            raise DesignError(f"published effect {name}: {value} is no finite number")
        seen.add(term)


def last_digit(values: Iterable[Decimal]) -> float:
    """The unit of the finest last digit: authors drop trailing zeros, so −0.4 among hundredths is −0.40."""
    return float(min(Decimal(1).scaleb(int(value.as_tuple().exponent)) for value in values))


def _shortest(value: float) -> Decimal:
    """The shortest decimal that is this number, whole numbers without a fraction."""
    return Decimal(int(value)) if value.is_integer() else Decimal(repr(value))


def _explaining_rows(values: Floats, terms: list[int], apart: Floats, tolerance: float) -> tuple[RowExplanation, ...]:
    factors = values.size.bit_length() - 1
    # δ by each effect alone, shape (rows, effects).
    signs = sign_table(factors)[:, terms]
    by_effect = signs * apart * values.size
    margin = tolerance * values.size
    low, high = by_effect.max(axis=1) - margin, by_effect.min(axis=1) + margin
    found = []
    for row in np.flatnonzero(low <= high):
        found.append(
            RowExplanation(
                row=int(row),
                levels=tuple(1 if row >> bit & 1 else -1 for bit in range(factors)),
                printed=float(values[row]),
                implied=float(values[row] + by_effect[row].mean()),
                low=float(values[row] + low[row]),
                high=float(values[row] + high[row]),
            )
        )
    return tuple(found)


def _verdict(beyond: tuple[str, ...], rows: tuple[RowExplanation, ...]) -> Verdict:
    if not beyond:
        return "consistent"
    explanations = len(rows) + (len(beyond) == 1)
    if explanations > 1:
        return "one of several explains it"
    if rows:
        return "one row explains it"
    return "one effect explains it" if len(beyond) == 1 else "cannot be explained by one row"


def _sentence(
    verdict: Verdict,
    differences: tuple[EffectDifference, ...],
    beyond: tuple[str, ...],
    rows: tuple[RowExplanation, ...],
    tolerance: float,
    units: tuple[float, float],
) -> str:
    count = len(differences)
    if verdict == "consistent":
        return f"All {count} published effects follow from the published responses within their rounding."
    worst = max(differences, key=lambda one: abs(one.apart))
    disagree = (
        f"{len(beyond)} of {count} published effects do not follow from the published responses (worst {worst.term}: "
        f"{worst.published} published, {_digits(worst.computed, units[1] / 100)} computed; rounding allows "
        f"{tolerance:.3g})"
    )
    replacements = [
        f"row {one.row + 1} ({_levels(one.levels)}) prints {_digits(one.printed, units[0])} where the effects imply "
        f"{_digits(one.implied, units[0])} ({_digits(one.low, units[0])} to {_digits(one.high, units[0])})"
        for one in rows
    ]
    if verdict == "one row explains it":
        return f"{disagree}. One row explains it: {replacements[0]}; with that, all {count} agree within rounding."
    if verdict == "one effect explains it":
        return f"{disagree}. No row explains it, but that one effect does: the others agree."
    if verdict == "one of several explains it":
        effect = [f"effect {beyond[0]} alone is misprinted"] if len(beyond) == 1 else []
        return f"{disagree}. Several single changes explain it: {'; or '.join([*replacements, *effect])}."
    return f"{disagree}. No single response explains it, whatever its value."


def _digits(value: float, unit: float) -> str:
    """A number down to the digit of this unit."""
    return f"{value:.{max(0, -round(math.log10(unit)))}f}"


def _levels(levels: tuple[int, ...]) -> str:
    return " ".join(f"{letter}{'+' if sign > 0 else '−'}" for letter, sign in zip(LETTERS, levels, strict=False))


def render_audit(found: Audit) -> str:
    """The verdict, and below it every effect, published and computed."""
    header = ("effect", "published", "computed", "apart", "")
    rows = [
        (
            one.term,
            str(one.published),
            _digits(one.computed, found.units[1] / 100),
            _digits(one.apart, found.units[1] / 100),
            "beyond rounding" if one.term in found.beyond else "",
        )
        for one in found.differences
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    table = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in (header, *rows)
    ]
    return "\n".join([found.sentence, "", *(line.rstrip() for line in table)])
