"""Do published effects follow from the published responses, and if not, what is to blame?

One wrong response y_i + δ changes every effect by ± δ/2^k, with the signs of its row of the sign table. So a single
misprint leaves a pattern in the differences between published and computed effects that no other row leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt

from knee.errors import DesignError
from knee.factorial.design import RESPONSE_MAX, Design
from knee.factorial.transform import LETTERS, Floats, effects, sign_table, term_name, term_of

Verdict = Literal[
    "consistent",
    "one row explains it",
    "one effect explains it",
    "another convention explains it",
    "one of several explains it",
    "some rows explain it",
    "cannot be explained",
]

ROUNDING_UNITS = 1.0
"""Of an effect's last digit: authors round to the nearest, truncate or round up, sometimes within one table."""

FACTORS_MAX = 12
"""The search compares every row with every effect."""

_ROWS_SHARE_MAX = 0.25
"""Of all rows: when more disagree, the effects are of other responses, not of misprinted ones."""


@dataclass(frozen=True)
class EffectDifference:
    """A published effect against the one that the responses have.

    tolerance  how far apart rounding of this effect and of the responses can put them
    """

    term: str
    published: Decimal
    computed: float
    tolerance: float

    @property
    def apart(self) -> float:
        """Published − computed."""
        return float(self.published) - self.computed

    @property
    def beyond(self) -> bool:
        """Whether rounding does not explain it."""
        return abs(self.apart) > self.tolerance


