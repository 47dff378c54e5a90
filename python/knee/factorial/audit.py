"""Do published effects follow from the published responses, and if not, what is to blame?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt

from knee.errors import DesignError
from knee.factorial.design import RESPONSE_MAX, Design
from knee.factorial.explanations import Convention, EffectDifference, RowExplanation, Search, levels_of
from knee.factorial.transform import LETTERS, Floats, effects, term_name, term_of

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

_CELLS_MIN = 4
"""Means of fewer cells may be of fewer decimals by chance: one in ten of each."""


@dataclass(frozen=True)
class Audit:
    """The verdict, and its evidence.

    units        last digits of the responses (of the means, where these have fewer) and of the effects
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
    search = Search(values, differences, names or _row_names(values.size))
    rows: tuple[RowExplanation, ...] = ()
    convention = None
    together: tuple[RowExplanation, ...] = ()
    if any(one.beyond for one in differences):
        rows, convention = search.single_rows(), search.convention(response_unit)
        if not rows and convention is None and sum(one.beyond for one in differences) > 1:
            together = search.rows_together()
    units = response_unit, last_digit(published.values())
    found = Audit("consistent", units, differences, rows, convention, together)
    return replace(found, verdict=_verdict(found))


def audit_design(
    design: Design,
    published: Mapping[str, Decimal],
    *,
    response_unit: float | None = None,
    resolution: float | None = None,
) -> Audit:
    """:func:`audit_effects` of measurements. Rows are named as in the table, and means of repetitions by their levels.

    Parameters
    ----------
    response_unit
        The last digit of the observations; by default the finest that any of them shows.
    resolution
        The last digit of the responses from which the effects were computed. By default that of the cells' means:
        tables that print means and errors print the means to fewer decimals.

    Raises
    ------
    DesignError
        Unless they are a full design with two levels per factor.
    """
    if design.fraction is None or design.fraction.removed:
        raise DesignError("published effects can be checked for full designs with two levels per factor")
    if response_unit is None:
        response_unit = last_digit(_shortest(value) for value in design.values.tolist())
    if resolution is None:
        resolution = _unit_of_means(design, response_unit)
    rows = np.argsort(design.cells, kind="stable") + 1
    names = [
        f"row {rows[cell]} ({design.cell_name(cell)})"
        if design.repetitions[1] == 1
        else f"the mean at {design.cell_name(cell)}"
        for cell in range(design.counts.size)
    ]
    return audit_effects(design.means(), published, response_unit=resolution, names=names)


def _unit_of_means(design: Design, unit: float) -> float:
    """How coarsely the cells' means were printed, from observations of a last digit `unit`.

    Errors about a printed mean add up to zero within their rounding: all means lie within half a `unit` of multiples of
    something coarser. That half is in the result, too.
    """
    if design.repetitions[0] < 2 or design.runs < _CELLS_MIN:
        return unit
    means = design.means()
    coarser = [
        unit * 10**power
        for power in (1, 2, 3)
        if (np.abs(means - np.round(means / (unit * 10**power)) * unit * 10**power) <= unit / 2).all()
    ]
    return coarser[-1] + unit if coarser else unit


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


def _row_names(rows: int) -> list[str]:
    """Rows in standard order with the signs of their factors, `row 2 (A+ B−)`."""
    factors = rows.bit_length() - 1

    def signs(row: int) -> str:
        levels = zip(LETTERS, levels_of(row, factors), strict=False)
        return " ".join(letter + ("+" if sign > 0 else "−") for letter, sign in levels)

    return [f"row {row + 1} ({signs(row)})" for row in range(rows)]
