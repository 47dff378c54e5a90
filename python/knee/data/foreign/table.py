"""Reads a CSV, JSON or Parquet with Knee's columns (docs/your-measurements.md), or with others of a known meaning."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from knee.data import csv
from knee.data.foreign.aliases import UNITS, Meaning, meaning_of, share_of, times_in_order
from knee.data.foreign.result import Result
from knee.data.measurements import ROUNDING, columns_in_words, configuration, label_of, nearest_in_words
from knee.errors import MeasurementsError

_FACTORS = ("throughput", "response_ms")
_COUNTS = ("requests", "errors")
"""A column of this name that has no number may be a setting."""
_LEVELS_SET = 3
"""An unknown column with more levels that rarely repeat is no setting."""
_MISSING = frozenset({"nan", "n/a", "na", "-", "null", "none"})
"""Cells without a value, in lower case, of a column of numbers."""
_PARQUET = b"PAR1"


def text_of(path: Path) -> str:
    """The text of a file; that of a Parquet file is JSON lines. Raises MeasurementsError if it cannot be read."""
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
        if is_parquet:
            return "".join(json.dumps(row, default=str) + "\n" for row in pl.read_parquet(path).iter_rows(named=True))
    except OSError as error:
        raise MeasurementsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise MeasurementsError(f"{path}: not a whole Parquet file: {reason}; write it again") from error
    return csv.text_of(path)


def table(
    text: str, source: str, renames: Sequence[str] = (), ignored: Sequence[str] = ()
) -> tuple[list[Result], list[str]]:
    """The results in a table, one per row, and the assumptions about its columns.

    `renames` are `theirs=ours` or `ours=theirs`, where `ours` is a name with a known meaning. Columns in `ignored` are
    not read.

    Raises
        MeasurementsError for a table without throughputs, or with wrong cells.
    """
    header, rows = _records(text, source) if text.lstrip()[:1] in ("[", "{") else csv.cells_of(text, source)
    for name in ignored:
        if name not in header:
            raise MeasurementsError(f"--ignore: {source} has no column {name}: {nearest_in_words(name, header)}")
    # The index of a data frame has no name.
    theirs = [name for place, name in enumerate(header) if name not in ignored and (name or place)]
    names = csv.renamed(theirs, [_in_order(each, theirs) for each in renames], source)
    places = {name: header.index(own) for name, own in zip(names, theirs, strict=True)}
    columns = {name: [cells[place] for _, cells in rows] for name, place in places.items()}
    meanings = {
        name: meaning
        for name, cells in columns.items()
        if (meaning := meaning_of(name)) is not None and (meaning.name not in _COUNTS or _has_number(cells))
    }
    chosen = _chosen(meanings, source)
    if (rate := chosen.get("rate", "")) and meanings[rate].place >= 0:
        # Some tools write 0 for a load without a rate.
        columns[rate] = ["" if csv.decimal_of(cell) == 0 else cell for cell in columns[rate]]
        if not any(columns[rate]):
            del chosen["rate"]
    if "throughput" not in chosen:
        raise MeasurementsError(
            f"{source}: no column of the throughput: {columns_in_words(theirs)}; "
            "name it with --map COLUMN=throughput, or the tool that wrote the file with --from"
        )
    units, notes = _units(chosen, meanings, columns)
    factors = _settings(columns, meanings, chosen)
    kept = {ours: _in_unit(ours, columns[name], units.get(ours)) for ours, name in chosen.items()}
    for ours in _COUNTS:
        if fractions := [
            cell for cell in kept.get(ours, ()) if (value := csv.decimal_of(cell)) is not None and value % 1
        ]:
            raise MeasurementsError(
                f"{source}: column {chosen[ours]}: {fractions[0]} is no number of {ours}; "
                f"leave a share out with --ignore {chosen[ours]}"
            )
    kept |= {name: columns[name] for name in factors}
    lines = [line for line, _ in rows]
    try:
        found = csv.of_cells(list(kept), list(zip(lines, zip(*kept.values(), strict=True), strict=True)), source)
    except MeasurementsError as error:
        own = re.sub(r"column (\w+):", lambda match: f"column {chosen.get(match[1], match[1])}:", str(error))
        raise MeasurementsError(own) from None
    guesses = {ours: name for ours, name in chosen.items() if ours != name}
    if guesses:
        listed = ", ".join(f"{name} is {ours}" for ours, name in guesses.items())
        notes.insert(0, f"{listed}; --map COLUMN=NAME and --ignore COLUMN override it")
    if factors:
        notes.append(f"factors: {', '.join(factors)}")
    if unused := [name for name in columns if name not in (*chosen.values(), *factors)]:
        notes.append(f"not used: {', '.join(unused)}")
    # Factors that determine the clients distinguish no systems.
    apart = {*configuration(found), "request_type"} - {"clients", "rate", "pipeline"}
    labels = [name for name in found.factors if name in apart]
    column = chosen.get("response_ms", "")
    measured = found.table.filter(pl.col("throughput").is_not_null())
    return [_result(row, labels, column, units) for row in measured.iter_rows(named=True)], notes


def _in_order(rename: str, header: Sequence[str]) -> str:
    """A rename as `theirs=ours`; `ours=theirs` is taken if only its left side has a meaning."""
    left, _, right = (part.strip() for part in rename.partition("="))
    return f"{right}={left}" if left not in header and meaning_of(left) and not meaning_of(right) else rename


def _result(row: Mapping[str, Any], labels: Sequence[str], column: str, units: Mapping[str, str]) -> Result:
    shares = {name: share for name in row if (share := share_of(name)) is not None and row[name] is not None}
    requests, duration_s = row.get("requests"), row.get("duration_s")
    if requests is None and duration_s:
        requests = row["throughput"] * duration_s
    return Result(
        "table",
        row["throughput"],
        row.get("response_ms"),
        operation=label_of({name: row[name] for name in labels}),
        clients=row["clients"] * row.get("pipeline", 1) if row.get("clients") else None,
        percentiles_ms={share: row[name] for name, share in shares.items()},
        max_ms=row.get("max_ms"),
        duration_s=duration_s,
        requests=None if requests is None else round(requests),
        errors=round(row.get("errors") or 0),
        rate=row.get("rate"),
        is_open=row["think_ms"] is None,
        rest_ms=row["think_ms"],
        rounding=sum((row.get(name + ROUNDING) or 0.0) / (row.get(name) or 1e-9) for name in _FACTORS),
        column=column,
        unit=units.get("response_ms", ""),
    )


def _records(text: str, source: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The columns and rows of a JSON list of objects, an object with such a list, or an object on each line. Names of
    nested entries have a point between their parts."""
    try:
        try:
            whole = json.loads(text)
        except ValueError:
            # Of several lines, each is whole.
            records = [(line, json.loads(each)) for line, each in enumerate(text.splitlines(), 1) if each.strip()]
            if len(records) < 2:
                raise
        else:
            if isinstance(whole, dict):
                lists = (each for each in whole.values() if isinstance(each, list) and each)
                rows: list[dict[str, Any]] = next(
                    (each for each in lists if all(isinstance(row, dict) for row in each)), [{}]
                )
                about = {name: value for name, value in whole.items() if not isinstance(value, list)}
                whole = [{**about, **row} for row in rows]
            records = list(enumerate(whole, 1))
    except (ValueError, RecursionError) as error:
        raise MeasurementsError(f"{source}: not whole JSON: {error}; write it again") from None
    flat = [(number, _flat(record)) for number, record in records if record]
    header = list(dict.fromkeys(name for _, row in flat for name in row))
    if not header or "" in header:
        raise MeasurementsError(f"{source}: no rows: expected a list of objects, or an object on each line")
    return header, [(number, [_cell(row.get(name)) for name in header]) for number, row in flat]


