"""Reads measurements from a CSV.

A CSV has a header and a row per observation. Known columns have fixed names and units (KNOWN); every other column is a
factor. `--map theirs=ours` renames a column. `notes` lists every assumption.
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

import polars as pl

from knee.data import is_run_folder
from knee.data.measurements import (
    RESPONSES,
    ROUNDING,
    Measurements,
    columns_in_words,
    is_known,
    left_out,
    nearest_in_words,
    station_column,
)
from knee.errors import MeasurementsError
from knee.stats.intervals import counted, listed

ROWS_MAX = 1_000_000

_LEVELS_SET = 4
"""A column of fractions with this many levels that rarely repeat is a measurement. Settings with fractions, such as
Zipf exponents, have fewer levels or repeat."""

_TEXT = frozenset({"request_type"})
_WHOLE = frozenset({"repetition", "clients", "pipeline"})
_GIVEN = frozenset({"repetition", "pipeline"})
"""Columns with a value in every row; `clients` has a value in every row of a closed loop."""
_NUMBER_MAX = 1e15
"""Products of larger values, or of values below the inverse, may overflow; no measurement has such values."""

_WHOLE_MAX = 2**63 - 1
"""Largest value of an integer column, and of `run_order`, which may be a time in nanoseconds; a factor with larger
levels is read as text."""

_EXPONENT_MAX = 100
"""Largest power of ten of a last written digit, in either direction, as in 0e100, and of a number in a unit of its own;
its square is a double."""

_RESERVED = (
    "point",
    "line",
    "clients_connected",
    "completed_share",
    "connections_follow",
    "connections_lost",
    "connections_missing",
    "declared_think_ms",
    "load_total",
    "middleware_total",
    "observed_s",
    "outage_s",
    "outage_share",
    "reconnects",
    "unsteady",
)
"""Columns of a run folder's observations that a file may not have."""

_UTILIZATION_MAX = 1.05
"""Largest utilisation: a value slightly above one is a rounding error, a much larger one a percentage."""

_EXACT = frozenset({"repetition", "run_order", "clients", "pipeline", "rate", "think_ms", "visits", "servers"})
"""Quantities that are settings, not measurements, and so are not rounded."""
_PROBLEMS_MAX = 10
_HEADER_MAX = 100
"""Largest number of characters of a header that an error message quotes: the file may not be a CSV."""
_EXAMPLE = "clients,throughput,response_ms"
_OTHER_SEPARATORS = ((";", "semicolons"), ("\t", "tabs"))


def read(
    path: Path, renames: Sequence[str] = (), *, factors: Sequence[str] = (), responses: Sequence[str] = ()
) -> Measurements:
    """Read a CSV; `renames` are `theirs=ours`. `factors` and `responses` are columns without the meaning of their name:
    levels, and numbers in a unit of their own. With both, the other columns are not read, but for the number and the
    order of the repetitions.

    Raises MeasurementsError that lists the problems with their lines, at most _PROBLEMS_MAX of them.
    """
    if path.suffix == ".toml" and path.is_file():
        if is_run_folder(path.parent):
            raise MeasurementsError(f"{path}: is the experiment file of a run folder: pass the folder, {path.parent}")
        raise MeasurementsError(
            f"{path}: is an experiment file: measure it with `knee run {path}`, then pass the run folder"
        )
    return parse(text_of(path), str(path), renames, factors=factors, responses=responses)


def parse(
    text: str, source: str, renames: Sequence[str] = (), *, factors: Sequence[str] = (), responses: Sequence[str] = ()
) -> Measurements:
    """Like :func:`read`, from a CSV's text; `source` names it in messages."""
    header, rows = cells_of(text, source)
    names = renamed(header, renames, source)
    if len(names) == 1 and not is_known(names[0]):
        raise _no_csv(names[0], source, _EXAMPLE)
    return of_cells(names, rows, source, factors=factors, responses=responses)


