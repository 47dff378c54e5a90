"""Reading an experiment file, and naming every problem in it by its line."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from knee.errors import SpecError
from knee.spec.checks import cross_checks
from knee.spec.expectations import depth, expectation, nearest
from knee.spec.foreign import NOT_MEASURED
from knee.spec.positions import Path, positions
from knee.spec.tables import (
    AUTO,
    CLIENTS,
    OF_SYSTEM,
    TIERS,
    Configuration,
    Experiment,
    Level,
    Measure,
    Spec,
    Table,
    Thresholds,
    factor_names,
    field_path,
    names_of_one_value,
    put,
)
from knee.spec.template import words_of

_T = TypeVar("_T", bound=Table)

_NOT_TOML = (ValueError, RecursionError)
"""Exceptions of tomllib: its own error, a ValueError for a very long number, a RecursionError for deep nesting."""

_PROTOCOL = "workload.protocol"
_COMMANDS = ("load.command", "system.command")
_OF_ONE_GENERATOR = "cannot mix knee-load and others, which measure other things; make an experiment for each"
_OF_ONE_PROTOCOL = "cannot be replaced: the rest of the file depends on it; make an experiment for each protocol"

_NAME = re.compile(r"[\w.\"'-]+")

_TAKEN_AS_TEXT = (
    " (not TOML, so taken as text; put double quotes around each text in a list, and single quotes around all: "
    """--set 'store.kind=["sqlite", "null"]')"""
)

GRID_POINTS_MAX = 10_000
"""A grid larger than this is a mistake in the file, not an experiment."""


def load(file: FilePath, overrides: Sequence[str] = ()) -> Spec:
    """Read an experiment file, and replace values by `name=value` overrides.

    Raises SpecError that names every problem.
    """
    return parse(read(file), str(file), parse_overrides(overrides))


def read(file: FilePath) -> str:
    """The text of an experiment file, byte for byte. Raises SpecError."""
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SpecError(f"{file}: cannot be read: {reason}") from error


def parse(text: str, source: str, overrides: Mapping[str, Any] | None = None) -> Spec:
    """Validate the text of an experiment file; `source` names it in messages."""
    try:
        document = tomllib.loads(text)
    except _NOT_TOML as error:
        raise SpecError(f"{source}: not valid TOML: {error}") from error
    overrides = dict(overrides or {})
    return _Reader(document, positions(text), source, overrides).read()


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """Read `--set name=value` arguments; a value that is not TOML counts as text.

    Raises SpecError for an argument without a name or an equals sign. The message does not repeat the argument, because
    it may contain a password.
    """
    assignments = list(assignments)
    overrides: dict[str, Any] = {}
    for number, assignment in enumerate(assignments, start=1):
        name, equals, value = assignment.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            which = f" (number {number} of {len(assignments)})" if len(assignments) > 1 else ""
            raise SpecError(f"--set{which}: expected NAME=VALUE, for example measure.seconds=5")
        try:
            overrides[name.strip()] = tomllib.loads(f"v = {value}")["v"]
        except _NOT_TOML:
            overrides[name.strip()] = value.strip()
    return overrides


class _Reader:
    """Converts a document to a Spec, and collects all problems."""

    def __init__(
        self, document: dict[str, Any], lines: dict[Path, int], source: str, overrides: dict[str, Any]
    ) -> None:
        self._document = document
        self._lines = lines
        self._source = source
        self._overrides = overrides
        self._set_by: dict[Path, str] = {}
        self._taken_as_text: set[str] = set()
        """Overrides that look like TOML but are not."""
        self._problems: dict[str, int] = {}
        """The text of each problem, with its line in the file; 0 without a line."""

    def read(self) -> Spec:
        self._check_tables()
        self._stop_on_problems()
        self._apply_overrides()
        self._stop_on_problems()
        auto = self._replace_auto()
        factors = self._read_factors()
        experiment = self._validate(Experiment, ("experiment",), required=True)
        measure = self._validate(Measure, ("measure",))
        thresholds = self._validate(Thresholds, ("thresholds",))
        base = self._read_configuration(factors)
        is_foreign = base is not None and base.system.load.is_foreign
        if measure is not None and not is_foreign and (misfit := _trims_all(measure)) is not None:
            self._problem(("measure", "seconds"), misfit)
        if thresholds is not None and base is not None:
            for name, misfit in _unmeasured(base, factors):
                if name in thresholds.given:
                    self._problem(("thresholds", name), misfit)
        if measure is not None and base is not None and measure.hosts == "emulated":
            for name, tier in (("middleware", base.system.middleware), ("store", base.system.store)):
                if tier is not None and tier.address is not None:
                    self._problem(("system", name, "address"), "cannot be reached from emulated hosts (measure.hosts)")
        if measure is not None and base is not None and measure.ramp and (misfit := _no_ramp(base, factors)):
            self._problem(("measure", "ramp"), misfit)
        if auto and base is not None and (base.workload.rate is not None or "workload.rate" in factors):
            self._problem(auto, 'cannot be "auto" with workload.rate: an open loop has no knee; list the clients')
        for name in NOT_MEASURED if is_foreign else ():
            # A shorter `seconds` of the command line changes warm-up and cool-down, too.
            is_given = (path := ("measure", name)) in self._lines or path in self._set_by
            if measure is not None and is_given and getattr(measure, name) not in (0, "local"):
                self._problem(path, "does not apply to load.command: it measures its whole run, on this machine")
        self._stop_on_problems()
        assert experiment is not None and measure is not None and base is not None and thresholds is not None
        return Spec(
            experiment=experiment,
            base=base,
            factors=factors,
            measure=measure,
            thresholds=thresholds,
            overrides=self._overrides,
            is_auto=auto is not None,
        )

    def _check_tables(self) -> None:
        tables = ["experiment", "system", "workload", "factors", "measure", "thresholds"]
        for name, value in self._document.items():
            if name not in tables:
                self._problem((name,), "no such table" + nearest(name, tables))
            elif not isinstance(value, dict):
                self._problem((name,), "should be a table")
        if "system" not in self._document:
            self._problem(("system",), "missing: a table with the tiers load and store")
        workload = self._document.get("workload")
        if isinstance(workload, dict) and not isinstance(workload.get("graph", {}), dict):
            self._problem(("workload", "graph"), "should be a table")
        system = self._document.get("system")
        for name, tier in system.items() if isinstance(system, dict) else ():
            if name in TIERS and not isinstance(tier, dict):
                self._problem(("system", name), "should be a table")

    def _apply_overrides(self) -> None:
        """Replace values of the document by the overrides.

        A list makes the name a factor. A single value fixes it, even if the file has a factor. If an
        override makes `measure.seconds` shorter, warm-up and cool-down shrink in proportion, rounded up to whole
        seconds, unless an override sets these.
        """
        factors = self._document.setdefault("factors", {})
        measure = self._document.setdefault("measure", {})
        usual = Measure()
        seconds_in_file = measure.get("seconds", usual.seconds)
        known = [*factor_names(), *(name for name in names_of_one_value() if name != _PROTOCOL)]
        for name, value in self._overrides.items():
            path = field_path(_short(name.removeprefix("factors.")))
            short = _short(".".join(path))
            flag = f"--set {name}"
            if short == _PROTOCOL:
                self._problems.setdefault(f"{flag}: {_OF_ONE_PROTOCOL}", 0)
            elif short not in known:
                hint = nearest(short, known) or "; a name is for example measure.seconds"
                self._problems.setdefault(f"{flag}: no such name{hint}", 0)
            elif isinstance(value, list) and path[-1] not in ("address", "watch"):
                factors[short] = value
                self._set_by[("factors", short)] = flag
            else:
                factors.pop(short, None)
                put(self._document, path, value)
                self._set_by[path] = flag
                if isinstance(value, str) and value.startswith(("[", "{", '"')):
                    self._taken_as_text.add(flag)
        seconds = self._overrides.get("measure.seconds")
        if type(seconds) is int and type(seconds_in_file) is int and 0 < seconds < seconds_in_file:
            for name, default in (("warmup_s", usual.warmup_s), ("cooldown_s", usual.cooldown_s)):
                in_file = measure.get(name, default)
                if f"measure.{name}" not in self._overrides and type(in_file) is int:
                    measure[name] = math.ceil(in_file * seconds / seconds_in_file)

    def _replace_auto(self) -> Path | None:
        """Replace the clients "auto" by the fewest that every number of load hosts divides, or of the threads of
        another load generator. Returns their place."""
        factors, load = self._document["factors"], self._tier("load")
        if factors.get(CLIENTS, load.get("clients")) != AUTO:
            return None
        place: Path = ("factors", CLIENTS) if CLIENTS in factors else field_path(CLIENTS)
        is_foreign = load.get("kind") in ("wrk", "redis-benchmark") or "script" in load
        parts = "threads" if is_foreign else "hosts"
        counts = factors.get(f"load.{parts}", [load.get(parts, 1)])
        whole = [each for each in counts if type(each) is int and each > 0] if isinstance(counts, list) else []
        factors[CLIENTS] = [math.lcm(*whole)]
        return place

    def _read_factors(self) -> dict[str, tuple[Level, ...]]:
        factors: dict[str, tuple[Level, ...]] = {}
        names = factor_names()
        for name, levels in self._document.get("factors", {}).items():
            path: Path = ("factors", name)
            if isinstance(levels, dict):
                self._problem(path, f'a factor\'s name needs quotes: "{name}.…" = […]')
            elif name in names_of_one_value():
                self._problem(path, "cannot vary: it has one value for all points; make an experiment for each")
            elif name not in names:
                self._problem(path, "no such factor" + nearest(name, names))
            elif not isinstance(levels, list) or not levels:
                self._problem(path, f"should be a list of at least one level, not {levels!r}")
            elif not all(isinstance(level, Level) for level in levels):
                self._problem(path, "should be a list of plain values")
            elif len({(type(level), _compared(name, level)) for level in levels}) < len(levels):
                self._problem(path, f"should have different levels, not {levels!r}")
            elif "address" in self._tier(name.split(".")[0]):
                self._problem(path, "cannot vary: this tier already runs elsewhere (address = …)")
            elif name == "workload.backlog" and len(levels) > 1 and "address" in self._tier("middleware"):
                self._problem(
                    path, "cannot vary: middlewares that run elsewhere (address = …) keep the backlog of every run"
                )
            else:
                factors[name] = tuple(levels)
        if math.prod(len(levels) for levels in factors.values()) > GRID_POINTS_MAX:
            self._problem(("factors",), f"should make at most {GRID_POINTS_MAX} points")
            self._stop_on_problems()
        return factors

    def _tier(self, name: str) -> dict[str, Any]:
        tier = self._document.get("system", {}).get(name, {})
        return tier if isinstance(tier, dict) else {}

    def _read_configuration(self, factors: dict[str, tuple[Level, ...]]) -> Configuration | None:
        """Validate the first point, then each further level, then the checks across several fields.

        This order reports a wrong level once, at its own line, instead of once per point.
        """
        names = list(factors)
        first = {name: levels[0] for name, levels in factors.items()}
        before = len(self._problems)
        base = self._configuration(first, dict.fromkeys(names, 0))
        for name, levels in factors.items():
            for index, level in enumerate(levels[1:], start=1):
                self._configuration({**first, name: level}, {name: index})
        if base is None or len(self._problems) > before:
            return None
        for indices in product(*(range(len(factors[name])) for name in names)):
            levels_here = {n: factors[n][i] for n, i in zip(names, indices, strict=True)}
            point = self._configuration(levels_here, {})
            assert point is not None
            if point.system.load.is_foreign != base.system.load.is_foreign:
                self._problem(("factors", "load.kind"), _OF_ONE_GENERATOR)
            at = dict(zip(names, indices, strict=True))
            for path, message in cross_checks(point):
                self._problem(self._origin(path, at), message)
        return base

    def _configuration(self, levels: Mapping[str, Level], blamed: Mapping[str, int]) -> Configuration | None:
        """Validate one point. A problem in the field of a `blamed` factor gets the line of the factor's level."""
        document = {
            "system": {
                name: dict(tier) if isinstance(tier, dict) else tier for name, tier in self._document["system"].items()
            },
            "workload": dict(self._document.get("workload", {})),
        }
        for name, level in levels.items():
            put(document, field_path(name), level)
        try:
            return Configuration.model_validate(document)
        except ValidationError as error:
            self._report(error, (), blamed, Configuration)
            return None

    def _origin(self, path: Path, levels: Mapping[str, int]) -> Path:
        """The place to blame for a field's value: the factor's level, or the field itself."""
        for name, index in levels.items():
            if path == field_path(name):
                return ("factors", name, index)
        return path

    def _validate(self, table: type[_T], path: tuple[str, ...], required: bool = False) -> _T | None:
        if required and path[0] not in self._document:
            self._problem(path, "missing: a table with " + ", ".join(table.model_fields))
            return None
        try:
            return table.model_validate(self._document.get(path[0], {}))
        except ValidationError as error:
            self._report(error, path, {}, table)
            return None

    def _report(self, error: ValidationError, prefix: Path, blamed: Mapping[str, int], table: type[BaseModel]) -> None:
        seen = set()
        for detail in error.errors(include_url=False):
            loc: Path = (*prefix, *detail["loc"][: depth(detail["loc"], prefix)])
            # Each alternative of a union reports; together they are one problem.
            if loc in seen:
                continue
            seen.add(loc)
            self._problem(self._origin(loc, blamed), expectation(dict(detail), table))

    def _problem(self, path: Path, message: str) -> None:
        where, line = self._where(path)
        name = _short(".".join(part for part in path if not isinstance(part, int)).removeprefix("factors."))
        place = where if where == f"--set {name}" else f"{where}: {name}"
        hint = _TAKEN_AS_TEXT if where in self._taken_as_text else ""
        self._problems.setdefault(f"{place}: {message}{hint}", line)

    def _where(self, path: Path) -> tuple[str, int]:
        for length in range(len(path), 0, -1):
            if flag := self._set_by.get(path[:length]):
                return flag, 0
            if line := self._lines.get(path[:length]):
                return f"{self._source}:{line}", line
        return self._source, 0

    def _stop_on_problems(self) -> None:
        """Raise for all problems, in the order of their lines."""
        if self._problems:
            raise SpecError("\n".join(sorted(self._problems, key=self._problems.__getitem__)))