def _flat(record: Any, before: str = "") -> dict[str, Any]:
    if not isinstance(record, dict):
        return {before: record}
    parts = [_flat(value, f"{before}.{name}" if before else str(name)) for name, value in record.items()]
    return {name: value for part in parts for name, value in part.items()}


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _has_number(cells: Sequence[str]) -> bool:
    """Whether a cell has a number, or all are empty."""
    return not any(cells) or any(csv.decimal_of(cell) is not None for cell in cells)


def _chosen(meanings: Mapping[str, Meaning], source: str) -> dict[str, str]:
    """For each of Knee's columns that the table has, the table's name of it."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name, meaning in meanings.items():
        # Numbers of repetitions in other tables do not distinguish rows.
        if meaning.name and (meaning.name != "repetition" or meaning.place < 0):
            found.setdefault(meaning.name, []).append((meaning.place, name))
    for ours, named in found.items():
        best = [name for place, name in named if place == min(named)[0]]
        if len(best) > 1:
            raise MeasurementsError(
                f"{source}: {best[0]} and {best[1]} both read as {ours}: leave one out with --ignore {best[1]}, "
                f"or choose with --map {best[0]}={ours}"
            )
    return {ours: min(named)[1] for ours, named in found.items()}


def _settings(
    columns: Mapping[str, list[str]], meanings: Mapping[str, Meaning], chosen: Mapping[str, str]
) -> list[str]:
    """Unknown columns that may be factors: not those with different values in most rows, such as times of day, if the
    load or another column varies, and not those with empty cells."""
    unknown = [name for name in columns if name not in meanings or _may_be_setting(columns[name], meanings[name])]
    unknown = [name for name in unknown if name not in chosen.values() and all(columns[name])]
    levels = {name: len(set(columns[name])) for name in unknown}
    rows = len(next(iter(columns.values())))
    repeated = [name for name in unknown if levels[name] <= max(_LEVELS_SET, rows / 2)]
    varied = [levels[name] for name in repeated]
    varied += [len(set(columns[chosen[ours]])) for ours in ("clients", "rate") if ours in chosen]
    return repeated if any(count > 1 for count in varied) else unknown


def _may_be_setting(cells: Sequence[str], meaning: Meaning) -> bool:
    """Whether a column that has a meaning, but is not chosen for it, may still be a factor: threads beside clients, or
    runs with names."""
    return meaning.name == "clients" or (meaning.name == "repetition" and not all(cell.isdigit() for cell in cells))


def _units(
    chosen: Mapping[str, str], meanings: Mapping[str, Meaning], columns: Mapping[str, list[str]]
) -> tuple[dict[str, str], list[str]]:
    """The units of the chosen columns of times, and notes on those that are not in the columns' names."""
    units = {ours: meanings[name].unit for ours, name in chosen.items() if meanings[name].is_time}
    times = times_in_order(chosen)
    bare = [ours for ours in times if units[ours] is None]
    usual, how = next((unit for ours in times if (unit := units[ours])), None), "like the other response times"
    if bare and usual is None:
        usual, how = _unit_by_law(columns, chosen, units, times[0]), "by N = X · R"
    if usual is None:
        usual, how = "ms", "as N = X · R cannot show it"
    notes = []
    if bare:
        first = chosen[bare[0]]
        named = ", ".join(chosen[ours] for ours in bare)
        notes.append(f"{named}: no unit, read in {usual} {how}; --map {first}={first}_s or the like overrides it")
    given = {"duration_s": "s"}
    return {ours: unit or given.get(ours, usual) for ours, unit in units.items()}, notes