def of_cells(
    names: Sequence[str],
    rows: Sequence[tuple[int, Sequence[str]]],
    source: str,
    *,
    factors: Sequence[str] = (),
    responses: Sequence[str] = (),
) -> Measurements:
    """Like :func:`read`, from the names of the columns, and the cells of each row with its number in the file."""
    for name in (*responses, *factors):
        if name not in names:
            raise MeasurementsError(f"{source}: no column {name}: {nearest_in_words(name, names)}")
    needed = {*factors, *responses, "repetition", "run_order"} if factors and responses else names
    own = [name for name in responses if name not in RESPONSES]
    if not own and not any(name in RESPONSES or station_column(name) for name in names):
        raise MeasurementsError(
            f"{source}: no response: expected a column {' or '.join(RESPONSES[:2])}; {columns_in_words(names)}; "
            "--map theirs=ours renames one, and `knee factorial --response NAME` takes any"
        )
    problems: list[str] = []
    columns = [pl.Series("line", [line for line, _ in rows])]
    for number, name in enumerate(names):
        if name not in needed:
            continue
        cells = [(line, cells[number]) for line, cells in rows]
        earlier = len(problems)
        if name in own:
            columns.append(pl.Series(name, [_own_number(name, *cell, problems) for cell in cells], dtype=pl.Float64))
        else:
            columns.append(_column(name, cells, problems, as_level=name in factors))
        quantity = (station_column(name) or (name, ""))[0]
        measured = name in own or (is_known(name) and name not in factors)
        if measured and quantity not in _TEXT | _EXACT and len(problems) == earlier:
            halves = [_half_digit(cell) for _, cell in cells]
            columns.append(pl.Series(name + ROUNDING, halves, dtype=pl.Float64))
    if problems:
        raise MeasurementsError("\n".join(f"{source}:{problem}" for problem in _shortened(problems)))
    return _measurements(source, pl.DataFrame(columns), factors, own)


def read_effects(path: Path) -> dict[str, dict[str, Decimal]]:
    """Published effects: a CSV with a column `effect` (I, A, B, AB, …) and one column per response.

    An empty cell is an unpublished effect. Decimals keep the number of digits, which shows the rounding. Raises
    MeasurementsError that lists the problems with their lines.
    """
    source = str(path)
    header, rows = cells_of(text_of(path), source, "effect,throughput")
    if "effect" not in header or len(header) < 2:
        raise MeasurementsError(f"{source}: expected a column effect and one per response, not {', '.join(header)}")
    effect = header.index("effect")
    published: dict[str, dict[str, Decimal]] = {name: {} for name in header if name != "effect"}
    problems = []
    for line, cells in rows:
        for name, cell in zip(header, cells, strict=True):
            if name == "effect" or not cell:
                continue
            if cells[effect] in published[name]:
                problems.append(f"{line}: effect {cells[effect]} occurs twice")
                continue
            value = decimal_of(cell)
            if value is None:
                problems.append(f"{line}: column {name}: {cell!r} is not a number{_hint(cell)}")
            elif abs(_exponent(value)) > _EXPONENT_MAX:
                problems.append(f"{line}: column {name}: {cell} is out of range: expected 1e-100 to 1e100")
            else:
                published[name][cells[effect]] = value
    if problems:
        raise MeasurementsError("\n".join(f"{source}:{problem}" for problem in _shortened(problems)))
    return published


