"""Observations as a factorial design: factors with their levels, and the cells they span.

Input that would make results wrong raises an error here: missing cells, missing or non-finite responses, duplicate
runs. `notes` lists corrections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from knee.data.measurements import ROUNDING, nearest_in_words
from knee.errors import DesignError
from knee.factorial import fraction as fractions
from knee.factorial.fraction import Fraction
from knee.factorial.transform import LETTERS, Floats

Level = int | float | str | bool
"""One value of a factor."""

TERMS_MAX = 4096
"""Largest number of terms of a model: twelve factors, or a fraction with as many runs."""

CELLS_MAX = 1 << 20

RESPONSE_MAX = 1e100
"""Largest response; its inverse is the smallest nonzero one. Squares then stay finite."""

_ADDED = frozenset({"line", "point"})
"""Columns that Knee added when it read the table."""

_NAMED_MAX = 5
"""Largest number of cells or rows that an error lists."""


@dataclass(frozen=True)
class Factor:
    """A factor and its levels: numbers ascending, false before true, text by its alphabet; the first is −1."""

    name: str
    letter: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, eq=False)
class Design:
    """A complete factorial design, or a regular fraction of one with two levels per factor.

    values    the observations, shape (n,)
    levels    the number of each factor's level in each observation, shape (n, k)
    order     time or number of each observation in the order of the runs, shape (n,); None if unknown
    fraction  with two levels per factor, the measured part of the full design; else None
    """

    response: str
    factors: tuple[Factor, ...]
    values: Floats
    levels: npt.NDArray[np.int64]
    order: Floats | None = None
    fraction: Fraction | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each factor, the last factor first: in this order the first factor varies fastest."""
        return tuple(len(factor.levels) for factor in reversed(self.factors))

    @cached_property
    def cells(self) -> npt.NDArray[np.int64]:
        """Each observation's cell, numbered with the first factor varying fastest: Yates' standard order."""
        reverse = tuple(self.levels[:, number] for number in reversed(range(len(self.factors))))
        return np.asarray(np.ravel_multi_index(reverse, self.shape), dtype=np.int64)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of observations in each cell; zero only if a fraction has no run there."""
        return np.bincount(self.cells, minlength=int(np.prod(self.shape)))

    @property
    def runs(self) -> int:
        """Number of measured cells."""
        return int(np.count_nonzero(self.counts))

    @cached_property
    def repetitions(self) -> tuple[int, int]:
        """Fewest and most observations of a cell."""
        measured = self.counts[self.counts > 0]
        return int(measured.min()), int(measured.max())

    @property
    def label(self) -> str:
        """The design's name: 2^3·3 factorial, 2^(5−2) fraction, 3 × 2 factorial."""
        fewest, most = self.repetitions
        times = "" if most == 1 else f"·{fewest}" if fewest == most else f"·({fewest} to {most})"
        count = len(self.factors)
        if self.fraction is None:
            return " × ".join(str(len(factor.levels)) for factor in self.factors) + f"{times} full factorial design"
        if self.fraction.removed:
            return f"2^({count}−{self.fraction.removed}){times} fractional factorial design"
        return f"2^{count}{times} full factorial design"

    def means(self, values: Floats | None = None) -> Floats:
        """Mean of the observations (or of the given values) in every cell; NaN for an empty cell.

        The mean is computed relative to the cell's first observation, so that a large offset does not cost digits.
        """
        chosen = self.values if values is None else values
        present = self.counts > 0
        first = np.full(self.counts.size, np.nan)
        first[self.cells[::-1]] = chosen[::-1]
        apart = np.bincount(self.cells, weights=chosen - first[self.cells], minlength=self.counts.size)
        return np.where(present, first + apart / np.maximum(self.counts, 1), np.nan)

    def level_of(self, cell: int) -> tuple[int, ...]:
        """The number of each factor's level in a cell."""
        return tuple(int(number) for number in np.unravel_index(cell, self.shape))[::-1]

    def cell_name(self, cell: int) -> str:
        """The levels of a cell: servers = 1, workers = 8."""
        numbers = self.level_of(cell)
        return ", ".join(
            f"{factor.name} = {factor.levels[number]}" for factor, number in zip(self.factors, numbers, strict=True)
        )


