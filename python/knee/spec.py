"""The experiment file: what is measured, on what, under which load.

:func:`load` reads the file and the overrides of a command line. Either everything in them is right, at
every point of the grid, or :class:`~knee.errors.SpecError` names each problem: the line (or the override),
the field, what was expected, and the nearest right spelling.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knee.errors import SpecError
from knee.positions import Path, positions

Level = int | float | str | bool
"""One value of a factor."""

GRID_POINTS_MAX = 10_000
"""A grid larger than this is a mistake in the file, not an experiment."""

_TIERS = ("load", "middleware", "store")

_Hosts = Annotated[int, Field(ge=1, le=256)]
_Threads = Annotated[int, Field(ge=1, le=1024)]
_Link = Annotated[float, Field(gt=0, le=1_000_000)]
_Address = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]{1,5}$")]
_Addresses = Annotated[tuple[_Address, ...], Field(strict=False, min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_T = TypeVar("_T", bound=_Table)


class Experiment(_Table):
    """What the run is called and which question it answers."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    question: str = ""


class Load(_Table):
    """The load hosts: one client process each.

    clients   virtual clients over all load hosts, dealt evenly
    threads   OS threads of each client process
    """

    hosts: _Hosts = 1
    threads: _Threads = 1
    clients: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    link_mbit: _Link | None = None


class Middleware(_Table):
    """The middlewares between clients and stores.

    workers   worker slots of each, with one request in flight per slot
    pipelined every thread shares one pipelined connection per store, instead of worker slots
    multiget  a multi-get goes to one store whole, or is sharded over all of them
    address   middlewares that already run elsewhere; the lab starts none
    """

    hosts: _Hosts = 1
    threads: _Threads = 1
    workers: Annotated[int, Field(ge=1, le=65_536)] | None = None
    pipelined: bool = False
    multiget: Literal["whole", "sharded"] = "whole"
    link_mbit: _Link | None = None
    address: _Addresses | None = None


class Store(_Table):
    """The stores, each of which holds every key.

    kind      the embedded server, or Debian's memcached
    address   stores that already run elsewhere; the lab starts none
    """

    hosts: _Hosts = 1
    threads: _Threads = 1
    kind: Literal["knee-kv", "memcached"] = "knee-kv"
    memory_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    link_mbit: _Link | None = None
    address: _Addresses | None = None


class System(_Table):
    """The tiers, from the client inwards."""

    load: Load
    middleware: Middleware | None = None
    store: Store | None = None


class Workload(_Table):
    """What the clients ask for.

    set_get   S:G, S sets for every G retrievals
    multiget  keys per retrieval
    think_ms  mean think time of a closed loop, distributed as `think` says
    rate      requests per second over all load hosts; makes the loop an open one
    populated share of the keys that are set before each point
    """

    protocol: Literal["memcached"] = "memcached"
    set_get: Annotated[str, Field(pattern=r"^[0-9]{1,6}:[0-9]{1,6}$")] = "1:9"
    multiget: Annotated[int, Field(ge=1, le=1000)] = 1
    value_bytes: (
        Annotated[int, Field(ge=1, le=1_000_000)]
        | Annotated[str, Field(pattern=r"^(uniform:[0-9]+:[0-9]+|exponential:[0-9.]+)$")]
    ) = 4096
    keys: Annotated[int, Field(ge=1, le=1_000_000_000)] = 10_000
    populated: Annotated[float, Field(ge=0, le=1)] = 0.99
    key_choice: Annotated[str, Field(pattern=r"^(sequential|uniform|zipf:[0-9.]+|hotset:[0-9.]+:[0-9.]+)$")] = "uniform"
    think_ms: Annotated[float, Field(ge=0, le=3_600_000)] = 0.0
    think: Literal["constant", "exponential"] = "constant"
    rate: Annotated[float, Field(gt=0, le=1e9)] | None = None
    arrivals: Literal["constant", "poisson"] = "poisson"
    pipeline: Annotated[int, Field(ge=1, le=1024)] = 1
    verify: bool = False


