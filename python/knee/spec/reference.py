"""The keys of an experiment file, from the tables' fields and docstrings: a page for people, a schema for editors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from knee.spec.expectations import EXPECTED
from knee.spec.tables import (
    AUTO,
    CLIENTS,
    OF_SYSTEM,
    Experiment,
    Graph,
    Load,
    Measure,
    Middleware,
    Store,
    System,
    Table,
    Thresholds,
    Workload,
    factor_names,
    field_path,
)

SECTIONS: dict[str, type[Table]] = {
    "experiment": Experiment,
    "system": System,
    "system.load": Load,
    "system.middleware": Middleware,
    "system.store": Store,
    "workload": Workload,
    "workload.graph": Graph,
    "measure": Measure,
    "thresholds": Thresholds,
}
_BY_NAME = {table.__name__: table for table in SECTIONS.values()}
_TIERS = (Load, Middleware, Store)
_TABLES = ("experiment", "system", "workload", "measure", "thresholds")
_UNITS = {
    "_ms": "ms",
    "_s": "s",
    "seconds": "s",
    "_bytes": "bytes",
    "_mb": "MiB",
    "_mbit": "Mbit/s",
    "rate": "requests/s",
    "throughput": "requests/s",
}
"""The units of keys by the end of their names."""

_LINE = re.compile(r"(\w+) +(\S.*)")

_HEAD = """\
# The keys of an experiment file

`knee schema --markdown` makes this page from the program. `knee schema` prints a JSON Schema of the same keys, for
editors. A key without a default may be left out, unless it is required. `[factors]` varies keys: each of its keys is a
name such as `"load.clients"` or `"workload.value_bytes"`, and each value a list of levels. With
`"load.clients" = "auto"`, [Knee chooses the levels](tutorial.md#let-knee-choose-the-clients) of the clients.
"""


def meanings(table: type[Table]) -> dict[str, str]:
    """The meaning of each key of a table, from the table's docstring; a tier also has the keys of all tiers."""
    found = {name: text for part in _parts(table) if isinstance(part, dict) for name, text in part.items()}
    if table not in _TIERS:
        return found
    return {**{name: text for name, text in meanings(System).items() if name not in OF_SYSTEM}, **found}


def markdown() -> str:
    """The page of all keys."""
    lines = [_HEAD]
    for section, table in SECTIONS.items():
        lines.append(f"## `[{section}]`\n")
        for part in _parts(table):
            if isinstance(part, str):
                lines.append(f"{part}\n")
                continue
            lines += ["| key | values | unit | default | meaning |", "|---|---|---|---|---|"]
            owner = Load if table is System and OF_SYSTEM[0] not in part else table
            lines += [_row(owner, name, text) for name, text in part.items()]
            lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) of experiment files. It does not check which keys go together."""
    levels = {
        name: _or_auto(name, {"type": "array", "minItems": 1, "uniqueItems": True, "items": _property(*_field(name))})
        for name in factor_names()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An experiment of Knee",
        "type": "object",
        "additionalProperties": False,
        "required": ["experiment", "system"],
        "properties": {
            **{name: _object(SECTIONS[name]) for name in _TABLES},
            "factors": {"type": "object", "additionalProperties": False, "properties": levels},
        },
    }


def _parts(table: type[Table]) -> Iterator[str | dict[str, str]]:
    """The paragraphs of a table's docstring: text, or keys with their meanings."""
    fields = {*table.model_fields, *(Load.model_fields if table is System else ())}
    for paragraph in inspect.cleandoc(table.__doc__ or "").split("\n\n"):
        keys: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if (found := _LINE.fullmatch(line)) and found[1] in fields:
                name = found[1]
                keys[name] = found[2]
            elif name:
                keys[name] += f" {line.strip()}"
        yield keys or paragraph


def _row(table: type[Table], name: str, meaning: str) -> str:
    field = table.model_fields[name]
    default = "required" if field.is_required() else "" if field.default is None else f"`{_toml(field.default)}`"
    values = f"the table below, `[workload.{name}]`" if name == "graph" else _values(table, name)
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    return f"| `{name}` | {values} | {unit} | {default} | {meaning} |".replace("|  |", "| |").replace("|  |", "| |")


def _values(table: type[Table], name: str) -> str:
    if known := EXPECTED.get((table.__name__.lower(), name)):
        return known
    found = _property(table, name)
    kinds = [_kind(each) for each in found.get("anyOf", [found])]
    return " or ".join(kinds)


def _kind(found: dict[str, Any]) -> str:
    if "enum" in found:
        return ", ".join(f"`{_toml(each)}`" for each in found["enum"])
    if found["type"] == "boolean":
        return "`true`, `false`"
    if found["type"] == "string":
        return "text"
    whole = "" if found["type"] == "number" else "whole, "
    least = f"above {found['exclusiveMinimum']:g}" if "exclusiveMinimum" in found else _toml(found["minimum"])
    # Only the seed's limit is exclusive: the largest signed number of 64 bits.
    most = "2⁶³ − 1" if "exclusiveMaximum" in found else _toml(found["maximum"]) if "maximum" in found else ""
    return f"{whole}{least}{f' to {most}' if most else ''}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:,.15g}"


def _field(factor: str) -> tuple[type[Table], str]:
    """The table and the key of a factor's name."""
    *path, name = field_path(factor)
    return SECTIONS[".".join(path)], name


def _object(table: type[Table]) -> dict[str, Any]:
    required = [name for name, field in table.model_fields.items() if field.is_required()]
    tier = f"{table.__name__.lower()}."
    return {
        "description": next(part for part in _parts(table) if isinstance(part, str)).replace("\n", " "),
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {name: _or_auto(tier + name, _property(table, name)) for name in table.model_fields},
    }


def _or_auto(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """A schema that also accepts the text for clients that short runs choose."""
    return {"anyOf": [found, {"const": AUTO}]} if name == CLIENTS else found


def _property(table: type[Table], name: str) -> dict[str, Any]:
    """A key's schema. TOML has no null: a key without a value is left out."""
    found = dict(_properties(table)[name])
    found.pop("title", None)
    if found.get("default", 0) is None:
        del found["default"]
    kinds = [kind for kind in found.pop("anyOf", []) if kind != {"type": "null"}]
    found |= {"anyOf": kinds} if len(kinds) > 1 else kinds[0] if kinds else {}
    if "$ref" in found:
        return _object(_BY_NAME[found["$ref"].rpartition("/")[2]])
    return {"description": meanings(table)[name], **found}


@cache
def _properties(table: type[Table]) -> dict[str, dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = table.model_json_schema()["properties"]
    return properties