def _compared(name: str, level: Level) -> Level | tuple[str, ...]:
    """A level without the white space between the words of a command, which changes no run."""
    if name in _COMMANDS and isinstance(level, str):
        with suppress(SpecError):
            return words_of(level)
    return level


def _short(name: str) -> str:
    """A name without the `system` before its tier."""
    short = name.removeprefix("system.")
    return name if short in OF_SYSTEM else short


def _trims_all(measure: Measure) -> str | None:
    """The problem and remedy if warm-up and cool-down cover the whole measurement; None otherwise."""
    trimmed = {"warmup_s": measure.warmup_s, "cooldown_s": measure.cooldown_s}
    if sum(trimmed.values()) < measure.seconds:
        return None
    given = " and ".join(
        f"{name} ({value}{'' if name in measure.model_fields_set else ' by default'})"
        for name, value in trimmed.items()
    )
    half = (measure.seconds - 1) // 2
    shorter = " and ".join(f"{name} = {min(value, half)}" for name, value in trimmed.items())
    return (
        f"should be more than {given} together, not {measure.seconds}, which leaves no time to measure; "
        f"give {shorter}, or at least seconds = {sum(trimmed.values()) + 1}"
    )


def _unmeasured(base: Configuration, factors: Mapping[str, Sequence[Level]]) -> Iterator[tuple[str, str]]:
    """The thresholds that no point can meet or miss, and why."""
    if base.system.middleware is None:
        yield from ((name, "needs a middleware, which measures it") for name in ("queueing_ms", "service_ms"))
    if base.workload.rate is None and "workload.rate" not in factors:
        yield "completed_share", "needs an open loop: give workload.rate"


def _no_ramp(base: Configuration, factors: Mapping[str, Sequence[Level]]) -> str | None:
    """Why the clients cannot join in steps; None if they can."""
    if base.system.load.is_foreign:
        return "does not apply to load.command: it begins all clients at once"
    clients = list(factors.get(CLIENTS, ()))
    if len(clients) < 2 or clients != [clients[0] * number for number in range(1, len(clients) + 1)]:
        return f"needs the factor {CLIENTS} with equal steps, such as [10, 20, 30]"
    if base.workload.rate is not None or "workload.rate" in factors:
        return "cannot be given together with workload.rate: an open loop has a rate in place of clients"
    if "pgbench" in (base.system.load.kind, *factors.get("load.kind", ())):
        return 'does not apply to kind = "pgbench": all its clients begin at once'
    return None
