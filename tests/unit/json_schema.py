"""Checks a value against the part of JSON Schema (2020-12) that Knee's schemas use; any other keyword is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANSWERS = json.loads((Path(__file__).resolve().parents[2] / "docs" / "answers.schema.json").read_text())
"""The published schema of the commands' answers."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
_WORDS = {"$schema", "$defs", "title", "description", "default"}


def violations(value: Any, schema: dict[str, Any] | bool, root: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Each violation of a schema, with the path of the value. `root` has the definitions."""
    if isinstance(schema, bool):
        if not schema:
            yield f"{path}: not allowed"
        return
    for keyword, wanted in schema.items():
        match keyword:
            case "$ref":
                yield from violations(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, path)
            case "type":
                kinds = _TYPES[wanted]
                if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                    yield f"{path}: {value!r} is no {wanted}"
            case "anyOf":
                if all(any(violations(value, each, root)) for each in wanted):
                    yield f"{path}: {value!r} is none of {len(wanted)} alternatives"
            case "enum" | "const":
                if value not in (wanted if keyword == "enum" else [wanted]):
                    yield f"{path}: {value!r} is not {wanted}"
            case "required":
                yield from (
                    f"{path}.{name}: missing" for name in wanted if isinstance(value, dict) and name not in value
                )
            case "properties":
                for name in wanted.keys() & value.keys() if isinstance(value, dict) else ():
                    yield from violations(value[name], wanted[name], root, f"{path}.{name}")
            case "additionalProperties":
                for name in value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else ():
                    yield from violations(value[name], wanted, root, f"{path}.{name}")
            case "items":
                for number, each in enumerate(
                    value[len(schema.get("prefixItems", [])) :] if isinstance(value, list) else ()
                ):
                    yield from violations(each, wanted, root, f"{path}[{number}]")
            case "prefixItems":
                for number, (each, its) in enumerate(
                    zip(value if isinstance(value, list) else (), wanted, strict=False)
                ):
                    yield from violations(each, its, root, f"{path}[{number}]")
            case "uniqueItems":
                if isinstance(value, list) and len({repr(each) for each in value}) < len(value):
                    yield f"{path}: has equal items"
            case "pattern":
                if isinstance(value, str) and not re.search(wanted, value):
                    yield f"{path}: {value!r} does not match {wanted}"
            case _ if keyword in _LIMITS:
                if isinstance(value, _LIMITED[keyword]) and not _LIMITS[keyword](value, wanted):
                    yield f"{path}: {value!r}: {keyword} {wanted}"
            case _:
                assert keyword in _WORDS, f"{path}: unknown keyword {keyword}"


_LIMITS = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
}
_LIMITED = {name: (list,) if name.endswith("Items") else (int, float) for name in _LIMITS}


def answered(command: str, text: str) -> Any:
    """The answer of a command, which keeps the published schema and has no field beside it."""
    answer = json.loads(text)
    assert list(violations(answer, _STRICT["$defs"][f"knee {command}"], _STRICT)) == []
    return answer


def _strict(part: Any) -> Any:
    """The schema that refuses further fields."""
    if isinstance(part, list):
        return [_strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _strict(value) for name, value in part.items()}
    return {**found, "additionalProperties": False} if isinstance(part.get("properties"), dict) else found


_STRICT = _strict(ANSWERS)