def design_of(table: pl.DataFrame, factors: Sequence[str], response: str, *, run_order: str | None = None) -> Design:
    """Read a design from a table with one row per observation.

    Parameters
    ----------
    table
        With a column for each factor and the response. If it has a column `repetition`, rows with the same levels and
        repetition are duplicates, which is an error; without the column they are repetitions. Errors name rows by the
        column `line` if it exists, and rows of a run folder by factors and repetition.
    run_order
        Column that orders the runs in time, for the check of the residuals.

    Raises DesignError that names the problem and its rows, counted from 1, or its lines.
    """
    _check_columns(table, factors, response, run_order)
    problems = [*_bad_responses(table, factors, response), *_bad_factors(table, factors)]
    if run_order is not None and (missing := table[run_order].is_null()).any():
        problems.append(f"column {run_order}: {_rows(table, factors, missing)} no value, but it orders the runs")
    if problems:
        raise DesignError("\n".join(problems))
    found = tuple(
        Factor(name, LETTERS[number], tuple(table[name].unique().sort().to_list()))
        for number, name in enumerate(factors)
    )
    size = int(np.prod([len(factor.levels) for factor in found], dtype=object))
    if size > CELLS_MAX:
        raise DesignError(f"the factors' levels span {size:,} cells: expected {CELLS_MAX:,} at most")
    design = Design(
        response=response,
        factors=found,
        values=table[response].cast(pl.Float64).to_numpy(),
        levels=np.column_stack([_level_numbers(table[factor.name], factor) for factor in found]),
        order=None if run_order is None else table[run_order].rank("ordinal").cast(pl.Float64).to_numpy(),
    )
    if duplicates := _duplicates(table, design):
        raise DesignError("\n".join(duplicates))
    fraction = _fraction_of(design)
    terms = 1 << len(found) if fraction is None else fraction.runs
    if terms > TERMS_MAX:
        raise DesignError(
            f"{len(found)} factors have {terms:,} effects: expected {TERMS_MAX:,} at most; choose the "
            "important factors, or run a fraction"
        )
    return Design(response, found, design.values, design.levels, design.order, fraction, _replication_notes(design))


def _check_columns(table: pl.DataFrame, factors: Sequence[str], response: str, run_order: str | None) -> None:
    if not factors:
        raise DesignError("no factors: expected at least one column with several levels")
    if len(set(factors)) < len(factors):
        raise DesignError(f"factors {', '.join(factors)}: a factor is given twice")
    if response in factors:
        raise DesignError(f"column {response} cannot be both a factor and the response")
    if len(factors) > fractions.FACTORS_MAX:
        raise DesignError(
            f"{len(factors)} factors: expected {fractions.FACTORS_MAX} at most; choose the important ones"
        )
    for name in [*factors, response, *([] if run_order is None else [run_order])]:
        if name not in table.columns:
            known = [column for column in table.columns if column not in _ADDED and not column.endswith(ROUNDING)]
            raise DesignError(f"no column {name}: {nearest_in_words(name, known)}")
    if table.is_empty():
        raise DesignError("no observations: the table is empty")


def _bad_responses(table: pl.DataFrame, factors: Sequence[str], response: str) -> list[str]:
    column, problems = table[response], []
    if (missing := column.is_null()).any():
        whose = _rows(table, factors, missing)
        problems.append(f"column {response}: {whose} no value; measure again, or leave the rows out")
    sizes = column.cast(pl.Float64, strict=False).abs()
    usable = ((sizes == 0) | sizes.is_between(1 / RESPONSE_MAX, RESPONSE_MAX)).fill_null(value=False)
    if (odd := ~usable & column.is_not_null()).any():
        problems.append(f"column {response}: {_rows(table, factors, odd)} no number from 1e-100 to 1e100")
    return problems


def _bad_factors(table: pl.DataFrame, factors: Sequence[str]) -> list[str]:
    problems = []
    for name in factors:
        column = table[name]
        if (missing := column.is_null() | (column.is_nan() if column.dtype.is_float() else False)).any():
            problems.append(f"factor {name}: {_rows(table, factors, missing)} no level")
        elif column.n_unique() == 1:
            problems.append(
                f"factor {name}: has the level {column[0]} in all rows; a factor needs two levels or more, leave it out"
            )
    return problems