def text_of(path: Path) -> str:
    """The text of a file.

    Raises
        MeasurementsError if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise MeasurementsError(f"{path}: cannot be read: {reason}") from error


def cells_of(text: str, source: str, example: str = _EXAMPLE) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and every non-blank row with its line number. All cells are stripped of surrounding white space.
    `example` is a valid header for messages.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if any(cells):
                if not header:
                    header = cells
                elif len(cells) != len(header):
                    if len(header) == 1 and not is_known(header[0]):
                        raise _no_csv(header[0], source, example)
                    raise MeasurementsError(
                        f"{source}:{line}: {counted(len(cells), 'cell')}, but the header has "
                        f"{counted(len(header), 'column')}: {textwrap.shorten(listed(header), _HEADER_MAX)}"
                    )
                else:
                    rows.append((line, cells))
            line = reader.line_num + 1
            if len(rows) > ROWS_MAX:
                raise MeasurementsError(f"{source}: more than {ROWS_MAX:,} rows: average windows to observations first")
    except csv.Error as error:
        raise MeasurementsError(f"{source}:{line}: not a CSV: {error}") from error
    if not header or not rows:
        raise MeasurementsError(f"{source}: expected a header and a row per observation, but found none")
    if len(header) == 1 and any(mark in header[0] for mark, _ in _OTHER_SEPARATORS):
        raise _no_csv(header[0], source, example)
    return header, rows


def _no_csv(header: str, source: str, example: str) -> MeasurementsError:
    """The error for a text with a single cell in its first line that is not a known column."""
    for mark, name in _OTHER_SEPARATORS:
        if mark in header:
            return MeasurementsError(f"{source}: the cells are separated by {name}: expected commas")
    return MeasurementsError(
        f"{source}: does not look like a CSV with a header: expected the names of its columns in the first line, "
        f"separated by commas, such as {example}, and then rows with the same number of cells"
    )


def renamed(header: Sequence[str], renames: Sequence[str], source: str) -> list[str]:
    """The names of the columns after `renames`, which are `theirs=ours`.

    Raises
        MeasurementsError for a missing column, and for two columns of one name.
    """
    if missing := [number for number, name in enumerate(header, 1) if not name]:
        raise MeasurementsError(f"{source}: column {missing[0]} has no name in the header")
    ours: dict[str, str] = {}
    for rename in renames:
        theirs, equals, known = (part.strip() for part in rename.partition("="))
        if not equals or not theirs or not known:
            raise MeasurementsError("--map: expected THEIRS=OURS, for example tps=throughput")
        if theirs not in header:
            raise MeasurementsError(f"--map: {source} has no column {theirs}: {nearest_in_words(theirs, header)}")
        ours[theirs] = known
    names = [ours.get(name, name) for name in header]
    for name in names:
        if name in _RESERVED or name.endswith(ROUNDING):
            raise MeasurementsError(f"{source}: a column cannot be called {name}: rename it with --map")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise MeasurementsError(f"{source}: two columns are called {twice[0]}")
    return names


def _column(name: str, cells: list[tuple[int, str]], problems: list[str], *, as_level: bool) -> pl.Series:
    if name in _TEXT and not as_level:
        return pl.Series(name, [_level_text(name, line, cell, problems) for line, cell in cells], dtype=pl.String)
    if is_known(name) and not as_level:
        numbers = [_known_number(name, line, cell, problems) for line, cell in cells]
        whole = name in _WHOLE or (
            name == "rate" and all(number is None or (number % 1 == 0 and number < _WHOLE_MAX) for number in numbers)
        )
        return pl.Series(name, numbers, dtype=pl.Int64 if whole else pl.Float64, strict=False)
    levels = [_level_text(name, line, cell, problems) for line, cell in cells]
    numbers = [_number(level) for level in levels]
    if any(number is None or abs(number) > _WHOLE_MAX for number in numbers):
        return pl.Series(name, levels, dtype=pl.String)
    whole = all(isinstance(number, int) for number in numbers)
    return pl.Series(name, numbers, dtype=pl.Int64 if whole else pl.Float64, strict=False)


def _level_text(name: str, line: int, cell: str, problems: list[str]) -> str:
    if not cell:
        problems.append(f"{line}: column {name}: no level")
    return cell


def _own_number(name: str, line: int, cell: str, problems: list[str]) -> float | None:
    """The number in a cell of a response in a unit of its own, which may be negative."""
    number = _number(cell)
    if number is None:
        problem = f"{cell!r} is not a number{_hint(cell)}" if cell else "no value"
        problems.append(f"{line}: column {name}: {problem}")
    elif not _is_measurable(cell, 10.0**_EXPONENT_MAX):
        problems.append(f"{line}: column {name}: {cell} is out of range: expected 0, or 1e-100 to 1e100")
    else:
        return float(number)
    return None


def _known_number(name: str, line: int, cell: str, problems: list[str]) -> int | float | None:
    """The number in a cell; None for an empty cell that is allowed."""
    if not cell:
        if name in _GIVEN:
            problems.append(f"{line}: column {name}: no value")
        return None
    number = _number(cell)
    most = _WHOLE_MAX if name == "run_order" else _NUMBER_MAX
    if number is None:
        problems.append(f"{line}: column {name}: {cell!r} is not a number{_hint(cell)}")
    elif number < 0:
        problems.append(f"{line}: column {name}: {cell} is negative")
    elif name.startswith("utilization_") and number > _UTILIZATION_MAX:
        problems.append(f"{line}: column {name}: expected a share from 0 to 1, not {cell}: divide a percentage by 100")
    elif number == 0 and name.startswith("servers_"):
        problems.append(f"{line}: column {name}: expected at least one server")
    elif name in _WHOLE and not (number == int(number) and 1 <= number <= _WHOLE_MAX):
        problems.append(f"{line}: column {name}: expected a whole number from 1, not {cell}")
    elif not _is_measurable(cell, most, 1 / _NUMBER_MAX):
        problems.append(f"{line}: column {name}: {cell} is out of range: expected 0, or 1e-15 to {most:.0e}")
    else:
        return int(number) if name in _WHOLE else float(number)
    return None


def _number(text: str) -> int | float | None:
    """A finite number in plain notation; None otherwise, as for NaN and digits with underscores."""
    if "_" in text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _is_measurable(cell: str, most: float, least: float | None = None) -> bool:
    """Whether a number is 0 or of the size of a measurement, from `least` (by default 1 / `most`) to `most`."""
    value = decimal_of(cell)
    if value is None:
        return False
    return abs(_exponent(value)) <= _EXPONENT_MAX if value == 0 else (least or 1 / most) <= abs(value) <= most


def decimal_of(cell: str) -> Decimal | None:
    """A finite number with its digits; None otherwise, as for exponents that no decimal has."""
    try:
        value = Decimal(cell)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def _exponent(value: Decimal) -> int:
    """The power of ten of a finite number's last written digit."""
    return int(value.as_tuple().exponent)