class Measure(_Table):
    """How long and how often.

    warmup_s, cooldown_s   trimmed on read; everything is recorded
    seed                   of the run order and of the clients; drawn and recorded when not given
    """

    repetitions: Annotated[int, Field(ge=1, le=100)] = 3
    seconds: Annotated[int, Field(ge=1, le=86_400)] = 70
    warmup_s: Annotated[int, Field(ge=0, le=86_400)] = 5
    cooldown_s: Annotated[int, Field(ge=0, le=86_400)] = 5
    order: Literal["random", "given"] = "random"
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class Configuration(_Table):
    """The system and the workload of one point: every factor has its level."""

    system: System
    workload: Workload

    @property
    def clients(self) -> int:
        """Virtual clients over all load hosts."""
        return self.system.load.clients or 0

    @property
    def middlewares(self) -> int:
        """Number of middlewares, 0 when there is no such tier."""
        return _size(self.system.middleware)

    @property
    def stores(self) -> int:
        """Number of stores, 0 when they stand unnamed behind middlewares that run elsewhere."""
        return _size(self.system.store)


class Spec(_Table):
    """A whole experiment, valid at every point of its grid."""

    experiment: Experiment
    base: Configuration
    factors: dict[str, tuple[Level, ...]]
    measure: Measure
    overrides: dict[str, Any]

    def at(self, levels: Mapping[str, Level]) -> Configuration:
        """The configuration in which the named factors have these levels.

        Raises SpecError when the combination is not a valid one.
        """
        document = self.base.model_dump(exclude_unset=True)
        for name, level in levels.items():
            _put(document, field_path(name), level)
        try:
            return Configuration.model_validate(document)
        except ValidationError as error:
            raise SpecError(f"{dict(levels)}: {error}") from error

    @property
    def wants_links(self) -> bool:
        """Whether any tier asks for an emulated link rate."""
        system = self.base.system
        tiers = (system.load, system.middleware, system.store)
        return any(tier is not None and tier.link_mbit is not None for tier in tiers) or any(
            name.endswith(".link_mbit") for name in self.factors
        )


def _size(tier: Middleware | Store | None) -> int:
    if tier is None:
        return 0
    return tier.hosts if tier.address is None else len(tier.address)


def field_path(name: str) -> tuple[str, ...]:
    """Where a factor's dotted name stands in the document: `load.clients` is `system.load.clients`."""
    parts = tuple(name.split("."))
    return ("system", *parts) if parts[0] in _TIERS else parts


def factor_names() -> list[str]:
    """Every name that may stand in `[factors]`."""
    names = []
    for prefix, table in (
        ("load", Load),
        ("middleware", Middleware),
        ("store", Store),
        ("workload", Workload),
    ):
        names += [f"{prefix}.{field}" for field in table.model_fields if field not in ("address", "protocol")]
    return names


def load(file: FilePath, overrides: Sequence[str] = ()) -> Spec:
    """Read an experiment file, with `name=value` overrides laid over it.

    Raises SpecError naming every problem.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SpecError(f"{file}: cannot be read: {reason}") from error
    return parse(text, str(file), parse_overrides(overrides))


def parse(text: str, source: str, overrides: Mapping[str, Any] | None = None) -> Spec:
    """Validate the text of an experiment file; `source` is what messages call it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{source}: not valid TOML: {error}") from error
    overrides = dict(overrides or {})
    return _Reader(document, positions(text), source, overrides).read()


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """Read `--set name=value` arguments; a value that is no TOML is taken as text.

    Raises SpecError for an argument without a name or an equals sign.
    """
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"--set {assignment}: expected NAME=VALUE, for example measure.seconds=5")
        try:
            overrides[name.strip()] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            overrides[name.strip()] = value.strip()
    return overrides


