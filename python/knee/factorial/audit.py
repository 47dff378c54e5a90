"""Checks whether published effects follow from the published responses, and finds the error if they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt

from knee.errors import DesignError
from knee.factorial.design import Design
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
"""Allowed rounding error, in units of an effect's last digit: authors round, truncate or round up, even within one
table."""

FACTORS_MAX = 12
"""Largest number of factors: the search compares every row with every effect."""

_CELLS_MIN = 4
"""Least number of cells for this rule: a mean has fewer decimals by chance with probability 1/10."""


@dataclass(frozen=True)
class Audit:
    """The verdict, and its evidence.

    units        last digits of the responses (of the means, if these have fewer) and of the effects
    differences  of all published effects, in the order given
    rows         the rows that explain the differences, each by itself
    convention   the convention with the fewest changes that explains the differences
    together     rows that explain the differences only together; searched only if no single change does
    """

    verdict: Verdict
    units: tuple[float, float]
    differences: tuple[EffectDifference, ...]
    rows: tuple[RowExplanation, ...]
    convention: Convention | None
    together: tuple[RowExplanation, ...]

    @property
    def beyond(self) -> tuple[str, ...]:
        """The terms whose differences exceed rounding."""
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

    Effects are decimals, as the digits of each show its rounding: tables have a fixed number of decimals or of
    significant digits.

    Parameters
    ----------
    responses
        In standard order, the first factor varying fastest; with repetitions, the cells' means.
    published
        Effects by their letters, I for the mean; some or all of them.
    response_unit
        Rounding unit of the observations; by default the finest last digit of `responses`.
    names
        Names of the rows in the text; by default their numbers from 1, with the signs of their factors.

    Raises DesignError for a number of responses that is not a power of two, unknown terms, or values that are not
    finite.
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

    Raises DesignError unless they are a full design with two levels per factor.
    """
    if design.fraction is None or design.fraction.removed:
        raise DesignError("published effects can be checked for full designs with two levels per factor")
    if response_unit is None:
        response_unit = last_digit(_shortest(value) for value in design.values.tolist())
    unit, error = (resolution, 0.0) if resolution is not None else _unit_of_means(design, response_unit)
    rows = np.argsort(design.cells, kind="stable") + 1
    names = [
        f"row {rows[cell]} ({design.cell_name(cell)})"
        if design.repetitions[1] == 1
        else f"the mean at {design.cell_name(cell)}"
        for cell in range(design.counts.size)
    ]
    found = audit_effects(design.means(), published, response_unit=unit + error, names=names)
    return replace(found, units=(unit, found.units[1]))


def _unit_of_means(design: Design, unit: float) -> tuple[float, float]:
    """The rounding unit of the printed cell means, for observations with last digit `unit`. Errors about a printed mean
    sum to zero within their rounding. So all means lie within half a `unit` of multiples of a coarser unit. The
    second number is twice this error of the means, 0 if they have no coarser unit.
    """
    if design.repetitions[0] < 2 or design.runs < _CELLS_MIN:
        return unit, 0.0
    means = design.means()
    coarser = [
        unit * 10**power
        for power in (1, 2, 3)
        if (np.abs(means - np.round(means / (unit * 10**power)) * unit * 10**power) <= unit / 2).all()
    ]
    return (coarser[-1], unit) if coarser else (unit, 0.0)


def _check(values: Floats, published: Mapping[str, Decimal]) -> None:
    if values.ndim != 1 or values.size < 2 or values.size & (values.size - 1):
        raise DesignError(f"{values.size} responses: a full design with two levels per factor has 2, 4, 8, …")
    factors = values.size.bit_length() - 1
    if factors > FACTORS_MAX:
        raise DesignError(f"{factors} factors: expected {FACTORS_MAX} at most")
    if not published:
        raise DesignError("no published effects to compare with")
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        raise DesignError(f"response in row {bad[0] + 1}: {values[bad[0]]} is not a finite number")
    seen: set[int] = set()
    for name, value in published.items():
        try:
            term = term_of(name)
        except ValueError as error:
            raise DesignError(f"published effect {error}") from error
        if term >> factors:
            raise DesignError(f"published effect {name}: the design's factors are A to {LETTERS[factors - 1]}")
        if term in seen:
            raise DesignError(f"published effect {name}: given twice")
        if not value.is_finite():
            raise DesignError(f"published effect {name}: {value} is not a finite number")
        seen.add(term)


def last_digit(values: Iterable[Decimal]) -> float:
    """The unit of the finest last digit."""
    return float(min(_unit(value) for value in values))


def _unit(value: Decimal) -> Decimal:
    """The unit of a finite number's last digit."""
    return Decimal(1).scaleb(int(value.as_tuple().exponent))


def _shortest(value: float) -> Decimal:
    """The shortest decimal equal to this number, whole numbers without a fraction."""
    return Decimal(int(value)) if value.is_integer() else Decimal(repr(value))


def _differences(q: Floats, published: Mapping[str, Decimal], response_unit: float) -> tuple[EffectDifference, ...]:
    # Each response has an error of at most half a unit, and so has any signed mean. Decimals avoid binary rounding at
    # exactly the limit.
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
