"""Groups the rows of a table into configurations, with one model for each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import polars as pl

from knee.data.measurements import constant_in_words, label_of
from knee.errors import FitError
from knee.fit.curve import CONNECTIONS, WORKERS, Curve, curve_of, knows_connections
from knee.fit.scenario import CLIENTS, PIPELINE, THINK, Setting
from knee.laws.foreign import ALL
from knee.spec.tables import factor_names, names_of_one_value

_NEAR = 0.7
"""Least similarity (difflib ratio) of a misspelt name to the name to suggest. load.hosts and load.clients are below
it."""

_OF_NO_CONFIGURATION = ("experiment.", "measure.")
"""Prefixes of settings that describe how Knee measures, not which system it measures."""


def configurations(table: pl.DataFrame, others: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
    """Label and rows of each configuration; each gets its own model. If the table has several request types, only rows
    for all requests together count: the clients of a closed loop wait for all of them. If the table has rows of closed
    and open loops, only the closed ones count.
    """
    closed = table.filter(pl.col("think_ms").is_not_null()) if "think_ms" in table.columns else table
    table = table if closed.is_empty() else closed
    if "request_type" in table.columns and table["request_type"].n_unique() > 1:
        table = table.filter(pl.col("request_type").str.to_lowercase().is_in(list(ALL)))
        if table.is_empty():
            raise FitError("a model needs rows that count all requests together, with request_type all")
    own = own_names(table)
    own |= {"request_type", *(name for name in others if table[name].is_null().all())}
    named = [name for name in others if name not in own]
    if not named:
        return [("", table)]
    return [
        (label_of(dict(zip(named, levels, strict=True))), rows)
        for levels, rows in table.group_by(named, maintain_order=True)
    ]


def own_names(table: pl.DataFrame) -> set[str]:
    """The columns that are inputs of the models, under all their names."""
    return {name for names in settings_known(table) for name in names}


def settings_known(table: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """The settings for which a model predicts any value: (name in a table, name in the experiment file) pairs."""
    return (CLIENTS, WORKERS, THINK, PIPELINE, *([CONNECTIONS] if knows_connections(table) else []))


def curve_of_configuration(
    rows: pl.DataFrame, apart: Sequence[str], groups: Sequence[tuple[str, pl.DataFrame]]
) -> Curve:
    """The curve of one of the configurations `groups`, which differ in the factors `apart`.

    Raises FitError that names the missing data. If another configuration has a curve, the message says how to choose
    it.
    """
    try:
        return curve_of(rows)
    except FitError as error:
        others = f"; or choose another with --set {' '.join(f'{name}=…' for name in apart)}"
        raise FitError(f"{error}{others if any(_has_curve(other) for _, other in groups) else ''}") from None


def _has_curve(rows: pl.DataFrame) -> bool:
    try:
        curve_of(rows)
    except FitError:
        return False
    return True


def rows_of_most_slots(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the most worker slots and the most connections, if these were factors."""
    for names in (WORKERS, CONNECTIONS):
        name = next((name for name in names if name in rows.columns and rows[name].dtype.is_numeric()), None)
        if name is not None and rows[name].n_unique() > 1:
            rows = rows.filter(pl.col(name) == pl.col(name).max())
    return rows


def rows_at(
    table: pl.DataFrame, name: str, level: Setting, configuration: Sequence[str], constant: Mapping[str, object]
) -> pl.DataFrame:
    """The rows with one measured level of a factor. No model predicts other levels of it.

    Raises FitError for an unknown name, and for a level that was not measured.
    """
    if name not in configuration:
        # A dotted name comes from the experiment file: suggest names from there.
        which = 1 if "." in name else 0
        known = [*(names[which] for names in settings_known(table)), *configuration]
        one_value = names_of_one_value()
        if name in constant:
            if _is_level(level, constant[name]):
                return table
            raise FitError(
                f"{constant_in_words(name, constant[name])}, and no model predicts other values: measure this value, "
                f"or set one of {', '.join(known)}"
            )
        if name in table.columns or (name in one_value and name.startswith(_OF_NO_CONFIGURATION)):
            raise FitError(f"{name} is the same in all configurations: set one of {', '.join(known)}")
        if name in (*factor_names(), *one_value):
            raise FitError(f"{name}: not in these measurements: expected one of {', '.join(known)}")
        near = difflib.get_close_matches(name, [*known, *constant], n=1, cutoff=_NEAR)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
        raise FitError(f"{name}: no such setting: {hint}")
    rows = table.filter(pl.Series([_is_level(level, value) for value in table[name]]))
    if rows.is_empty():
        levels = ", ".join(map(_level_in_words, table[name].unique().sort().to_list()))
        raise FitError(f"{name} = {level} was not measured, and no model predicts it: the measured levels are {levels}")
    return rows


def _is_level(asked: Setting, measured: object) -> bool:
    """Whether both are the same level: 2, 2.0 and the text "2" are equal."""
    return measured == asked or _level_in_words(measured) == str(asked)


def _level_in_words(level: object) -> str:
    """The level as :func:`knee.data.measurements.label_of` writes it."""
    return "none" if level is None else str(level)