class _Reader:
    """Turns a document into a Spec, collecting every problem on the way."""

    def __init__(
        self,
        document: dict[str, Any],
        lines: dict[Path, int],
        source: str,
        overrides: dict[str, Any],
    ) -> None:
        self._document = document
        self._lines = lines
        self._source = source
        self._overrides = overrides
        self._set_by: dict[Path, str] = {}
        self._problems: list[str] = []

    def read(self) -> Spec:
        self._check_tables()
        self._stop_on_problems()
        self._apply_overrides()
        self._stop_on_problems()
        factors = self._read_factors()
        experiment = self._validate(Experiment, ("experiment",), required=True)
        measure = self._validate(Measure, ("measure",))
        if measure is not None and measure.warmup_s + measure.cooldown_s >= measure.seconds:
            self._problem(
                ("measure", "seconds"),
                f"should be more than warm-up and cool-down together "
                f"({measure.warmup_s} + {measure.cooldown_s}), not {measure.seconds}",
            )
        base = self._read_configuration(factors)
        self._stop_on_problems()
        assert experiment is not None and measure is not None and base is not None
        return Spec(
            experiment=experiment,
            base=base,
            factors=factors,
            measure=measure,
            overrides=self._overrides,
        )

    def _check_tables(self) -> None:
        tables = ["experiment", "system", "workload", "factors", "measure"]
        for name, value in self._document.items():
            if name not in tables:
                self._problem((name,), "no such table" + _nearest(name, tables))
            elif not isinstance(value, dict):
                self._problem((name,), f"should be a table, not {value!r}")
        if "system" not in self._document:
            self._problem(("system",), "missing: a table with the tiers load and store")
        system = self._document.get("system")
        for name, tier in system.items() if isinstance(system, dict) else ():
            if name in _TIERS and not isinstance(tier, dict):
                self._problem(("system", name), f"should be a table, not {tier!r}")

    def _apply_overrides(self) -> None:
        """Lay the overrides over the document.

        A list makes the name a factor; a single value fixes it, even where the file has a factor.
        Shortening the file's seconds shortens its warm-up and cool-down in proportion, rounded up to
        whole seconds, unless they are overridden as well.
        """
        factors = self._document.setdefault("factors", {})
        measure = self._document.setdefault("measure", {})
        usual = Measure()
        seconds_in_file = measure.get("seconds", usual.seconds)
        known = self._override_names()
        for name, value in self._overrides.items():
            flag = f"--set {name}={value}"
            path = field_path(name.removeprefix("system.").removeprefix("factors."))
            short = ".".join(path[1:] if path[0] == "system" else path)
            if short not in known:
                self._problems.append(f"{flag}: no such name{_nearest(short, known)}")
            elif isinstance(value, list) and path[-1] != "address":
                factors[short] = value
                self._set_by[("factors", short)] = flag
            else:
                factors.pop(short, None)
                _put(self._document, path, value)
                self._set_by[path] = flag
        seconds = self._overrides.get("measure.seconds")
        if type(seconds) is int and type(seconds_in_file) is int and 0 < seconds < seconds_in_file:
            for name, default in (("warmup_s", usual.warmup_s), ("cooldown_s", usual.cooldown_s)):
                in_file = measure.get(name, default)
                if f"measure.{name}" not in self._overrides and type(in_file) is int:
                    measure[name] = math.ceil(in_file * seconds / seconds_in_file)

    @staticmethod
    def _override_names() -> list[str]:
        names = [*factor_names(), "middleware.address", "store.address"]
        names += [f"experiment.{field}" for field in Experiment.model_fields]
        return names + [f"measure.{field}" for field in Measure.model_fields]

    def _read_factors(self) -> dict[str, tuple[Level, ...]]:
        factors: dict[str, tuple[Level, ...]] = {}
        names = factor_names()
        for name, levels in self._document.get("factors", {}).items():
            path: Path = ("factors", name)
            if isinstance(levels, dict):
                self._problem(path, f'a factor\'s name has to be quoted: "{name}.…" = […]')
            elif name not in names:
                self._problem(path, "no such factor" + _nearest(name, names))
            elif not isinstance(levels, list) or not levels:
                self._problem(path, f"should be a list of at least one level, not {levels!r}")
            elif not all(isinstance(level, Level) for level in levels):
                self._problem(path, "should be a list of plain values")
            elif len({(type(level), level) for level in levels}) < len(levels):
                self._problem(path, f"should have different levels, not {levels!r}")
            elif "address" in self._tier(name.split(".")[0]):
                self._problem(path, "cannot vary: this tier already runs elsewhere (address = …)")
            else:
                factors[name] = tuple(levels)
        if math.prod(len(levels) for levels in factors.values()) > GRID_POINTS_MAX:
            self._problem(("factors",), f"should make at most {GRID_POINTS_MAX} points")
            return {}
        return factors

    def _tier(self, name: str) -> dict[str, Any]:
        tier = self._document.get("system", {}).get(name, {})
        return tier if isinstance(tier, dict) else {}

    def _read_configuration(self, factors: dict[str, tuple[Level, ...]]) -> Configuration | None:
        """Validate the first point, then each further level, then whatever depends on several fields.

        In this order a wrong level is reported once, at its own place, and not once a point.
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
            at = dict(zip(names, indices, strict=True))
            for path, message in _cross_checks(point):
                self._problem(self._origin(path, at), message)
        return base

    def _configuration(self, levels: Mapping[str, Level], blamed: Mapping[str, int]) -> Configuration | None:
        """Validate one point; problems in a blamed factor's field are put at that factor's level."""
        document = {
            "system": {
                name: dict(tier) if isinstance(tier, dict) else tier for name, tier in self._document["system"].items()
            },
            "workload": dict(self._document.get("workload", {})),
        }
        for name, level in levels.items():
            _put(document, field_path(name), level)
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

    def _report(
        self,
        error: ValidationError,
        prefix: Path,
        blamed: Mapping[str, int],
        table: type[BaseModel],
    ) -> None:
        seen = set()
        for detail in error.errors(include_url=False):
            depth = _depth(detail["loc"], prefix)
            loc: Path = (*prefix, *detail["loc"][:depth])
            # The alternatives of a union each report; what they say together is one problem.
            if loc in seen:
                continue
            seen.add(loc)
            self._problem(self._origin(loc, blamed), _expectation(dict(detail), table))

    def _problem(self, path: Path, message: str) -> None:
        where = self._where(path)
        name = ".".join(str(part) for part in path if not isinstance(part, int))
        for prefix in ("factors.", "system."):
            name = name.removeprefix(prefix)
        text = f"{where}: {name}: {message}"
        if text not in self._problems:
            self._problems.append(text)

    def _where(self, path: Path) -> str:
        for length in range(len(path), 0, -1):
            if flag := self._set_by.get(path[:length]):
                return flag
            if line := self._lines.get(path[:length]):
                return f"{self._source}:{line}"
        return self._source

    def _stop_on_problems(self) -> None:
        if self._problems:
            raise SpecError("\n".join(self._problems))


def _put(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        document = document.setdefault(part, {})
    document[path[-1]] = value


def _depth(loc: tuple[int | str, ...], prefix: Path) -> int:
    """How much of pydantic's location is the document's own: unions append the alternative's name."""
    return min(len(loc), (1 if prefix else 3 if loc[0] == "system" else 2))


