"""The text of a new experiment file, with a comment on every key. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from knee.errors import SpecError
from knee.spec import reference
from knee.spec.reader import parse
from knee.spec.tables import AUTO, CLIENTS

_COLUMN, _WIDTH = 24, 120
"""Column of the comments, and the width from which a comment ends at its first semicolon or full stop."""


@dataclass(frozen=True)
class Kind:
    """A kind of system: what is measured, in words, its tables, and what a user may add, as lines of comment. `load` is
    the table of another load generator."""

    about: str
    tables: Mapping[str, Mapping[str, Any]]
    more: Mapping[str, tuple[str, ...]]
    load: Mapping[str, Any] | None = None

    @property
    def has_middleware(self) -> bool:
        return "system.middleware" in self.tables


_CACHE = {"set_get": "1:9", "value_bytes": 1024, "keys": 10_000}
_MEMCACHED = {
    "system.middleware": ("multiget",),
    "system.store": ("address",),
    "workload": ("multiget", "ttl_s"),
}
_QUEUE = {"protocol": "queue", "loop": "send-list-read-remove", "characters": 200}

KINDS = {
    "memcached": Kind(
        "memcached behind a middleware",
        {"system.middleware": {"hosts": 1}, "system.store": {"kind": "memcached", "hosts": 1}, "workload": _CACHE},
        _MEMCACHED,
    ),
    "cache": Kind(
        "Knee's own cache behind a middleware",
        {"system.middleware": {"hosts": 1}, "system.store": {"kind": "knee-kv", "hosts": 1}, "workload": _CACHE},
        _MEMCACHED,
    ),
    "kv": Kind(
        "Knee's store that keeps versions",
        {
            "system.store": {"kind": "knee-kv", "hosts": 1, "durability": "memory"},
            "workload": {"protocol": "kv", "mix": "read:90,put:10", "value_bytes": 1024, "keys": 10_000},
        },
        {"system.store": ("consistency", "history_s"), "workload": ("own_keys", "ttl_s")},
    ),
    "queue": Kind(
        "the message queue over SQLite",
        {"system.middleware": {"hosts": 1}, "system.store": {"kind": "sqlite"}, "workload": _QUEUE},
        {"system.store": ("durability",), "workload": ("receivers",)},
    ),
    "postgresql": Kind(
        "the message queue over PostgreSQL",
        {"system.middleware": {"hosts": 1}, "system.store": {"kind": "postgresql"}, "workload": _QUEUE},
        {
            "system.middleware": ("connections", "combine"),
            "system.store": ("durability", "cpus"),
            "workload": ("receivers", "backlog"),
        },
    ),
    "nginx": Kind(
        "nginx with wrk",
        {"system.store": {"kind": "nginx", "threads": 1}, "workload": {"value_bytes": 1024}},
        {"system.load": ("threads",)},
        {"kind": "wrk"},
    ),
    "redis": Kind(
        "Redis with redis-benchmark",
        {"system.store": {"kind": "redis"}, "workload": {"set_get": "0:1", "value_bytes": 1024, "keys": 10_000}},
        {"system.load": ("threads",), "system.store": ("threads", "durability")},
        {"kind": "redis-benchmark"},
    ),
    "command": Kind(
        "a system of yours",
        {"system": {}},
        {"system": ("command", "watch")},
        {"command": "wrk -t1 -c{clients} -d{seconds}s --latency http://127.0.0.1:8080/"},
    ),
}
"""The kinds of systems by name."""

_EXAMPLES = {
    "address": ["10.0.0.5:11211"],
    "command": "./server --port 8080",
    "watch": ["port:8080"],
    "connections": 4,
    "consistency": "sequential",
    "cpus": 1,
    "history_s": 60,
    "p99_ms": 5,
    "throughput": 1000,
    "error_share": 0.001,
    "ttl_s": 60,
    "durability": "always",
}
"""Values of keys without a default, for lines of comment."""


def draft(name: str, kind: Kind, clients: Sequence[int] | None, workers: Sequence[int], seconds: int) -> str:
    """The text of an experiment over the numbers of clients, and over the workers if there are several. Short runs
    choose the numbers of clients if there are none.

    Raises SpecError, with a line for each wrong value.
    """
    middleware = {**kind.tables.get("system.middleware", {})}
    factors: dict[str, Any] = {CLIENTS: AUTO if clients is None else [*clients]}
    if kind.has_middleware and len(workers) == 1:
        middleware["workers"] = workers[0]
    elif kind.has_middleware:
        factors["middleware.workers"] = [*workers]
    margin_s = min(2, (seconds - 1) // 2)
    thinking = {"think_ms": 2, "think": "exponential"} if kind.load is None else {}
    trims = {"warmup_s": margin_s, "cooldown_s": margin_s} if kind.load is None else {}
    tables: dict[str, Mapping[str, Any]] = {
        "experiment": {"name": name, "question": f"How many clients until {kind.about} is saturated?"},
        **{name: table for name, table in kind.tables.items() if name == "system"},
        "system.load": kind.load or {"hosts": 1},
        **({"system.middleware": middleware} if middleware else {}),
        **{name: table for name, table in kind.tables.items() if name == "system.store"},
        **{name: {**table, **thinking} for name, table in kind.tables.items() if name == "workload"},
        "factors": factors,
        "measure": {"repetitions": 3, "seconds": seconds, **trims},
        "thresholds": {},
    }
    usual = {"thresholds": ("throughput", "p99_ms", "error_share"), "measure": ("order",) if kind.load else ()}
    more = {**({} if kind.load else {"system.load": ("threads",)}), **kind.more, **usual}
    lines = [f"# {kind.about[0].upper()}{kind.about[1:]}. `knee schema --markdown` lists every key."]
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        lines += [_line(table, key, value) for key, value in values.items()]
        lines += [f"# {_line(table, key, _example(table, key))}" for key in more.get(table, ())]
    text = "\n".join(lines) + "\n"
    try:
        parse(text, "init")
    except SpecError as error:
        raise SpecError("\n".join(line.split(": ", 1)[1] for line in str(error).splitlines())) from None
    return text


def _line(table: str, key: str, value: object) -> str:
    if table == "factors":
        return f"{json.dumps(key)} = {json.dumps(value)}"
    pair = f"{key} = {json.dumps(value)}"
    if key == "question":
        return pair
    line = f"{pair:<{_COLUMN}}  # {reference.meanings(reference.SECTIONS[table])[key]}"
    return line if len(line) <= _WIDTH else re.split(r";|\. ", line, maxsplit=1)[0]


def _example(table: str, key: str) -> object:
    return _EXAMPLES.get(key, reference.SECTIONS[table].model_fields[key].default)
