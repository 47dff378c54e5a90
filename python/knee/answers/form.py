"""The JSON of answers, and its schema."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from knee.answers.check import Checked
from knee.answers.compare import Comparison
from knee.answers.diagnose import Diagnosis
from knee.answers.factorial import Factorial
from knee.answers.find import Found
from knee.answers.laws import Laws
from knee.answers.links import Links
from knee.answers.machine import Machine
from knee.answers.predict import Predictions

ANSWERS: Mapping[str, Any] = {
    "check": Checked,
    "compare": tuple[Comparison, ...],
    "diagnose": Diagnosis,
    "factorial": Factorial,
    "find": Found,
    "hosts check": Links,
    "laws": Laws,
    "machine": Machine,
    "predict": Predictions,
    "report": Diagnosis,
    "run": Diagnosis,
}
"""The type of the answer of each command."""


def render(command: str, answer: object) -> str:
    """The JSON of an answer. Numbers that are not finite are null."""
    return _adapter(command).dump_json(answer, indent=2).decode()


def schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) with a definition for the answer of each command, such as `knee diagnose`."""
    answers, whole = TypeAdapter.json_schemas([(name, "serialization", _adapter(name)) for name in ANSWERS])
    commands = {f"knee {name}": answer for (name, _), answer in answers.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The answers of Knee's commands",
        "description": "Numbers that are unknown are null. Later versions may add fields.",
        "$defs": _plain({**commands, **whole["$defs"]}),
    }


def _plain(part: Any) -> Any:
    """The schema with null for unknown numbers, all fields required, and without pydantic's titles."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        return {"anyOf": [{"type": "number"}, {"type": "null"}]}
    found = {name: _plain(value) for name, value in part.items() if name not in ("title", "default", "required")}
    if isinstance(part.get("properties"), dict):
        found["properties"] = {name: _plain(value) for name, value in part["properties"].items()}
        given, fields = part.get("required", []), part["properties"]
        found["required"] = [name for name in fields if name in given or "default" in fields[name]]
    if isinstance(part.get("description"), str):
        found["description"] = inspect.cleandoc(part["description"])
    return found


@cache
def _adapter(command: str) -> TypeAdapter[Any]:
    return TypeAdapter(ANSWERS[command])