def _nearest(word: str, known: Iterable[str]) -> str:
    """“; did you mean …?” for the nearest right spelling, or what there is to choose from."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    return "; there are: " + ", ".join(known) if len(known) <= 16 else ""


_EXPECTED: dict[tuple[str, str], str] = {
    ("experiment", "name"): "letters, digits, dots, dashes and underscores, at most 100",
    ("workload", "set_get"): 'sets to gets, such as "1:9"',
    ("workload", "value_bytes"): 'bytes (1 to 1000000), "uniform:LOW:HIGH" or "exponential:MEAN"',
    (
        "workload",
        "key_choice",
    ): '"sequential", "uniform", "zipf:THETA" or "hotset:SHARE:PROBABILITY"',
    ("middleware", "address"): 'a list of "HOST:PORT"',
    ("store", "address"): 'a list of "HOST:PORT"',
}


def _expectation(detail: dict[str, Any], table: type[BaseModel]) -> str:
    """What pydantic found wrong, in the words of the experiment file."""
    loc = [part for part in detail["loc"] if isinstance(part, str)]
    if detail["type"] == "missing":
        return "missing"
    if detail["type"] == "extra_forbidden":
        return "no such field" + _nearest(loc[-1], _fields(table, loc[:-1]))
    names = [table.__name__.lower(), *loc]
    for place, expected in _EXPECTED.items():
        if any(tuple(names[i : i + 2]) == place for i in range(len(names) - 1)):
            return f"should be {expected}, not {detail['input']!r}"
    message = detail["msg"].replace("Input should be", "should be")
    if detail["type"] == "literal_error" and isinstance(detail["input"], str):
        choices = [choice.strip("'") for choice in detail["ctx"]["expected"].split(" or ")]
        choices = [part.strip("' ") for choice in choices for part in choice.split(",")]
        near = difflib.get_close_matches(detail["input"], choices, n=1)
        return f"{message}, not {detail['input']!r}" + (f'; did you mean "{near[0]}"?' if near else "")
    return f"{message}, not {detail['input']!r}"


def _fields(table: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The fields of the table that stands at a path below another one."""
    tables: dict[str, type[BaseModel]] = {
        "system": System,
        "workload": Workload,
        "load": Load,
        "middleware": Middleware,
        "store": Store,
    }
    return list((tables[path[-1]] if path else table).model_fields)