@dataclass(frozen=True)
class RowExplanation:
    """A row whose response, replaced, makes the published effects follow; of `Audit.together`, only with the others.

    row       from 0, in the order of the responses
    name      what the text calls it
    levels    −1 or +1 of every factor there
    printed   the response as published
    implied   the response that agrees best with all effects, by least squares
    low, high every value in between lets each effect agree within its tolerance
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
    """Other meanings of signs and effects under which the published ones follow.

    reversed  factors whose first level the author took for +1, by their letters
    doubled   effects are changes from low to high, 2q, as in the books on experimental design
    """

    reversed: tuple[str, ...]
    doubled: bool


@dataclass(frozen=True)
class Audit:
    """The verdict, and its evidence.

    units        last digits of the responses and of the effects, the finest of each
    differences  of all published effects, in the order given
    rows         the rows that explain it, each by itself
    convention   the other convention that explains it, the one with the fewest changes
    together     rows that explain it only together; sought where no single change does
    """

    verdict: Verdict
    units: tuple[float, float]
    differences: tuple[EffectDifference, ...]
    rows: tuple[RowExplanation, ...]
    convention: Convention | None
    together: tuple[RowExplanation, ...]
    sentence: str

    @property
    def beyond(self) -> tuple[str, ...]:
        """The terms that are further apart than rounding explains."""
        return tuple(one.term for one in self.differences if one.beyond)

    @property
    def worst(self) -> EffectDifference:
        """The effect that is furthest beyond its tolerance."""
        return max(self.differences, key=lambda one: abs(one.apart) / one.tolerance)


def audit_effects(
    responses: npt.ArrayLike,
    published: Mapping[str, Decimal],
    *,
    response_unit: float | None = None,
    names: Sequence[str] = (),
) -> Audit:
    """Compare published effects with those of a full 2^k design's published responses.

    Effects are decimals because their digits say how far they were rounded, each by itself: tables are printed to so
    many decimals, or to so many significant digits.

    Parameters
    ----------
    responses
        In standard order, the first factor varying fastest; with repetitions, the cells' means.
    published
        Effects by their letters, I for the mean; some or all of them.
    response_unit
        What the observations were rounded to; by default the last digit that any of `responses` shows.
    names
        What the text calls the rows; by default their numbers from 1, with the signs of their factors.

    Raises
    ------
    DesignError
        For a number of responses that is no power of two, unknown terms, or what is no finite number.
    """
    values = np.asarray(responses, dtype=np.float64)
    _check(values, published)
    if response_unit is None:
        response_unit = last_digit(_shortest(value) for value in values.tolist())
    differences = _differences(effects(values), published, response_unit)
    search = _Search(values, differences, names or _row_names(values.size))
    rows: tuple[RowExplanation, ...] = ()
    convention = None
    together: tuple[RowExplanation, ...] = ()
    if any(one.beyond for one in differences):
        rows, convention = search.single_rows(), search.convention(response_unit)
        if not rows and convention is None and sum(one.beyond for one in differences) > 1:
            together = search.rows_together()
    units = response_unit, last_digit(published.values())
    found = Audit("consistent", units, differences, rows, convention, together, "")
    verdict = _verdict(found)
    return replace(found, verdict=verdict, sentence=_sentence(found, verdict))


def audit_design(design: Design, published: Mapping[str, Decimal], *, response_unit: float | None = None) -> Audit:
    """:func:`audit_effects` of measurements; by default they were rounded to the last digit that any of them shows.

    Rows are named as in the table, and means of repetitions by their levels.

    Raises DesignError unless they are a full design with two levels per factor.
    """
    if design.fraction is None or design.fraction.removed:
        raise DesignError("published effects can be checked for full designs with two levels per factor")
    if response_unit is None:
        response_unit = last_digit(_shortest(value) for value in design.values.tolist())
    rows = np.argsort(design.cells, kind="stable") + 1
    names = [
        f"row {rows[cell]} ({design.cell_name(cell)})"
        if design.repetitions[1] == 1
        else f"the mean at {design.cell_name(cell)}"
        for cell in range(design.counts.size)
    ]
    return audit_effects(design.means(), published, response_unit=response_unit, names=names)


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
        if not 1 / RESPONSE_MAX <= _unit(value) <= RESPONSE_MAX or abs(value) > RESPONSE_MAX:
            raise DesignError(f"published effect {name}: {value} is of a size beyond all measurement")
        seen.add(term)


def last_digit(values: Iterable[Decimal]) -> float:
    """The unit of the finest last digit."""
    return float(min(_unit(value) for value in values))


def _unit(value: Decimal) -> Decimal:
    return Decimal(1).scaleb(int(value.as_tuple().exponent))


def _shortest(value: float) -> Decimal:
    """The shortest decimal that is this number, whole numbers without a fraction."""
    return Decimal(int(value)) if value.is_integer() else Decimal(repr(value))


def _differences(q: Floats, published: Mapping[str, Decimal], response_unit: float) -> tuple[EffectDifference, ...]:
    # Each response is off by half a unit at most, and so is any mean of them with signs. Binary fractions would
    # miss a difference of exactly the sum.
    return tuple(
        EffectDifference(
            term=term_name(term_of(name)),
            published=value,
            computed=float(q[term_of(name)]),
            tolerance=(response_unit / 2 + ROUNDING_UNITS * float(_unit(value))) * (1 + 1e-9),
        )
        for name, value in published.items()
    )


class _Search:
    """For what makes published effects follow from responses."""

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
        """The rows that explain it, each by itself."""
        # δ by each effect alone.
        by_effect = self._signs * (self._published - self._computed) * self._values.size
        margin = self._tolerance * self._values.size
        low, high = (by_effect - margin).max(axis=1), (by_effect + margin).min(axis=1)
        return tuple(
            self._explanation(int(row), float(by_effect[row].mean()), float(low[row]), float(high[row]))
            for row in np.flatnonzero(low <= high)
        )

    def convention(self, response_unit: float) -> Convention | None:
        """The convention with the fewest changes under which all published effects follow."""
        # Reversing factors multiplies a term by −1 for each of them that takes part: the signs of the row in which
        # just they are low.
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
        """A few rows that explain it together. Only with all effects published, as then these imply every response."""
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
            levels=_levels(row, self._factors),
            printed=printed,
            implied=printed + change,
            low=printed + low,
            high=printed + high,
        )


def _verdict(found: Audit) -> Verdict:
    if not found.beyond:
        return "consistent"
    explanations = len(found.rows) + (len(found.beyond) == 1) + (found.convention is not None)
    if explanations > 1:
        return "one of several explains it"
    if found.rows:
        return "one row explains it"
    if found.convention is not None:
        return "another convention explains it"
    if len(found.beyond) == 1:
        return "one effect explains it"
    return "some rows explain it" if found.together else "cannot be explained"


def _sentence(found: Audit, verdict: Verdict) -> str:
    count = len(found.differences)
    if verdict == "consistent":
        return f"All {count} published effects follow from the published responses within their rounding."
    worst = found.worst
    response_unit, effect_unit = found.units
    computed = _digits(worst.computed, effect_unit / 100)
    disagree = (
        f"{len(found.beyond)} of {count} published effects do not follow from the published responses (worst "
        f"{worst.term}: {worst.published} published, {computed} computed; rounding allows {worst.tolerance:.3g})"
    )
    replaced = [_replacement(one, response_unit) for one in found.rows or found.together]
    if verdict == "one row explains it":
        return f"{disagree}. One row explains it: {replaced[0]}; with that, all {count} agree within rounding."
    if verdict == "one effect explains it":
        return f"{disagree}. No row explains it, but that one effect does: the others agree."
    if verdict == "another convention explains it" and found.convention is not None:
        return f"{disagree}. They do, all {count}, {_worded(found.convention)}."
    if verdict == "one of several explains it":
        changes = [*replaced, *([f"effect {found.beyond[0]} alone is misprinted"] if len(found.beyond) == 1 else [])]
        if found.convention is not None:
            changes.append(f"they follow {_worded(found.convention)}")
        return f"{disagree}. Several single changes explain it: {'; or '.join(changes)}."
    if verdict == "some rows explain it":
        swapped = _swapped(found.together)
        return (
            f"{disagree}. No single response explains it, but {len(replaced)} together do: {'; and '.join(replaced)}"
            f"{'; each is the other as printed, so they were swapped' if swapped else ''}."
        )
    return f"{disagree}. Neither a single response explains it, whatever its value, nor a single effect."


def _replacement(one: RowExplanation, unit: float) -> str:
    return (
        f"{one.name} prints {_digits(one.printed, unit)} where the effects imply {_digits(one.implied, unit)} "
        f"({_digits(one.low, unit)} to {_digits(one.high, unit)})"
    )


def _worded(convention: Convention) -> str:
    said = []
    if convention.reversed:
        said.append(f"when the levels of {' and '.join(convention.reversed)} are taken the other way round")
    if convention.doubled:
        said.append("when they are read as changes from the low to the high level, twice q")
    return " and ".join(said)


def _swapped(rows: tuple[RowExplanation, ...]) -> bool:
    if len(rows) != 2:
        return False
    first, second = rows
    return first.low <= second.printed <= first.high and second.low <= first.printed <= second.high


def _digits(value: float, unit: float) -> str:
    """A number down to the digit of this unit."""
    return f"{value:.{max(0, -round(math.log10(unit)))}f}"


def _levels(row: int, factors: int) -> tuple[int, ...]:
    return tuple(1 if row >> bit & 1 else -1 for bit in range(factors))


def _row_names(rows: int) -> list[str]:
    factors = rows.bit_length() - 1
    return [
        f"row {row + 1} ("
        + " ".join(
            f"{letter}{'+' if sign > 0 else '−'}" for letter, sign in zip(LETTERS, _levels(row, factors), strict=False)
        )
        + ")"
        for row in range(rows)
    ]


def render_audit(found: Audit) -> str:
    """The verdict, and below it every effect, published and computed."""
    header = ("effect", "published", "computed", "apart", "")
    rows = [
        (
            one.term,
            str(one.published),
            _digits(one.computed, found.units[1] / 100),
            _digits(one.apart, found.units[1] / 100),
            "beyond rounding" if one.beyond else "",
        )
        for one in found.differences
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    table = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in (header, *rows)
    ]
    return "\n".join([found.sentence, "", *(line.rstrip() for line in table)])
