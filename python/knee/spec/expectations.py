"""Converts pydantic's errors to messages in terms of the experiment file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from knee.spec.positions import Path
from knee.spec.tables import OPERATIONS, Graph, Load, Middleware, Store, System, Workload


def depth(loc: tuple[int | str, ...], prefix: Path) -> int:
    """Length of the part of pydantic's location that is a path in the document; unions append the alternative's
    name."""
    nested = loc[0] == "system" or tuple(loc[:2]) == ("workload", "graph")
    return min(len(loc), (1 if prefix else 3 if nested else 2))


def nearest(word: str, known: Iterable[str]) -> str:
    """“; did you mean …?” with the nearest right spelling, or a short list of all."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    return "; there are: " + ", ".join(known) if len(known) <= 16 else ""


_NOT_REPEATED = ("address", "user", "database")
"""Fields whose wrong values no message repeats, because they may contain a password."""

EXPECTED: dict[tuple[str, str], str] = {
    ("experiment", "name"): "letters, digits, dots, dashes and underscores, at most 100",
    ("system", "watch"): 'a list such as ["port:6379", "unit:redis", "redis://127.0.0.1:6379"]',
    ("workload", "set_get"): 'sets to gets, such as "1:9"',
    ("workload", "value_bytes"): 'bytes (1 to 1000000), "uniform:LOW:HIGH" or "exponential:MEAN"',
    ("workload", "key_choice"): '"sequential", "uniform", "zipf:THETA" or "hotset:SHARE:PROBABILITY"',
    ("workload", "mix"): f'operations and weights, such as "read:90,put:10"; operations are {", ".join(OPERATIONS)}',
    ("middleware", "address"): 'a list of "HOST:PORT"',
    ("store", "durability"): '"memory", "always", "interval:MS" or "none"',
    ("store", "history_s"): 'seconds, or "all"',
    ("store", "batch_max"): 'commits from 1 to 1000000, or "all"',
    ("store", "address"): 'a list of "HOST:PORT"; a database\'s user is store.user, its name store.database',
    ("store", "user"): "letters, digits, dots, dashes and underscores, at most 63; a password belongs in ~/.pgpass",
    ("store", "database"): "letters, digits, dots, dashes and underscores, at most 63",
}
"""Values of fields in words, by table and field, for fields whose limits pydantic does not put in words."""


def expectation(detail: dict[str, Any], table: type[BaseModel]) -> str:
    """The message for one pydantic error, in terms of the experiment file."""
    loc = [part for part in detail["loc"] if isinstance(part, str)]
    if detail["type"] == "missing":
        return "missing"
    if detail["type"] == "extra_forbidden":
        return "no such field" + nearest(loc[-1], _fields(table, loc[:-1]))
    names = [table.__name__.lower(), *loc]
    for place, expected in EXPECTED.items():
        if any(tuple(names[i : i + 2]) == place for i in range(len(names) - 1)):
            return f"should be {expected}{but_is(loc, detail['input'])}"
    message = str(detail["msg"]).replace("Input should be", "should be")
    if detail["type"] == "literal_error" and isinstance(detail["input"], str):
        choices = [choice.strip("'") for choice in detail["ctx"]["expected"].split(" or ")]
        choices = [part.strip("' ") for choice in choices for part in choice.split(",")]
        near = difflib.get_close_matches(detail["input"], choices, n=1)
        return message + but_is(loc, detail["input"]) + (f'; did you mean "{near[0]}"?' if near else "")
    return message + but_is(loc, detail["input"])


def but_is(path: Iterable[str | int], value: object) -> str:
    """“, not …” with the value, unless no message may repeat it."""
    return "" if any(part in _NOT_REPEATED for part in path) else f", not {value!r}"


def _fields(table: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The fields of the table at a path below another one."""
    tables: dict[str, type[BaseModel]] = {
        "system": System,
        "workload": Workload,
        "graph": Graph,
        "load": Load,
        "middleware": Middleware,
        "store": Store,
    }
    return list((tables[path[-1]] if path else table).model_fields)