def _place(table: pl.DataFrame) -> tuple[str, list[int]]:
    """Names of rows in errors: their lines in the file, if known."""
    if "line" in table.columns:
        return "line", table["line"].to_list()
    return "row", list(range(1, table.height + 1))


def _rows(table: pl.DataFrame, factors: Sequence[str], chosen: pl.Series) -> str:
    """Names of the rows with wrong values. Rows of a run folder have no lines, so factors and repetition name them."""
    word, places = _place(table)
    numbers = [places[row] for row in chosen.arg_true()]
    named = ", ".join(map(str, numbers[:_NAMED_MAX]))
    if "line" not in table.columns and {"point", "repetition"} <= set(table.columns):
        runs = table.filter(chosen).select(*factors, "repetition").head(_NAMED_MAX).to_dicts()
        word = "the run"
        named = "; ".join(", ".join(f"{name} = {level}" for name, level in run.items()) for run in runs)
    if len(numbers) == 1:
        return f"{word} {named} has"
    more = f" and {len(numbers) - _NAMED_MAX} more" if len(numbers) > _NAMED_MAX else ""
    return f"{word}s {named}{more} have"


def _level_numbers(column: pl.Series, factor: Factor) -> npt.NDArray[np.int64]:
    numbers = {level: number for number, level in enumerate(factor.levels)}
    return np.array([numbers[value] for value in column.to_list()], dtype=np.int64)


def _duplicates(table: pl.DataFrame, design: Design) -> list[str]:
    if "repetition" not in table.columns:
        return []
    word, places = _place(table)
    seen: dict[tuple[int, object], int] = {}
    problems = []
    for place, cell, repetition in zip(places, design.cells.tolist(), table["repetition"].to_list(), strict=True):
        first = seen.setdefault((cell, repetition), place)
        if first != place:
            problems.append(
                f"{word}s {first} and {place} are the same run: {design.cell_name(cell)}, repetition {repetition}; "
                "leave one out, number the repetitions, or name the factor in which they differ"
            )
    return _shortened(problems)


def _fraction_of(design: Design) -> Fraction | None:
    """The measured fraction; None for a full design in which a factor has more than two levels.

    Raises DesignError that names the missing cells if the design is neither full nor a regular fraction.
    """
    two_level = all(len(factor.levels) == 2 for factor in design.factors)
    missing = np.flatnonzero(design.counts == 0)
    if not missing.size:
        return fractions.full(len(design.factors)) if two_level else None
    if two_level and (found := fractions.detect(design.counts > 0)) is not None:
        _check_separable(design, found)
        return found
    kind = "neither the full design nor a regular fraction" if two_level else "not the full design"
    raise DesignError(
        "\n".join(
            [
                f"{missing.size} of {design.counts.size} cells {'is' if missing.size == 1 else 'are'} missing, so this "
                f"is {kind}: measure them, or leave a factor out",
                *_shortened([f"no observation with {design.cell_name(int(cell))}" for cell in missing]),
            ]
        )
    )


def _check_separable(design: Design, fraction: Fraction) -> None:
    """Raise DesignError for a fraction in which two factors always change together."""
    for word in sorted(fraction.relation):
        if word.bit_count() == 2:
            names = [factor.name for number, factor in enumerate(design.factors) if word >> number & 1]
            raise DesignError(
                f"factors {' and '.join(names)} always change together, so their effects are confounded: "
                "leave one out, or vary them separately"
            )


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= _NAMED_MAX + 1:
        return lines
    return [*lines[:_NAMED_MAX], f"… and {len(lines) - _NAMED_MAX} more"]


def _replication_notes(design: Design) -> tuple[str, ...]:
    fewest, most = design.repetitions
    if fewest == most:
        return ()
    measured = np.flatnonzero(design.counts)
    fewer = [design.cell_name(int(cell)) for cell in measured if design.counts[cell] < most]
    named = "; ".join(fewer[:_NAMED_MAX]) + ("; …" if len(fewer) > _NAMED_MAX else "")
    return (
        f"Cells were measured {fewest} to {most} times (fewer than {most}: {named}). Every cell counts the same (means "
        "are unweighted). A sum of squares is the increase of the error without the term. Shares of the variation "
        "refer to the sum of all parts, not to the observations' total.",
    )