def _cross_checks(point: Configuration) -> Iterator[tuple[Path, str]]:
    """What has to hold between fields, at one point of the grid."""
    system, workload = point.system, point.workload
    load, middleware, store = system.load, system.middleware, system.store
    clients: Path = ("system", "load", "clients")
    if load.clients is None:
        yield clients, "missing: give it here or as a factor"
    elif load.clients < load.hosts:
        yield clients, f"should be at least one per load host ({load.hosts}), not {load.clients}"
    elif load.clients % load.hosts:
        yield (
            clients,
            f"should divide evenly over {load.hosts} load hosts, not {load.clients}; "
            f"the nearest that do are {_multiples_near(load.clients, load.hosts)}",
        )
    if middleware is not None:
        yield from _check_middleware(middleware)
        yield from _check_address(("system", "middleware"), middleware)
    if store is None and (middleware is None or middleware.address is None):
        yield ("system", "store"), "missing: there has to be a store"
    if store is not None and store.address is None and middleware is not None and middleware.address is not None:
        yield (
            ("system", "store"),
            "cannot be started here when its middlewares already run elsewhere: give its address, or leave it out",
        )
    if store is not None:
        yield from _check_address(("system", "store"), store)
    yield from _check_workload(workload)


def _check_middleware(middleware: Middleware) -> Iterator[tuple[Path, str]]:
    workers: Path = ("system", "middleware", "workers")
    if middleware.pipelined and middleware.workers is not None:
        yield workers, "cannot be given together with pipelined = true"
    elif not middleware.pipelined and middleware.workers is None and middleware.address is None:
        yield workers, "missing: give workers = N, or pipelined = true"


def _check_address(path: Path, tier: Middleware | Store) -> Iterator[tuple[Path, str]]:
    if tier.address is None:
        return
    if "hosts" in tier.model_fields_set and tier.hosts != len(tier.address):
        yield (
            (*path, "address"),
            f"should name hosts = {tier.hosts} addresses, not {len(tier.address)}",
        )
    for address in tier.address:
        if not 0 < int(address.rpartition(":")[2]) < 65_536:
            yield (*path, "address"), f"should have ports from 1 to 65535, not {address!r}"


def _check_workload(workload: Workload) -> Iterator[tuple[Path, str]]:
    if not any(int(part) for part in workload.set_get.split(":")):
        yield ("workload", "set_get"), 'should ask for something, not "0:0"'
    if workload.rate is not None and workload.think_ms:
        yield ("workload", "think_ms"), "cannot be given together with rate: an open loop has none"
    kind, _, rest = str(workload.value_bytes).partition(":")
    try:
        numbers = [float(part) for part in rest.split(":")] if rest else []
    except ValueError:
        numbers = [0.0]
    if rest and (min(numbers) < 1 or max(numbers) > 1_000_000):
        yield (
            ("workload", "value_bytes"),
            f"should lie within 1 and 1000000 bytes, not {workload.value_bytes!r}",
        )
    elif kind == "uniform" and numbers[0] > numbers[1]:
        yield ("workload", "value_bytes"), f"should be LOW:HIGH, not {workload.value_bytes!r}"
    yield from _check_key_choice(workload.key_choice)


def _check_key_choice(choice: str) -> Iterator[tuple[Path, str]]:
    _, _, rest = choice.partition(":")
    try:
        numbers = [float(part) for part in rest.split(":")] if rest else []
    except ValueError:
        yield ("workload", "key_choice"), f"should have plain numbers, not {choice!r}"
        return
    if choice.startswith("hotset") and not all(0 < number <= 1 for number in numbers):
        yield ("workload", "key_choice"), f"should have shares within 0 and 1, not {choice!r}"


def _multiples_near(clients: int, hosts: int) -> str:
    below = clients - clients % hosts
    return f"{below} and {below + hosts}" if below else str(hosts)