def _half_digit(cell: str) -> float | None:
    """The largest rounding error of a number: half a unit of its last written digit. None for an empty cell."""
    value = decimal_of(cell)
    return None if value is None else 0.5 * 10.0 ** _exponent(value)


def _hint(cell: str) -> str:
    if cell.endswith("%"):
        return "; write a share from 0 to 1, without a percent sign"
    return "; write decimals with a point, and thousands without a mark" if re.fullmatch(r"[\d.,' ]+", cell) else ""


def _shortened(problems: list[str]) -> list[str]:
    if len(problems) <= _PROBLEMS_MAX:
        return problems
    return [*problems[:_PROBLEMS_MAX], f" and {len(problems) - _PROBLEMS_MAX} more"]


def _measurements(source: str, table: pl.DataFrame, given: Sequence[str], own: Sequence[str]) -> Measurements:
    """`given` are factors, and `own` responses, whatever their names."""
    if problems := _neither_closed_nor_open(table, source):
        raise MeasurementsError("\n".join(_shortened(problems)))
    notes: list[str] = []
    unknown = [name for name in table.columns if name != "line" and _is_level(name, given, own)]
    varied = [name for name in unknown if table[name].n_unique() > 1]
    if constant := {name: table[name][0] for name in unknown if name not in varied}:
        notes.append(left_out(constant))
    measured = [name for name in _measured(table, varied) if name not in given]
    factors = [name for name in varied if name not in measured]
    if measured:
        notes.append(
            f"Knee treats these columns as measurements, not factors: {', '.join(measured)}. They have fractions, "
            "different in most rows. --map NAME=OURS gives one a meaning; `knee factorial --factors NAME` uses it."
        )
    for name in ("rate", "clients", "pipeline", "request_type"):
        if (
            name in table.columns
            and name not in (*factors, *own)
            and table[name].n_unique() > 1
            and not _settled(table, factors, name)
        ):
            factors.append(name)
    factors.sort(key=table.columns.index)
    # With given factors, rows that differ in other columns only are repetitions.
    chosen = given and "repetition" not in table.columns
    table = _with_points(table, [name for name in factors if name in given] if chosen else factors)
    if "repetition" not in table.columns:
        table = table.with_columns(pl.int_range(1, pl.len() + 1).over("point").alias("repetition"))
        if (most := int(table["repetition"].max())) > 1:  # type: ignore[arg-type]
            notes.append(f"No column repetition: rows with the same levels count as repetitions ({most} at most).")
    elif twice := _twice(table, source):
        raise MeasurementsError("\n".join(_shortened(twice)))
    open_loop = pl.col("rate").is_not_null() if "rate" in table.columns else pl.lit(value=False)
    if closed := table.filter(~open_loop).height if "rate" in table.columns else 0:
        notes.append(f"rate is empty in {closed} of {table.height} rows: these count as a closed loop.")
    if "think_ms" not in table.columns:
        table = table.with_columns(pl.when(~open_loop).then(0.0).alias("think_ms"))
        if "clients" in table.columns and table["think_ms"].is_not_null().any():
            notes.append("No column think_ms: Knee assumes no think time, Z = 0.")
    elif "clients" in table.columns and "rate" not in table.columns and (empty := table["think_ms"].null_count()):
        notes.append(f"think_ms is empty in {empty} of {table.height} rows: these count as an open loop.")
    responses = (*own, *(name for name in RESPONSES if name in table.columns and name not in factors))
    found = Measurements(source, table, tuple(factors), responses, tuple(notes), constant)
    return replace(found, notes=(*notes, *_kinds_in_words(found)))