def _unit_by_law(
    columns: Mapping[str, list[str]], chosen: Mapping[str, str], units: Mapping[str, str | None], ours: str
) -> str | None:
    """The unit with which X · R is nearest to N - X · Z; None if the table has no closed loop, or Z has no unit."""
    names = [chosen.get(name) for name in ("clients", "throughput", ours)]
    thinks, unit = chosen.get("think_ms"), units.get("think_ms")
    if "rate" in chosen or None in names or (thinks and unit is None):
        return None
    rests = columns[thinks] if thinks else ["0"] * len(columns[chosen["throughput"]])
    power = 0 if unit is None else UNITS[unit] - UNITS["s"]
    ratios = []
    for *cells, rest in zip(*(columns[name] for name in names if name is not None), rests, strict=True):
        clients, throughput, time = map(csv.decimal_of, cells)
        thinking_s = csv.decimal_of(rest)
        if clients is None or throughput is None or not time or thinking_s is None:
            continue
        waiting = clients - throughput * thinking_s.scaleb(power)
        if min(waiting, throughput, time) > 0:
            ratios.append(math.log10(throughput * time / waiting))
    if not ratios:
        return None
    return min(UNITS, key=lambda unit: abs(median(ratios) + UNITS[unit] - UNITS["s"]))


def _in_unit(ours: str, cells: list[str], unit: str | None) -> list[str]:
    """The cells of a column of times in the unit of Knee's column; their digits show the rounding as before."""
    if ours != "request_type":
        cells = ["" if cell.lower() in _MISSING else cell for cell in cells]
    power = 0 if unit is None else UNITS[unit] - UNITS["s" if ours == "duration_s" else "ms"]
    return [
        str(value.scaleb(power)) if power and (value := csv.decimal_of(cell)) is not None else cell for cell in cells
    ]