def _kinds_in_words(found: Measurements) -> list[str]:
    """A note on each kind of stations that Knee recognises by their names."""
    named = {
        kind: [name for name in found.stations if found.kind_of(name) == kind] for kind in ("generator", "software")
    }
    words = {"generator": "resources of the load generator", "software": "software"}
    return [
        f"By their names, these stations count as {words[kind]}: {', '.join(names)}."
        for kind, names in named.items()
        if names
    ]


def _is_level(name: str, given: Sequence[str], own: Sequence[str]) -> bool:
    plain = name.removesuffix(ROUNDING)
    return name in given or (plain not in own and not is_known(plain))


def _neither_closed_nor_open(table: pl.DataFrame, source: str) -> list[str]:
    """Problems of rows that fit neither a closed loop (clients and think time) nor an open loop (rate)."""
    opened, clients, thinking = (
        table[name].is_not_null() if name in table.columns else pl.repeat(False, table.height, eager=True)
        for name in ("rate", "clients", "think_ms")
    )
    wrong = opened & thinking
    if "clients" in table.columns or opened.any():
        wrong |= ~opened & ~clients
    if {"rate", "think_ms"} <= set(table.columns):
        wrong |= ~opened & ~thinking
    return [
        f"{source}:{line}: expected clients with a think_ms that may be 0 (a closed loop), or a rate without think_ms "
        "(an open loop)"
        for line in table.filter(wrong)["line"].to_list()
    ]


def _measured(table: pl.DataFrame, varied: Sequence[str]) -> list[str]:
    """Unknown columns that are measurements, not settings: fractions that differ in most rows. None if there are no
    other factors."""
    suspects = [
        name
        for name in varied
        if table[name].dtype == pl.Float64 and table[name].n_unique() >= max(_LEVELS_SET, table.height / 2)
    ]
    others = [name for name in varied if name not in suspects]
    if "clients" in table.columns and table["clients"].n_unique() > 1:
        others.append("clients")
    return suspects if others else []


def _settled(table: pl.DataFrame, factors: Sequence[str], name: str) -> bool:
    """Whether the factors determine a column, such as clients per host, which determines the clients."""
    if not factors:
        return False
    return bool(table.group_by(factors).agg(pl.col(name).n_unique())[name].max() == 1)


def _with_points(table: pl.DataFrame, factors: Iterable[str]) -> pl.DataFrame:
    """Number the combinations of levels from 0, in order of first occurrence in the file."""
    levels = list(factors)
    if not levels:
        return table.with_columns(pl.lit(0, pl.Int64).alias("point"))
    points = table.select(levels).unique(maintain_order=True).with_row_index("point")
    table = table.join(points, on=levels, how="left", maintain_order="left", nulls_equal=True)
    return table.with_columns(pl.col("point").cast(pl.Int64))


def _twice(table: pl.DataFrame, source: str) -> list[str]:
    seen: dict[tuple[int, int], int] = {}
    problems = []
    for point, repetition, line in table.select("point", "repetition", "line").iter_rows():
        first = seen.setdefault((point, repetition), line)
        if first != line:
            problems.append(
                f"{source}:{line}: the same levels and repetition {repetition} as line {first}: remove one, "
                "number the repetitions, or add the factor in which they differ"
            )
    return problems
